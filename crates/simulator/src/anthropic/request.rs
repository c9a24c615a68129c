//! The parsed request: a lenient view that never refuses.
//!
//! The strict checks are separate (`shape`, `modes`, `dialogue`, `verify`), so `strict = off` uses
//! this view alone.

use http::HeaderMap;
use serde_json::{Map, Value, json};

use super::compaction::CompactionEdit;
use crate::script::{AnswerFormat, Choice, Tool};

/// The API version and the betas of a request.
#[derive(Debug, Default)]
pub(crate) struct ApiHeaders {
    pub(crate) version: Option<String>,
    pub(crate) betas: Vec<String>,
}

/// The version without sampling parameters.
const NEW_VERSION: &str = "2026-10-21";
const BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";

impl ApiHeaders {
    pub(crate) fn read(headers: &HeaderMap) -> Self {
        let betas = headers.get_all("anthropic-beta").iter();
        Self {
            version: headers
                .get("anthropic-version")
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            betas: betas
                .filter_map(|value| value.to_str().ok())
                .flat_map(|list| list.split(','))
                .map(|beta| beta.trim().to_owned())
                .filter(|beta| !beta.is_empty())
                .collect(),
        }
    }

    pub(crate) fn is_new_version(&self) -> bool {
        self.version.as_deref() == Some(NEW_VERSION)
    }

    pub(crate) fn has_binding_controls(&self) -> bool {
        self.betas.iter().any(|beta| beta == BINDING_CONTROLS)
    }
}

/// A request for a message or for its token count.
#[derive(Debug)]
pub(crate) struct ParsedRequest {
    pub(crate) model: String,
    pub(crate) max_tokens: Option<u64>,
    pub(crate) stream: bool,
    pub(crate) stop_sequences: Vec<String>,
    pub(crate) thinking: Value,
    pub(crate) effort: Option<String>,
    pub(crate) output_schema: Value,
    pub(crate) tool_choice: Value,
    /// The mark for the last block.
    pub(crate) cache_control: Value,
    pub(crate) system: Vec<Value>,
    pub(crate) tools: Vec<Value>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) compaction: Option<CompactionEdit>,
}

/// One entry of `messages`, with its content as blocks.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(crate) role: String,
    pub(crate) blocks: Vec<Value>,
    /// Members other than role and content.
    pub(crate) members: Map<String, Value>,
}

impl ParsedRequest {
    pub(crate) fn read(mut body: Map<String, Value>) -> Self {
        let mut take = |key: &str| body.remove(key).unwrap_or_default();
        let output_config = take("output_config");
        Self {
            model: text_of(&take("model")),
            max_tokens: take("max_tokens").as_u64(),
            stream: take("stream") == Value::Bool(true),
            stop_sequences: items(take("stop_sequences")).iter().map(text_of).collect(),
            thinking: take("thinking"),
            effort: output_config.get("effort").and_then(Value::as_str).map(str::to_owned),
            output_schema: output_config["format"]["schema"].clone(),
            tool_choice: take("tool_choice"),
            cache_control: take("cache_control"),
            system: blocks(take("system")),
            tools: items(take("tools")),
            compaction: CompactionEdit::read(&take("context_management")),
            turns: items(take("messages")).into_iter().map(Turn::read).collect(),
        }
    }

    /// The tools the model can call; the provider's own come last.
    pub(crate) fn callable(&self) -> Vec<Tool> {
        let (own, provided): (Vec<&Value>, Vec<&Value>) =
            self.tools.iter().partition(|tool| tool.get("input_schema").is_some());
        let tool = |tool: &Value| Tool {
            name: text_of(&tool["name"]),
            schema: tool["input_schema"].clone(),
        };
        own.into_iter().chain(provided).map(tool).collect()
    }

    pub(crate) fn format(&self) -> AnswerFormat {
        match &self.output_schema {
            Value::Null => AnswerFormat::Text,
            schema => AnswerFormat::Schema(schema.clone()),
        }
    }

    pub(crate) fn choice(&self) -> Choice {
        match self.tool_choice["type"].as_str() {
            Some("any") => Choice::Any,
            Some("none") => Choice::Never,
            Some("tool") => Choice::Named(text_of(&self.tool_choice["name"])),
            _ => Choice::Auto,
        }
    }

    pub(crate) fn parallel(&self) -> bool {
        self.tool_choice["disable_parallel_tool_use"] != Value::Bool(true)
    }

    /// The index where the last adjacent assistant turns begin.
    pub(crate) fn last_assistant_run(&self) -> Option<usize> {
        let last = self.turns.iter().rposition(Turn::is_assistant)?;
        let earlier = self.turns.get(..last)?;
        let start = earlier.iter().rposition(|turn| !turn.is_assistant());
        Some(start.map_or(0, |before| before + 1))
    }

    /// The user turns after the last assistant turn.
    pub(crate) fn last_user_turns(&self) -> impl Iterator<Item = &Turn> {
        let start = self.turns.iter().rposition(Turn::is_assistant);
        let turns = self.turns.get(start.map_or(0, |last| last + 1)..);
        turns.unwrap_or_default().iter().filter(|turn| turn.role == "user")
    }
}

impl Turn {
    fn read(message: Value) -> Self {
        let mut members = match message {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        Self {
            role: text_of(&members.remove("role").unwrap_or_default()),
            blocks: blocks(members.remove("content").unwrap_or_default()),
            members,
        }
    }

    pub(crate) fn is_assistant(&self) -> bool {
        self.role == "assistant"
    }

    pub(crate) fn holds(&self, kind: &str) -> bool {
        self.blocks.iter().any(|block| kind_of(block) == kind)
    }
}

/// A block's type.
pub(crate) fn kind_of(block: &Value) -> &str {
    block["type"].as_str().unwrap_or_default()
}

/// Whether a block is thinking, readable or not.
pub(crate) fn is_thinking(block: &Value) -> bool {
    matches!(kind_of(block), "thinking" | "redacted_thinking")
}

/// All text in a tool result.
pub(crate) fn result_text(block: &Value) -> String {
    match &block["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join(" ")
        }
        _ => String::new(),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn items(value: Value) -> Vec<Value> {
    match value {
        Value::Array(items) => items,
        _ => Vec::new(),
    }
}

/// Content as blocks: a string is one text block, and an empty string is none.
fn blocks(content: Value) -> Vec<Value> {
    match content {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        other => items(other),
    }
}
