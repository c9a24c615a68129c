//! The parsed request: a lenient view that never refuses.
//!
//! The strict checks are separate (`shape`, `modes`, `dialogue`, `verify`), so `strict = off` uses
//! this view alone.

use serde_json::{Map, Value};

use crate::draft;
use crate::exchange::ScenarioInput;
use crate::script::{AnswerFormat, Choice, Tool};
use crate::signing::{Hash, hash};

/// The provider makes this many choices at most.
pub(crate) const MAX_CHOICES: i64 = 128;

static NOTHING: Value = Value::Null;

/// A request for a completion.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    body: Map<String, Value>,
}

impl ParsedRequest {
    pub(crate) fn read(body: Map<String, Value>) -> Self {
        Self { body }
    }

    pub(crate) fn body(&self) -> &Map<String, Value> {
        &self.body
    }

    /// A member, or null if it is absent.
    pub(crate) fn get(&self, key: &str) -> &Value {
        self.body.get(key).unwrap_or(&NOTHING)
    }

    pub(crate) fn model(&self) -> &str {
        self.get("model").as_str().unwrap_or_default()
    }

    pub(crate) fn messages(&self) -> &[Value] {
        list(self.get("messages"))
    }

    pub(crate) fn streams(&self) -> bool {
        self.get("stream") == &Value::Bool(true)
    }

    pub(crate) fn wants_usage(&self) -> bool {
        self.get("stream_options")["include_usage"] == Value::Bool(true)
    }

    pub(crate) fn wants_obfuscation(&self) -> bool {
        self.get("stream_options")["include_obfuscation"] != Value::Bool(false)
    }

    pub(crate) fn limit(&self) -> Option<u64> {
        let newer = self.get("max_completion_tokens").as_u64();
        newer.or_else(|| self.get("max_tokens").as_u64())
    }

    pub(crate) fn stop_sequences(&self) -> Vec<String> {
        match self.get("stop") {
            Value::String(only) => vec![only.clone()],
            several => list(several).iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        }
    }

    /// The number of choices in the reply.
    pub(crate) fn choices(&self) -> u64 {
        self.get("n").as_i64().unwrap_or(1).clamp(1, MAX_CHOICES).unsigned_abs()
    }

    /// The request uses the old `functions` instead of `tools`.
    pub(crate) fn is_legacy(&self) -> bool {
        list(self.get("tools")).is_empty() && !list(self.get("functions")).is_empty()
    }

    /// The functions the model can call.
    pub(crate) fn callable(&self) -> Vec<Tool> {
        let functions: Vec<&Value> = if self.is_legacy() {
            list(self.get("functions")).iter().collect()
        } else {
            let tools = list(self.get("tools")).iter();
            tools.filter_map(|tool| tool.get("function")).collect()
        };
        let tool = |function: &Value| Tool {
            name: text_of(&function["name"]),
            schema: function["parameters"].clone(),
        };
        functions.into_iter().map(tool).collect()
    }

    /// The format of the answer.
    pub(crate) fn format(&self) -> AnswerFormat {
        let format = self.get("response_format");
        match format["type"].as_str() {
            Some("json_schema") => AnswerFormat::Schema(format["json_schema"]["schema"].clone()),
            Some("json_object") => AnswerFormat::Json,
            _ => AnswerFormat::Text,
        }
    }

    pub(crate) fn choice(&self) -> Choice {
        let choice =
            if self.is_legacy() { self.get("function_call") } else { self.get("tool_choice") };
        match choice {
            Value::String(word) => match word.as_str() {
                "none" => Choice::Never,
                "required" | "any" => Choice::Any,
                _ => Choice::Auto,
            },
            Value::Object(_) => {
                let name = choice["function"]["name"].as_str();
                match name.or_else(|| choice["name"].as_str()) {
                    Some(name) => Choice::Named(name.to_owned()),
                    None if choice["allowed_tools"]["mode"] == "required" => Choice::Any,
                    None => Choice::Auto,
                }
            }
            _ => Choice::Auto,
        }
    }

    pub(crate) fn parallel(&self) -> bool {
        self.get("parallel_tool_calls") != &Value::Bool(false) && !self.is_legacy()
    }

    /// A hash of the conversation, without the settings.
    pub(crate) fn conversation(&self) -> Hash {
        let parts = ["messages", "tools", "functions"].map(|key| self.get(key).to_string());
        hash(&parts.each_ref().map(String::as_bytes))
    }

    /// The input of a scenario's `when`.
    pub(crate) fn scenario_input(&self) -> ScenarioInput {
        let texts: Vec<String> = self.last_entries().map(text).collect();
        ScenarioInput {
            model: self.model().to_owned(),
            text: texts.join("\n"),
            conversation: self.get("messages").to_string(),
        }
    }

    /// The user's last text.
    pub(crate) fn user_text(&self) -> String {
        let newest_first = self.messages().iter().rev();
        newest_first
            .filter(|message| is(message, "user"))
            .map(user_words)
            .find(|text| !text.is_empty())
            .unwrap_or_default()
    }

    /// The texts of the last tool results.
    pub(crate) fn results(&self) -> Vec<String> {
        self.last_entries().filter(|entry| is_result(entry)).map(text).collect()
    }

    /// How many assistant messages with calls followed the user's last text.
    pub(crate) fn rounds(&self) -> usize {
        let since = self.messages().iter().rev();
        since
            .take_while(|message| !is(message, "user") || user_words(message).is_empty())
            .filter(|message| calls(message))
            .count()
    }

    /// The index where the current turn begins: after the user's last text.
    pub(crate) fn turn(&self) -> usize {
        let last = self.messages().iter().rposition(|message| {
            is(message, "user") && !text(message).trim_start().starts_with(RESPONSE)
        });
        last.map_or(0, |last| last + 1)
    }

    /// Everything after the last assistant message.
    fn last_entries(&self) -> impl Iterator<Item = &Value> {
        let messages = self.messages();
        let last = messages.iter().rposition(|one| is(one, "assistant"));
        let entries = messages.get(last.map_or(0, |last| last + 1)..);
        let entries = entries.unwrap_or_default().iter();
        entries.filter(|one| !is(one, "system") && !is(one, "developer"))
    }
}

/// The tags of a call and of a result that are written as text.
pub(crate) const CALL: &str = "<tool_call>";
const RESPONSE: &str = "<tool_response>";

/// Whether a message has this role.
pub(crate) fn is(message: &Value, role: &str) -> bool {
    message["role"] == role
}

/// Whether a message is a tool result.
fn is_result(message: &Value) -> bool {
    is(message, "tool")
        || is(message, "function")
        || is(message, "user") && text(message).trim_start().starts_with(RESPONSE)
}

/// Whether an assistant message has calls, in its members or in its text.
fn calls(message: &Value) -> bool {
    is(message, "assistant")
        && (!list(&message["tool_calls"]).is_empty()
            || message["function_call"].is_object()
            || text(message).contains(CALL))
}

/// All text in a message.
pub(crate) fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        parts => {
            let texts = list(parts).iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// The user's own words in a message, without client reminders and tool results.
fn user_words(message: &Value) -> String {
    let own = |text: &str| {
        let text = draft::user_words(text)?;
        (!text.starts_with(RESPONSE)).then(|| text.to_owned())
    };
    match &message["content"] {
        Value::String(text) => own(text).unwrap_or_default(),
        parts => {
            let texts = list(parts).iter().filter_map(|part| part["text"].as_str());
            texts.filter_map(own).collect::<Vec<_>>().join("\n")
        }
    }
}

/// The items of a list, or none if the value is not a list.
pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
