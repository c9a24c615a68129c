//! Properties of this dialect, limits, and replies for its clients. Single cases are in
//! `corpus/openai_responses`.

// JSON values are built at their use. References would only add noise.
#![allow(clippy::needless_pass_by_value)]

mod client_replies;
mod malformed;
mod round_trips;
mod upstream_replies;

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Loss, Reply, Request};

use super::OpenAiResponses;
use crate::dialects::{
    Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts, Target, UpstreamDialect,
};

const MODEL: &str = "gpt-6.1-sol";

fn target() -> Target<'static> {
    Target { model: MODEL, profile: OpenAiResponses.profile("") }
}

fn read_bytes(body: &[u8]) -> Result<Accepted, Fault> {
    OpenAiResponses.read_request(&RequestParts {
        path: "/v1/responses",
        query: "",
        body,
        ..Default::default()
    })
}

fn read(body: &Value) -> Accepted {
    read_bytes(body.to_string().as_bytes()).unwrap()
}

fn write(request: &Request) -> (Value, Vec<Loss>) {
    let written = OpenAiResponses.write_request(request, &target());
    assert_eq!(written.value.path, "/v1/responses");
    (serde_json::from_slice(&written.value.body).unwrap(), written.losses)
}

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("x7", 1_794_700_000)
}

fn writer(request: &Request) -> Box<dyn ReplyWriter> {
    OpenAiResponses.session().reply_writer(request, &identity())
}

/// The events of a reply in these pieces as JSON, and the folded reply.
fn reply(pieces: &[&[u8]], streamed: bool) -> (Vec<String>, Reply) {
    let mut reader = OpenAiResponses.reply_reader(&target(), streamed);
    let (mut events, mut fold) = (Vec::new(), Fold::default());
    let mut out = |event: Event<'_>| {
        events.push(serde_json::to_string(&event).unwrap());
        fold.push(&event);
    };
    for piece in pieces {
        reader.push(piece, &mut out);
    }
    reader.finish(&mut out);
    (events, fold.finish())
}

/// A stream of these events.
fn stream(events: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        let name = event["type"].as_str().unwrap_or_default();
        bytes.extend_from_slice(format!("event: {name}\ndata: {event}\n\n").as_bytes());
    }
    bytes
}
