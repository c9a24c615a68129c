//! The Gemini dialect: its routes and the order in which a request is judged.

mod refusal;

use std::sync::Arc;

use axum::Router;
use http::{HeaderMap, StatusCode, Uri};

use crate::Simulator;
use crate::dialect::Dialect;

/// This dialect's row.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "gemini",
    routes,
    models: None,
    recognises,
    envelope: refusal::envelope,
    words: refusal::words,
    overloaded: StatusCode::SERVICE_UNAVAILABLE,
    error_event: refusal::event,
};

fn routes() -> Router<Arc<Simulator>> {
    Router::new()
}

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    let path = uri.path();
    let called = path.rsplit('/').next().unwrap_or_default().contains(':');
    let mut query = uri.query().unwrap_or_default().split('&');
    called
        || path.starts_with("/v1beta")
        || headers.contains_key("x-goog-api-key")
        || query.any(|part| part.starts_with("key="))
}
