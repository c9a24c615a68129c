//! Properties of this dialect. Single cases are in `corpus/ollama`.
//!
//! - [`asked`]: model names, and requests that load a model;
//! - [`replies`]: replies for clients;
//! - [`random_replies`]: round trips of random replies;
//! - [`models`]: lists of models.

mod asked;
mod models;
mod random_replies;
mod replies;

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Reply};

use super::Ollama;
use crate::dialects::{
    Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts, Target, UpstreamDialect,
};

fn read_at(path: &str, body: &Value) -> Result<Accepted, Fault> {
    Ollama.read_request(&RequestParts {
        path,
        query: "",
        body: body.to_string().as_bytes(),
        ..Default::default()
    })
}

fn read(body: &Value) -> Accepted {
    let read = read_at("/api/chat", body);
    let read = read.unwrap_or_else(|fault| panic!("{fault}: {body}"));
    assert_eq!(read.losses, [], "{body}");
    read
}

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("01abc", 1_800_000_000)
}

/// The lines of a streamed reply.
fn lines(mut writer: Box<dyn ReplyWriter>, events: &[Event<'_>]) -> String {
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// A reply that arrives in these pieces, folded, and how often it ended.
fn read_reply<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, streamed: bool) -> (Reply, usize) {
    let target = Target { model: "m", profile: Ollama.profile("") };
    let mut reader = Ollama.reply_reader(&target, streamed);
    let (mut fold, mut ends) = (Fold::default(), 0);
    let mut take = |event: Event<'_>| {
        ends += usize::from(matches!(event, Event::Ended { .. }));
        fold.push(&event);
    };
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(&mut take);
    (fold.finish(), ends)
}
