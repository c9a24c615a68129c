//! Cuts a provider's reply into events or lines, or collects a whole reply.

use crate::framing::ndjson::Lines;
use crate::framing::sse::{Frame, Framer};
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};

/// An event, a line or a whole reply is longer than its limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// How a reply arrives.
#[derive(Clone, Debug)]
pub(crate) enum ReplyFraming {
    Events(Framer),
    Lines(Lines),
    Whole { bytes: Vec<u8>, limit: usize },
}

impl ReplyFraming {
    /// A stream of events, or a whole reply.
    pub(crate) fn events(streamed: bool) -> Self {
        match streamed {
            true => Self::Events(Framer::new(MAX_EVENT_BYTES)),
            false => Self::whole(MAX_REPLY_BYTES),
        }
    }

    /// A stream of lines, or a whole reply, which may contain line breaks.
    pub(crate) fn lines(streamed: bool) -> Self {
        match streamed {
            true => Self::Lines(Lines::new(MAX_EVENT_BYTES)),
            false => Self::whole(MAX_REPLY_BYTES),
        }
    }

    /// A whole reply of at most `limit` bytes.
    pub(crate) fn whole(limit: usize) -> Self {
        Self::Whole { bytes: Vec::new(), limit }
    }

    /// Whether the reply is not a stream.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self, Self::Whole { .. })
    }

    /// Takes the next bytes and passes each complete event or line to `read`. Bytes over a limit are
    /// skipped.
    #[inline]
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut read: impl FnMut(Frame<'_>),
    ) -> Result<(), TooLong> {
        let too_long = match self {
            Self::Events(framer) => {
                framer.push(bytes, |frame, _| read(frame));
                framer.is_skipping()
            }
            Self::Lines(lines) => {
                lines.push(bytes, |data| read(Frame { event: b"", data }));
                lines.is_skipping()
            }
            Self::Whole { bytes: all, limit } if bytes.len() > *limit - all.len() => {
                (*all, *limit) = (Vec::new(), 0);
                true
            }
            Self::Whole { bytes: all, .. } => {
                all.extend_from_slice(bytes);
                false
            }
        };
        if too_long { Err(TooLong) } else { Ok(()) }
    }

    /// Ends the input. Passes on a last event or line, which may be incomplete, or the whole reply.
    pub(crate) fn finish(&mut self, mut read: impl FnMut(Frame<'_>)) {
        match self {
            Self::Events(framer) => framer.finish(|frame, _| read(frame)),
            Self::Lines(lines) => lines.finish(|data| read(Frame { event: b"", data })),
            Self::Whole { bytes, .. } => read(Frame { event: b"", data: &std::mem::take(bytes) }),
        }
    }
}
