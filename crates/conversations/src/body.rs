//! Bodies of replies: a JSON value, a reply of the gateway, or a stream of events. Also drops the
//! headers of a request whose body is not sent.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use http::{HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;
use throughline_gateway::IncomingRequest;
use throughline_gateway::turn::error_reply::Reply;
use throughline_gateway::upstream::BoxError;

/// A reply to the client.
pub type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A reply of the gateway, unchanged.
pub(crate) fn plain(reply: Reply) -> Answer {
    reply.map(BodyExt::boxed_unsync)
}

/// A body of frames, as they arrive.
pub(crate) fn live(
    frames: impl Stream<Item = Result<Frame<Bytes>, BoxError>> + Send + 'static,
) -> UnsyncBoxBody<Bytes, BoxError> {
    StreamBody::new(frames).boxed_unsync()
}

/// A JSON reply.
pub(crate) fn json(value: &Value) -> Answer {
    let body = Full::new(Bytes::from(value.to_string()));
    let mut reply = Response::new(body.map_err(|never: Infallible| match never {}).boxed_unsync());
    *reply.status_mut() = StatusCode::OK;
    let kind = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    reply
}

/// A stream of events.
pub(crate) fn events(events: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let mut reply = Response::new(live(events.map(|event| Ok(Frame::data(event)))));
    let headers = reply.headers_mut();
    let kind = HeaderValue::from_static("text/event-stream; charset=utf-8");
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    reply
}

/// Removes the headers that describe the client's body, which is not sent.
pub(crate) fn drop_body_headers(incoming: &mut IncomingRequest) {
    incoming.headers.remove(header::CONTENT_ENCODING);
    incoming.headers.remove(header::CONTENT_LENGTH);
}
