//! The parsed request: a lenient view that never refuses.
//!
//! The strict checks are separate (`shape`, `settings`, `dialogue`, `verify`), so `strict = off`
//! uses this view alone.

use serde_json::{Map, Value, json};

use super::models::Model;
use super::store::ResponseStore;
use crate::draft::user_words;
use crate::openai;
use crate::prompt_cache::PromptPart;
use crate::script::{AnswerFormat, Choice, Tool};
use crate::signing::{Hash, hash};

/// A request for a response or for its token count.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) store: bool,
    /// The conversation, including the items of the previous response.
    pub(crate) items: Vec<Item>,
    pub(crate) tools: Vec<Value>,
    /// The `previous_response_id` that is not stored.
    pub(crate) lost: Option<String>,
    /// The body without its input.
    pub(crate) body: Map<String, Value>,
}

/// One item of the conversation.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    /// Its index in `input`; `None` if it comes from a stored response.
    pub(crate) position: Option<usize>,
}

impl ParsedRequest {
    pub(crate) fn read(mut body: Map<String, Value>, responses: &ResponseStore) -> Self {
        let input = match body.remove("input").unwrap_or_default() {
            Value::String(text) => vec![json!({"role": "user", "content": text})],
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let store = body.get("store") != Some(&Value::Bool(false));
        let previous = body.get("previous_response_id").and_then(Value::as_str);
        let found = previous.and_then(|id| responses.conversation(id));
        let lost = match &found {
            None => previous.map(str::to_owned),
            Some(_) => None,
        };
        let stored = found.unwrap_or_default().into_iter();
        let mut items: Vec<Item> = stored.map(|value| Item { value, position: None }).collect();
        for (position, value) in input.into_iter().enumerate() {
            items.push(resolve(value, position, store, responses));
        }
        Self {
            model: text(&body, "model").unwrap_or_default().to_owned(),
            stream: flag(&body, "stream") == Some(true),
            store,
            items,
            tools: list(&body, "tools").to_vec(),
            lost,
            body,
        }
    }

    pub(crate) fn get(&self, key: &str) -> &Value {
        self.body.get(key).unwrap_or(&Value::Null)
    }

    /// The effort of the request, else the model's default.
    pub(crate) fn effort<'a>(&'a self, model: &'a Model) -> &'a str {
        let effort = self.get("reasoning")["effort"].as_str();
        effort.unwrap_or(model.default_effort)
    }

    /// Whether the client asked for a reasoning summary.
    pub(crate) fn wants_summary(&self) -> bool {
        let reasoning = self.get("reasoning");
        reasoning["summary"].is_string() || reasoning["generate_summary"].is_string()
    }

    /// Whether the reply includes encrypted reasoning. Without a store it is the only way to send
    /// reasoning back.
    pub(crate) fn wants_encrypted(&self) -> bool {
        let mut include = list(&self.body, "include").iter();
        !self.store || include.any(|value| value == "reasoning.encrypted_content")
    }

    /// The functions the model can call.
    pub(crate) fn callable(&self) -> Vec<Tool> {
        let choice = self.get("tool_choice");
        let allowed = choice["tools"].as_array();
        let may = |tool: &&Value| {
            tool["type"] == "function"
                && allowed.is_none_or(|list| list.iter().any(|one| one["name"] == tool["name"]))
        };
        let tool = |tool: &Value| Tool {
            name: tool["name"].as_str().unwrap_or_default().to_owned(),
            schema: tool["parameters"].clone(),
        };
        self.tools.iter().filter(may).map(tool).collect()
    }

    /// The format of the answer.
    pub(crate) fn format(&self) -> AnswerFormat {
        let format = &self.get("text")["format"];
        match format["type"].as_str() {
            Some("json_schema") => AnswerFormat::Schema(format["schema"].clone()),
            Some("json_object") => AnswerFormat::Json,
            _ => AnswerFormat::Text,
        }
    }

    pub(crate) fn choice(&self) -> Choice {
        let choice = self.get("tool_choice");
        match choice.as_str().or(choice["type"].as_str()) {
            Some("none") => Choice::Never,
            Some("required") => Choice::Any,
            Some("function") => Choice::Named(choice["name"].as_str().unwrap_or_default().into()),
            Some("allowed_tools") if choice["mode"] == "required" => Choice::Any,
            _ => Choice::Auto,
        }
    }

    pub(crate) fn parallel(&self) -> bool {
        flag(&self.body, "parallel_tool_calls") != Some(false)
    }

    /// A hash of the conversation.
    pub(crate) fn conversation(&self) -> Hash {
        let mut texts = vec![self.get("instructions").to_string()];
        texts.extend(self.tools.iter().map(Value::to_string));
        texts.extend(self.items.iter().map(|item| item.value.to_string()));
        let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        hash(&parts)
    }

    /// The parts of the prompt, in the order in which the provider reads them.
    pub(crate) fn prompt(&self) -> Vec<PromptPart> {
        let instructions =
            self.get("instructions").as_str().map(|text| PromptPart::new("", text, None));
        let items = self.items.iter().map(|item| openai::prompt_part(&item.value));
        let tools = self.tools.iter().map(|tool| PromptPart::new("", &tool.to_string(), None));
        tools.chain(instructions).chain(items).collect()
    }

    /// All text after the model's last item, for scenarios.
    pub(crate) fn last_said(&self) -> String {
        let texts = self.after_last_reply().filter_map(|item| match item.kind() {
            ItemKind::User | ItemKind::Output => Some(item.text()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The user's last text.
    pub(crate) fn user_text(&self) -> String {
        let newest_first = self.items.iter().rev().filter_map(Item::asks);
        newest_first.into_iter().next().unwrap_or_default()
    }

    /// The tool results after the model's last item.
    pub(crate) fn results(&self) -> Vec<String> {
        let mut results = Vec::new();
        for item in self.after_last_reply() {
            match item.kind() {
                ItemKind::Output => results.push(item.text()),
                _ if item.asks().is_some() => results.clear(),
                _ => {}
            }
        }
        results
    }

    /// How many rounds of calls followed the user's last text; parallel calls are one round.
    pub(crate) fn rounds(&self) -> usize {
        let start = self.items.iter().rposition(|item| item.asks().is_some());
        let since = self.items.get(start.unwrap_or_default()..);
        let since = since.unwrap_or_default();
        let calls = |item: &Item| item.kind() == ItemKind::Call;
        let pairs = since.iter().zip(since.iter().skip(1));
        pairs.filter(|(before, item)| calls(item) && !calls(before)).count()
    }

    fn after_last_reply(&self) -> impl Iterator<Item = &Item> {
        let last = self.items.iter().rposition(|item| item.kind().is_from_model());
        self.items.iter().skip(last.map_or(0, |last| last + 1))
    }
}

/// The role of an item in the dialogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    User,
    /// A developer or system message.
    Above,
    Assistant,
    Reasoning,
    /// A call that waits for its output.
    Call,
    Output,
    /// A call of one of the provider's own tools.
    Hosted,
    Other,
}

impl ItemKind {
    /// Whether the model made this item.
    pub(crate) fn is_from_model(self) -> bool {
        matches!(self, Self::Assistant | Self::Reasoning | Self::Call | Self::Hosted)
    }
}

impl Item {
    pub(crate) fn kind(&self) -> ItemKind {
        match self.value["type"].as_str() {
            None | Some("message") => match self.value["role"].as_str() {
                Some("assistant") => ItemKind::Assistant,
                Some("user") => ItemKind::User,
                _ => ItemKind::Above,
            },
            Some("reasoning") => ItemKind::Reasoning,
            Some("function_call" | "custom_tool_call") => ItemKind::Call,
            Some("function_call_output" | "custom_tool_call_output") => ItemKind::Output,
            Some(kind) if kind.ends_with("_call") || kind == "program" => ItemKind::Hosted,
            Some(_) => ItemKind::Other,
        }
    }

    /// A string member, if it is present and not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let value = self.value.get(key)?.as_str()?;
        (!value.is_empty()).then_some(value)
    }

    /// The user's words in this item.
    fn asks(&self) -> Option<String> {
        if self.kind() != ItemKind::User {
            return None;
        }
        let text = self.texts().filter_map(user_words);
        let text = text.collect::<Vec<_>>().join("\n");
        (!text.is_empty()).then_some(text)
    }

    fn text(&self) -> String {
        self.texts().collect::<Vec<_>>().join("\n")
    }

    fn texts(&self) -> impl Iterator<Item = &str> {
        let content = self.value.get("content").or(self.value.get("output"));
        let content = content.unwrap_or(&Value::Null);
        let parts = content.as_array().into_iter().flatten();
        let texts = parts.filter_map(|part| part["text"].as_str());
        content.as_str().into_iter().chain(texts)
    }
}

/// The item, or the stored item that it refers to.
fn resolve(value: Value, position: usize, store: bool, responses: &ResponseStore) -> Item {
    if store
        && is_reference(&value)
        && let Some(value) = value["id"].as_str().and_then(|id| responses.item(id))
    {
        return Item { value, position: None };
    }
    Item { value, position: Some(position) }
}

/// Whether an item is a reference to another; its type may be absent.
pub(crate) fn is_reference(item: &Value) -> bool {
    match item["type"].as_str() {
        Some(kind) => kind == "item_reference",
        None => item.get("role").is_none() && item.get("id").is_some(),
    }
}

fn text<'a>(body: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    body.get(key)?.as_str()
}

fn flag(body: &Map<String, Value>, key: &str) -> Option<bool> {
    body.get(key)?.as_bool()
}

fn list<'a>(body: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    let items = body.get(key).and_then(Value::as_array);
    items.map(Vec::as_slice).unwrap_or_default()
}
