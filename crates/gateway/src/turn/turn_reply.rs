//! The reply of a turn before it is encoded, and the ways to encode it.

use std::fmt;
use std::sync::Arc;

use http::{HeaderValue, Response};
use throughline_canonical::{Fault, Loss, Origin, Reply as CanonicalReply};
use throughline_codec::dialects::{ClientDialect, ReplyWriter};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use crate::headers;
use crate::metrics::Metrics;
use crate::reply::events::{EventList, TurnEvents};
use crate::reply::folded::{FoldedReply, Folder};
use crate::reply::translated::{Encoder, EventSink, EventSource, TranslatedReply};
use crate::reply::{Clocks, Live, ReplyBody};
use crate::turn::error_reply::{Reply, TurnHeaders, generated_reply, turn_error};
use crate::turn::log::SharedTurn;
use crate::turn::span::turn_span;
use crate::upstream::UpstreamBody;

/// The reply of a turn before it is encoded.
pub(crate) enum TurnReply {
    /// A reply that has its bytes already.
    Finished(Box<FinishedReply>),
    /// The model's answer as canonical events.
    Events(Box<EventReply>),
}

/// A reply in the client's dialect that has its bytes already: an answer that was passed through, a
/// token count, or an error.
#[derive(Debug)]
pub struct FinishedReply {
    /// The reply.
    pub reply: Reply,
    /// The fault, if the turn failed before its reply began.
    pub fault: Option<Fault>,
}

impl FinishedReply {
    /// The span of the turn, for callers that log something about its reply.
    pub fn span(&self) -> Span {
        let id = self.reply.headers().get(headers::TURN).and_then(|id| id.to_str().ok());
        id.map_or_else(Span::none, turn_span)
    }
}

impl From<Reply> for TurnReply {
    fn from(reply: Reply) -> Self {
        Self::Finished(Box::new(FinishedReply { reply, fault: None }))
    }
}

impl TurnReply {
    /// A turn that failed before its reply began.
    pub(crate) fn failed(reply: Reply, fault: Fault) -> Self {
        Self::Finished(Box::new(FinishedReply { reply, fault: Some(fault) }))
    }

    /// The reply in the client's dialect.
    pub(crate) async fn encode(self) -> Reply {
        match self {
            Self::Finished(finished) => finished.reply,
            Self::Events(events) if events.streamed => events.into_stream(),
            Self::Events(events) => events.into_whole().await,
        }
    }

    /// The reply as events, not read yet.
    pub(crate) fn into_unread(self) -> Result<UnreadReply, Box<FinishedReply>> {
        match self {
            Self::Finished(finished) => Err(finished),
            Self::Events(events) => Ok(events.unread),
        }
    }
}

/// The facts that the head of a reply is written from.
#[derive(Debug)]
pub struct ReplyHead {
    pub(crate) dialect: &'static dyn ClientDialect,
    /// The `content-type` of a streamed reply.
    pub(crate) stream_type: &'static str,
    /// The gateway's own headers.
    pub(crate) turn: TurnHeaders,
    /// The maker of the reply.
    pub(crate) origin: Arc<Origin>,
    /// The record of the turn.
    pub(crate) record: SharedTurn,
    pub(crate) metrics: Arc<Metrics>,
}

impl ReplyHead {
    /// The span of the turn, for callers that log something about its reply.
    pub fn span(&self) -> Span {
        turn_span(&self.turn.id)
    }

    /// The id of the turn, as in `x-throughline-turn`.
    pub fn turn_id(&self) -> &str {
        &self.turn.id
    }

    /// The backend that answers.
    pub fn backend(&self) -> &str {
        &self.turn.backend
    }

    /// The maker of the reply's blocks. Later turns bring it back with them, see
    /// [`Envelopes::wrap`](crate::thinking::Envelopes::wrap).
    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// The losses so far: those of the request, and after [`UnreadReply::fold`] all of the turn. Of a
    /// reply that is read as events, the last event before the end has all of them.
    pub fn losses(&self) -> &[Loss] {
        &self.turn.losses
    }

    /// Adds a loss that happened after the turn was recorded.
    pub fn add_loss(&mut self, loss: Loss) {
        self.span().in_scope(|| tracing::warn!(losses = %loss, "Loss after the turn"));
        {
            let mut record = self.record.lock();
            self.metrics.record_loss(&record, &loss);
            Loss::add(&mut record.losses, loss.clone());
        }
        Loss::add(&mut self.turn.losses, loss);
    }

    /// A streamed reply in the client's dialect.
    pub fn stream<B>(&self, body: B) -> Response<B> {
        let mut reply = generated_reply(Response::new(body), self.stream_type, &self.turn);
        for (name, value) in self.dialect.defaults().stream_headers {
            reply.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        reply
    }

    /// A whole reply in the client's dialect.
    pub fn whole<B>(&self, body: B) -> Response<B> {
        generated_reply(Response::new(body), "application/json", &self.turn)
    }

    /// An error in the client's dialect, instead of a whole reply.
    pub fn error(&self, fault: &Fault) -> Reply {
        turn_error(self.dialect, fault, &self.turn)
    }
}

/// A translated reply before it is encoded.
pub(crate) struct EventReply {
    pub(crate) writer: Box<dyn ReplyWriter>,
    /// Whether the client asked for a stream.
    pub(crate) streamed: bool,
    pub(crate) unread: UnreadReply,
}

/// A provider's reply of which only the head was read.
pub struct UnreadReply {
    /// What is known about the reply, for its head.
    pub head: ReplyHead,
    pub(crate) upstream: UpstreamBody,
    pub(crate) source: EventSource,
    pub(crate) clocks: Clocks,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

impl UnreadReply {
    fn into_live<S: EventSink + 'static>(self, sink: S) -> (ReplyHead, Live<S::Out>) {
        let Self { head, upstream, source, clocks, permit } = self;
        let transform = Box::new(TranslatedReply::new(source, sink));
        let live = Live::new(upstream, transform, clocks, head.turn.backend.clone(), permit);
        (head, live)
    }

    /// The events, as they arrive.
    pub fn into_events(self) -> (ReplyHead, TurnEvents) {
        let (head, live) = self.into_live(EventList::default());
        (head, TurnEvents(live))
    }

    /// Reads the reply to its end and folds its events.
    pub async fn fold(self) -> (ReplyHead, Result<CanonicalReply, Fault>) {
        let (mut head, live) = self.into_live(Folder::default());
        let FoldedReply { mut reply, losses } = FoldedReply::read(live).await;
        head.turn.losses = losses;
        let folded = match reply.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(reply),
        };
        (head, folded)
    }
}

impl fmt::Debug for UnreadReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("UnreadReply").field("head", &self.head).finish_non_exhaustive()
    }
}

impl EventReply {
    /// A stream in the client's dialect.
    fn into_stream(self) -> Reply {
        let (head, live) = self.unread.into_live(Encoder::new(self.writer));
        head.stream(ReplyBody::Live(Box::new(live)))
    }

    /// A whole reply in the client's dialect: the events, folded.
    async fn into_whole(self) -> Reply {
        let (head, reply) = self.unread.fold().await;
        match reply {
            Ok(reply) => head.whole(ReplyBody::whole(self.writer.whole(&reply))),
            Err(fault) => head.error(&fault),
        }
    }
}
