//! What both passthrough plans share: the reply is forwarded as it arrives.

use bytes::Bytes;
use http::{Response, header};
use throughline_codec::framing::encoding::{Decoder, Encoding};
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::headers;
use crate::plan::Decision;
use crate::reply::edits::ReplyEdit;
use crate::reply::passthrough::{PassthroughReply, ReplyEncoding, Shape, Tap};
use crate::reply::{Live, ReplyBody};
use crate::turn::Attempt;
use crate::turn::error_reply::Reply;
use crate::turn::log::TurnError;
use crate::turn::request::content_encoding;
use crate::turn::turn_reply::TurnReply;
use crate::upstream::UpstreamBody;
use crate::upstream::send::error_text;

/// How much of a whole reply is read before its head is sent, if the reply may report losses.
const MAX_READ_AHEAD: usize = 1 << 20;

/// Reads a whole reply before its head is sent, so that the header has the losses that the reply
/// reports. A client can use such a reply only when it is complete. A longer one passes as it arrives.
pub(crate) async fn with_reported_losses(attempt: &Attempt<'_>, mut reply: Reply) -> Reply {
    if let ReplyBody::Live(live) = reply.body_mut() {
        live.read_ahead(MAX_READ_AHEAD).await;
    }
    attempt.turn_headers().write(reply.headers_mut());
    reply
}

impl Gateway {
    /// Forwards a provider's error unchanged.
    pub(crate) fn forward_error(
        &self,
        attempt: &Attempt<'_>,
        decision: &Decision,
        error: Response<Bytes>,
    ) -> TurnReply {
        // Record only the kind of error, because the message may quote the request.
        let status = error.status().as_u16();
        let fault = decision.dialect.read_fault(status, &error_text(&error));
        let (head, body) = error.into_parts();
        let mut reply = Response::new(ReplyBody::whole(body));
        *reply.status_mut() = head.status;
        *reply.headers_mut() = headers::client(&head.headers, &attempt.backend.auth);
        attempt.turn_headers().write(reply.headers_mut());
        let what = format!("the backend refused the request: {status} {}", fault.kind.as_str());
        self.record_failure(
            attempt.turn,
            attempt.request.incoming.began,
            status,
            TurnError::new(what),
        );
        TurnReply::failed(reply, fault)
    }

    /// Forwards a reply as it arrives. `edits` and `tap` get whether the reply is a stream of
    /// events. They return its edits and the tap that reads it.
    pub(crate) fn forward(
        &self,
        attempt: &Attempt<'_>,
        response: Response<UpstreamBody>,
        permit: Option<OwnedSemaphorePermit>,
        edits: impl FnOnce(Shape, &ReplyEncoding) -> Vec<Box<dyn ReplyEdit>>,
        tap: impl FnOnce(bool) -> Box<dyn Tap>,
    ) -> Reply {
        let (head, upstream) = response.into_parts();
        self.record_first_byte(attempt, head.status);
        let content = head.headers.get(header::CONTENT_TYPE);
        let is = |kind: &[u8]| content.is_some_and(|value| value.as_bytes().starts_with(kind));
        let events = is(b"text/event-stream");
        let shape = match events {
            true => Shape::Events,
            false if is(b"application/json") => Shape::Json,
            false => Shape::Other,
        };
        let encoding = match content_encoding(&head.headers) {
            Some(Encoding::Identity) => ReplyEncoding::Plain,
            Some(packed) => {
                Decoder::new(packed, 64 << 20).map_or(ReplyEncoding::Unknown, ReplyEncoding::Known)
            }
            None => ReplyEncoding::Unknown,
        };
        let edits = match encoding {
            ReplyEncoding::Unknown => Vec::new(),
            _ => edits(shape, &encoding),
        };
        let mut reply_headers = headers::client(&head.headers, &attempt.backend.auth);
        if events || !edits.is_empty() {
            reply_headers.remove(header::CONTENT_LENGTH);
        }
        if !edits.is_empty() {
            reply_headers.remove(header::CONTENT_ENCODING);
        }
        attempt.turn_headers().write(&mut reply_headers);

        let transform = PassthroughReply::new(Some(tap(events)), shape, encoding, edits);
        let live = Live::new(
            upstream,
            Box::new(transform),
            attempt.clocks(self, true),
            attempt.backend.name.clone(),
            permit,
        );
        let mut reply = Response::new(ReplyBody::Live(Box::new(live)));
        *reply.status_mut() = head.status;
        *reply.headers_mut() = reply_headers;
        reply
    }
}
