//! What a dialect knows of requests and replies that pass in place: where things stand in them, and the
//! few bytes of ours that may stand in a reply.

use std::borrow::Cow;
use std::fmt;

use throughline_canonical::{Fault, Lossy};

use super::RequestParts;
use super::opaque_outline::{OpaqueOutline, OpaquePart};
use crate::framing::sse::Frame;
use crate::json::{Span, complete_object, finish_character, validate};

/// A dialect whose requests and replies can pass in place.
pub trait Passthrough: Sync {
    /// Where things stand in a request; `None` if that is no request, or if the dialect has an outline
    /// of its own.
    fn places(&self, _: &RequestParts<'_>) -> Option<OpaqueOutline> {
        None
    }
    /// The path a request goes to. `renamed` says that the client used another name of the model.
    fn path(&self, path: &str, _model: &str, _renamed: bool, _variant: &str) -> String {
        path.to_owned()
    }
    /// How a place in a request is spelled: a message, and a part of it.
    fn place(&self, message: usize, part: Option<usize>) -> String {
        match part {
            Some(part) => format!("messages.{message}.content.{part}"),
            None => format!("messages.{message}"),
        }
    }
    /// Whether servers of a variant refuse a request for a mark that is their own, where it stands.
    fn refuses(&self, _: &OpaquePart, _variant: &str) -> bool {
        false
    }
    /// The body with what servers of a variant want to be there in any case, and spelled as they want
    /// it; none if nothing changes.
    fn complete(&self, _body: &[u8], _variant: &str) -> Lossy<Option<Vec<u8>>> {
        Lossy::default()
    }
    /// A signature that was read in a reply, as it stands there: some hold more than that.
    fn raw_signature<'s>(&self, signature: &'s str) -> Cow<'s, str> {
        signature.into()
    }
    /// Where an event of a stream names the model, given its name and its data.
    fn model_name_span(&self, event: &[u8], data: &[u8]) -> ModelNameSpan;
    /// Where a whole reply names the model; the span lies between the quotes.
    fn model_of(&self, reply: &[u8]) -> Option<Span>;
    /// Our own words in a stream of events.
    fn injector(&self) -> Box<dyn StreamInjector>;
}

impl fmt::Debug for dyn Passthrough {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Passthrough")
    }
}

/// For dialects whose requests are always read to the last word: nothing passes.
#[derive(Debug)]
pub(super) struct NoPassthrough;

impl Passthrough for NoPassthrough {
    fn model_name_span(&self, _: &[u8], _: &[u8]) -> ModelNameSpan {
        ModelNameSpan::None
    }

    fn model_of(&self, _: &[u8]) -> Option<Span> {
        None
    }

    fn injector(&self) -> Box<dyn StreamInjector> {
        Box::new(Self)
    }
}

impl StreamInjector for NoPassthrough {
    fn keep_alive(&self) -> Vec<u8> {
        Vec::new()
    }

    fn error(&self, _: &Fault, _: Option<&[u8]>) -> Vec<u8> {
        Vec::new()
    }
}

/// What an event says of the model's name. Spans lie between the quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelNameSpan {
    /// Nothing, or nothing that counts.
    None,
    /// It names it, and others may too.
    Here(Span),
    /// It is the one that names it, if any does.
    Only(Option<Span>),
}

/// Our own words in a stream of events that passes.
pub trait StreamInjector: fmt::Debug + Send {
    /// An event has passed.
    fn see(&mut self, _: Frame<'_>) {}
    /// A sign of life between two events; empty where none can stand now.
    fn keep_alive(&self) -> Vec<u8>;
    /// An error, and the end of the stream. `half` is an event whose end has not come, if there is
    /// one; it is closed so that clients get past it.
    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8>;
}

/// Ends an event that was cut. The clients of most dialects read every event as JSON, so half an object
/// becomes a whole one, with the error as its last member: those that look for it find it there.
pub(super) fn close_event(half: Option<&[u8]>, error: &str, out: &mut Vec<u8>) {
    let Some(half) = half else {
        return;
    };
    let line_at = memchr::memrchr2(b'\n', b'\r', half).map_or(0, |at| at + 1);
    let (before, line) = half.split_at(line_at);
    let told =
        before.split(|byte| matches!(byte, b'\n' | b'\r')).any(|line| line.starts_with(b"data:"));
    let data = match line {
        b"data" => Some(&b""[..]),
        line => line.strip_prefix(b"data:"),
    };
    let Some(data) = data.filter(|_| !told) else {
        if !line.is_empty() {
            // Whatever the line was to be, it now is a field nobody knows, or a name that the error
            // behind it replaces.
            finish_character(line, out);
            out.push(b':');
        }
        if told || half.is_empty() {
            out.extend_from_slice(b"\n\n");
        } else if !line.is_empty() {
            out.push(b'\n');
        }
        return;
    };
    if line == b"data" {
        out.push(b':');
    }
    let member = format!("\"error\":{error}");
    if data.trim_ascii().is_empty() {
        out.extend_from_slice(format!("{{{member}}}").as_bytes());
    } else if validate(data, usize::MAX).is_err() {
        complete_object(data, member.as_bytes(), out);
    }
    out.extend_from_slice(b"\n\n");
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::framing::sse::Framer;

    #[test]
    fn half_an_event_becomes_one_that_is_json_and_tells_the_error() {
        let whole = "event: a.b\ndata: {\"text\":\"\u{e9}\u{20ac}\",\"n\":[1]}\n";
        for whole in [whole.to_owned(), whole.replace('\n', "\r\n")] {
            for cut in 1..=whole.len() {
                let half = &whole.as_bytes()[..cut];
                let mut stream = half.to_vec();
                close_event(Some(half), "{\"code\":5}", &mut stream);
                stream.extend_from_slice(b"data: {\"error\":{\"code\":6}}\n\n");
                let mut told = Vec::new();
                Framer::new(1000).push(&stream, |frame, _| {
                    let data: Value = serde_json::from_slice(frame.data)
                        .unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
                    told.push(data["error"]["code"].clone());
                });
                let whole_from = whole.find("[1]}").map_or(0, |at| at + 4);
                let expected = match whole.find("data:").map(|at| cut >= at + 4) {
                    Some(true) if cut >= whole_from => vec![Value::Null, 6.into()],
                    Some(true) => vec![5.into(), 6.into()],
                    _ => vec![6.into()],
                };
                assert_eq!(told, expected, "cut at {cut}");
            }
        }
    }

    #[test]
    fn between_events_there_is_nothing_to_close() {
        let mut out = Vec::new();
        close_event(None, "{}", &mut out);
        assert!(out.is_empty());
    }
}
