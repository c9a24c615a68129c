//! Passthrough: requests and replies whose client and provider speak the same dialect. The bytes
//! pass unchanged except for a few spans.

use std::borrow::Cow;
use std::fmt;

use throughline_canonical::{Fault, Lossy};

use super::RequestParts;
use super::opaque_outline::{OpaqueOutline, OpaquePart};
use super::profile::Profile;
use crate::framing::sse::Frame;
use crate::json::{Span, complete_object, finish_character, validate};

/// Replaces the content of a message that held nothing but dropped thinking.
pub const PLACEHOLDER: &str = "[reasoning omitted]";

/// A dialect whose requests and replies can pass through unchanged.
pub trait Passthrough: Sync {
    /// The outline of a request; `None` if the body is not a request, or if the dialect has its own
    /// outline.
    fn outline(&self, _: &RequestParts<'_>) -> Option<OpaqueOutline> {
        None
    }
    /// The upstream path of a request. `renamed` means that the client used an alias of the model.
    fn path(&self, path: &str, _model: &str, _renamed: bool, _: &Profile) -> String {
        path.to_owned()
    }
    /// The JSON path of a message or of a part of it.
    fn block_path(&self, message: usize, part: Option<usize>) -> String {
        match part {
            Some(part) => format!("messages.{message}.content.{part}"),
            None => format!("messages.{message}"),
        }
    }
    /// Whether servers of this variant reject this part although it is their own.
    fn refuses(&self, _: &OpaquePart, _: &Profile) -> bool {
        false
    }
    /// Adds what servers of a variant require to the body; `None` if nothing changes.
    fn complete(&self, _body: &[u8], _: &Profile) -> Lossy<Option<Vec<u8>>> {
        Lossy::default()
    }
    /// The signature as the wire carries it. Some dialects store more than that in a signature.
    fn raw_signature<'s>(&self, signature: &'s str) -> Cow<'s, str> {
        signature.into()
    }
    /// Finds the model name in a stream event, given the event name and its data.
    fn model_name_span(&self, _event: &[u8], data: &[u8]) -> ModelNameSpan {
        match self.model_of(data) {
            Some(name) => ModelNameSpan::Here(name),
            None => ModelNameSpan::None,
        }
    }
    /// Finds the model name in a whole reply; the span excludes the quotes.
    fn model_of(&self, reply: &[u8]) -> Option<Span>;
    /// Creates the injector for a stream.
    fn injector(&self) -> Box<dyn StreamInjector>;
}

impl fmt::Debug for dyn Passthrough {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Passthrough")
    }
}

/// For dialects that are always translated.
#[derive(Debug)]
pub(super) struct NoPassthrough;

impl Passthrough for NoPassthrough {
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

/// Where an event names the model. Spans exclude the quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelNameSpan {
    /// Nowhere.
    None,
    /// Here, and later events may name it too.
    Here(Span),
    /// Only this event can name it.
    Only(Option<Span>),
}

/// Injects our own events into a stream that passes through.
pub trait StreamInjector: fmt::Debug + Send {
    /// Observes an event of the stream.
    fn see(&mut self, _: Frame<'_>) {}
    /// A keep-alive between two events; empty if none may be sent now.
    fn keep_alive(&self) -> Vec<u8>;
    /// An error that ends the stream. `half` is an incomplete event; it is closed first so that
    /// clients can parse it.
    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8>;
}

/// Completes a reply that passes through.
pub trait ReplyRepair: fmt::Debug + Send {
    /// Completes an event of a stream, and writes every event that the client gets for it.
    fn event(&mut self, data: &[u8], out: &mut Vec<u8>);
    /// Completes a whole reply.
    fn whole(&mut self, reply: &[u8]) -> Vec<u8>;
}

/// Closes an incomplete event. Clients of most dialects parse every event as JSON, so an incomplete
/// object is completed, with the error as its last member.
pub(super) fn close_event(half: Option<&[u8]>, error: &str, out: &mut Vec<u8>) {
    let Some(half) = half else {
        return;
    };
    let line_at = memchr::memrchr2(b'\n', b'\r', half).map_or(0, |at| at + 1);
    let (before, line) = half.split_at(line_at);
    let has_data =
        before.split(|byte| matches!(byte, b'\n' | b'\r')).any(|line| line.starts_with(b"data:"));
    let data = match line {
        b"data" => Some(&b""[..]),
        line => line.strip_prefix(b"data:"),
    };
    let Some(data) = data.filter(|_| !has_data) else {
        if !line.is_empty() {
            // The line becomes an unknown field, or an event name that the next event replaces.
            finish_character(line, out);
            out.push(b':');
        }
        if has_data || half.is_empty() {
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
    fn incomplete_event_becomes_json_with_the_error() {
        let whole = "event: a.b\ndata: {\"text\":\"\u{e9}\u{20ac}\",\"n\":[1]}\n";
        for whole in [whole.to_owned(), whole.replace('\n', "\r\n")] {
            for cut in 1..=whole.len() {
                let half = &whole.as_bytes()[..cut];
                let mut stream = half.to_vec();
                close_event(Some(half), "{\"code\":5}", &mut stream);
                stream.extend_from_slice(b"data: {\"error\":{\"code\":6}}\n\n");
                let mut has_data = Vec::new();
                Framer::new(1000).push(&stream, |frame, _| {
                    let data: Value = serde_json::from_slice(frame.data)
                        .unwrap_or_else(|error| panic!("cut at {cut}: {error}"));
                    has_data.push(data["error"]["code"].clone());
                });
                let whole_from = whole.find("[1]}").map_or(0, |at| at + 4);
                let expected = match whole.find("data:").map(|at| cut >= at + 4) {
                    Some(true) if cut >= whole_from => vec![Value::Null, 6.into()],
                    Some(true) => vec![5.into(), 6.into()],
                    _ => vec![6.into()],
                };
                assert_eq!(has_data, expected, "cut at {cut}");
            }
        }
    }

    #[test]
    fn nothing_is_closed_between_events() {
        let mut out = Vec::new();
        close_event(None, "{}", &mut out);
        assert!(out.is_empty());
    }
}
