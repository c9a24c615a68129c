//! The parsed request: a lenient view that never refuses.
//!
//! `shape` has already turned all names into camelCase. The strict checks are separate (`content`,
//! `modes`, `dialogue`, `verify`), so `strict = off` uses this view alone.

use serde_json::{Map, Value};

use crate::draft::user_words;
use crate::script::{AnswerFormat, Choice, Tool};

/// The media type of answers in JSON.
pub(crate) const JSON_TYPE: &str = "application/json";

/// A request for content or for its token count.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) model: String,
    pub(crate) system: Value,
    pub(crate) tools: Vec<Value>,
    pub(crate) calling: Value,
    pub(crate) config: Value,
    pub(crate) contents: Vec<Content>,
}

/// One entry of `contents`.
#[derive(Debug)]
pub(crate) struct Content {
    pub(crate) role: String,
    pub(crate) parts: Vec<Value>,
}

impl ParsedRequest {
    pub(crate) fn read(model: &str, mut body: Map<String, Value>) -> Self {
        let mut take = |key: &str| body.remove(key).unwrap_or_default();
        Self {
            model: model.to_owned(),
            system: take("systemInstruction"),
            tools: items(take("tools")),
            calling: member(take("toolConfig"), "functionCallingConfig"),
            config: take("generationConfig"),
            contents: items(take("contents")).into_iter().map(Content::read).collect(),
        }
    }

    /// All declarations of functions; the provider's own tools are not called by name.
    pub(crate) fn declarations(&self) -> impl Iterator<Item = &Value> {
        let lists = self.tools.iter();
        lists.flat_map(|tool| tool["functionDeclarations"].as_array().into_iter().flatten())
    }

    /// The format of the answer.
    pub(crate) fn format(&self) -> AnswerFormat {
        let own = &self.config["responseSchema"];
        match (&self.config["responseJsonSchema"], own) {
            (Value::Null, Value::Null) if self.config["responseMimeType"] == JSON_TYPE => {
                AnswerFormat::Json
            }
            (Value::Null, Value::Null) => AnswerFormat::Text,
            (Value::Null, own) => AnswerFormat::Schema(lowered(own)),
            (schema, _) => AnswerFormat::Schema(schema.clone()),
        }
    }

    /// The functions the model may call.
    pub(crate) fn callable(&self) -> Vec<Tool> {
        let allowed = self.allowed();
        let may = |name: &str| allowed.is_empty() || allowed.contains(&name);
        let tool = |declaration: &Value| Tool {
            name: text_of(&declaration["name"]),
            schema: match &declaration["parametersJsonSchema"] {
                Value::Null => lowered(&declaration["parameters"]),
                schema => schema.clone(),
            },
        };
        let declared = self.declarations().map(tool);
        declared.filter(|tool| may(&tool.name)).collect()
    }

    /// The names a call is limited to.
    pub(crate) fn allowed(&self) -> Vec<&str> {
        let names = self.calling["allowedFunctionNames"].as_array();
        let names = names.into_iter().flatten();
        names.filter_map(Value::as_str).collect()
    }

    pub(crate) fn choice(&self) -> Choice {
        match self.calling["mode"].as_str() {
            Some("ANY") => Choice::Any,
            Some("NONE") => Choice::Never,
            _ => Choice::Auto,
        }
    }

    pub(crate) fn stop_sequences(&self) -> Vec<String> {
        let sequences = self.config["stopSequences"].as_array();
        sequences.into_iter().flatten().map(text_of).collect()
    }

    /// The index where the current turn begins: after the user's last entry without function
    /// responses.
    pub(crate) fn current_turn(&self) -> usize {
        let starts = |content: &Content| !content.is_model() && !content.holds("functionResponse");
        let last = self.contents.iter().rposition(starts);
        last.map_or(0, |last| last + 1)
    }

    /// The user's last entries: all entries after the model's last one.
    pub(crate) fn last_user_parts(&self) -> impl Iterator<Item = &Value> {
        let last = self.contents.iter().rposition(Content::is_model);
        let entries = self.contents.get(last.map_or(0, |last| last + 1)..);
        let entries = entries.unwrap_or_default().iter();
        entries.flat_map(|content| &content.parts)
    }

    /// The user's last text; text next to function responses does not count.
    pub(crate) fn user_text(&self) -> String {
        let asking = |content: &&Content| !content.is_model() && !content.holds("functionResponse");
        let text = |content: &Content| {
            let texts = content.parts.iter().filter_map(|part| part["text"].as_str());
            texts.filter_map(user_words).collect::<Vec<_>>().join("\n")
        };
        let entries = self.contents.iter().rev().filter(asking).map(text);
        entries.into_iter().find(|text| !text.is_empty()).unwrap_or_default()
    }

    /// How many steps with calls followed the user's last text. Adjacent entries of the model are
    /// one step, because a client may keep each chunk of a stream as an entry.
    pub(crate) fn rounds(&self) -> usize {
        let since = self.contents.get(self.current_turn()..).unwrap_or_default();
        let steps = since.chunk_by(|one, next| one.is_model() == next.is_model());
        let calls = |step: &&[Content]| {
            step.iter().any(|content| content.is_model() && content.holds("functionCall"))
        };
        steps.filter(calls).count()
    }
}

impl Content {
    fn read(content: Value) -> Self {
        let role = text_of(&content["role"]);
        Self { role, parts: items(member(content, "parts")) }
    }

    pub(crate) fn is_model(&self) -> bool {
        self.role == "model"
    }

    pub(crate) fn holds(&self, member: &str) -> bool {
        self.parts.iter().any(|part| !part[member].is_null())
    }
}

/// The text of a function response: its output or error, else all of it.
pub(crate) fn result_text(part: &Value) -> Option<String> {
    let response = part.get("functionResponse")?.get("response")?;
    let text = response.get("output").or(response.get("error"));
    Some(match text.unwrap_or(response) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    })
}

pub(crate) fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn member(value: Value, key: &str) -> Value {
    match value {
        Value::Object(mut members) => members.remove(key).unwrap_or_default(),
        _ => Value::Null,
    }
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// A schema whose types are in the lower case of JSON Schema.
fn lowered(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let lower = |(key, value): (&String, &Value)| {
                let value = match value {
                    Value::String(name) if key == "type" => name.to_lowercase().into(),
                    other => lowered(other),
                };
                (key.clone(), value)
            };
            Value::Object(members.iter().map(lower).collect())
        }
        Value::Array(items) => items.iter().map(lowered).collect(),
        other => other.clone(),
    }
}
