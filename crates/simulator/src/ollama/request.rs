//! The parsed request: a lenient view that never refuses.
//!
//! The strict checks are separate (`shape`, `models`, `dialogue`), so `strict = off` uses this view
//! alone.

use serde_json::{Map, Value};

use super::models;
use crate::draft;
use crate::exchange::ScenarioInput;
use crate::script::{AnswerFormat, Choice, Situation, Tool};
use crate::signing::{Hash, hash};

static NOTHING: Value = Value::Null;

/// The endpoint of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// A conversation.
    Chat,
    /// A single question.
    Generate,
}

/// A request for an answer.
#[derive(Debug)]
pub(super) struct ParsedRequest {
    body: Map<String, Value>,
    path: Path,
    /// The conversation; for a single prompt, one message with that prompt.
    messages: Vec<Value>,
}

impl ParsedRequest {
    pub(super) fn read(body: Map<String, Value>, path: Path) -> Self {
        let messages = match path {
            Path::Chat => body.get("messages").map(list).unwrap_or_default().to_vec(),
            Path::Generate => {
                let prompt = body.get("prompt").cloned().unwrap_or_default();
                let has_prompt = prompt.as_str().is_some_and(|text| !text.is_empty());
                let message = serde_json::json!({"role": "user", "content": prompt});
                has_prompt.then_some(message).into_iter().collect()
            }
        };
        Self { body, path, messages }
    }

    pub(super) fn path(&self) -> Path {
        self.path
    }

    pub(super) fn body(&self) -> &Map<String, Value> {
        &self.body
    }

    /// A member, or null if it is absent.
    pub(super) fn get(&self, key: &str) -> &Value {
        self.body.get(key).unwrap_or(&NOTHING)
    }

    pub(super) fn model(&self) -> &str {
        self.get("model").as_str().unwrap_or_default()
    }

    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// The request has no prompt: it only loads or unloads the model.
    pub(super) fn is_silent(&self) -> bool {
        self.messages.is_empty()
    }

    /// Streaming is the default.
    pub(super) fn streams(&self) -> bool {
        self.get("stream") != &Value::Bool(false)
    }

    pub(super) fn option(&self, key: &str) -> &Value {
        &self.get("options")[key]
    }

    /// The limit of output tokens, if there is one.
    pub(super) fn limit(&self) -> Option<u64> {
        self.option("num_predict").as_u64().filter(|most| *most > 0)
    }

    pub(super) fn stop_sequences(&self) -> Vec<String> {
        let sequences = list(self.option("stop")).iter();
        sequences.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether the model thinks now: as the request says, else by the model's default.
    fn thinks(&self) -> bool {
        let model = models::ThinkingSupport::of(self.model());
        match self.get("think") {
            _ if model == models::ThinkingSupport::Levels => true,
            Value::Bool(wanted) => *wanted,
            Value::String(_) => true,
            _ => model == models::ThinkingSupport::Thinks,
        }
    }

    /// A hash of the conversation, without the settings.
    pub(super) fn conversation(&self) -> Hash {
        let parts = [Value::from(self.messages.clone()).to_string(), self.get("tools").to_string()];
        hash(&parts.each_ref().map(String::as_bytes))
    }

    /// The number of input tokens.
    pub(super) fn tokens(&self) -> usize {
        let read = list(self.get("tools")).iter().chain(&self.messages);
        read.map(|part| draft::tokens(&part.to_string())).sum()
    }

    /// The input of a scenario's `when`.
    pub(super) fn scenario_input(&self) -> ScenarioInput {
        let texts: Vec<&str> = self.last_entries().map(text).collect();
        ScenarioInput {
            model: self.model().to_owned(),
            text: texts.join("\n"),
            conversation: Value::from(self.messages.clone()).to_string(),
        }
    }

    /// What the reply depends on, apart from the seed.
    pub(super) fn situation(&self, deltas: Option<usize>) -> Situation {
        let mut newest_first = self.messages.iter().rev();
        let is_question = |message: &&Value| is(message, "user") && !own(message).is_empty();
        let since = self.messages.iter().rev();
        Situation {
            user_text: newest_first.find(is_question).map(own).unwrap_or_default().to_owned(),
            results: self
                .last_entries()
                .filter(|entry| is(entry, "tool"))
                .map(|entry| text(entry).to_owned())
                .collect(),
            rounds: since
                .take_while(|message| !is_question(message))
                .filter(|message| !list(&message["tool_calls"]).is_empty())
                .count(),
            tools: self.tools(),
            choice: Choice::Auto,
            parallel: true,
            thinks: self.thinks(),
            format: match self.get("format") {
                Value::Object(schema) => AnswerFormat::Schema(schema.clone().into()),
                format if format == "json" => AnswerFormat::Json,
                _ => AnswerFormat::Text,
            },
            deltas,
        }
    }

    fn tools(&self) -> Vec<Tool> {
        let tool = |tool: &Value| Tool {
            name: tool["function"]["name"].as_str().unwrap_or_default().to_owned(),
            schema: tool["function"]["parameters"].clone(),
        };
        list(self.get("tools")).iter().map(tool).collect()
    }

    /// Everything after the last assistant message.
    fn last_entries(&self) -> impl Iterator<Item = &Value> {
        let last = self.messages.iter().rposition(|one| is(one, "assistant"));
        let entries = self.messages.get(last.map_or(0, |last| last + 1)..);
        let entries = entries.unwrap_or_default().iter();
        entries.filter(|one| !is(one, "system"))
    }
}

/// Whether a message has this role, in any letter case.
pub(super) fn is(message: &Value, role: &str) -> bool {
    message["role"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(role))
}

/// The text of a message.
fn text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// The user's own words in a message, without the reminders that clients add.
fn own(message: &Value) -> &str {
    draft::user_words(text(message)).unwrap_or_default()
}

/// The items of a list, or none if the value is not a list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
