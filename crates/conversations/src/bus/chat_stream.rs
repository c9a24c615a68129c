//! What other programs can follow on the bus: two channels for each chat, one with what the models say and one
//! with what they think. Text is never on the channel of thinking, and thinking never on the other one.
//! `docs/redis.md` specifies the messages.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use throughline_canonical::{BlockStart, Delta, Event, Fault};

use crate::chat_seal::{ChatSeal, Field};
use crate::runs::event_log::status_of;
use crate::runs::log::Entry;
use crate::runs::thinking_spans::{SpanStep, ThinkingSpans};

/// A message for other programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessage {
    /// The channel.
    pub channel: String,
    /// The message, as JSON.
    pub payload: String,
}

/// Which of the two channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Channel {
    Main,
    Thinking,
}

/// Writes the messages of one run.
#[derive(Debug)]
pub struct ChatStream {
    /// The room, or the project of a plain chat.
    chat: String,
    /// The id of the project.
    project: String,
    run: String,
    /// Seals the words of a sealed project.
    seal: Option<Arc<ChatSeal>>,
    /// Whether a hook decides about the answer when it is complete, so that its text waits for that.
    holds_text: bool,
    spans: ThinkingSpans,
    /// Calls that the model is writing: id, name, arguments.
    calls: HashMap<u32, (String, String, String)>,
    fault: Option<Fault>,
}

impl ChatStream {
    /// The messages of a run of a project. `seal` is that of the project, `room` the room that the run
    /// belongs to.
    pub fn new(run: &str, project: &str, room: Option<&str>, seal: &Arc<ChatSeal>) -> Self {
        Self {
            chat: room.unwrap_or(project).to_owned(),
            project: project.to_owned(),
            run: run.to_owned(),
            seal: seal.is_clients().then(|| seal.clone()),
            holds_text: false,
            spans: ThinkingSpans::default(),
            calls: HashMap::new(),
            fault: None,
        }
    }

    /// The same without the text of the answer, if a hook decides about it when it is complete.
    #[must_use]
    pub fn holding_text(self, holds_text: bool) -> Self {
        Self { holds_text, ..self }
    }

    /// The messages of new entries of the log.
    pub fn write(&mut self, entries: &[Entry]) -> Vec<ChatMessage> {
        let mut out = Vec::new();
        for entry in entries {
            // Entries of a newer version are left out.
            if let Ok(event) = serde_json::from_str::<Event<'_>>(&entry.text) {
                self.take(entry.number, &event, &mut out);
            }
        }
        out
    }

    fn take(&mut self, number: u64, event: &Event<'_>, out: &mut Vec<ChatMessage>) {
        let mut steps = Vec::new();
        self.spans.take(event, &mut |step| steps.push(step));
        for step in steps {
            out.extend(self.thinking(number, step));
        }
        match event {
            Event::BlockStarted { index, block } => match block {
                BlockStart::Text { text } | BlockStart::Refusal { text } => {
                    out.extend(self.text(number, text));
                }
                BlockStart::ToolCall { id, name } => {
                    let call = (id.clone().into_owned(), name.clone().into_owned(), String::new());
                    self.calls.insert(*index, call);
                }
                _ => {}
            },
            Event::BlockDelta { delta: Delta::Text(text), .. } => {
                out.extend(self.text(number, text));
            }
            Event::BlockDelta { index, delta: Delta::ToolArguments(piece) } => {
                if let Some((_, _, arguments)) = self.calls.get_mut(index) {
                    arguments.push_str(piece);
                }
            }
            Event::BlockEnded { index } => {
                if let Some((id, name, arguments)) = self.calls.remove(index) {
                    let mut call = json!({"type": "tool_call", "id": id, "name": name});
                    self.put(&mut call, number, "arguments", &arguments);
                    out.push(self.message(Channel::Main, number, call));
                }
            }
            Event::Fault(fault) => self.fault = Some(fault.clone()),
            Event::Ended { reason } => {
                let status = status_of(self.fault.as_ref(), Some(reason)).as_str();
                let tokens = self.spans.tokens();
                let end = json!({"type": "done", "status": status, "thinking_tokens": tokens});
                out.push(self.message(Channel::Main, number, end));
            }
            _ => {}
        }
    }

    fn thinking(&self, number: u64, step: SpanStep) -> Option<ChatMessage> {
        let mut payload = match step {
            SpanStep::Started => return None,
            SpanStep::Grew { .. } => json!({"type": "thinking_chunk"}),
            SpanStep::Ended { tokens, .. } => {
                json!({"type": "thinking_complete", "total_tokens": tokens})
            }
        };
        match step {
            SpanStep::Ended { signature: None, .. } => payload["signature"] = Value::Null,
            SpanStep::Ended { signature: Some(signature), .. } => {
                self.put(&mut payload, number, "signature", &signature);
            }
            SpanStep::Grew { text } => self.put(&mut payload, number, "content", &text),
            SpanStep::Started => {}
        }
        Some(self.message(Channel::Thinking, number, payload))
    }

    fn text(&self, number: u64, text: &str) -> Option<ChatMessage> {
        if text.is_empty() || self.holds_text {
            return None;
        }
        let mut payload = json!({"type": "text_chunk"});
        self.put(&mut payload, number, "content", text);
        Some(self.message(Channel::Main, number, payload))
    }

    /// Adds words to a message: as they are, or sealed under the key of the project.
    fn put(&self, payload: &mut Value, number: u64, member: &'static str, words: &str) {
        match &self.seal {
            Some(seal) => {
                let sealed = seal.seal(Field::Stream(member, number), &self.run, words.as_bytes());
                payload[format!("encrypted_{member}")] =
                    BASE64_URL_SAFE_NO_PAD.encode(sealed).into();
            }
            None => payload[member] = words.into(),
        }
    }

    fn message(&self, channel: Channel, number: u64, payload: Value) -> ChatMessage {
        let name = match channel {
            Channel::Main => "chat_stream",
            Channel::Thinking => "chat_stream_thinking",
        };
        let mut members = Map::new();
        if let Value::Object(payload) = payload {
            members.extend(payload);
        }
        members.insert("task_id".to_owned(), json!(self.run));
        members.insert("seq".to_owned(), json!(number));
        if self.seal.is_some() {
            members.insert("project".to_owned(), json!(self.project));
        }
        let payload = Value::Object(members).to_string();
        ChatMessage { channel: format!("{name}::{}", self.chat), payload }
    }
}
