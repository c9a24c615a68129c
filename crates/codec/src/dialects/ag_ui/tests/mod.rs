//! Properties of this dialect: any run passes the checks of clients. Single requests are in
//! `corpus/ag_ui/client_request`.
//!
//! - `rules`: the checks of clients; `reducer`: the messages that clients build from a run.

use serde_json::{Value, json};
use throughline_canonical::{Event, Fault};

use super::AgUi;
use crate::dialects::{Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts};

mod random_runs;
mod reducer;
mod replies;
mod requests;
mod resumed;
mod rules;

fn identity() -> ReplyIdentity {
    ReplyIdentity::new("abc", 1_800_000_000)
}

/// A run with these messages, of a client of version 1.0.
fn body(messages: &Value) -> Value {
    json!({"threadId": "t1", "runId": "r1", "protocolVersion": "1.0", "messages": messages})
}

/// A run that a user begins, with these additional members.
fn asked(more: &Value) -> Value {
    let mut body = body(&json!([{"id": "u", "role": "user", "content": "Hi."}]));
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

fn read_at(path: &str, query: &str, body: &Value) -> Result<Accepted, Fault> {
    AgUi.read_request(&RequestParts {
        path,
        query,
        body: body.to_string().as_bytes(),
        ..Default::default()
    })
}

fn read(body: &Value) -> Accepted {
    read_at("/ag-ui", "", body).unwrap_or_else(|fault| panic!("{fault}: {body}"))
}

fn writer(accepted: &Accepted) -> Box<dyn ReplyWriter> {
    accepted.reply_writer(&identity())
}

/// The stream of a run.
fn written(accepted: &Accepted, events: &[Event<'_>]) -> String {
    let mut writer = writer(accepted);
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}
