//! Cuts a provider's reply into chunks: events, one growing list, or a whole reply. An error may
//! stand between events without an event around it.

use super::objects::Objects;
use crate::dialects::shared::reply_framing::TooLong;
use crate::framing::sse::Framer;
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};

/// Room for the bytes around the data of an event.
const AROUND: usize = 1 << 10;

/// How a reply arrives.
#[derive(Clone, Debug)]
pub(crate) enum ChunkFraming {
    /// No input so far.
    Unknown,
    /// Server-sent events.
    Events {
        framer: Framer,
        /// Whether the last byte ended a line.
        line_start: bool,
    },
    /// Objects without an event around them.
    Objects(Objects),
}

impl ChunkFraming {
    /// The framing of a streamed or whole reply.
    pub(crate) fn new(streamed: bool) -> Self {
        match streamed {
            true => Self::Unknown,
            false => Self::Objects(Objects::new(MAX_REPLY_BYTES)),
        }
    }

    /// Takes the next bytes and passes each complete chunk to `read`. Fails if one is too long.
    pub(crate) fn push(
        &mut self,
        mut bytes: &[u8],
        read: &mut dyn FnMut(&[u8]),
    ) -> Result<(), TooLong> {
        if let Self::Unknown = self {
            bytes = bytes.trim_ascii_start();
            match bytes.first() {
                None => return Ok(()),
                Some(b'[' | b'{') => *self = Self::Objects(Objects::new(MAX_EVENT_BYTES)),
                Some(_) => {
                    let framer = Framer::new(MAX_EVENT_BYTES + AROUND);
                    *self = Self::Events { framer, line_start: false };
                }
            }
        }
        let (framer, line_start) = match self {
            Self::Unknown => return Ok(()),
            Self::Objects(objects) => return objects.push(bytes, read),
            Self::Events { framer, line_start } => (framer, line_start),
        };
        let bare = find_bare_json(bytes, *line_start);
        let (events, rest) = bytes.split_at(bare.unwrap_or(bytes.len()));
        if let Some(last) = events.last() {
            *line_start = *last == b'\n';
        }
        let mut too_long = false;
        let mut take = |data: &[u8]| {
            too_long |= data.len() > MAX_EVENT_BYTES;
            if !too_long {
                read(data);
            }
        };
        framer.push(events, |frame, _| take(frame.data));
        if bare.is_some() {
            framer.finish(|frame, _| take(frame.data));
        }
        let too_long = too_long || framer.is_skipping();
        if bare.is_some() {
            // An error without an event around it; nothing follows.
            *self = Self::Objects(Objects::new(MAX_EVENT_BYTES));
            self.push(rest, read)?;
        }
        if too_long { Err(TooLong) } else { Ok(()) }
    }

    /// Ends the input. Passes on a last event, which may be incomplete.
    pub(crate) fn finish(&mut self, mut read: impl FnMut(&[u8])) {
        if let Self::Events { framer, .. } = self {
            framer.finish(|frame, _| read(frame.data));
        }
    }

    /// The beginning of an object whose end has not arrived. Empty if there is none.
    pub(crate) fn half_object(&self) -> &[u8] {
        match self {
            Self::Objects(objects) => objects.half(),
            Self::Unknown | Self::Events { .. } => &[],
        }
    }
}

/// The position of a line that starts with JSON, which no event line does.
fn find_bare_json(bytes: &[u8], line_start: bool) -> Option<usize> {
    let json = |at: usize| matches!(bytes.get(at), Some(b'{' | b'['));
    if line_start && json(0) {
        return Some(0);
    }
    memchr::memchr_iter(b'\n', bytes).map(|at| at + 1).find(|&at| json(at))
}
