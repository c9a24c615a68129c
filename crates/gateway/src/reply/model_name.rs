//! Replaces the backend's model name in a reply by the name that the client used.

use bytes::{Bytes, BytesMut};
use throughline_codec::dialects::passthrough::{ModelNameSpan, Passthrough};
use throughline_codec::framing::sse::Framer;
use throughline_codec::json::{Span, quote};

/// How many bytes of an event that may name the model are held back.
const MAX_HELD_EVENT_BYTES: usize = 256 << 10;
/// How many bytes of a whole reply are held back.
const MAX_HELD_REPLY_BYTES: usize = 64 << 20;

/// Two names of one model, and the dialect of the reply.
#[derive(Clone, Debug)]
pub(crate) struct ModelAlias {
    /// Finds the name in a reply.
    pub dialect: &'static dyn Passthrough,
    /// The backend's name.
    pub backend_name: String,
    /// The client's name.
    pub client_name: String,
}

/// Replaces the backend's name by the client's.
#[derive(Debug)]
pub(crate) enum RewriteModelName {
    /// There is nothing to replace any more.
    No,
    /// Replaces the name in a stream of events.
    InStream(InStream),
    /// Replaces the name in a whole reply.
    InWhole {
        /// The two names.
        alias: ModelAlias,
        /// The bytes so far.
        held: BytesMut,
    },
}

/// Finds events that name the model. Only the bytes of the present event are held back.
#[derive(Debug)]
pub(crate) struct InStream {
    alias: ModelAlias,
    framer: Framer,
    held: BytesMut,
}

impl RewriteModelName {
    /// For a stream of events or a whole reply. Does nothing without names.
    pub(crate) fn new(alias: Option<ModelAlias>, events: bool) -> Self {
        match alias {
            None => Self::No,
            Some(alias) if events => Self::InStream(InStream {
                alias,
                framer: Framer::new(MAX_HELD_EVENT_BYTES),
                held: BytesMut::new(),
            }),
            Some(alias) => Self::InWhole { alias, held: BytesMut::new() },
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

    /// Ends the reply. Returns the bytes that were held back.
    pub(crate) fn finish(&mut self) -> Bytes {
        match std::mem::replace(self, Self::No) {
            Self::No => Bytes::new(),
            // No client reads an unfinished event.
            Self::InStream(stream) => stream.held.freeze(),
            Self::InWhole { alias, held } => alias.apply(&held).into(),
        }
    }
}

impl InStream {
    /// The bytes that can be sent, and whether the search is over.
    fn push(&mut self, bytes: &[u8]) -> (Bytes, bool) {
        let mut ends = Vec::new();
        self.framer.push(bytes, |_, end| ends.push(end));
        let mut out = BytesMut::new();
        let mut from = 0;
        for end in ends {
            self.held.extend_from_slice(&bytes[from..end]);
            from = end;
            let event = self.held.split();
            let (span, last) = model_name_span(&event, &self.alias);
            match span {
                Some(span) => out.extend_from_slice(&self.alias.replace(&event, span)),
                None => out.extend_from_slice(&event),
            }
            if last {
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
}

/// Where an event names the model, and whether no later event does.
fn model_name_span(event: &[u8], alias: &ModelAlias) -> (Option<Span>, bool) {
    let (mut name, mut data) = (&b""[..], None);
    let mut at = 0;
    while at < event.len() {
        let length = memchr::memchr2(b'\n', b'\r', &event[at..]).unwrap_or(event.len() - at);
        let line = &event[at..at + length];
        if let Some(value) = line.strip_prefix(b"data:") {
            // No provider splits its JSON over lines.
            data = data.or(Some(at + length - value.len()..at + length));
        } else if let Some(value) = line.strip_prefix(b"event:") {
            name = value.trim_ascii();
        }
        at += length + 1;
    }
    let Some(data) = data else {
        return (None, false);
    };
    let (span, last) = match alias.dialect.model_name_span(name, &event[data.clone()]) {
        ModelNameSpan::None => (None, false),
        ModelNameSpan::Here(span) => (Some(span), false),
        ModelNameSpan::Only(span) => (span, true),
    };
    let span = span.map(|span| data.start + span.start..data.start + span.end);
    (span, last)
}

impl ModelAlias {
    /// Replaces the name in a JSON text. Other texts stay unchanged.
    fn apply(&self, json: &[u8]) -> Vec<u8> {
        match self.dialect.model_of(json) {
            Some(span) => self.replace(json, span),
            None => json.to_vec(),
        }
    }

    /// Replaces the name at a position, if it is the backend's.
    fn replace(&self, text: &[u8], span: Span) -> Vec<u8> {
        if text[span.clone()] != *self.backend_name.as_bytes() {
            return text.to_vec();
        }
        let quoted = quote(&self.client_name);
        let name = &quoted[1..quoted.len() - 1];
        [&text[..span.start], name, &text[span.end..]].concat()
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    const START_EVENT: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"glm-5\",\"content\":[]}}\n\n";

    fn alias() -> ModelAlias {
        ModelAlias {
            dialect: throughline_codec::dialects::blocks::DIALECT.passthrough(),
            backend_name: "glm-5".into(),
            client_name: "claude-opus-5".into(),
        }
    }

    fn pushed(rename: &mut RewriteModelName, bytes: &str) -> String {
        let out = rename.push(Bytes::copy_from_slice(bytes.as_bytes()));
        String::from_utf8(out.to_vec()).unwrap()
    }

    /// Covers: case 17
    #[test]
    fn client_name_is_restored_for_every_split() {
        let data_in_text = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"data: {\\\"model\\\":\",\"model\":\"glm-5\"}}\nid: data: 5\n\n";
        let after = "event: x\ndata: {\"model\":\"glm-5\"}\n\n";
        let streams = [
            format!("event: ping\ndata: {{}}\n\n{START_EVENT}{after}"),
            format!("\n\n: message_start\n\n{data_in_text}{after}"),
            // A ping that mentions the event is not the event.
            format!(
                "event: ping\ndata: {{\"x\":\"message_start\",\"model\":\"no\"}}\n\n{START_EVENT}{after}"
            ),
            // Only the data names the event.
            START_EVENT.replace("event: message_start\n", "") + after,
        ];
        for stream in streams {
            let expected = stream.replacen("glm-5", "claude-opus-5", 1);
            for end in ["\n", "\r\n", "\r"] {
                let stream = stream.replace('\n', end);
                let expected = expected.replace('\n', end);
                for cut in 0..stream.len() {
                    let mut rename = RewriteModelName::new(Some(alias()), true);
                    let (one, two) = stream.as_bytes().split_at(cut);
                    let mut out = rename.push(Bytes::copy_from_slice(one)).to_vec();
                    out.extend(rename.push(Bytes::copy_from_slice(two)));
                    out.extend(rename.finish());
                    assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
                }
                let mut rename = RewriteModelName::new(Some(alias()), true);
                let mut out = Vec::new();
                for byte in stream.bytes() {
                    out.extend(rename.push(Bytes::copy_from_slice(&[byte])));
                }
                out.extend(rename.finish());
                assert_eq!(String::from_utf8(out).unwrap(), expected, "by bytes");
            }
        }
    }

    #[test]
    fn only_the_present_event_is_held_back() {
        let ping = "event: ping\r\ndata: {}\r\n\r\n";
        let mut rename = RewriteModelName::new(Some(alias()), true);
        assert_eq!(pushed(&mut rename, ping), ping);
        assert!(!rename.holds());
        assert_eq!(pushed(&mut rename, &ping[..ping.len() - 1]), ping[..ping.len() - 1]);
        assert!(!rename.holds());
        assert_eq!(pushed(&mut rename, "\n"), "\n");
        assert!(!rename.holds());
        assert_eq!(pushed(&mut rename, &format!("{ping}eve")), ping);
        assert!(rename.holds());
        assert_eq!(pushed(&mut rename, "nt: error\n\n"), "event: error\n\n");
        assert!(!rename.holds());
    }

    #[test]
    fn event_too_long_to_hold_passes_and_the_next_is_searched() {
        let long = format!(": {}", "x".repeat(MAX_HELD_EVENT_BYTES));
        let mut rename = RewriteModelName::new(Some(alias()), true);
        assert_eq!(pushed(&mut rename, &long), long);
        assert_eq!(pushed(&mut rename, "y\n"), "y\n");
        assert_eq!(
            pushed(&mut rename, &format!("\n{START_EVENT}")),
            format!("\n{}", START_EVENT.replace("glm-5", "claude-opus-5"))
        );
    }

    #[test]
    fn whole_reply_too_long_to_hold_passes() {
        let mut rename = RewriteModelName::new(Some(alias()), false);
        let half = Bytes::from(vec![b' '; MAX_HELD_REPLY_BYTES / 2]);
        assert!(rename.push(half.clone()).is_empty());
        assert!(rename.push(half.clone()).is_empty());
        assert_eq!(rename.push(half.slice(..1)).len(), MAX_HELD_REPLY_BYTES + 1);
        assert_eq!(rename.push(half.clone()), half);
        assert!(rename.finish().is_empty());
    }

    #[test]
    fn other_model_name_passes_unchanged() {
        let json = br#"{"model":"glm-5-turbo"}"#;
        assert_eq!(alias().apply(json), json);
        assert_eq!(alias().apply(b"not json"), b"not json");
        assert_eq!(alias().apply(br#"{"model":"glm-5"}"#), br#"{"model":"claude-opus-5"}"#);
    }
}
