//! The reply on the wire: one JSON document, or the same as lines.

use serde_json::{Map, Value, json};

use super::request::{ParsedRequest, Path};
use crate::draft::{self, Draft, Ending, Limits, identifier};
use crate::exchange::Exchange;
use crate::fault::Frame;
use crate::script::Piece;

/// The time of every reply. It is fixed, so that replies do not depend on the clock.
pub(super) const CREATED: &str = "2026-11-14T23:46:40.123456789Z";

/// A finished reply.
pub(super) struct Reply {
    model: String,
    path: Path,
    parts: Vec<Part>,
    reason: &'static str,
    input: usize,
    output: usize,
}

/// The parts of the reply, in order.
enum Part {
    Thinking(String),
    Text(String),
    Call(Value),
}

impl Reply {
    /// Builds the reply.
    pub(super) fn compose(exchange: &Exchange<'_>, request: &ParsedRequest) -> Self {
        let seed = exchange.seed(request.model(), &request.conversation());
        let stop_sequences = request.stop_sequences();
        let limits = Limits {
            stop_sequences: &stop_sequences,
            tokens: request.limit(),
            ..Limits::default()
        };
        let situation = || request.situation(exchange.deltas());
        let draft = Draft::write(exchange, &seed, limits, situation);
        let output = draft.tokens();
        let reason = match draft.ending {
            Ending::Limit => "length",
            // This dialect has no finish reason for calls.
            Ending::StopSequence(_) | Ending::Calls | Ending::Done => "stop",
        };
        let mut calls = 0;
        let part = |piece| match piece {
            // This dialect has no redacted thinking, so it is sent as ordinary thinking.
            Piece::Thinking(text) | Piece::Redacted(text) => Part::Thinking(text),
            Piece::Text(text) => Part::Text(text),
            Piece::Tool { name, input } => {
                let index = calls;
                calls += 1;
                let id = identifier(&seed, "call", index + request.messages().len());
                let function = json!({"index": index, "name": name, "arguments": input});
                Part::Call(json!({"id": format!("call_{id}"), "function": function}))
            }
        };
        Self {
            model: exchange.answer_model(request.model()),
            path: request.path(),
            parts: draft.pieces.into_iter().map(part).collect(),
            reason,
            input: request.tokens(),
            output,
        }
    }

    /// The reply to a request without a prompt.
    pub(super) fn of_nothing(request: &ParsedRequest) -> Value {
        let unloads = match request.get("keep_alive") {
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.starts_with('0'),
            _ => false,
        };
        let reply = Self {
            model: request.model().to_owned(),
            path: request.path(),
            parts: Vec::new(),
            reason: if unloads { "unload" } else { "load" },
            input: 0,
            output: 0,
        };
        reply.line(LineContent::default(), true)
    }

    /// The reply as one document.
    pub(super) fn json(&self) -> Value {
        let mut content = LineContent::default();
        for part in &self.parts {
            match part {
                Part::Thinking(text) => content.thinking.push_str(text),
                Part::Text(text) => content.text.push_str(text),
                Part::Call(call) => content.calls.push(call.clone()),
            }
        }
        self.line(content, true)
    }

    /// The reply as lines. The line where thinking ends and text begins has both.
    pub(super) fn frames(&self) -> Vec<Frame> {
        let mut lines = Vec::new();
        let mut held = LineContent::default();
        for part in &self.parts {
            match part {
                Part::Thinking(text) => {
                    for piece in draft::deltas(text) {
                        lines.extend(held.take());
                        held.thinking = piece.to_owned();
                    }
                }
                Part::Text(text) => {
                    for piece in draft::deltas(text) {
                        if !held.text.is_empty() {
                            lines.extend(held.take());
                        }
                        held.text = piece.to_owned();
                    }
                }
                Part::Call(call) => {
                    lines.extend(held.take());
                    held.calls.push(call.clone());
                }
            }
        }
        lines.extend(held.take());
        let frame = |line: Value, tokens: u32| Frame { bytes: format!("{line}\n").into(), tokens };
        let last = frame(self.line(LineContent::default(), true), 0);
        let lines = lines.into_iter().map(|content| frame(self.line(content, false), 1));
        lines.chain([last]).collect()
    }

    fn line(&self, content: LineContent, done: bool) -> Value {
        let mut line = Map::new();
        let mut put = |key: &str, value: Value| line.insert(key.to_owned(), value);
        put("model", self.model.as_str().into());
        put("created_at", CREATED.into());
        let mut message = Map::new();
        let text = match self.path {
            Path::Chat => "content",
            Path::Generate => "response",
        };
        if self.path == Path::Chat {
            message.insert("role".to_owned(), "assistant".into());
        }
        message.insert(text.to_owned(), content.text.into());
        if !content.thinking.is_empty() {
            message.insert("thinking".to_owned(), content.thinking.into());
        }
        if !content.calls.is_empty() {
            message.insert("tool_calls".to_owned(), content.calls.into());
        }
        match self.path {
            Path::Chat => {
                put("message", message.into());
            }
            Path::Generate => message.into_iter().for_each(|(key, value)| {
                put(&key, value);
            }),
        }
        put("done", done.into());
        if done {
            put("done_reason", self.reason.into());
            // Real servers leave out zero counts.
            for (key, count) in [
                ("total_duration", self.output * 2),
                ("load_duration", self.output),
                ("prompt_eval_count", self.input),
                ("prompt_eval_duration", self.input),
                ("eval_count", self.output),
                ("eval_duration", self.output),
            ] {
                if count > 0 {
                    put(key, count.into());
                }
            }
        }
        line.into()
    }
}

/// The content of one line.
#[derive(Default)]
struct LineContent {
    thinking: String,
    text: String,
    calls: Vec<Value>,
}

impl LineContent {
    /// Takes the content, if there is any.
    fn take(&mut self) -> Option<Self> {
        let content = std::mem::take(self);
        let empty =
            content.thinking.is_empty() && content.text.is_empty() && content.calls.is_empty();
        (!empty).then_some(content)
    }
}
