//! The cost of translating each delta of a reply from one dialect to another: reading it in the
//! provider's dialect and writing it in the client's. For every pair of dialects.

#[path = "shared/reply.rs"]
mod reply;

use std::hint::black_box;

use divan::counter::ItemsCount;
use divan::{AllocProfiler, Bencher};
use throughline_canonical::{Event, Request};
use throughline_codec::dialects::{
    CLIENT, ClientDialect, ReplyIdentity, Target, UPSTREAM, UpstreamDialect,
};

use reply::events;

#[global_allocator]
static ALLOCATIONS: AllocProfiler = AllocProfiler::system();

/// The same number for thinking, text and arguments.
const DELTAS: usize = 10_000;

fn main() {
    divan::main();
}

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("0123456789abcdef", 1_800_000_000)
}

fn write(client: &dyn ClientDialect, events: &[Event<'_>]) -> Vec<u8> {
    let mut writer = client.session().reply_writer(&Request::default(), &identity());
    let mut bytes = Vec::new();
    for event in events {
        writer.push(event, &mut bytes);
    }
    bytes
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

/// Finds a pair by its name.
fn pair(name: &str) -> (&'static dyn UpstreamDialect, &'static dyn ClientDialect) {
    let (from, to) = name.split_once(" to ").unwrap_or_default();
    let upstream = UPSTREAM.iter().find(|upstream| upstream.name() == from);
    let client = CLIENT.iter().find(|client| client.name() == to);
    match (upstream, client) {
        (Some(upstream), Some(client)) => (*upstream, *client),
        _ => panic!("no pair `{name}`"),
    }
}

/// Each reply arrives in reads of 4 KB.
#[divan::bench(args = pairs())]
fn across(bencher: Bencher<'_, '_>, name: &str) {
    let (upstream, client) = pair(name);
    let own = CLIENT.iter().find(|own| own.name() == upstream.name());
    let Some(own) = own else { return };
    let reply = write(*own, &events(DELTAS));
    let target = Target { model: "m", profile: upstream.profile("") };
    let mut out = Vec::with_capacity(16 << 20);
    bencher.counter(ItemsCount::new(DELTAS)).bench_local(|| {
        let mut reader = upstream.reply_reader(&target, true);
        let mut writer = client.session().reply_writer(&Request::default(), &identity());
        out.clear();
        let mut take = |event: Event<'_>| writer.push(&event, &mut out);
        for piece in reply.chunks(4096) {
            reader.push(piece, &mut take);
        }
        reader.finish(&mut take);
        black_box(out.len())
    });
}
