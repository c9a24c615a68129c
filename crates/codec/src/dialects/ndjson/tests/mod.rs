//! Properties of this dialect, and replies for its clients. Single cases are in `corpus/ndjson`.

use serde_json::Value;
use throughline_canonical::{Event, Lossy, Request};

use super::NdJson;
use crate::dialects::{Accepted, ClientDialect, ReplyIdentity, RequestParts};

mod lines;
mod typescript;
mod wholes;

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("1", 1)
}

fn read(body: &Value) -> Lossy<Request> {
    let body = body.to_string();
    let asked = RequestParts {
        path: "/ndjson/chat",
        query: "",
        body: body.as_bytes(),
        ..Default::default()
    };
    let Accepted { request, losses, .. } = NdJson.read_request(&asked).unwrap();
    Lossy { value: request, losses }
}

/// The lines of these events.
fn lines(request: &Request, events: &[Event<'_>]) -> Vec<Value> {
    let mut writer = NdJson.session().reply_writer(request, &identity());
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
        writer.keep_alive(&mut out);
    }
    let text = String::from_utf8(out).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
