//! The OpenAI chat dialect: its routes and the order in which a request is judged.

use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri, header};
use serde_json::json;

use crate::dialect::Dialect;
use crate::fault::Frame;
use crate::{Simulator, openai};

/// This dialect's row.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "openai_chat",
    routes,
    models: None,
    recognises,
    envelope: openai::envelope,
    words: openai::words,
    overloaded: StatusCode::SERVICE_UNAVAILABLE,
    error_event,
};

fn routes() -> Router<Arc<Simulator>> {
    Router::new()
}

/// Of the two dialects of OpenAI, this one speaks where only the key tells.
fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().ends_with("/chat/completions") || headers.contains_key(header::AUTHORIZATION)
}

fn error_event(_: usize) -> Bytes {
    let message = openai::words(StatusCode::SERVICE_UNAVAILABLE);
    let error = json!({ "message": message, "type": "server_error", "param": null, "code": null });
    Frame::event(None, &json!({ "error": error })).bytes
}
