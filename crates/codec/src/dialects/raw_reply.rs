//! The provider's reply as it was captured, as one JSON text. Stored conversations keep it beside
//! the canonical blocks, and [`replay`] reads it back.
//!
//! Every value is the provider's own text, byte for byte. `[DONE]`, comments and events without data
//! are left out; in [`RawShape::NamedEvents`] the latter are events too. Data that is no JSON is kept
//! as a JSON string; it ends in a line feed if its event had ended, so only a cut event has none. The
//! payload of a cut reply is what has arrived, and it is always valid JSON.

use std::borrow::Cow;
use std::ops::Range;

use throughline_canonical::Out;

use super::ReplyReader;
use super::shared::chunk_framing::ChunkFraming;
use super::shared::reply_framing::ReplyFraming;
use crate::framing::MAX_REPLY_BYTES;
use crate::framing::sse::Frame;
use crate::json::{
    JsonError, Kind, Span, each_element, each_member, find_member, inside, quote_bytes, slice,
    text, validate,
};

/// How deep a value may nest to be kept as JSON. Readers of the payload have limits of their own.
const MAX_DEPTH: usize = 100;
/// The end of a chat stream. It is no chunk.
const DONE: &[u8] = b"[DONE]";
/// The name that a whole reply gets in a list of named events.
const WHOLE_EVENT: &[u8] = b"message";
/// The events that carry a final response.
const FINAL_EVENTS: [&[u8]; 4] =
    [b"response.completed", b"response.incomplete", b"response.failed", b"response.cancelled"];

/// The shape of a payload. Each upstream dialect has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawShape {
    /// A list of the chunks of an event stream.
    Chunks,
    /// A list of the lines of a stream.
    Lines,
    /// A list of `{"event", "data"}`.
    NamedEvents,
    /// `{"stream", "response"}`: all chunks, and the last one again.
    StreamAndLast,
    /// `{"events", "response"}`: all events, and the response of the final one again.
    EventsAndResponse,
}

/// Captures one reply.
#[derive(Clone, Debug)]
pub struct RawReply {
    shape: RawShape,
    framing: RawFraming,
    /// The values so far, with commas between them.
    items: Vec<u8>,
    /// The span in `items` that the payload repeats as `response`.
    response: Option<Range<usize>>,
    /// Whether the reply is longer than the limit. Its rest is not captured.
    full: bool,
}

#[derive(Clone, Debug)]
enum RawFraming {
    Reply(ReplyFraming),
    Chunks(ChunkFraming),
}

/// Whether the end of an event has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventEnd {
    Arrived,
    Missing,
}

impl RawReply {
    /// Captures a streamed or whole reply.
    pub fn new(shape: RawShape, streamed: bool) -> Self {
        let framing = match shape {
            RawShape::StreamAndLast if streamed => RawFraming::Chunks(ChunkFraming::new(true)),
            RawShape::Lines => RawFraming::Reply(ReplyFraming::lines(streamed)),
            _ => RawFraming::Reply(ReplyFraming::events(streamed)),
        };
        Self { shape, framing, items: Vec::new(), response: None, full: false }
    }

    /// Takes the next bytes of the reply, decompressed.
    pub fn push(&mut self, bytes: &[u8]) {
        self.take(
            |framing, read| {
                // Events that are too long are skipped. The reader of the reply fails because of them.
                let _ = match framing {
                    RawFraming::Reply(framing) => framing.push(bytes, read),
                    RawFraming::Chunks(framing) => {
                        framing.push(bytes, &mut |data| read(Frame { event: b"", data }))
                    }
                };
            },
            EventEnd::Arrived,
        );
    }

    /// Whether a part of the reply is missing because the reply is too long.
    pub fn is_truncated(&self) -> bool {
        self.full
    }

    /// The payload of what has arrived so far.
    pub fn payload(&self) -> String {
        self.clone().finish()
    }

    /// Ends the reply and returns its payload.
    pub fn finish(mut self) -> String {
        let whole = matches!(&self.framing, RawFraming::Reply(framing) if framing.is_whole());
        let outside = self.text_outside_events();
        self.take(
            |framing, read| match framing {
                RawFraming::Reply(framing) if whole => {
                    framing.finish(|frame| read(Frame { event: WHOLE_EVENT, ..frame }));
                }
                RawFraming::Reply(framing) => framing.finish(read),
                RawFraming::Chunks(framing) => {
                    framing.finish(|data| read(Frame { event: b"", data }));
                    read(Frame { event: b"", data: framing.half_object() });
                }
            },
            EventEnd::Missing,
        );
        if self.items.is_empty() && !outside.is_empty() {
            quote_bytes(&String::from_utf8_lossy(&outside), &mut self.items);
        }
        into_text(self.write(whole))
    }

    /// The text of a reply that should be events and has none, such as an error in plain JSON.
    fn text_outside_events(&self) -> Vec<u8> {
        match &self.framing {
            RawFraming::Reply(ReplyFraming::Events(framer)) if self.items.is_empty() => {
                let text = framer.half_event().unwrap_or_default().trim_ascii();
                if text.starts_with(b":") { Vec::new() } else { text.to_vec() }
            }
            _ => Vec::new(),
        }
    }

    /// Adds the events that `cut` finds.
    fn take(
        &mut self,
        cut: impl FnOnce(&mut RawFraming, &mut dyn FnMut(Frame<'_>)),
        end: EventEnd,
    ) {
        // Moved out, so that the events can borrow it while they are added.
        let empty = RawFraming::Chunks(ChunkFraming::Unknown);
        let mut framing = std::mem::replace(&mut self.framing, empty);
        cut(&mut framing, &mut |frame| self.add(frame, end));
        self.framing = framing;
    }

    fn add(&mut self, frame: Frame<'_>, end: EventEnd) {
        let data = frame.data.trim_ascii();
        let named = self.shape == RawShape::NamedEvents;
        let is_event = !data.is_empty() || named && !frame.event.is_empty();
        if self.full || !is_event || data == DONE {
            return;
        }
        // A quoted text may need six times its length; then the rest of the room decides.
        if data.len() + frame.event.len() > MAX_REPLY_BYTES.saturating_sub(self.items.len()) {
            self.full = true;
            return;
        }
        if !self.items.is_empty() {
            self.items.push(b',');
        }
        if named {
            self.items.extend_from_slice(br#"{"event":"#);
            quote_bytes(&String::from_utf8_lossy(frame.event), &mut self.items);
            if !data.is_empty() {
                self.items.extend_from_slice(br#","data":"#);
                write_value(data, end, &mut self.items);
            }
            self.items.push(b'}');
            return;
        }
        let start = self.items.len();
        write_value(data, end, &mut self.items);
        let value = start..self.items.len();
        match self.shape {
            RawShape::StreamAndLast if data.starts_with(b"{") => self.response = Some(value),
            RawShape::EventsAndResponse => {
                if let Some(span) = final_response(frame.event, slice(&self.items, &value)) {
                    self.response = Some(start + span.start..start + span.end);
                }
            }
            _ => {}
        }
    }

    fn write(self, whole: bool) -> Vec<u8> {
        let Self { shape, items, response, .. } = self;
        let list = match shape {
            RawShape::Chunks | RawShape::Lines | RawShape::NamedEvents => {
                return [b"[", &items[..], b"]"].concat();
            }
            RawShape::StreamAndLast => &br#"{"stream":["#[..],
            RawShape::EventsAndResponse => br#"{"events":["#,
        };
        let null = &b"null"[..];
        let (items, response) = match (whole, &response) {
            (true, _) if items.is_empty() => (&[][..], null),
            (true, _) => (&[][..], &items[..]),
            (false, Some(span)) => (&items[..], slice(&items, span)),
            (false, None) => (&items[..], null),
        };
        [list, items, br#"],"response":"#, response, b"}"].concat()
    }
}

/// Writes data as it is if it is JSON, or else as a JSON string. A JSON string would look like such
/// a text, so it is written as one.
fn write_value(data: &[u8], end: EventEnd, items: &mut Vec<u8>) {
    match validate(data, MAX_DEPTH) {
        Ok(Kind::String) | Err(_) => {
            let mut text = String::from_utf8_lossy(data);
            if end == EventEnd::Arrived {
                text.to_mut().push('\n');
            }
            quote_bytes(&text, items);
        }
        Ok(_) => items.extend_from_slice(data),
    }
}

/// The span of the final response in an event; `None` if the event is not the final one.
fn final_response(event: &[u8], json: &[u8]) -> Option<Span> {
    let (mut kind, mut response) = (event, None);
    each_member(json, 0, |key, value, span| match (key, value) {
        (b"type", Kind::String) => kind = inside(json, &span),
        (b"response", Kind::Object) => response = Some(span),
        _ => {}
    })
    .ok()?;
    response.filter(|_| FINAL_EVENTS.contains(&kind))
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// How a captured reply arrived and ended. Its payload does not say that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawEnd {
    /// A stream that was cut, or whose end is part of its events.
    Open,
    /// A stream that the provider ended.
    Done,
    /// A whole reply.
    Whole,
}

/// Reads a payload back: passes its events to the reader of the dialect, as the provider sent them.
/// Fails if the payload does not have the shape.
pub fn replay(
    shape: RawShape,
    payload: &str,
    end: RawEnd,
    reader: &mut dyn ReplyReader,
    out: Out<'_>,
) -> Result<(), JsonError> {
    let json = payload.as_bytes();
    let list = match shape {
        RawShape::Chunks | RawShape::Lines | RawShape::NamedEvents => Some(0),
        RawShape::StreamAndLast => find_member(json, 0, b"stream", Kind::Array)?.map(|at| at.start),
        RawShape::EventsAndResponse => {
            find_member(json, 0, b"events", Kind::Array)?.map(|at| at.start)
        }
    };
    let mut values = Vec::new();
    each_element(json, list.unwrap_or_default(), |kind, span| values.push((kind, span)))?;
    if end == RawEnd::Whole {
        let whole = match shape {
            RawShape::Chunks | RawShape::Lines => values.into_iter().next(),
            RawShape::NamedEvents => match values.first() {
                Some((_, event)) => member(json, event.start, b"data")?,
                None => None,
            },
            RawShape::StreamAndLast | RawShape::EventsAndResponse => member(json, 0, b"response")?,
        };
        if let Some((kind, span)) = whole {
            reader.push(&value_text(json, kind, &span), out);
        }
    } else {
        for (kind, span) in values {
            reader.push(&wire_event(shape, json, kind, &span)?, out);
        }
        if end == RawEnd::Done && shape == RawShape::Chunks {
            reader.push(b"data: [DONE]\n\n", out);
        }
    }
    reader.finish(out);
    Ok(())
}

/// The bytes of an event, as the provider sent it.
fn wire_event(shape: RawShape, json: &[u8], kind: Kind, span: &Span) -> Result<Vec<u8>, JsonError> {
    let mut wire = Vec::with_capacity(span.len() + 64);
    let mut data = Some((kind, span.clone()));
    if shape == RawShape::NamedEvents && kind == Kind::Object {
        if let Some((Kind::String, name)) = member(json, span.start, b"event")?
            && !inside(json, &name).is_empty()
        {
            wire.extend_from_slice(b"event: ");
            wire.extend_from_slice(text(json, &name).as_bytes());
            wire.push(b'\n');
        }
        data = member(json, span.start, b"data")?;
    }
    let Some((kind, span)) = data else {
        wire.push(b'\n');
        return Ok(wire);
    };
    let value = value_text(json, kind, &span);
    let (value, has_ended) = match kind {
        Kind::String => match value.strip_suffix(b"\n") {
            Some(value) => (value, true),
            None => (&value[..], false),
        },
        _ => (&value[..], true),
    };
    // Text that is JSON would be a value: it arrived without an event around it.
    let is_outside = kind == Kind::String && !has_ended && validate(value, MAX_DEPTH).is_ok();
    if shape != RawShape::Lines && !is_outside {
        wire.extend_from_slice(b"data: ");
    }
    wire.extend(on_one_line(value));
    match (has_ended, shape) {
        (false, _) => {}
        (true, RawShape::Lines) => wire.push(b'\n'),
        (true, _) => wire.extend_from_slice(b"\n\n"),
    }
    Ok(wire)
}

/// The text of a captured value.
fn value_text<'a>(json: &'a [u8], kind: Kind, span: &Span) -> Cow<'a, [u8]> {
    match kind {
        Kind::String => match text(json, span) {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        },
        _ => Cow::Borrowed(slice(json, span)),
    }
}

/// A value on one line. The values of a list may have line breaks, and an event cannot.
fn on_one_line(value: &[u8]) -> impl Iterator<Item = u8> + '_ {
    value.iter().map(|byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { *byte })
}

/// A member of the object at `start`, of any type.
fn member(json: &[u8], start: usize, name: &[u8]) -> Result<Option<(Kind, Span)>, JsonError> {
    let mut found = None;
    each_member(json, start, |key, kind, span| {
        if key == name {
            found = Some((kind, span));
        }
    })?;
    Ok(found)
}
