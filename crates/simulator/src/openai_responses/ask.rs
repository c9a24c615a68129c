//! The request as the simulator uses it: a lenient view that never refuses.
//!
//! Strictness is a separate pass (`shape`, `settings`, `dialogue`, `verify`), so that
//! `strict = off` is this view alone.

use serde_json::{Map, Value, json};

use super::memory::Memory;
use super::models::Model;
use crate::draft::{tokens, written};
use crate::script::{Choice, Tool};
use crate::signing::{Hash, hash};

/// A request for a response or for its token count.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) model: String,
    pub(crate) stream: bool,
    pub(crate) store: bool,
    /// Everything that was said, what a stored response holds included.
    pub(crate) items: Vec<Item>,
    pub(crate) tools: Vec<Value>,
    /// `previous_response_id` leads nowhere.
    pub(crate) lost: Option<String>,
    /// The body without its input.
    pub(crate) body: Map<String, Value>,
}

/// One item of the conversation.
#[derive(Debug)]
pub(crate) struct Item {
    pub(crate) value: Value,
    /// Its place in `input`; nothing where it comes from a stored response.
    pub(crate) place: Option<usize>,
}

impl Ask {
    pub(crate) fn read(mut body: Map<String, Value>, memory: &Memory) -> Self {
        let input = match body.remove("input").unwrap_or_default() {
            Value::String(text) => vec![json!({"role": "user", "content": text})],
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let store = body.get("store") != Some(&Value::Bool(false));
        let previous = body.get("previous_response_id").and_then(Value::as_str);
        let found = previous.and_then(|id| memory.conversation(id));
        let lost = match &found {
            None => previous.map(str::to_owned),
            Some(_) => None,
        };
        let stored = found.unwrap_or_default().into_iter();
        let mut items: Vec<Item> = stored.map(|value| Item { value, place: None }).collect();
        for (place, value) in input.into_iter().enumerate() {
            items.push(resolve(value, place, store, memory));
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

    /// The effort: the one asked for, or the model's own.
    pub(crate) fn effort<'a>(&'a self, model: &'a Model) -> &'a str {
        let asked = self.get("reasoning")["effort"].as_str();
        asked.unwrap_or(model.usual)
    }

    /// Whether the reasoning is to be summed up for the client.
    pub(crate) fn wants_summary(&self) -> bool {
        let reasoning = self.get("reasoning");
        reasoning["summary"].is_string() || reasoning["generate_summary"].is_string()
    }

    /// Whether the reasoning goes along encrypted. Without a store nothing else could bring it back.
    pub(crate) fn wants_encrypted(&self) -> bool {
        let mut asked = list(&self.body, "include").iter();
        !self.store || asked.any(|value| value == "reasoning.encrypted_content")
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

    /// What decides the reply.
    pub(crate) fn conversation(&self) -> Hash {
        let mut texts = vec![self.get("instructions").to_string()];
        texts.extend(self.tools.iter().map(Value::to_string));
        texts.extend(self.items.iter().map(|item| item.value.to_string()));
        let parts: Vec<&[u8]> = texts.iter().map(String::as_bytes).collect();
        hash(&parts)
    }

    /// About as many tokens as the model reads.
    pub(crate) fn input_tokens(&self) -> usize {
        let items = self.items.iter().map(|item| &item.value);
        let read = items.chain(&self.tools).map(Value::to_string);
        let instructions = self.get("instructions").as_str().unwrap_or_default();
        tokens(instructions) + read.map(|text| tokens(&text)).sum::<usize>()
    }

    /// Everything said after the model's last word, for scenarios.
    pub(crate) fn last_said(&self) -> String {
        let texts = self.after_the_model().filter_map(|item| match item.kind() {
            Kind::User | Kind::Output => Some(item.text()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }

    /// The last thing the user wrote.
    pub(crate) fn user_text(&self) -> String {
        let asked = self.items.iter().rev().filter_map(Item::asks);
        asked.into_iter().next().unwrap_or_default()
    }

    /// The results of calls that came last.
    pub(crate) fn results(&self) -> Vec<String> {
        let mut results = Vec::new();
        for item in self.after_the_model() {
            match item.kind() {
                Kind::Output => results.push(item.text()),
                _ if item.asks().is_some() => results.clear(),
                _ => {}
            }
        }
        results
    }

    /// How often the model called since the user wrote; calls side by side are one time.
    pub(crate) fn rounds(&self) -> usize {
        let start = self.items.iter().rposition(|item| item.asks().is_some());
        let since = self.items.get(start.unwrap_or_default()..);
        let since = since.unwrap_or_default();
        let calls = |item: &Item| item.kind() == Kind::Call;
        let pairs = since.iter().zip(since.iter().skip(1));
        pairs.filter(|(before, item)| calls(item) && !calls(before)).count()
    }

    fn after_the_model(&self) -> impl Iterator<Item = &Item> {
        let last = self.items.iter().rposition(|item| item.kind().is_said());
        self.items.iter().skip(last.map_or(0, |last| last + 1))
    }
}

/// What an item is, as far as the dialogue goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    User,
    /// Developer or system.
    Above,
    Assistant,
    Reasoning,
    /// A call that waits for its output.
    Call,
    Output,
    /// What the provider's own tools did.
    Hosted,
    Other,
}

impl Kind {
    /// Whether the model said it.
    pub(crate) fn is_said(self) -> bool {
        matches!(self, Self::Assistant | Self::Reasoning | Self::Call | Self::Hosted)
    }
}

impl Item {
    pub(crate) fn kind(&self) -> Kind {
        match self.value["type"].as_str() {
            None | Some("message") => match self.value["role"].as_str() {
                Some("assistant") => Kind::Assistant,
                Some("user") => Kind::User,
                _ => Kind::Above,
            },
            Some("reasoning") => Kind::Reasoning,
            Some("function_call" | "custom_tool_call") => Kind::Call,
            Some("function_call_output" | "custom_tool_call_output") => Kind::Output,
            Some(kind) if kind.ends_with("_call") || kind == "program" => Kind::Hosted,
            Some(_) => Kind::Other,
        }
    }

    /// A string member, if it is there and not empty.
    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        let value = self.value.get(key)?.as_str()?;
        (!value.is_empty()).then_some(value)
    }

    /// What a user wrote here.
    fn asks(&self) -> Option<String> {
        if self.kind() != Kind::User {
            return None;
        }
        let text = self.texts().filter_map(written);
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

/// An item, or the stored one it refers to.
fn resolve(value: Value, place: usize, store: bool, memory: &Memory) -> Item {
    if store
        && is_reference(&value)
        && let Some(value) = value["id"].as_str().and_then(|id| memory.item(id))
    {
        return Item { value, place: None };
    }
    Item { value, place: Some(place) }
}

/// Whether an item only names another; the type may be left out.
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
