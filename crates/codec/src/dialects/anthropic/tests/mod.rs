//! Properties of this dialect. Single cases are in `corpus/anthropic`.
//!
//! - [`arguments`]: the spelling of arguments;
//! - [`refused`]: bodies that are not requests;
//! - [`replies`]: replies for clients, and limits of the reply reader;
//! - [`values`], [`random_requests`], [`random_replies`]: random values.

mod arguments;
mod random_replies;
mod random_requests;
mod refused;
mod replies;
mod values;

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Lossy, Reply, Request};

use super::Anthropic;
use crate::dialects::{
    Accepted, ClientDialect, Outgoing, ReplyIdentity, RequestParts, Target, UpstreamDialect,
};

const MODEL: &str = "claude-x";

fn target() -> Target<'static> {
    Target { model: MODEL, profile: Anthropic.profile("") }
}

fn read_request(body: &[u8]) -> Result<Lossy<Request>, Fault> {
    let Accepted { request, losses, .. } = Anthropic.read_request(&RequestParts {
        path: "/v1/messages",
        query: "",
        body,
        ..Default::default()
    })?;
    Ok(Lossy { value: request, losses })
}

fn write_request(request: &Request) -> Lossy<Outgoing> {
    Anthropic.write_request(request, &target())
}

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("01abc", 1_800_000_000)
}

/// The stream of these events for a client that asked for model `asked-for`.
fn streamed(events: &[Event<'_>]) -> String {
    let request = Request { model: "asked-for".to_owned(), ..Request::default() };
    let mut writer = Anthropic.session().reply_writer(&request, &identity());
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// The whole reply for a client that asked for model `asked-for`.
fn whole(reply: &Reply) -> Value {
    let request = Request { model: "asked-for".to_owned(), ..Request::default() };
    let bytes = Anthropic.session().reply_writer(&request, &identity()).whole(reply);
    serde_json::from_slice(&bytes).unwrap()
}

/// The reply in these pieces, folded, and how many ends it had.
fn read_reply<'a>(pieces: impl IntoIterator<Item = &'a [u8]>, streamed: bool) -> (Reply, usize) {
    let mut reader = Anthropic.reply_reader(&target(), streamed);
    let (mut fold, mut ends) = (Fold::default(), 0);
    let mut take = |event: Event<'_>| {
        assert_eq!(ends, 0, "{event:?} behind the end");
        ends += usize::from(matches!(event, Event::Ended { .. }));
        fold.push(&event);
    };
    for piece in pieces {
        reader.push(piece, &mut take);
    }
    reader.finish(&mut take);
    (fold.finish(), ends)
}
