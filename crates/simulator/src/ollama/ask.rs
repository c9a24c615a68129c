//! The request as the simulator uses it: a lenient view that never refuses.
//!
//! Strictness is a separate pass (`shape`, `models`, `dialogue`), so that `strict = off` is this view
//! alone.

use serde_json::{Map, Value};

use super::models;
use crate::draft;
use crate::exchange::Said;
use crate::script::{Choice, Situation, Tool};
use crate::signing::{Hash, hash};

static NOTHING: Value = Value::Null;

/// Where a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// A conversation.
    Chat,
    /// A single question.
    Generate,
}

/// A request for an answer.
#[derive(Debug)]
pub(super) struct Ask {
    body: Map<String, Value>,
    path: Path,
    /// The conversation; of a single question, one that has only that.
    messages: Vec<Value>,
}

impl Ask {
    pub(super) fn read(body: Map<String, Value>, path: Path) -> Self {
        let messages = match path {
            Path::Chat => body.get("messages").map(list).unwrap_or_default().to_vec(),
            Path::Generate => {
                let prompt = body.get("prompt").cloned().unwrap_or_default();
                let said = prompt.as_str().is_some_and(|text| !text.is_empty());
                let message = serde_json::json!({"role": "user", "content": prompt});
                said.then_some(message).into_iter().collect()
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

    /// A member; null where there is none.
    pub(super) fn get(&self, key: &str) -> &Value {
        self.body.get(key).unwrap_or(&NOTHING)
    }

    pub(super) fn model(&self) -> &str {
        self.get("model").as_str().unwrap_or_default()
    }

    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// Nothing is asked: the model is to be loaded, or unloaded.
    pub(super) fn is_silent(&self) -> bool {
        self.messages.is_empty()
    }

    /// Streaming is what is done unless it is said not to be.
    pub(super) fn streams(&self) -> bool {
        self.get("stream") != &Value::Bool(false)
    }

    pub(super) fn option(&self, key: &str) -> &Value {
        &self.get("options")[key]
    }

    /// What a limit says, where there is one.
    pub(super) fn limit(&self) -> Option<u64> {
        self.option("num_predict").as_u64().filter(|most| *most > 0)
    }

    pub(super) fn stop_sequences(&self) -> Vec<String> {
        let sequences = list(self.option("stop")).iter();
        sequences.filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// Whether the model thinks now: as it is told, else if it can.
    fn thinks(&self) -> bool {
        let model = models::Kind::of(self.model());
        match self.get("think") {
            _ if model == models::Kind::Levels => true,
            Value::Bool(wanted) => *wanted,
            Value::String(_) => true,
            _ => model == models::Kind::Thinks,
        }
    }

    /// All that was said, whatever the settings are.
    pub(super) fn conversation(&self) -> Hash {
        let said = [Value::from(self.messages.clone()).to_string(), self.get("tools").to_string()];
        hash(&said.each_ref().map(String::as_bytes))
    }

    /// What the model reads.
    pub(super) fn tokens(&self) -> usize {
        let read = list(self.get("tools")).iter().chain(&self.messages);
        read.map(|part| draft::tokens(&part.to_string())).sum()
    }

    /// What a scenario looks at.
    pub(super) fn said(&self) -> Said {
        let texts: Vec<&str> = self.last_entries().map(text).collect();
        Said { model: self.model().to_owned(), text: texts.join("\n") }
    }

    /// What the model has before it.
    pub(super) fn situation(&self, deltas: Option<usize>) -> Situation {
        let mut asked = self.messages.iter().rev();
        let written = |message: &&Value| is(message, "user") && !own(message).is_empty();
        let since = self.messages.iter().rev();
        Situation {
            user_text: asked.find(written).map(own).unwrap_or_default().to_owned(),
            results: self
                .last_entries()
                .filter(|entry| is(entry, "tool"))
                .map(|entry| text(entry).to_owned())
                .collect(),
            rounds: since
                .take_while(|message| !written(message))
                .filter(|message| !list(&message["tool_calls"]).is_empty())
                .count(),
            tools: self.tools(),
            choice: Choice::Auto,
            parallel: true,
            thinks: self.thinks(),
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
    message["role"].as_str().is_some_and(|said| said.eq_ignore_ascii_case(role))
}

/// The text of a message.
fn text(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// What the user wrote in a message, without what clients put around it.
fn own(message: &Value) -> &str {
    draft::written(text(message)).unwrap_or_default()
}

/// The items of a list; none where it is no list.
pub(super) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
