//! Edits of a reply that passes: the model's name, and what a server left out. Only the bytes of the
//! present event are held back, or a whole reply that is not a stream.

use std::fmt;

use bytes::{Bytes, BytesMut};
use throughline_codec::framing::sse::Framer;
use throughline_codec::json::Span;

/// How many bytes of an event are held back, unless an edit needs more.
pub(crate) const MAX_HELD_EVENT_BYTES: usize = 256 << 10;
/// How many bytes of a whole reply are held back.
const MAX_HELD_REPLY_BYTES: usize = 64 << 20;

/// Edits a reply.
pub(crate) trait ReplyEdit: fmt::Debug + Send {
    /// Edits one event, given all its bytes.
    fn event(&mut self, event: &[u8]) -> EditedEvent;
    /// Edits a whole reply. `None` if it stays as it is.
    fn whole(&mut self, reply: &[u8]) -> Option<Vec<u8>>;
    /// Whether the client may get the reply unedited if it breaks off before its end.
    fn may_be_skipped(&self) -> bool {
        false
    }
    /// How many bytes of an event may be held back. A longer event passes unchanged.
    fn max_event_bytes(&self) -> usize {
        MAX_HELD_EVENT_BYTES
    }
}

/// The result of editing an event.
#[derive(Debug, Default)]
pub(crate) struct EditedEvent {
    /// The new bytes. `None` if it stays as it is.
    pub(crate) bytes: Option<Vec<u8>>,
    /// Whether no later event needs an edit.
    pub(crate) last: bool,
}

/// Applies edits to a reply.
#[derive(Debug)]
pub(crate) enum Edits {
    /// There is nothing to edit any more.
    No,
    /// Edits a stream of events.
    InStream(InStream),
    /// Edits a whole reply.
    InWhole {
        /// The edits, in order.
        edits: Vec<Box<dyn ReplyEdit>>,
        /// The bytes so far.
        held: BytesMut,
    },
}

/// Edits events, one at a time.
#[derive(Debug)]
pub(crate) struct InStream {
    edits: Vec<Box<dyn ReplyEdit>>,
    framer: Framer,
    held: BytesMut,
}

impl Edits {
    /// For a stream of events or a whole reply.
    pub(crate) fn new(edits: Vec<Box<dyn ReplyEdit>>, events: bool) -> Self {
        let longest = edits.iter().map(|edit| edit.max_event_bytes()).max();
        match longest {
            None => Self::No,
            Some(longest) if events => Self::InStream(InStream {
                edits,
                framer: Framer::new(longest),
                held: BytesMut::new(),
            }),
            Some(_) => Self::InWhole { edits, held: BytesMut::new() },
        }
    }

    /// Whether received bytes are held back.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Self::No => false,
            Self::InStream(stream) => !stream.held.is_empty(),
            Self::InWhole { held, .. } => !held.is_empty(),
        }
    }

    /// Takes bytes and returns those that can be sent.
    pub(crate) fn push(&mut self, bytes: Bytes) -> Bytes {
        match self {
            Self::No => bytes,
            Self::InStream(stream) => {
                let (out, done) = stream.push(&bytes);
                if done {
                    *self = Self::No;
                }
                out
            }
            Self::InWhole { held, .. } => {
                held.extend_from_slice(&bytes);
                if held.len() <= MAX_HELD_REPLY_BYTES {
                    return Bytes::new();
                }
                let all = held.split().freeze();
                *self = Self::No;
                all
            }
        }
    }

    /// The bytes of a whole reply that broke off, if the client may get them unedited.
    pub(crate) fn unedited(&mut self) -> Bytes {
        match self {
            Self::InWhole { edits, held } if edits.iter().all(|edit| edit.may_be_skipped()) => {
                held.split().freeze()
            }
            _ => Bytes::new(),
        }
    }

    /// Ends the reply. Returns the bytes that were held back.
    pub(crate) fn finish(&mut self) -> Bytes {
        match std::mem::replace(self, Self::No) {
            Self::No => Bytes::new(),
            // No client reads an unfinished event.
            Self::InStream(stream) => stream.held.freeze(),
            Self::InWhole { mut edits, held } => {
                let mut reply = held.freeze();
                for edit in &mut edits {
                    if let Some(edited) = edit.whole(&reply) {
                        reply = edited.into();
                    }
                }
                reply
            }
        }
    }
}

impl InStream {
    /// The bytes that can be sent, and whether nothing is left to edit.
    fn push(&mut self, bytes: &[u8]) -> (Bytes, bool) {
        let mut ends = Vec::new();
        self.framer.push(bytes, |_, end| ends.push(end));
        let mut out = BytesMut::new();
        let mut from = 0;
        for end in ends {
            self.held.extend_from_slice(&bytes[from..end]);
            from = end;
            let event = self.held.split();
            self.edit(event, &mut out);
            if self.edits.is_empty() {
                out.extend_from_slice(&bytes[from..]);
                return (out.freeze(), true);
            }
        }
        self.held.extend_from_slice(&bytes[from..]);
        // No event has started, or it is too long: hold nothing back.
        if self.framer.between_events() || self.framer.is_skipping() {
            out.extend_from_slice(&self.held.split());
        }
        (out.freeze(), false)
    }

    fn edit(&mut self, event: BytesMut, out: &mut BytesMut) {
        let mut event = event.freeze();
        self.edits.retain_mut(|edit| {
            let edited = edit.event(&event);
            if let Some(bytes) = edited.bytes {
                event = bytes.into();
            }
            !edited.last
        });
        out.extend_from_slice(&event);
    }
}

/// The name of an event, and the span of its data. No provider splits its JSON over lines.
pub(crate) fn read_event(event: &[u8]) -> (&[u8], Option<Span>) {
    let (mut name, mut data) = (&b""[..], None);
    let mut at = 0;
    while at < event.len() {
        let length = memchr::memchr2(b'\n', b'\r', &event[at..]).unwrap_or(event.len() - at);
        let line = &event[at..at + length];
        if let Some(value) = line.strip_prefix(b"data:") {
            data = data.or(Some(at + length - value.len()..at + length));
        } else if let Some(value) = line.strip_prefix(b"event:") {
            name = value.trim_ascii();
        }
        at += length + 1;
    }
    (name, data)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes every event longer.
    #[derive(Debug)]
    struct Suffix;

    impl ReplyEdit for Suffix {
        fn event(&mut self, event: &[u8]) -> EditedEvent {
            let bytes = Some([event, b": more\n\n"].concat());
            EditedEvent { bytes, last: event.starts_with(b"event: last") }
        }

        fn whole(&mut self, reply: &[u8]) -> Option<Vec<u8>> {
            Some([reply, b"!"].concat())
        }
    }

    fn edits(events: bool) -> Edits {
        Edits::new(vec![Box::new(Suffix), Box::new(Suffix)], events)
    }

    #[test]
    fn every_edit_is_applied_until_it_is_done() {
        let mut edits = edits(true);
        let out = edits.push(Bytes::from_static(b"event: a\n\nevent: last\n\nevent: b\n\nrest"));
        let more = ": more\n\n";
        let expected =
            format!("event: a\n\n{more}{more}event: last\n\n{more}{more}event: b\n\nrest");
        assert_eq!(out, expected);
        assert!(!edits.holds());
    }

    #[test]
    fn whole_reply_is_edited_at_its_end() {
        let mut edits = edits(false);
        assert!(edits.push(Bytes::from_static(b"{")).is_empty());
        assert!(edits.push(Bytes::from_static(b"}")).is_empty());
        assert_eq!(edits.finish(), "{}!!");
    }

    #[test]
    fn whole_reply_too_long_to_hold_passes() {
        let mut rename = edits(false);
        let half = Bytes::from(vec![b' '; MAX_HELD_REPLY_BYTES / 2]);
        assert!(rename.push(half.clone()).is_empty());
        assert!(rename.push(half.clone()).is_empty());
        assert_eq!(rename.push(half.slice(..1)).len(), MAX_HELD_REPLY_BYTES + 1);
        assert_eq!(rename.push(half.clone()), half);
        assert!(rename.finish().is_empty());
    }
}
