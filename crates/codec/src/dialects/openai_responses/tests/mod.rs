//! Properties of this dialect, limits, and replies for its clients. Single cases are in
//! `corpus/openai_responses`.

// JSON values are built at their use. References would only add noise.
#![allow(clippy::needless_pass_by_value)]

mod client_replies;
mod malformed;
mod round_trips;
mod upstream_replies;

use std::collections::BTreeMap;

use serde_json::Value;
use throughline_canonical::{Event, Fault, Fold, Loss, Reply, Request};

use super::OpenAiResponses;
use crate::dialects::passthrough::ReplyRepair;
use crate::dialects::{
    Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts, Target, UpstreamDialect,
};
use crate::framing::sse::Framer;

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

/// The events of a repaired stream.
pub(super) fn repaired_stream(repair: &mut dyn ReplyRepair, bytes: &[u8]) -> Vec<Value> {
    let mut out = Vec::new();
    Framer::new(1 << 24).push(bytes, |frame, _| repair.event(frame.data, &mut out));
    client_replies::events(&out)
}

/// Checks the order of events: numbers, items, parts and their ends. Returns the final response.
pub(super) fn check_stream_of_any_server(events: &[Value]) -> Value {
    let mut open: BTreeMap<u64, (Value, BTreeMap<u64, String>)> = BTreeMap::new();
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let name = event["type"].as_str().unwrap();
        let Some(at) = event["output_index"].as_u64() else {
            assert!(event["response"]["tools"].is_array(), "{event}");
            continue;
        };
        match name {
            "response.output_item.added" => {
                assert!(open.insert(at, (event["item"]["id"].clone(), BTreeMap::new())).is_none());
                continue;
            }
            "response.output_item.done" => {
                let (id, parts) = open.remove(&at).unwrap();
                assert_eq!(id, event["item"]["id"]);
                assert!(parts.is_empty(), "an open part: {event}");
                continue;
            }
            _ => {}
        }
        let (id, parts) = open.get_mut(&at).unwrap();
        assert_eq!(*id, event["item_id"], "{event}");
        let Some(part) = event["content_index"].as_u64() else {
            continue;
        };
        match name {
            "response.content_part.added" => {
                assert!(parts.insert(part, String::new()).is_none(), "{event}");
            }
            "response.content_part.done" => {
                let text = parts.remove(&part).unwrap();
                assert_eq!(event["part"]["text"], text.as_str(), "{event}");
            }
            _ if name.ends_with(".delta") => {
                parts.get_mut(&part).unwrap().push_str(event["delta"].as_str().unwrap());
            }
            _ => assert_eq!(event["text"], parts[&part].as_str(), "{event}"),
        }
    }
    assert!(open.is_empty());
    events[events.len() - 1]["response"].clone()
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
pub(super) fn stream(events: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for event in events {
        let name = event["type"].as_str().unwrap_or_default();
        bytes.extend_from_slice(format!("event: {name}\ndata: {event}\n\n").as_bytes());
    }
    bytes
}
