//! Error replies that the gateway writes itself, and the gateway's headers on every reply.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use throughline_canonical::{Fault, Loss};
use throughline_codec::dialects::ClientDialect;

use crate::headers;
use crate::reply::ReplyBody;

/// A reply to the client.
pub type Reply = Response<ReplyBody>;

/// Adds the headers that name the turn, the backend and the losses.
pub(crate) fn finish_headers(headers: &mut HeaderMap, id: &str, backend: &str, losses: &[Loss]) {
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(headers::TURN, id);
    // Empty if no backend was chosen yet.
    if !backend.is_empty() {
        set(headers::BACKEND, backend);
    }
    if !losses.is_empty() {
        set(headers::LOSS, &Loss::header(losses));
    }
}

/// Writes a fault in the client's dialect. `backend` is empty if none was tried.
pub fn error_response(
    dialect: &dyn ClientDialect,
    fault: &Fault,
    id: &str,
    backend: &str,
) -> Reply {
    let (status, body) = dialect.write_fault(fault, id);
    let mut reply = Response::new(ReplyBody::whole(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(dialect.defaults().fault_type));
    set_request_id(headers, id);
    if let Some(seconds) = fault.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    finish_headers(headers, id, backend, &[]);
    reply
}

/// Adds the headers of a reply whose whole body is written by the gateway.
pub(crate) fn generated_reply<B>(
    mut reply: Response<B>,
    kind: &'static str,
    id: &str,
    backend: &str,
    losses: &[Loss],
) -> Response<B> {
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set_request_id(headers, id);
    finish_headers(headers, id, backend, losses);
    reply
}

fn set_request_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id.clone());
        headers.insert("request-id", id);
    }
}
