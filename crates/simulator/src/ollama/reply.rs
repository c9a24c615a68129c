//! The reply on the wire: one JSON document, or the same in lines.

use serde_json::{Map, Value, json};

use super::ask::{Ask, Path};
use crate::draft::{self, Draft, Ending, Limits, identifier};
use crate::exchange::Exchange;
use crate::fault::Frame;
use crate::script::Piece;

/// The moment of every reply: what is said must not hang on the clock.
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

/// What is said, in order.
enum Part {
    Thinking(String),
    Text(String),
    Call(Value),
}

impl Reply {
    /// Makes the reply.
    pub(super) fn compose(exchange: &Exchange<'_>, ask: &Ask) -> Self {
        let seed = exchange.seed(ask.model(), &ask.conversation());
        let stop_sequences = ask.stop_sequences();
        let limits = Limits { stop_sequences: &stop_sequences, tokens: ask.limit() };
        let situation = || ask.situation(exchange.deltas());
        let draft = Draft::write(exchange, &seed, limits, situation);
        let output = draft.tokens();
        let reason = match draft.ending {
            Ending::Limit => "length",
            // There is no word for calls.
            Ending::StopSequence(_) | Ending::Calls | Ending::Done => "stop",
        };
        let mut calls = 0;
        let part = |piece| match piece {
            // Nothing is sealed here: it is a thought more.
            Piece::Thinking(text) | Piece::Redacted(text) => Part::Thinking(text),
            Piece::Text(text) => Part::Text(text),
            Piece::Tool { name, input } => {
                let index = calls;
                calls += 1;
                let id = identifier(&seed, "call", index + ask.messages().len());
                let function = json!({"index": index, "name": name, "arguments": input});
                Part::Call(json!({"id": format!("call_{id}"), "function": function}))
            }
        };
        Self {
            model: exchange.answer_model(ask.model()),
            path: ask.path(),
            parts: draft.pieces.into_iter().map(part).collect(),
            reason,
            input: ask.tokens(),
            output,
        }
    }

    /// The reply to a request that asks nothing.
    pub(super) fn of_nothing(ask: &Ask) -> Value {
        let unloads = match ask.get("keep_alive") {
            Value::Number(number) => number.as_f64() == Some(0.0),
            Value::String(text) => text.starts_with('0'),
            _ => false,
        };
        let reply = Self {
            model: ask.model().to_owned(),
            path: ask.path(),
            parts: Vec::new(),
            reason: if unloads { "unload" } else { "load" },
            input: 0,
            output: 0,
        };
        reply.line(Said::default(), true)
    }

    /// The reply as one document.
    pub(super) fn json(&self) -> Value {
        let mut said = Said::default();
        for part in &self.parts {
            match part {
                Part::Thinking(text) => said.thinking.push_str(text),
                Part::Text(text) => said.text.push_str(text),
                Part::Call(call) => said.calls.push(call.clone()),
            }
        }
        self.line(said, true)
    }

    /// The reply in lines. Where thinking ends and text begins, one line has both.
    pub(super) fn frames(&self) -> Vec<Frame> {
        let mut lines = Vec::new();
        let mut held = Said::default();
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
        let last = frame(self.line(Said::default(), true), 0);
        let lines = lines.into_iter().map(|said| frame(self.line(said, false), 1));
        lines.chain([last]).collect()
    }

    fn line(&self, said: Said, done: bool) -> Value {
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
        message.insert(text.to_owned(), said.text.into());
        if !said.thinking.is_empty() {
            message.insert("thinking".to_owned(), said.thinking.into());
        }
        if !said.calls.is_empty() {
            message.insert("tool_calls".to_owned(), said.calls.into());
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
            // What is nought is left out.
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

/// What one line says.
#[derive(Default)]
struct Said {
    thinking: String,
    text: String,
    calls: Vec<Value>,
}

impl Said {
    /// What there is to say, if anything; nothing is left.
    fn take(&mut self) -> Option<Self> {
        let said = std::mem::take(self);
        let empty = said.thinking.is_empty() && said.text.is_empty() && said.calls.is_empty();
        (!empty).then_some(said)
    }
}
