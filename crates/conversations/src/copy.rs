//! Copies of replies that pass unchanged. The copy is read from the bytes on their way to the client.

use std::task::Poll;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use http_body_util::BodyExt;
use throughline_gateway::headers::TURN;
use throughline_gateway::reply::ReplyBody;
use throughline_gateway::turn::error_reply::Reply;
use throughline_gateway::turn::span::turn_span;
use throughline_gateway::upstream::BoxError;
use tokio::sync::mpsc;
use tracing::{Instrument, Span};

use crate::body::{Answer, live};

/// How many pieces of a reply may wait for a slow reader.
pub(crate) const MAX_WAITING_PIECES: usize = 32;

/// Sends the pieces of a reply.
type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// Reads a reply and stores what it contained.
pub(crate) trait ReplyCopy: Send + 'static {
    /// Reads the next bytes.
    fn push(&mut self, piece: &[u8]);
    /// Whether the reply is complete.
    fn has_ended(&self) -> bool;
    /// Stores the copy, complete or not. `client_gone` if the client has disconnected.
    fn store(self, client_gone: bool) -> impl Future<Output = ()> + Send;
}

/// Whether a reply is a stream of events.
pub(crate) fn is_streamed(reply: &Reply) -> bool {
    let kind = reply.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

/// Forwards a reply and stores a copy. The lines that the log gets meanwhile carry the turn's id.
pub(crate) fn forward_and_copy(reply: Reply, copy: impl ReplyCopy) -> Answer {
    let id = reply.headers().get(TURN).and_then(|id| id.to_str().ok());
    let span = turn_span(id.unwrap_or_default());
    let (head, body) = reply.into_parts();
    let (send, mut receive) = mpsc::channel(MAX_WAITING_PIECES);
    tokio::spawn(forward(body, copy, send, span));
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

/// Forwards the pieces of a reply, and stores the copy before the client learns that it is complete.
async fn forward(mut body: ReplyBody, copy: impl ReplyCopy, send: Sender, span: Span) {
    let mut copy = Some(copy);
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = send.closed() => None,
        };
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
            && let Some(copy) = &mut copy
        {
            copy.push(bytes);
        }
        let broken = !matches!(frame, Some(Ok(_)));
        if let Some(copy) = copy.take_if(|copy| broken || copy.has_ended()) {
            copy.store(send.is_closed()).instrument(span.clone()).await;
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
