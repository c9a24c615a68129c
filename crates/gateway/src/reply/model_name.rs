//! Replaces the backend's model name in a reply by the name that the client used.

use throughline_codec::dialects::passthrough::{ModelNameSpan, Passthrough};
use throughline_codec::json::{Span, quote};

use crate::reply::edits::{EditedEvent, ReplyEdit, read_event};

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

impl ReplyEdit for ModelAlias {
    fn event(&mut self, event: &[u8]) -> EditedEvent {
        let (name, data) = read_event(event);
        let Some(data) = data else {
            return EditedEvent::default();
        };
        let (span, last) = match self.dialect.model_name_span(name, &event[data.clone()]) {
            ModelNameSpan::None => (None, false),
            ModelNameSpan::Here(span) => (Some(span), false),
            ModelNameSpan::Only(span) => (span, true),
        };
        let span = span.map(|span| data.start + span.start..data.start + span.end);
        EditedEvent { bytes: span.and_then(|span| self.replace(event, span)), last }
    }

    fn whole(&mut self, reply: &[u8]) -> Option<Vec<u8>> {
        self.replace(reply, self.dialect.model_of(reply)?)
    }
}

impl ModelAlias {
    /// Replaces the name at a position, if it is the backend's.
    fn replace(&self, text: &[u8], span: Span) -> Option<Vec<u8>> {
        if text[span.clone()] != *self.backend_name.as_bytes() {
            return None;
        }
        let quoted = quote(&self.client_name);
        let name = &quoted[1..quoted.len() - 1];
        Some([&text[..span.start], name, &text[span.end..]].concat())
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::reply::edits::{Edits, MAX_HELD_EVENT_BYTES};

    const START_EVENT: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"glm-5\",\"content\":[]}}\n\n";

    fn alias() -> ModelAlias {
        ModelAlias {
            dialect: throughline_codec::dialects::blocks::DIALECT.passthrough(),
            backend_name: "glm-5".into(),
            client_name: "claude-opus-5".into(),
        }
    }

    fn edits(events: bool) -> Edits {
        Edits::new(vec![Box::new(alias())], events)
    }

    fn pushed(rename: &mut Edits, bytes: &str) -> String {
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
                    let mut rename = edits(true);
                    let (one, two) = stream.as_bytes().split_at(cut);
                    let mut out = rename.push(Bytes::copy_from_slice(one)).to_vec();
                    out.extend(rename.push(Bytes::copy_from_slice(two)));
                    out.extend(rename.finish());
                    assert_eq!(String::from_utf8(out).unwrap(), expected, "cut at {cut}");
                }
                let mut rename = edits(true);
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
        let mut rename = edits(true);
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
        let mut rename = edits(true);
        assert_eq!(pushed(&mut rename, &long), long);
        assert_eq!(pushed(&mut rename, "y\n"), "y\n");
        assert_eq!(
            pushed(&mut rename, &format!("\n{START_EVENT}")),
            format!("\n{}", START_EVENT.replace("glm-5", "claude-opus-5"))
        );
    }

    #[test]
    fn other_model_name_passes_unchanged() {
        assert_eq!(alias().whole(br#"{"model":"glm-5-turbo"}"#), None);
        assert_eq!(alias().whole(b"not json"), None);
        let renamed = alias().whole(br#"{"model":"glm-5"}"#);
        assert_eq!(renamed.as_deref(), Some(&br#"{"model":"claude-opus-5"}"#[..]));
    }
}
