//! What both dialects of OpenAI share: the envelope of a refusal and its words.

use http::StatusCode;
use serde_json::{Value, json};

use crate::RequestId;
use crate::refusal::Refusal;

/// The body of a refusal; all four members are always there.
pub(crate) fn envelope(refusal: &Refusal, _: &RequestId) -> Value {
    let code = refusal.code.or(match refusal.status.as_u16() {
        401 => Some("invalid_api_key"),
        429 => Some("rate_limit_exceeded"),
        _ => None,
    });
    json!({ "error": {
        "message": refusal.message,
        "type": kind(refusal.status),
        "param": refusal.parameter,
        "code": code,
    } })
}

/// What is said with a status that was asked for.
pub(crate) fn words(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "Rate limit reached for requests. Please try again later.",
        503 => "The server is overloaded or not ready yet.",
        500.. => "The server had an error while processing your request. Sorry about that!",
        _ => "Refused on demand",
    }
}

fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}
