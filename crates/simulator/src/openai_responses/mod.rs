//! The OpenAI Responses dialect: its routes and the order in which a request is judged.

use std::sync::Arc;

use axum::Router;
use bytes::Bytes;
use http::{HeaderMap, StatusCode, Uri};
use serde_json::json;

use crate::dialect::Dialect;
use crate::fault::Frame;
use crate::{Simulator, openai};

/// This dialect's row.
pub(crate) static DIALECT: Dialect = Dialect {
    name: "openai_responses",
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

fn recognises(uri: &Uri, headers: &HeaderMap) -> bool {
    uri.path().split('/').any(|part| part == "responses")
        || headers.contains_key(http::header::AUTHORIZATION)
}

/// Events are numbered from 0, so this one's number is how many there were.
fn error_event(sent: usize) -> Bytes {
    let message = openai::words(StatusCode::SERVICE_UNAVAILABLE);
    let error = json!({ "type": "error", "code": "server_error", "message": message,
                        "param": null, "sequence_number": sent });
    Frame::event(Some("error"), &error).bytes
}
