//! Errors and keep-alives for clients of this dialect.

use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};

use crate::dialects::shared::error_codes;
use crate::json::finish_character;

/// A keep-alive event, which clients skip.
pub const PING: &[u8] = b"event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// The status and the body of an error, with the id of the request if there is one.
pub fn error(fault: &Fault, request_id: &str) -> (u16, Vec<u8>) {
    let (status, _) = kind(fault.kind);
    let mut body = json!({"type": "error", "error": error_object(fault)});
    if !request_id.is_empty() {
        body["request_id"] = request_id.into();
    }
    (status, body.to_string().into_bytes())
}

/// An error after the reply began. `half` is an incomplete event; it is closed first so that
/// clients skip it.
pub fn error_event(fault: &Fault, half: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(half) = half {
        finish_character(half, &mut bytes);
        // If an event has several names, the last one counts, and the official clients skip pings
        // without reading their data. So the incomplete data does no harm. The colon ends the
        // current line safely: at the start of a line it makes a comment, where a bare line end
        // could be the blank line that dispatches the incomplete event.
        bytes.extend_from_slice(b":\nevent: ping\n\n");
    }
    let data = json!({"type": "error", "error": error_object(fault)});
    bytes.extend_from_slice(b"event: error\ndata: ");
    bytes.extend_from_slice(data.to_string().as_bytes());
    bytes.extend_from_slice(b"\n\n");
    bytes
}

fn error_object(fault: &Fault) -> Value {
    let (_, kind) = kind(fault.kind);
    let mut error = json!({"type": kind, "message": error_codes::message_for_anthropic(fault)});
    if let Some(code) = error_codes::code_for_anthropic(fault) {
        error["details"] = json!({"error_code": code});
    }
    error
}

fn kind(kind: FaultKind) -> (u16, &'static str) {
    match kind {
        FaultKind::Invalid => (400, "invalid_request_error"),
        FaultKind::Unauthenticated => (401, "authentication_error"),
        FaultKind::Forbidden => (403, "permission_error"),
        FaultKind::NotFound => (404, "not_found_error"),
        FaultKind::WrongMethod => (405, "invalid_request_error"),
        FaultKind::Conflict => (409, "conflict_error"),
        FaultKind::TooLarge => (413, "request_too_large"),
        FaultKind::RateLimited => (429, "rate_limit_error"),
        FaultKind::Overloaded => (529, "overloaded_error"),
        FaultKind::Unreachable => (502, "api_error"),
        FaultKind::TimedOut => (504, "timeout_error"),
        FaultKind::ToolCallUnreadable => (502, "api_error"),
        FaultKind::Internal => (500, "api_error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::sse::Framer;

    #[test]
    fn error_after_an_incomplete_event_is_read_alone() {
        let fault = Fault::new(FaultKind::Unreachable, "gone");
        let whole = "event: message_start\ndata: {}\n\n";
        let next = "event: content_block_delta\ndata: {\"text\":\"\u{e9}\u{20ac}\u{1f914}\"}\n";
        for next in [next.to_owned(), next.replace('\n', "\r\n")] {
            for cut in 1..=next.len() {
                let half = &next.as_bytes()[..cut];
                let mut stream = [whole.as_bytes(), half].concat();
                stream.extend(error_event(&fault, Some(half)));
                assert!(std::str::from_utf8(&stream).is_ok(), "cut at {cut}");
                let mut names = Vec::new();
                Framer::new(1000).push(&stream, |frame, _| {
                    names.push(String::from_utf8_lossy(frame.event).into_owned());
                });
                assert_eq!(names, ["message_start", "ping", "error"], "cut at {cut}");
            }
        }
    }
}
