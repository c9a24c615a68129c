//! Refusals: a status and the provider's message. The dialect decides how they look on the wire.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

use crate::RequestId;
use crate::dialect::Dialect;
use crate::recording::RefusalText;

/// A request that is not answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The member that is wrong, for dialects whose error body names it.
    pub(crate) parameter: Option<String>,
    /// The dialect's error code, if the status does not decide it.
    pub(crate) code: Option<&'static str>,
    pub(crate) retry_after: Option<u32>,
}

impl Refusal {
    /// A refusal with status 400, the most common one.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), parameter: None, code: None, retry_after: None }
    }

    /// The refusal of a status fault, with the dialect's message.
    pub(crate) fn on_demand(dialect: &Dialect, code: u16, retry_after: Option<u32>) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { retry_after, ..Self::new(status, (dialect.status_message)(status)) }
    }

    /// The response, with the dialect's error body.
    pub(crate) fn respond(self, dialect: &Dialect, id: &RequestId) -> Response {
        let envelope = (dialect.error_body)(&self, id);
        let mut response = (self.status, Json(envelope)).into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(RefusalText(self.message));
        response
    }
}
