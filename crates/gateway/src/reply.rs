//! The reply's body on its way to the client: the provider's bytes as they arrive, and, only where
//! nothing else would help, a sign of life, an error, or the model's name as the client knows it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::anthropic::client_reply::{PING, error_event};
use throughline_codec::dialects::anthropic::rewrite::reply_model;
use throughline_codec::json::quote;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use crate::tap::Tap;
use crate::upstream::BoxError;

/// An event that names the model is held back at most so long.
const LONGEST_START: usize = 256 << 10;

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
    rename: Rename,
    watch: Watch,
    /// Whether bytes of ours may stand among the provider's.
    may_add: bool,
    backend: String,
    done: bool,
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

/// Gives the model back the name the client used.
#[derive(Debug)]
enum Rename {
    /// Nothing to do, or done.
    No,
    /// In the first event that names it.
    InStream { names: Names, held: BytesMut },
    /// In the whole reply.
    InWhole { names: Names, held: BytesMut },
}

/// Two names of one model.
#[derive(Clone, Debug)]
pub struct Names {
    /// The backend's.
    pub theirs: String,
    /// The client's.
    pub asked: String,
}

/// What a live reply is made from.
#[derive(Debug)]
pub struct LiveParts {
    /// The provider's body.
    pub upstream: Incoming,
    /// Who reads beside.
    pub tap: Option<Tap>,
    /// Whether it is a stream of events that we may add to.
    pub events: bool,
    /// Names to change.
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

impl From<LiveParts> for ReplyBody {
    fn from(parts: LiveParts) -> Self {
        let now = Instant::now();
        let rename = match (parts.names, parts.events) {
            (None, _) => Rename::No,
            (Some(names), true) => Rename::InStream {
                names,
                held: BytesMut::new(),
            },
            (Some(names), false) => Rename::InWhole {
                names,
                held: BytesMut::new(),
            },
        };
        let mut watch = Watch {
            timer: Box::pin(tokio::time::sleep_until(now)),
            last_byte: now,
            last_out: now,
            ends: parts.ends,
            idle: parts.idle,
            keep_alive: parts.events.then_some(parts.keep_alive),
        };
        let first = watch.next();
        watch.timer.as_mut().reset(first);
        Self::Live(Box::new(Live {
            upstream: parts.upstream,
            tap: parts.tap,
            rename,
            watch,
            may_add: parts.events,
            backend: parts.backend,
            done: false,
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
            Self::Live(live) => live.poll(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Live(live) => live.done,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Live(live) => match live.rename {
                Rename::No if !live.may_add => live.upstream.size_hint(),
                _ => SizeHint::default(),
            },
        }
    }
}

impl Live {
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
                    if let Some(tap) = &mut self.tap {
                        tap.push(&bytes);
                        // A client that has the last byte may come back at once; by then its
                        // blocks must be known.
                        if !self.may_add && self.upstream.is_end_stream() {
                            tap.finish(false, None);
                        }
                    }
                    let bytes = self.rename.push(bytes);
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

    /// The provider's bytes have ended.
    fn end(&mut self) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let whole = self.tap.as_ref().is_none_or(Tap::ended) || !self.may_add;
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

impl Rename {
    fn holds(&self) -> bool {
        match self {
            Self::No => false,
            Self::InStream { held, .. } | Self::InWhole { held, .. } => !held.is_empty(),
        }
    }

    /// Takes bytes, gives what may go on.
    fn push(&mut self, bytes: Bytes) -> Bytes {
        match self {
            Self::No => bytes,
            Self::InWhole { held, .. } => {
                held.extend_from_slice(&bytes);
                Bytes::new()
            }
            Self::InStream { names, held } => {
                held.extend_from_slice(&bytes);
                // The first event that names a model is the only one that does.
                let start = memchr::memmem::find(held, b"message_start");
                let Some(end) = start.and_then(|start| Some(start + event_end(&held[start..])?))
                else {
                    if held.len() > LONGEST_START {
                        let all = held.split().freeze();
                        *self = Self::No;
                        return all;
                    }
                    return Bytes::new();
                };
                let rest = held.split_off(end);
                let event = held.split();
                let mut renamed = rename_event(&event, names);
                renamed.extend_from_slice(&rest);
                *self = Self::No;
                renamed.into()
            }
        }
    }

    /// The bytes have ended; gives what was held.
    fn finish(&mut self) -> Bytes {
        match std::mem::replace(self, Self::No) {
            Self::No => Bytes::new(),
            Self::InStream { held, .. } => held.freeze(),
            Self::InWhole { names, held } => names.apply(&held).into(),
        }
    }
}

/// Where the event that begins here ends, its blank line included.
fn event_end(bytes: &[u8]) -> Option<usize> {
    let feed = memchr::memmem::find(bytes, b"\n\n").map(|at| at + 2);
    let both = memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4);
    match (feed, both) {
        (Some(feed), Some(both)) => Some(feed.min(both)),
        (one, other) => one.or(other),
    }
}

fn rename_event(event: &[u8], names: &Names) -> Vec<u8> {
    let data = memchr::memmem::rfind(event, b"data:").map(|at| at + b"data:".len());
    match data {
        Some(at) => {
            let (head, data) = event.split_at(at);
            let line = memchr::memchr2(b'\n', b'\r', data).unwrap_or(data.len());
            let (json, tail) = data.split_at(line);
            [head, &names.apply(json), tail].concat()
        }
        None => event.to_vec(),
    }
}

impl Names {
    /// The JSON with the client's name in place of the backend's; anything else stays.
    fn apply(&self, json: &[u8]) -> Vec<u8> {
        match reply_model(json) {
            Some(span) if json[span.clone()] == *self.theirs.as_bytes() => {
                let quoted = quote(&self.asked);
                let name = &quoted[1..quoted.len() - 1];
                [&json[..span.start], name, &json[span.end..]].concat()
            }
            _ => json.to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        Names {
            theirs: "glm-5".into(),
            asked: "claude-opus-5".into(),
        }
    }

    /// Covers: case 17
    #[test]
    fn the_clients_name_is_put_back_for_every_split() {
        let stream = "event: ping\ndata: {}\n\nevent: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"glm-5\",\"content\":[]}}\n\nevent: x\ndata: {\"model\":\"glm-5\"}\n\n";
        let expected = stream.replacen("glm-5", "claude-opus-5", 1);
        for (stream, expected) in [
            (stream.to_owned(), expected.clone()),
            (stream.replace('\n', "\r\n"), expected.replace('\n', "\r\n")),
        ] {
            for cut in 0..stream.len() {
                let mut rename = Rename::InStream {
                    names: names(),
                    held: BytesMut::new(),
                };
                let (one, two) = stream.as_bytes().split_at(cut);
                let mut out = rename.push(Bytes::copy_from_slice(one)).to_vec();
                out.extend(rename.push(Bytes::copy_from_slice(two)));
                out.extend(rename.finish());
                assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
            }
        }
    }

    #[test]
    fn another_name_passes_unchanged() {
        let json = br#"{"model":"glm-5-turbo"}"#;
        assert_eq!(names().apply(json), json);
        assert_eq!(names().apply(b"not json"), b"not json");
        assert_eq!(
            names().apply(br#"{"model":"glm-5"}"#),
            br#"{"model":"claude-opus-5"}"#
        );
    }
}
