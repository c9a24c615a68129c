//! Refusals: a status and a provider's own words. What they look like on the wire is the dialect's.

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
    /// The member that is wrong, where a dialect's envelope names it.
    pub(crate) parameter: Option<String>,
    /// The dialect's word for it, where the status alone does not tell.
    pub(crate) code: Option<&'static str>,
    pub(crate) retry_after: Option<u32>,
}

impl Refusal {
    /// A status 400, by far the most common one.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), parameter: None, code: None, retry_after: None }
    }

    /// What a status fault answers, in the dialect's words.
    pub(crate) fn on_demand(dialect: &Dialect, code: u16, retry_after: Option<u32>) -> Self {
        let status = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { retry_after, ..Self::new(status, (dialect.words)(status)) }
    }

    /// The response, in the dialect's envelope.
    pub(crate) fn respond(self, dialect: &Dialect, id: &RequestId) -> Response {
        let envelope = (dialect.envelope)(&self, id);
        let mut response = (self.status, Json(envelope)).into_response();
        if let Some(seconds) = self.retry_after {
            let headers = response.headers_mut();
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response.extensions_mut().insert(RefusalText(self.message));
        response
    }
}
