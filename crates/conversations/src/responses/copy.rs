//! Copies of responses that a backend of the dialect made and may store itself. The reply passes
//! unchanged, and its response is read from the bytes.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::Value;
use throughline_codec::dialects::openai_responses;
use throughline_codec::dialects::openai_responses::state::{Progress, step};
use throughline_codec::framing::MAX_REPLY_BYTES;
use throughline_codec::framing::sse::Framer;
use throughline_codec::json::EndDetector;
use throughline_gateway::headers::{BACKEND, TURN};
use throughline_gateway::reply::ReplyBody;
use throughline_gateway::turn::error_reply::Reply;
use throughline_gateway::turn::span::turn_span;
use throughline_gateway::upstream::BoxError;
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use super::Responses;
use super::body::{Answer, live, plain};
use super::create::Turn;

/// How many pieces of a reply may wait for a slow reader.
pub(super) const MAX_WAITING_PIECES: usize = 32;

/// Sends the pieces of a reply.
type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// Reads a response from the bytes of its reply. One that is too long to read still passes.
enum ResponseReader {
    Events { framer: Framer, progress: Progress },
    Whole { bytes: Vec<u8>, end: EndDetector },
}

impl ResponseReader {
    fn new(streamed: bool) -> Self {
        match streamed {
            true => {
                Self::Events { framer: Framer::new(MAX_REPLY_BYTES), progress: Progress::default() }
            }
            false => Self::Whole { bytes: Vec::new(), end: EndDetector::default() },
        }
    }

    fn push(&mut self, piece: &[u8]) {
        match self {
            Self::Events { framer, progress } => {
                framer.push(piece, |frame, _| progress.take(step(frame.data).1));
            }
            Self::Whole { bytes, end } => {
                if bytes.len() < MAX_REPLY_BYTES {
                    bytes.extend_from_slice(piece);
                }
                end.push(piece);
            }
        }
    }

    fn has_ended(&self) -> bool {
        match self {
            Self::Events { progress, .. } => progress.ended().is_some(),
            Self::Whole { end, .. } => end.is_complete(),
        }
    }

    /// The response so far. `status` is used if the reply has not ended.
    fn response(&self, status: &str) -> Option<Value> {
        match self {
            Self::Events { progress, .. } => progress.so_far(status, None),
            Self::Whole { bytes, .. } => serde_json::from_slice(bytes).ok(),
        }
    }
}

impl Responses {
    /// Forwards a reply and stores a copy of its response.
    pub(super) fn forward_and_copy(self: &Arc<Self>, reply: Reply, turn: Turn) -> Answer {
        if !reply.status().is_success() {
            return plain(reply);
        }
        // A fallback backend may have answered, and one of another dialect stores nothing.
        let named = reply.headers().get(BACKEND).and_then(|name| name.to_str().ok());
        let settings = self.gateway.settings();
        let speaks_it = |name: &&str| {
            let backend = settings.backend(name);
            backend.is_some_and(|backend| backend.dialect.name() == openai_responses::NAME)
        };
        let native = named.filter(speaks_it).map(str::to_owned);
        let id = reply.headers().get(TURN).and_then(|id| id.to_str().ok());
        let span = turn_span(id.unwrap_or_default());
        let kind = reply.headers().get(CONTENT_TYPE);
        let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let (head, body) = reply.into_parts();
        let (send, mut receive) = mpsc::channel(MAX_WAITING_PIECES);
        tokio::spawn(Arc::clone(self).copy(
            body,
            ResponseReader::new(streamed),
            send,
            turn,
            native,
            span,
        ));
        let mut breaking = None;
        let frames = futures_util::stream::poll_fn(move |context| {
            if let Some(error) = breaking.take() {
                return Poll::Ready(Some(Err(error)));
            }
            match receive.poll_recv(context) {
                // Send the earlier bytes first.
                Poll::Ready(Some(Err(error))) => {
                    breaking = Some(error);
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                other => other,
            }
        });
        Answer::from_parts(head, live(frames))
    }

    /// Forwards the pieces of a reply, and stores the response before the client learns that it is
    /// complete.
    async fn copy(
        self: Arc<Self>,
        mut body: ReplyBody,
        mut reader: ResponseReader,
        send: Sender,
        turn: Turn,
        native: Option<String>,
        span: Span,
    ) {
        let mut turn = Some(turn);
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = send.closed() => None,
            };
            if let Some(Ok(frame)) = &frame
                && let Some(bytes) = frame.data_ref()
            {
                reader.push(bytes);
            }
            let broken = !matches!(frame, Some(Ok(_)));
            if broken || reader.has_ended() {
                let status = if send.is_closed() { "cancelled" } else { "failed" };
                if let Some(turn) = turn.take()
                    && let Some(response) = reader.response(status)
                {
                    let stored = self.store_response(response, turn, native.clone());
                    stored.instrument(span.clone()).await;
                }
            }
            match frame {
                None => return,
                Some(frame) => {
                    // The next loop notices a client that has disconnected.
                    let _ = send.send(frame).await;
                }
            }
        }
    }
}
