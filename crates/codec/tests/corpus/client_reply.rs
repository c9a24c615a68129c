//! Replies as each client dialect writes them.
//!
//! - Every shared reply has a golden under its own name: `name.sse` or `name.ndjson` for the stream,
//!   `name.json` for the whole reply or its error.
//! - `name.jsonl` is a table of cases for this dialect alone: each row has the `events` of a reply, and
//!   may have the request that it answers (a canonical `request`, or the `body` of a client) and the
//!   configured `reasoning_fields`. Its golden is `name.written.jsonl`, with the
//!   frames of the `stream` and the `whole` reply.

use serde_json::{Value, json};
use throughline_canonical::{EndReason, Event, Fold, Reply, Request};
use throughline_codec::dialects::{
    Accepted, ClientDialect, ReplyIdentity, ReplyWriter, RequestParts, client,
};

use super::folder::{Capture, Findings, lines, pretty, root};
use super::rules::Folder;
use super::shared::replies;

/// The model of the requests that have no body.
pub(crate) const MODEL: &str = "asked-for";

/// Compares the shared replies, then the tables.
pub(crate) fn check(folder: &Folder, findings: &mut Findings) {
    let dialect = client(&folder.name).unwrap();
    check_shared(dialect, &folder.path, findings);
    for capture in &folder.captures {
        let written = capture.rows().into_iter().map(|row| write_row(dialect, capture, &row));
        findings.golden(capture.beside("written.jsonl"), Some(&lines(written)));
    }
}

fn check_shared(dialect: &dyn ClientDialect, folder: &str, findings: &mut Findings) {
    let folder = root().join(folder);
    for (Capture { name, .. }, events) in replies() {
        let sent = write_stream(dialect, &request(true), &events);
        let path = folder.join(format!("{name}.{}", stream_ending(dialect)));
        findings.golden(path, Some(&sent));
        // A dialect that only streams has no other form to show.
        let whole = write_whole(dialect, &request(false), &fold(&events));
        if let Some(whole) = whole.filter(|whole| whole.starts_with(b"{")) {
            let whole = pretty(&serde_json::from_slice(&whole).unwrap());
            findings.golden(folder.join(format!("{name}.json")), Some(&whole));
        }
    }
}

fn write_row(dialect: &dyn ClientDialect, capture: &Capture, row: &Value) -> Value {
    let asked = match (&row["request"], &row["body"]) {
        (Value::Null, Value::Null) => canonical(dialect, request(true)),
        (Value::Null, body) => {
            let body = body.to_string();
            let parts = RequestParts {
                path: &dialect.path_for("m"),
                query: "",
                body: body.as_bytes(),
                ..Default::default()
            };
            dialect.read_request(&parts).unwrap()
        }
        (spelled, _) => canonical(
            dialect,
            serde_json::from_value(spelled.clone())
                .unwrap_or_else(|error| panic!("{}: {error}: {spelled}", capture.name)),
        ),
    };
    let mut identity = identity();
    if let Ok(fields) = serde_json::from_value(row["reasoning_fields"].clone()) {
        identity.reasoning_fields = fields;
    }
    let writer = || asked.reply_writer(&identity);
    let events: Vec<Event<'static>> = serde_json::from_value(row["events"].clone())
        .unwrap_or_else(|error| panic!("{}: {error}: {row}", capture.name));
    let stream = stream_from(writer(), &events);
    let separator = if stream_ending(dialect) == "sse" { "\n\n" } else { "\n" };
    let frames: Vec<&str> = stream.split_inclusive(separator).collect();
    let mut written = json!({"stream": frames});
    if let Some(whole) = whole_from(dialect, &*writer(), &fold(&events)) {
        written["whole"] = serde_json::from_slice(&whole)
            .unwrap_or_else(|_| json!(String::from_utf8_lossy(&whole)));
    }
    written
}

/// A canonical request, as if the dialect had read it.
fn canonical(dialect: &dyn ClientDialect, request: Request) -> Accepted {
    Accepted { request, losses: Vec::new(), left_out: Vec::new(), session: dialect.session() }
}

pub(crate) fn identity() -> ReplyIdentity {
    ReplyIdentity::new("0123456789abcdef", 1_800_000_000)
}

pub(crate) fn request(stream: bool) -> Request {
    Request { model: MODEL.to_owned(), stream, ..Request::default() }
}

pub(crate) fn fold(events: &[Event<'_>]) -> Reply {
    let mut fold = Fold::default();
    for event in events {
        fold.push(event);
    }
    fold.finish()
}

/// The streamed reply to a request.
pub(crate) fn write_stream(
    dialect: &dyn ClientDialect,
    request: &Request,
    events: &[Event<'_>],
) -> String {
    stream_from(dialect.session().reply_writer(request, &identity()), events)
}

fn stream_from(mut writer: Box<dyn ReplyWriter>, events: &[Event<'_>]) -> String {
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    String::from_utf8(out).unwrap()
}

/// The whole reply to a request, or the error if it has a fault. A cut reply has neither: the gateway
/// reports it.
pub(crate) fn write_whole(
    dialect: &dyn ClientDialect,
    request: &Request,
    reply: &Reply,
) -> Option<Vec<u8>> {
    whole_from(dialect, &*dialect.session().reply_writer(request, &identity()), reply)
}

fn whole_from(
    dialect: &dyn ClientDialect,
    writer: &dyn ReplyWriter,
    reply: &Reply,
) -> Option<Vec<u8>> {
    match (&reply.fault, &reply.reason) {
        (Some(fault), _) => Some(dialect.write_fault(fault, "").1),
        (None, Some(EndReason::Cut)) => None,
        _ => Some(writer.whole(reply)),
    }
}

/// The ending of a file that holds a streamed reply.
pub(crate) fn stream_ending(dialect: &dyn ClientDialect) -> &'static str {
    match dialect.session().stream_type() {
        lines if lines.contains("ndjson") => "ndjson",
        _ => "sse",
    }
}
