//! The cost of the translate lane for each delta of a reply: reader, relay (fold, envelopes,
//! ledger, vault) and writer. It measures every pair of dialects, and next to each the cost of
//! reader and writer alone.
//!
//! A reply has ten thousand deltas, so the fourth decimal of an allocation count is one per delta.

#[path = "../../codec/benches/shared/reply.rs"]
mod reply;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use throughline_canonical::{Block, Message, Request, Role};
use throughline_codec::dialects::{
    CLIENT, ClientDialect, ReplyIdentity, Target, UPSTREAM, UpstreamDialect,
};
use throughline_gateway::catalog::Catalog;
use throughline_gateway::gateway::{Gateway, Stores};
use throughline_gateway::route::Routes;
use throughline_gateway::settings::{Limits, Policy, Settings, Thinking, ToolThinking, Unknown};
use throughline_gateway::thinking::store::{InMemory, Snapshot};
use throughline_gateway::thinking::vault::store::InMemoryVault;
use throughline_gateway::translated_stream::TranslatedStream;
use throughline_sealing::Keyring;
use tokio::runtime::Runtime;

use reply::events;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

/// The same number in thinking, text and arguments.
const DELTAS: usize = 10_000;
/// The size of one write if the provider is ahead of its client.
const WRITE: usize = 16 << 10;

fn main() {
    divan::main();
}

/// The request that the reply answers.
fn request() -> Request {
    Request {
        model: "m".to_owned(),
        stream: true,
        messages: vec![Message::new(Role::User, vec![Block::text("Which row?")])],
        ..Request::default()
    }
}

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("0123456789abcdef", 1_800_000_000)
}

/// A pair of dialects, and a reply in the provider's dialect.
struct Pair {
    client: &'static dyn ClientDialect,
    upstream: &'static dyn UpstreamDialect,
    reply: Bytes,
}

fn pairs() -> Vec<String> {
    let upstreams = UPSTREAM.iter().map(|upstream| upstream.name());
    upstreams
        .flat_map(|upstream| {
            let clients = CLIENT.iter().map(|client| client.name());
            clients.map(move |client| format!("{upstream} to {client}"))
        })
        .collect()
}

impl Pair {
    fn named(name: &str, deltas: usize) -> Self {
        let (from, to) = name.split_once(" to ").unwrap_or_default();
        let upstream = UPSTREAM.iter().find(|upstream| upstream.name() == from);
        let own = CLIENT.iter().find(|own| own.name() == from);
        let client = CLIENT.iter().find(|client| client.name() == to);
        let (Some(upstream), Some(own), Some(client)) = (upstream, own, client) else {
            panic!("no pair `{name}`");
        };
        let mut writer = own.session().reply_writer(&request(), &identity());
        let mut reply = Vec::new();
        for event in events(deltas) {
            writer.push(&event, &mut reply);
        }
        Self { client: *client, upstream: *upstream, reply: reply.into() }
    }

    /// The reply in pieces of one event.
    fn one_by_one(&self) -> Vec<Bytes> {
        let mut pieces = Vec::new();
        let mut from = 0;
        // Events end in an empty line. If a reply has no empty lines, every line is an event.
        let end: &[u8] = match memchr::memmem::find(&self.reply, b"\n\n") {
            Some(_) => b"\n\n",
            None => b"\n",
        };
        for at in 1..self.reply.len() {
            if self.reply.slice(..=at).ends_with(end) {
                pieces.push(self.reply.slice(from..=at));
                from = at + 1;
            }
        }
        pieces.push(self.reply.slice(from..));
        pieces.retain(|piece| !piece.is_empty());
        pieces
    }

    /// The reply in large pieces, as it arrives if the reader is slow.
    fn at_once(&self) -> Vec<Bytes> {
        let starts = (0..self.reply.len()).step_by(WRITE);
        starts.map(|at| self.reply.slice(at..self.reply.len().min(at + WRITE))).collect()
    }

    /// Measures the whole lane.
    fn lane(&self, bencher: Bencher<'_, '_>, deltas: usize, pieces: &[Bytes]) {
        let test = TestGateway::new();
        bencher
            .counter(ItemsCount::new(deltas))
            .with_inputs(|| {
                TranslatedStream::new(&test.gateway, self.client, self.upstream, &request())
            })
            .bench_local_refs(|stream| {
                let mut written = 0;
                for piece in pieces {
                    written += black_box(stream.take(piece.clone())).len();
                }
                written + stream.end().len()
            });
    }

    /// Measures reader and writer alone.
    fn codec(&self, bencher: Bencher<'_, '_>, deltas: usize, pieces: &[Bytes]) {
        let target = Target { model: "m", profile: self.upstream.profile("") };
        let mut out = Vec::with_capacity(1 << 20);
        bencher.counter(ItemsCount::new(deltas)).bench_local(|| {
            let mut reader = self.upstream.reply_reader(&target, true);
            let mut writer = self.client.session().reply_writer(&request(), &identity());
            let mut written = 0;
            for piece in pieces {
                out.clear();
                reader.push(piece, &mut |event| writer.push(&event, &mut out));
                written += black_box(&out).len();
            }
            out.clear();
            reader.finish(&mut |event| writer.push(&event, &mut out));
            written + out.len()
        });
    }
}

/// A gateway with in-memory stores.
struct TestGateway {
    gateway: Gateway,
    /// Writes to the stores in the background.
    _runtime: Runtime,
}

impl TestGateway {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_time()
            .build()
            .expect("a runtime");
        let entered = runtime.enter();
        let stores = Stores {
            memory: Arc::new(InMemory::default()),
            vault: Arc::new(InMemoryVault::default()),
        };
        let settings = Settings {
            backends: Vec::new(),
            routes: Routes::default(),
            catalog: Arc::new(Catalog::embedded()),
            thinking: Thinking {
                policy: Policy::Origin,
                unknown: Unknown::Try,
                orphan_threshold: Duration::from_secs(300),
                memory_limit: 64 << 20,
                tool_thinking: ToolThinking::Auto,
            },
            reasoning_fields: vec!["reasoning".to_owned(), "reasoning_content".to_owned()],
            limits: Limits { body: 1 << 20, json_depth: 128, streams: 1 },
            keep_alive: Duration::from_secs(15),
            full_body: false,
            pretty_print: false,
        };
        let gateway =
            Gateway::new(settings, Snapshot::default(), stores, Arc::new(Keyring::new([7; 32])));
        drop(entered);
        Self { gateway, _runtime: runtime }
    }
}

#[divan::bench(args = pairs())]
fn lane_one_event_a_write(bencher: Bencher<'_, '_>, name: &str) {
    let pair = Pair::named(name, DELTAS);
    pair.lane(bencher, DELTAS, &pair.one_by_one());
}

#[divan::bench(args = pairs())]
fn codec_one_event_a_write(bencher: Bencher<'_, '_>, name: &str) {
    let pair = Pair::named(name, DELTAS);
    pair.codec(bencher, DELTAS, &pair.one_by_one());
}

#[divan::bench(args = pairs())]
fn lane_16_kb_a_write(bencher: Bencher<'_, '_>, name: &str) {
    let pair = Pair::named(name, DELTAS);
    pair.lane(bencher, DELTAS, &pair.at_once());
}

#[divan::bench(args = pairs())]
fn codec_16_kb_a_write(bencher: Bencher<'_, '_>, name: &str) {
    let pair = Pair::named(name, DELTAS);
    pair.codec(bencher, DELTAS, &pair.at_once());
}

/// The cost of a delta does not grow with the reply.
#[divan::bench(args = [1_000, 10_000, 100_000])]
fn lane_by_length(bencher: Bencher<'_, '_>, deltas: usize) {
    let pair = Pair::named("anthropic to openai_chat", deltas);
    pair.lane(bencher, deltas, &pair.one_by_one());
}
