//! Refusals in this dialect: the error body, its types and its messages.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::reply;
use crate::RequestId;
use crate::refusal::Refusal;

/// A status that only this provider uses.
pub(crate) const OVERLOADED: StatusCode = match StatusCode::from_u16(529) {
    Ok(status) => status,
    Err(_) => StatusCode::SERVICE_UNAVAILABLE,
};

impl Refusal {
    /// An unknown or misplaced member.
    pub(crate) fn extra(path: &str) -> Self {
        Self::invalid(format!("{path}: Extra inputs are not permitted"))
    }
}

/// The body of a refusal.
pub(crate) fn error_body(refusal: &Refusal, id: &RequestId) -> Value {
    let mut error = json!({ "type": error_type(refusal.status), "message": refusal.message });
    if let Some(code) = refusal.code {
        error["details"] = json!({ "error_code": code });
    }
    json!({ "type": "error", "error": error, "request_id": id.0 })
}

/// The message of a refusal that a status fault asks for.
pub(crate) fn status_message(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "This request would exceed your account's rate limit. Please try again later.",
        529 => "Overloaded",
        500.. => "Internal server error",
        _ => "Refused on demand",
    }
}

/// The error event that ends a stream.
pub(crate) fn event(_: usize) -> Bytes {
    let error = json!({ "type": error_type(OVERLOADED), "message": status_message(OVERLOADED) });
    reply::event(&json!({ "type": "error", "error": error })).bytes
}

fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}
