//! Properties of this dialect, and replies for its clients. Single cases are in
//! `corpus/ui_stream`.

use serde_json::Value;
use throughline_canonical::{Event, Fault, Request};

use super::UiStream;
use crate::dialects::{Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts};

mod checker;
mod orders;
mod replies;
mod requests;

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("1", 1)
}

fn read_bytes(body: &[u8]) -> Result<Accepted, Fault> {
    UiStream.read_request(&RequestParts { path: "/ui/chat", query: "", body, ..Default::default() })
}

fn read(body: &Value) -> Accepted {
    read_bytes(body.to_string().as_bytes()).unwrap()
}

/// The stream of these events.
fn write(request: &Request, events: &[Event<'_>]) -> String {
    stream_from(UiStream.session().reply_writer(request, &identity()), events)
}

fn stream_from(mut writer: Box<dyn ReplyWriter>, events: &[Event<'_>]) -> String {
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// The chunks of a stream, without its last line.
fn chunks(stream: &str) -> Vec<Value> {
    let events = stream.strip_suffix("data: [DONE]\n\n").unwrap();
    events
        .split_terminator("\n\n")
        .map(|event| {
            let data = event.strip_prefix("data: ").unwrap();
            assert!(!data.contains(['\n', '\r']), "{data:?}");
            serde_json::from_str(data).unwrap()
        })
        .collect()
}
