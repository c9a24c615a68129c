//! Refusals: a status and the provider's own words, in the error envelope.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use crate::RequestId;
use crate::recording::RefusalText;

/// A request that is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: StatusCode,
    message: String,
    retry_after: Option<u32>,
}

impl Refusal {
    /// `400 invalid_request_error`, by far the most common one.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A member that the API does not know, or not here.
    pub(crate) fn extra(path: &str) -> Self {
        Self::invalid(format!("{path}: Extra inputs are not permitted"))
    }

    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry_after: None,
        }
    }

    /// What a status fault answers.
    pub(crate) fn on_demand(code: u16, retry_after: Option<u32>) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let message = match code {
            429 => "This request would exceed your account's rate limit. Please try again later.",
            529 => "Overloaded",
            500.. => "Internal server error",
            _ => "Refused on demand",
        };
        Self {
            retry_after,
            ..Self::new(status, message)
        }
    }

    /// The response, in the dialect's envelope.
    pub(crate) fn respond(self, id: &RequestId) -> Response {
        let error = json!({ "type": kind(self.status), "message": self.message });
        let envelope = json!({ "type": "error", "error": error, "request_id": id.0 });
        let mut response = (self.status, axum::Json(envelope)).into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(RefusalText(self.message));
        response
    }
}

/// The error event of a stream that had begun well.
pub(crate) fn overloaded() -> Value {
    json!({ "type": "error", "error": { "type": "overloaded_error", "message": "Overloaded" } })
}

fn kind(status: StatusCode) -> &'static str {
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
