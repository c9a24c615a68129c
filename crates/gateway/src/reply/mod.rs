//! A reply on its way to the client: applies the lane's transform to the provider's bytes as they
//! arrive, and enforces the timeouts. The transform gives bytes ([`ReplyBody`]), canonical events
//! ([`events::TurnEvents`]) or a whole reply (`folded`).

pub(crate) mod edits;
pub mod events;
pub(crate) mod folded;
pub(crate) mod model_name;
pub(crate) mod passthrough;
pub mod raw;
pub(crate) mod repair;
pub(crate) mod translated;

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::framing::encoding::EncodingError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};
use tracing::Span;

use crate::shared_store::SharedWrites;
use crate::shutdown::{self, ShutdownWatch};
use crate::turn::ledger::Closing;
use crate::upstream::{BoxError, UpstreamBody};

/// What a lane makes of the bytes of a reply: other bytes, or events.
pub(crate) trait ReplyTransform<O>: fmt::Debug + Send {
    /// Takes bytes of the provider and returns output for the client. `last` is true if none follow.
    fn take(&mut self, bytes: Bytes, last: bool) -> Result<O, EncodingError>;
    /// Ends the reply after the provider's last byte. Returns the client's last output, or `None` if
    /// the reply is not complete.
    fn end(&mut self) -> Option<O>;
    /// A keep-alive after `silent` without output. Empty if none can be sent now.
    fn keep_alive(&mut self, silent: Duration) -> O;
    /// Ends the reply with a fault. `None` if it can only be broken off. `closing` is recorded.
    fn fail(&mut self, fault: &Fault, closing: Closing) -> Option<O>;
    /// Output that was held back. The client gets it before the reply is broken off.
    fn held(&mut self) -> O
    where
        O: Default,
    {
        O::default()
    }
    /// The client has disconnected.
    fn client_gone(&mut self);
    /// Whether keep-alives may be sent.
    fn can_inject(&self) -> bool;
    /// Whether the client gets as many bytes as the provider sends.
    fn keeps_length(&self) -> bool;
}

/// The output of a transform. Output that is ready at the same time leaves as one piece.
pub(crate) trait Output: Default {
    /// Collects output that is ready at the same time.
    type Gathered: Gather<Self>;
    fn is_empty(&self) -> bool;
}

/// Collects output.
pub(crate) trait Gather<O>: Default {
    fn push(&mut self, output: O);
    fn is_empty(&self) -> bool;
    /// Whether the output should leave before more is collected.
    fn is_full(&self) -> bool;
    fn finish(self) -> O;
}

/// A reply's body.
#[derive(Debug)]
pub enum ReplyBody {
    /// A body whose bytes are all known.
    Whole(Option<Bytes>),
    /// A provider's bytes, as they arrive.
    Live(Box<Live<Bytes>>),
}

impl ReplyBody {
    /// A body whose bytes are all known.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

/// When a reply gets a keep-alive, when it times out, and when the server stops.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// The silence after which the client gets a keep-alive.
    pub(crate) keep_alive: Duration,
    /// The silence after which the reply fails.
    pub(crate) idle: Duration,
    /// When the reply fails in any case.
    pub(crate) ends: Instant,
    /// Ends the reply if the server stops.
    pub(crate) shutdown: ShutdownWatch,
    /// What must be written before the client gets the bytes that caused it.
    pub(crate) shared_writes: Option<SharedWrites>,
}

/// Bytes that have arrived together are sent as one piece, up to about this size.
const MAX_GATHERED: usize = 32 << 10;

/// Why the provider sends no more bytes.
#[derive(Debug)]
enum Stop {
    /// The body has ended.
    End,
    /// The connection broke.
    Broken(BoxError),
    /// The bytes cannot be decompressed.
    Unreadable(EncodingError),
}

impl Output for Bytes {
    type Gathered = GatheredBytes;

    fn is_empty(&self) -> bool {
        Bytes::is_empty(self)
    }
}

/// Bytes for the client that have arrived together.
#[derive(Default)]
pub(crate) struct GatheredBytes {
    first: Bytes,
    /// All of them, if there are more than the first.
    all: Vec<u8>,
}

impl GatheredBytes {
    fn len(&self) -> usize {
        self.first.len().max(self.all.len())
    }
}

impl Gather<Bytes> for GatheredBytes {
    fn push(&mut self, bytes: Bytes) {
        if self.is_empty() {
            self.first = bytes;
            return;
        }
        if self.all.is_empty() {
            self.all.reserve(MAX_GATHERED.min(4 * (self.first.len() + bytes.len())));
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&bytes);
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn is_full(&self) -> bool {
        self.len() >= MAX_GATHERED
    }

    fn finish(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.into() }
    }
}

/// A provider's reply, as it arrives.
#[derive(Debug)]
pub struct Live<O> {
    upstream: UpstreamBody,
    transform: Box<dyn ReplyTransform<O>>,
    watch: Watch,
    shutdown: ShutdownWatch,
    backend: String,
    done: bool,
    /// How the upstream ended, if bytes had to be sent first.
    stop: Option<Stop>,
    /// The error that the next poll returns.
    breaking: Option<BoxError>,
    /// The span of the turn. It is entered only to log the end of a reply.
    span: Span,
    shared_writes: Option<SharedWrites>,
    /// Output that waits until what was learnt from it is written.
    held: Option<Held<O>>,
    /// Output that was read before the head of the reply was sent.
    ahead: VecDeque<Result<O, BoxError>>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// Output that waits for a write.
struct Held<O> {
    output: Option<Result<O, BoxError>>,
    written: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl<O> fmt::Debug for Held<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Held")
    }
}

/// The clocks of one reply. One timer serves all three. It is reset only when it fires, so that a
/// byte costs no more than reading the clock.
#[derive(Debug)]
struct Watch {
    timer: Pin<Box<Sleep>>,
    last_byte: Instant,
    last_out: Instant,
    /// As `last_out`, without keep-alives.
    last_data: Instant,
    ends: Instant,
    idle: Duration,
    keep_alive: Option<Duration>,
}

impl Watch {
    fn next(&self) -> Instant {
        let silence = self.last_byte + self.idle;
        let keep_alive = self.keep_alive.map(|after| self.last_out + after);
        keep_alive.map_or(silence, |keep_alive| keep_alive.min(silence)).min(self.ends)
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Live(live) => live.poll_or_break(context).map_ok(Frame::data),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Live(live) => live.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Live(live) if live.transform.keeps_length() => live.remaining(),
            Self::Live(_) => SizeHint::default(),
        }
    }
}

/// One step of a live reply.
type Polled<O> = Poll<Option<Result<O, BoxError>>>;

#[allow(
    private_bounds,
    reason = "the outputs are bytes, events and a whole reply, and no other crate adds one"
)]
impl<O: Output> Live<O> {
    /// A reply that begins.
    pub(crate) fn new(
        upstream: UpstreamBody,
        transform: Box<dyn ReplyTransform<O>>,
        clocks: Clocks,
        backend: String,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Self {
        let now = Instant::now();
        let mut watch = Watch {
            timer: Box::pin(tokio::time::sleep_until(now)),
            last_byte: now,
            last_out: now,
            last_data: now,
            ends: clocks.ends,
            idle: clocks.idle,
            keep_alive: transform.can_inject().then_some(clocks.keep_alive),
        };
        let first = watch.next();
        watch.timer.as_mut().reset(first);
        Self {
            upstream,
            transform,
            watch,
            shutdown: clocks.shutdown,
            backend,
            done: false,
            stop: None,
            breaking: None,
            span: Span::current(),
            shared_writes: clocks.shared_writes,
            held: None,
            ahead: VecDeque::new(),
            _permit: permit,
        }
    }

    /// As [`Live::poll`], but waits for one poll before it returns an error. On an error the server
    /// drops what it has not written yet, and bytes that had arrived should not be lost.
    fn poll_or_break(&mut self, context: &mut Context<'_>) -> Polled<O> {
        if let Some(error) = self.breaking.take() {
            return Poll::Ready(Some(Err(error)));
        }
        match self.poll(context) {
            Poll::Ready(Some(Err(error))) => {
                self.breaking = Some(error);
                context.waker().wake_by_ref();
                Poll::Pending
            }
            other => other,
        }
    }

    /// As [`Live::poll_upstream`], but if several instances share a store, the client gets output
    /// only when what was learnt from it is written: its next request may go to another instance.
    fn poll(&mut self, context: &mut Context<'_>) -> Polled<O> {
        if let Some(output) = self.ahead.pop_front() {
            return Poll::Ready(Some(output));
        }
        if self.held.is_none() {
            let Some(writes) = self.shared_writes.clone() else {
                return self.poll_upstream(context);
            };
            let before = writes.pushed();
            let Poll::Ready(output) = self.poll_upstream(context) else {
                return Poll::Pending;
            };
            if writes.pushed() == before || writes.have_failed() {
                return Poll::Ready(output);
            }
            self.held = Some(Held { output, written: Box::pin(writes.written()) });
        }
        if let Some(held) = &mut self.held
            && held.written.as_mut().poll(context).is_pending()
        {
            return Poll::Pending;
        }
        Poll::Ready(self.held.take().and_then(|held| held.output))
    }

    fn poll_upstream(&mut self, context: &mut Context<'_>) -> Polled<O> {
        if self.done {
            return Poll::Ready(None);
        }
        if self.shutdown.has_begun() {
            return self.shut_down();
        }
        let mut gathered = O::Gathered::default();
        while !gathered.is_full() {
            let step = match self.stop.take() {
                Some(stop) => Err(stop),
                None => match Pin::new(&mut self.upstream).poll_frame(context) {
                    Poll::Ready(frame) => self.transform_frame(frame),
                    Poll::Pending if gathered.is_empty() => {
                        return match self.shutdown.poll(context) {
                            true => self.shut_down(),
                            false => self.poll_clocks(context),
                        };
                    }
                    Poll::Pending => break,
                },
            };
            match step {
                Ok(bytes) => gathered.push(bytes),
                // The client first gets the bytes that have arrived.
                Err(stop) if !gathered.is_empty() => {
                    self.stop = Some(stop);
                    break;
                }
                Err(Stop::End) => return self.end(),
                Err(Stop::Broken(error)) => return self.broken(error),
                Err(Stop::Unreadable(error)) => return self.unreadable(error),
            }
        }
        self.watch.last_out = self.watch.last_byte;
        self.watch.last_data = self.watch.last_byte;
        Poll::Ready(Some(Ok(gathered.finish())))
    }

    /// Turns a frame of the provider into output for the client.
    fn transform_frame(
        &mut self,
        frame: Option<Result<Frame<Bytes>, BoxError>>,
    ) -> Result<O, Stop> {
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Err(Stop::Broken(error)),
            None => return Err(Stop::End),
        };
        // Drop trailers: no byte could be sent after them, but an error may still have to be.
        let Ok(bytes) = frame.into_data() else {
            return Ok(O::default());
        };
        self.watch.last_byte = Instant::now();
        let last = self.upstream.is_end_stream();
        self.transform.take(bytes, last).map_err(Stop::Unreadable)
    }

    fn broken(&mut self, error: BoxError) -> Polled<O> {
        let _entered = self.span.clone().entered();
        let what = format!("the connection to backend `{}` broke", self.backend);
        tracing::warn!(
            backend = self.backend,
            error = &*error as &dyn std::error::Error,
            "the connection to the backend broke during the reply"
        );
        self.fail(FaultKind::Unreachable, what, Some(error))
    }

    /// Fails because a compressed reply cannot be decompressed.
    fn unreadable(&mut self, error: EncodingError) -> Polled<O> {
        let _entered = self.span.clone().entered();
        let what = format!(
            "the reply of backend `{}` is not valid for its content encoding",
            self.backend
        );
        tracing::warn!(backend = self.backend, %error, "cannot decompress the reply");
        self.fail(FaultKind::Unreachable, what, Some(error.into()))
    }

    /// Handles the end of the provider's bytes.
    fn end(&mut self) -> Polled<O> {
        if let Some(rest) = self.transform.end() {
            self.done = true;
            return Poll::Ready((!rest.is_empty()).then(|| Ok(rest)));
        }
        let _entered = self.span.clone().entered();
        // Several clients take any clean end for a complete answer.
        let what = format!("backend `{}` ended its reply early", self.backend);
        tracing::warn!(backend = self.backend, "the reply ended before it was complete");
        self.fail(FaultKind::Unreachable, what, None)
    }

    fn poll_clocks(&mut self, context: &mut Context<'_>) -> Polled<O> {
        while self.watch.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= self.watch.ends {
                let what = format!("backend `{}` took too long to finish its reply", self.backend);
                return self.fail(FaultKind::TimedOut, what, Some("total time-out".into()));
            }
            if now >= self.watch.last_byte + self.watch.idle {
                let what = format!(
                    "backend `{}` sent nothing for {} s",
                    self.backend,
                    self.watch.idle.as_secs_f32()
                );
                return self.fail(FaultKind::TimedOut, what, Some("idle time-out".into()));
            }
            let due = self.watch.keep_alive.is_some_and(|after| now >= self.watch.last_out + after);
            if due {
                // Count this as output even if nothing could be sent, so that the clock continues.
                self.watch.last_out = now;
            }
            let next = self.watch.next();
            self.watch.timer.as_mut().reset(next);
            if due {
                let silent = now.saturating_duration_since(self.watch.last_data);
                let keep_alive = self.transform.keep_alive(silent);
                if !keep_alive.is_empty() {
                    return Poll::Ready(Some(Ok(keep_alive)));
                }
            }
        }
        Poll::Pending
    }

    /// Ends the reply because the server stops.
    fn shut_down(&mut self) -> Polled<O> {
        let fault = shutdown::fault();
        let closing = Closing::Stopped(fault.message.clone());
        self.close(&fault, closing, None)
    }

    /// Ends the reply with an error that the client can see.
    fn fail(&mut self, kind: FaultKind, what: String, cause: Option<BoxError>) -> Polled<O> {
        let closing = Closing::Failed(what.clone());
        self.close(&Fault::new(kind, what), closing, cause)
    }

    fn close(&mut self, fault: &Fault, closing: Closing, cause: Option<BoxError>) -> Polled<O> {
        self.done = true;
        match self.transform.fail(fault, closing) {
            Some(last) if last.is_empty() => Poll::Ready(None),
            Some(last) => Poll::Ready(Some(Ok(last))),
            None => {
                let error = cause.unwrap_or_else(|| fault.message.clone().into());
                let held = self.transform.held();
                if held.is_empty() {
                    return Poll::Ready(Some(Err(error)));
                }
                self.breaking = Some(error);
                Poll::Ready(Some(Ok(held)))
            }
        }
    }
}

impl Live<Bytes> {
    /// Reads until the reply ends, breaks, or has this many bytes. The client gets what was read first.
    pub(crate) async fn read_ahead(&mut self, limit: usize) {
        let (mut read, mut size) = (VecDeque::new(), 0);
        while size < limit
            && let Some(output) = std::future::poll_fn(|context| self.poll(context)).await
        {
            let broke = output.is_err();
            size += output.as_ref().map_or(0, Bytes::len);
            read.push_back(output);
            if broke {
                break;
            }
        }
        self.ahead = read;
    }

    fn is_over(&self) -> bool {
        self.done && self.breaking.is_none() && self.held.is_none() && self.ahead.is_empty()
    }

    /// How many bytes the client has yet to get.
    fn remaining(&self) -> SizeHint {
        let read = self.ahead.iter().flatten().map(|bytes| bytes.len() as u64).sum::<u64>();
        let mut hint = self.upstream.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + read);
        }
        hint.set_lower(hint.lower() + read);
        hint
    }
}

impl<O> Drop for Live<O> {
    fn drop(&mut self) {
        self.transform.client_gone();
    }
}
