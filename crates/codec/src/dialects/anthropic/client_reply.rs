//! What we say to a client of this dialect ourselves: errors, before and after the first byte, and
//! signs of life.

use throughline_canonical::{Fault, FaultKind};

/// A sign of life between two events. Its clients skip it.
pub const PING: &[u8] = b"event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// The status and the body of an error.
pub fn error(fault: &Fault, request_id: &str) -> (u16, Vec<u8>) {
    let (status, kind) = kind(fault.kind);
    let body = serde_json::json!({
        "type": "error",
        "error": {"type": kind, "message": fault.message},
        "request_id": request_id,
    });
    (status, body.to_string().into_bytes())
}

/// An error after the reply began. `between_events` says whether the stream stands between two
/// events; where it does not, the half event is closed so that clients skip it.
pub fn error_event(fault: &Fault, between_events: bool) -> Vec<u8> {
    let (_, kind) = kind(fault.kind);
    let mut bytes = Vec::new();
    if !between_events {
        // Of several names the last counts, and the official clients skip pings unread: the broken
        // data before it harms nobody.
        bytes.extend_from_slice(b"\nevent: ping\n\n");
    }
    let data = serde_json::json!({
        "type": "error",
        "error": {"type": kind, "message": fault.message},
    });
    bytes.extend_from_slice(b"event: error\ndata: ");
    bytes.extend_from_slice(data.to_string().as_bytes());
    bytes.extend_from_slice(b"\n\n");
    bytes
}

fn kind(kind: FaultKind) -> (u16, &'static str) {
    match kind {
        FaultKind::Invalid => (400, "invalid_request_error"),
        FaultKind::Unauthenticated => (401, "authentication_error"),
        FaultKind::Forbidden => (403, "permission_error"),
        FaultKind::NotFound => (404, "not_found_error"),
        FaultKind::Conflict => (409, "conflict_error"),
        FaultKind::TooLarge => (413, "request_too_large"),
        FaultKind::RateLimited => (429, "rate_limit_error"),
        FaultKind::Overloaded => (529, "overloaded_error"),
        FaultKind::Unreachable => (502, "api_error"),
        FaultKind::TimedOut => (504, "timeout_error"),
        FaultKind::Internal => (500, "api_error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::sse::Framer;

    #[test]
    fn an_error_after_half_an_event_is_read_alone() {
        let fault = Fault::new(FaultKind::Unreachable, "gone");
        for half in [
            "event: content_block_delta\ndata: {\"type\":\"conte",
            "event: content_block_delta\ndata: {}\n",
            "event: cont",
            "eve",
        ] {
            let mut stream = format!("event: message_start\ndata: {{}}\n\n{half}").into_bytes();
            stream.extend(error_event(&fault, false));
            let mut names = Vec::new();
            Framer::new(1000).push(&stream, |frame, _| {
                names.push(String::from_utf8_lossy(frame.event).into_owned());
            });
            assert_eq!(names.first().map(String::as_str), Some("message_start"));
            assert_eq!(names.last().map(String::as_str), Some("error"));
            // Whatever stands between is a whole event or one that clients skip.
            assert!(
                names[1..names.len() - 1]
                    .iter()
                    .all(|name| name == "ping" || half.ends_with('\n'))
            );
        }
    }
}
