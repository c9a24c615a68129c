//! Error replies that the gateway writes itself, and the gateway's headers on every reply.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use throughline_canonical::{Fault, Loss};
use throughline_codec::dialects::ClientDialect;

use crate::headers;
use crate::reply::ReplyBody;
use crate::turn::log::Turn;

/// A reply to the client.
pub type Reply = Response<ReplyBody>;

/// What the gateway's own headers say about a turn. They are the same as in the record of the turn.
#[derive(Clone, Debug, Default)]
pub struct TurnHeaders {
    /// The id of the turn.
    pub(crate) id: String,
    /// The backend that was tried last. Empty if none was chosen yet.
    pub(crate) backend: String,
    /// The backend that answered, if it is not the one that was chosen first.
    pub(crate) fallback: Option<String>,
    /// The losses so far: those of the request, and at the end also those of the reply.
    pub(crate) losses: Vec<Loss>,
}

impl From<&Turn> for TurnHeaders {
    fn from(turn: &Turn) -> Self {
        Self {
            id: turn.id.clone(),
            backend: turn.backend.clone(),
            fallback: turn.fallback.clone(),
            losses: turn.losses.clone(),
        }
    }
}

impl TurnHeaders {
    /// The headers of a reply that is not a turn, or of a turn that was not planned yet.
    pub(crate) fn new(id: &str, backend: &str) -> Self {
        Self { id: id.to_owned(), backend: backend.to_owned(), ..Self::default() }
    }

    /// Adds the headers to a reply.
    pub(crate) fn write(&self, headers: &mut HeaderMap) {
        let mut set = |name, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        set(headers::TURN, &self.id);
        if !self.backend.is_empty() {
            set(headers::BACKEND, &self.backend);
        }
        if let Some(fallback) = &self.fallback {
            set(headers::FALLBACK, fallback);
        }
        if !self.losses.is_empty() {
            set(headers::LOSS, &Loss::header(&self.losses));
        }
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
    TurnHeaders::new(id, backend).write(headers);
    reply
}

/// Adds the headers of a reply whose whole body is written by the gateway.
pub(crate) fn generated_reply<B>(
    mut reply: Response<B>,
    kind: &'static str,
    turn: &TurnHeaders,
) -> Response<B> {
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    set_request_id(headers, &turn.id);
    turn.write(headers);
    reply
}

/// Writes a fault that ends a turn, in the client's dialect.
pub(crate) fn turn_error(dialect: &dyn ClientDialect, fault: &Fault, turn: &TurnHeaders) -> Reply {
    let mut reply = error_response(dialect, fault, &turn.id, &turn.backend);
    turn.write(reply.headers_mut());
    reply
}

fn set_request_id(headers: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id.clone());
        headers.insert("request-id", id);
    }
}
