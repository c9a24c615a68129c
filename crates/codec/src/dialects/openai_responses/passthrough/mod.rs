//! Keep-alives and errors in a stream that passes through, and the span of the model name.

use throughline_canonical::{Fault, Request, Usage};

use super::client_reply::response::{ResponseObject, error, settings, usage};
use super::{OpenAiResponses, RepeatedMembers};
use crate::dialects::RequestParts;
use crate::dialects::opaque_outline::OpaqueOutline;
use crate::dialects::passthrough::{ModelNameSpan, Passthrough, StreamInjector, close_event};
use crate::framing::sse::Frame;
use crate::json::{Kind, Span, each_member, escape, find_member, number, text};

mod outline;
pub(super) mod repair;

impl Passthrough for OpenAiResponses {
    fn outline(&self, parts: &RequestParts<'_>) -> Option<OpaqueOutline> {
        outline::read(parts.body).ok()
    }

    fn block_path(&self, item: usize, _: Option<usize>) -> String {
        format!("input.{item}")
    }

    fn model_name_span(&self, _: &[u8], data: &[u8]) -> ModelNameSpan {
        // Most events are deltas, which do not name the model and need no search.
        match response(data).and_then(|response| name_in(data, response.start)) {
            Some(name) => ModelNameSpan::Here(name),
            None => ModelNameSpan::None,
        }
    }

    fn model_of(&self, reply: &[u8]) -> Option<Span> {
        name_in(reply, 0)
    }

    fn injector(&self) -> Box<dyn StreamInjector> {
        Box::new(Injector::default())
    }
}

/// The response in an event.
fn response(event: &[u8]) -> Option<Span> {
    find_member(event, 0, b"response", Kind::Object).ok()?
}

fn name_in(json: &[u8], start: usize) -> Option<Span> {
    let name = find_member(json, start, b"model", Kind::String).ok()??;
    Some(name.start + 1..name.end - 1)
}

/// The state of a stream that the injector needs.
#[derive(Debug, Default)]
struct Injector {
    /// The number of the last event.
    sequence: u64,
    begun: bool,
    id: String,
    created: u64,
    model: String,
}

impl StreamInjector for Injector {
    fn see(&mut self, frame: Frame<'_>) {
        let data = frame.data;
        if let Some(sequence) = sequence(data) {
            self.sequence = sequence;
        }
        if self.begun {
            return;
        }
        let Some(response) = response(data) else {
            return;
        };
        self.begun = true;
        let _ = each_member(data, response.start, |key, kind, span| match (key, kind) {
            (b"id", Kind::String) => self.id = text(data, &span).into_owned(),
            (b"model", Kind::String) => self.model = text(data, &span).into_owned(),
            (b"created_at", Kind::Number) => self.created = number(data, &span).unwrap_or(0),
            _ => {}
        });
    }

    fn keep_alive(&self) -> Vec<u8> {
        // Clients reject a stream that starts with an error.
        if !self.begun {
            return Vec::new();
        }
        let sequence = self.sequence;
        format!(
            "event: keepalive\ndata: {{\"type\":\"keepalive\",\"sequence_number\":{sequence}}}\n\n"
        )
        .into_bytes()
    }

    fn error(&self, fault: &Fault, half: Option<&[u8]>) -> Vec<u8> {
        let error = error(fault);
        let mut out = Vec::new();
        close_event(half, &error, &mut out);
        let mut id = String::new();
        escape(&self.id, &mut id);
        let settings = settings(&Request::default(), &self.model, &RepeatedMembers::default());
        let usage = usage(&Usage::default());
        let response = ResponseObject {
            id: &id,
            created: self.created,
            completed: None,
            status: "failed",
            error: &error,
            details: "null",
            settings: &settings,
            output: "",
            usage: &usage,
        };
        let sequence = self.sequence.saturating_add(1);
        let event = format!(
            "event: response.failed\ndata: {{\"type\":\"response.failed\",\
             \"sequence_number\":{sequence},\"response\":{response}}}\n\n"
        );
        out.extend_from_slice(event.as_bytes());
        out
    }
}

/// The sequence number of an event. In a text, its quotes would be escaped.
fn sequence(data: &[u8]) -> Option<u64> {
    const KEY: &[u8] = b"\"sequence_number\":";
    let at = memchr::memmem::find_iter(data, KEY).find(|at| *at > 0 && data[at - 1] != b'\\')?;
    let rest = data.get(at + KEY.len()..)?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    number(rest, &(0..digits))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use throughline_canonical::FaultKind;

    use super::*;
    use crate::framing::sse::Framer;

    const CREATED: &str = r#"{"type":"response.created","sequence_number":4,"response":{"id":"resp_1","created_at":9,"model":"gpt-x","output":[]}}"#;

    fn frame(data: &str) -> Frame<'_> {
        Frame { event: b"", data: data.as_bytes() }
    }

    #[test]
    fn keep_alive_repeats_the_last_number_and_is_never_first() {
        let mut state = Injector::default();
        assert!(state.keep_alive().is_empty());
        state.see(frame(CREATED));
        state.see(frame(
            r#"{"type":"response.output_text.delta","delta":"\"sequence_number\":99","sequence_number": 5}"#,
        ));
        assert_eq!(state.sequence, 5);
        state.see(frame(r#"{"sequence_number":6,"delta":"\"sequence_number\":99"}"#));
        let sign = String::from_utf8(state.keep_alive()).unwrap();
        assert!(sign.contains("{\"type\":\"keepalive\",\"sequence_number\":6}"));
    }

    #[test]
    fn error_ends_the_started_response() {
        let mut state = Injector::default();
        state.see(frame(CREATED));
        let fault = Fault::new(FaultKind::Unreachable, "gone");
        let mut events = Vec::new();
        Framer::new(1 << 20).push(&state.error(&fault, None), |frame, _| {
            events.push(serde_json::from_slice::<Value>(frame.data).unwrap());
        });
        assert_eq!(events.len(), 1);
        assert_eq!(events[0]["type"], "response.failed");
        assert_eq!(events[0]["sequence_number"], 5);
        let response = &events[0]["response"];
        assert_eq!(response["id"], "resp_1");
        assert_eq!(response["status"], "failed");
        assert_eq!(response["model"], "gpt-x");
        assert_eq!(response["error"]["message"], "gone");
    }

    #[test]
    fn model_name_is_found_in_response_events() {
        let name = |data: &str| match OpenAiResponses.model_name_span(b"", data.as_bytes()) {
            ModelNameSpan::Here(span) => Some(data[span].to_owned()),
            _ => None,
        };
        assert_eq!(name(CREATED).as_deref(), Some("gpt-x"));
        assert_eq!(name(r#"{"type":"x","model":"gpt-x","item":{"model":"y"}}"#), None);
        let whole = r#"{"id":"r","model":"m"}"#;
        assert_eq!(OpenAiResponses.model_of(whole.as_bytes()).map(|span| &whole[span]), Some("m"));
    }
}
