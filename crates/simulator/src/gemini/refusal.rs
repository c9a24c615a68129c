//! Refusals in this dialect: the error body, its statuses and its messages.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::RequestId;
use crate::fault::Frame;
use crate::refusal::Refusal;

/// The body of a refusal.
pub(crate) fn error_body(refusal: &Refusal, _: &RequestId) -> Value {
    let word = refusal.code.unwrap_or_else(|| status(refusal.status));
    let mut envelope = error(refusal.status, &refusal.message, word);
    // Clients of this provider look for the delay here, not in a header.
    if let Some(seconds) = refusal.retry_after {
        envelope["error"]["details"] = json!([{
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{seconds}s"),
        }]);
    }
    envelope
}

/// The message of a refusal that a status fault asks for.
pub(crate) fn status_message(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "Resource has been exhausted (e.g. check quota).",
        503 => "The model is overloaded. Please try again later.",
        500.. => "An internal error has occurred. Please retry.",
        _ => "Refused on demand",
    }
}

/// The error event that ends a stream.
pub(crate) fn event(_: usize) -> Bytes {
    Frame::event(None, &overloaded()).bytes
}

/// The error element that ends a stream which is one array.
pub(crate) fn in_array() -> Bytes {
    format!(",\r\n{}\n]", overloaded()).into()
}

fn overloaded() -> Value {
    let code = StatusCode::SERVICE_UNAVAILABLE;
    error(code, status_message(code), status(code))
}

fn error(code: StatusCode, message: &str, status: &str) -> Value {
    json!({ "error": {
        "code": code.as_u16(), "message": message, "status": status, "details": [],
    } })
}

fn status(code: StatusCode) -> &'static str {
    match code.as_u16() {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        429 => "RESOURCE_EXHAUSTED",
        499 => "CANCELLED",
        501 => "UNIMPLEMENTED",
        503 | 529 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}
