//! Writes one event as bytes. Clients accept only two plain line feeds as its end.

use crate::json::{ObjectWriter, escape_bytes};

/// Writes an event. `write` adds its members, the type first.
pub(crate) fn event(out: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    out.extend_from_slice(b"data: ");
    let mut object = ObjectWriter::new(out);
    write(&mut object);
    object.end();
    out.extend_from_slice(b"\n\n");
}

/// The subject of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About<'a> {
    /// A message, by its id.
    Message(&'a str),
    /// A call, by its escaped id.
    Call(&'a str),
    /// The single reasoning of the old events.
    Thinking,
}

/// Writes an event that starts or ends something.
pub(crate) fn border(kind: &str, about: About<'_>, out: &mut Vec<u8>) {
    head(kind, about, out);
    out.extend_from_slice(b"}\n\n");
}

/// Writes a delta event. An empty delta is not written because older clients fail on it.
pub(crate) fn delta(kind: &str, about: About<'_>, text: &str, out: &mut Vec<u8>) {
    if text.is_empty() {
        return;
    }
    head(kind, about, out);
    out.extend_from_slice(b",\"delta\":\"");
    escape_bytes(text, out);
    out.extend_from_slice(b"\"}\n\n");
}

fn head(kind: &str, about: About<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"data: {\"type\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
    let (member, id): (&[u8], &str) = match about {
        About::Message(id) => (b",\"messageId\":\"", id),
        About::Call(id) => (b",\"toolCallId\":\"", id),
        About::Thinking => return,
    };
    out.extend_from_slice(member);
    out.extend_from_slice(id.as_bytes());
    out.push(b'"');
}
