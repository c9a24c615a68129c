//! The reply's body on its way to the client: the provider's bytes as they arrive, and, only where
//! nothing else would help, a sign of life, an error, or the model's name as the client knows it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::anthropic::client_reply::{PING, error_event};
use throughline_codec::framing::encoding::{Decoder, EncodingError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::rename::{Names, Rename};
use crate::tap::Tap;
use crate::upstream::BoxError;

/// A reply's body.
#[derive(Debug)]
pub enum ReplyBody {
    /// Bytes we have.
    Whole(Option<Bytes>),
    /// A provider's bytes, as they arrive.
    Live(Box<Live>),
}

impl ReplyBody {
    /// Bytes we have.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }
}

/// A provider's bytes, as they arrive.
#[derive(Debug)]
pub struct Live {
    upstream: Incoming,
    tap: Option<Tap>,
    packed: Option<Packed>,
    rename: Rename,
    watch: Watch,
    /// Whether bytes of ours may stand among the provider's.
    may_add: bool,
    /// Whether an end is only good after the last event.
    needs_last_event: bool,
    /// Whether what comes cannot be read.
    unread: bool,
    backend: String,
    done: bool,
    /// The error the reply breaks with at the next look.
    breaking: Option<BoxError>,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The clocks of one reply. One timer serves all three; it is set anew only when it fires, so that
/// a byte costs a look at the clock and no more.
#[derive(Debug)]
struct Watch {
    timer: Pin<Box<Sleep>>,
    last_byte: Instant,
    last_out: Instant,
    ends: Instant,
    idle: Duration,
    keep_alive: Option<Duration>,
}

impl Watch {
    fn next(&self) -> Instant {
        let silence = self.last_byte + self.idle;
        let sign = self.keep_alive.map(|after| self.last_out + after);
        sign.map_or(silence, |sign| sign.min(silence))
            .min(self.ends)
    }
}

/// A compressed reply, undone to be read.
#[derive(Debug)]
struct Packed {
    decoder: Decoder,
    /// Whether the client gets it undone as well.
    for_client: bool,
}

/// What a live reply is made from.
#[derive(Debug)]
pub struct LiveParts {
    /// The provider's body.
    pub upstream: Incoming,
    /// Who reads beside.
    pub tap: Option<Tap>,
    /// Whether it is a stream of events.
    pub events: bool,
    /// How it is compressed.
    pub encoding: Encoded,
    /// Names to change; a compressed reply is undone for it.
    pub names: Option<Names>,
    /// The backend's name, for messages.
    pub backend: String,
    /// Silence after which the client gets a sign of life.
    pub keep_alive: Duration,
    /// Silence after which the reply is given up.
    pub idle: Duration,
    /// When the reply is given up in any case.
    pub ends: Instant,
    /// The place it takes among all streams.
    pub permit: Option<OwnedSemaphorePermit>,
}

/// How a reply is compressed.
#[derive(Debug)]
pub enum Encoded {
    /// Not at all.
    Plain,
    /// In a way that can be undone.
    Known(Decoder),
    /// In a way nobody here reads.
    Unknown,
}

impl From<LiveParts> for ReplyBody {
    fn from(parts: LiveParts) -> Self {
        let now = Instant::now();
        let readable = !matches!(parts.encoding, Encoded::Unknown);
        let names = parts.names.filter(|_| readable);
        let packed = match parts.encoding {
            Encoded::Known(decoder) => Some(Packed {
                decoder,
                for_client: names.is_some(),
            }),
            Encoded::Plain | Encoded::Unknown => None,
        };
        let may_add = match &packed {
            Some(packed) => parts.events && packed.for_client,
            None => parts.events && readable,
        };
        let mut watch = Watch {
            timer: Box::pin(tokio::time::sleep_until(now)),
            last_byte: now,
            last_out: now,
            ends: parts.ends,
            idle: parts.idle,
            keep_alive: may_add.then_some(parts.keep_alive),
        };
        let first = watch.next();
        watch.timer.as_mut().reset(first);
        Self::Live(Box::new(Live {
            upstream: parts.upstream,
            packed,
            rename: Rename::new(names, parts.events),
            watch,
            may_add,
            needs_last_event: parts.events && readable && parts.tap.is_some(),
            unread: !readable,
            tap: parts.tap,
            backend: parts.backend,
            done: false,
            breaking: None,
            _permit: parts.permit,
        }))
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
            Self::Live(live) => live.poll_or_break(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Live(live) => live.done && live.breaking.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Live(live) => match live.rename {
                Rename::No if !live.needs_last_event => live.upstream.size_hint(),
                _ => SizeHint::default(),
            },
        }
    }
}

impl Live {
    /// As [`Live::poll`], but pauses once before an error: the server drops what it has not yet
    /// written when it sees one, and what had arrived should not be lost.
    fn poll_or_break(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
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

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.done {
            return Poll::Ready(None);
        }
        loop {
            match Pin::new(&mut self.upstream).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let bytes = match frame.into_data() {
                        Ok(bytes) => bytes,
                        Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                    };
                    self.watch.last_byte = Instant::now();
                    let bytes = match self.take(bytes) {
                        Ok(bytes) => bytes,
                        Err(error) => return self.unreadable(error),
                    };
                    if bytes.is_empty() {
                        continue;
                    }
                    self.watch.last_out = self.watch.last_byte;
                    return Poll::Ready(Some(Ok(Frame::data(bytes))));
                }
                Poll::Ready(Some(Err(error))) => {
                    let what = format!("the connection to backend `{}` broke", self.backend);
                    tracing::warn!(
                        backend = self.backend,
                        error = &error as &dyn std::error::Error,
                        "the connection to a backend broke in mid-reply"
                    );
                    return self.give_up(FaultKind::Unreachable, what, Some(error.into()));
                }
                Poll::Ready(None) => return self.end(),
                Poll::Pending => return self.poll_clocks(context),
            }
        }
    }

    /// Takes bytes of the provider, gives those of the client.
    fn take(&mut self, bytes: Bytes) -> Result<Bytes, EncodingError> {
        let unpacked = match &mut self.packed {
            None => None,
            Some(packed) => match packed.decoder.push(&bytes) {
                Ok(plain) => Some(Bytes::from(plain)),
                Err(error) if packed.for_client => return Err(error),
                Err(error) => {
                    // It may be that the client reads it.
                    tracing::warn!(%error, "a compressed reply could not be read, its thinking is not remembered");
                    self.packed = None;
                    self.needs_last_event = false;
                    self.unread = true;
                    return Ok(bytes);
                }
            },
        };
        let plain = unpacked.as_ref().unwrap_or(&bytes);
        if let Some(tap) = &mut self.tap
            && !self.unread
        {
            tap.push(plain);
            // A client that has the last byte may come back at once; by then its blocks must be
            // known.
            let last = !self.may_add && self.upstream.is_end_stream();
            if last && (!self.needs_last_event || tap.ended()) {
                tap.finish(false, None);
            }
        }
        Ok(match (&self.packed, unpacked) {
            (Some(packed), Some(plain)) if packed.for_client => self.rename.push(plain),
            (Some(_), _) => bytes,
            (None, _) => self.rename.push(bytes),
        })
    }

    /// What the client should get undone is not what it says it is.
    fn unreadable(&mut self, error: EncodingError) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let what = format!(
            "the reply of backend `{}` is not valid for its content encoding",
            self.backend
        );
        tracing::warn!(backend = self.backend, %error, "a compressed reply could not be read");
        self.give_up(FaultKind::Unreachable, what, Some(error.into()))
    }

    /// The provider's bytes have ended.
    fn end(&mut self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let whole = self.tap.as_ref().is_none_or(Tap::ended) || !self.needs_last_event;
        if whole {
            self.done = true;
            if let Some(tap) = &mut self.tap {
                tap.finish(false, None);
            }
            let rest = self.rename.finish();
            return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
        }
        // Several clients take a clean end without the last event for a complete answer.
        let what = format!(
            "backend `{}` ended its reply before the last event",
            self.backend
        );
        tracing::warn!(
            backend = self.backend,
            "a reply ended before its last event"
        );
        self.give_up(FaultKind::Unreachable, what, None)
    }

    fn poll_clocks(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while self.watch.timer.as_mut().poll(context).is_ready() {
            let now = Instant::now();
            if now >= self.watch.ends {
                let what = format!(
                    "backend `{}` took too long to finish its reply",
                    self.backend
                );
                return self.give_up(FaultKind::TimedOut, what, Some("total time-out".into()));
            }
            if now >= self.watch.last_byte + self.watch.idle {
                let what = format!(
                    "backend `{}` sent nothing for {} s",
                    self.backend,
                    self.watch.idle.as_secs_f32()
                );
                return self.give_up(FaultKind::TimedOut, what, Some("idle time-out".into()));
            }
            let due = self
                .watch
                .keep_alive
                .is_some_and(|after| now >= self.watch.last_out + after);
            if due {
                // Counted as said even where nothing could be said, so that the clock goes on.
                self.watch.last_out = now;
            }
            let next = self.watch.next();
            self.watch.timer.as_mut().reset(next);
            let between = self.tap.as_ref().is_some_and(Tap::between_events);
            if due && between && !self.rename.holds() {
                if let Some(tap) = &self.tap {
                    tap.sign_of_life();
                }
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(PING)))));
            }
        }
        Poll::Pending
    }

    /// Ends the reply with an error the client can see.
    fn give_up(
        &mut self,
        kind: FaultKind,
        what: String,
        cause: Option<BoxError>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.done = true;
        let ended = self.tap.as_ref().is_some_and(Tap::ended);
        let half = self.tap.as_ref().and_then(Tap::half_event);
        let event = error_event(&Fault::new(kind, what.clone()), half);
        if let Some(tap) = &mut self.tap {
            tap.finish(false, Some(what.clone()));
        }
        if ended {
            return Poll::Ready(None);
        }
        if !self.may_add {
            return Poll::Ready(Some(Err(cause.unwrap_or_else(|| what.into()))));
        }
        let mut bytes = self.rename.finish().to_vec();
        bytes.extend_from_slice(&event);
        Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(tap) = &mut self.tap {
            tap.finish(true, None);
        }
    }
}
