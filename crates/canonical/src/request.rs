//! What a client asks: a conversation, tools, settings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Citation;
use crate::setting::ThinkingSetting;

/// One request. What is absent was not said; nobody's default stands in its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The model, as the client calls it.
    pub model: String,
    /// What stands above the conversation, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// What the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether it may, or must.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether it may call several tools at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_calls: Option<bool>,
    /// How much it should think, and what of it should be shown.
    #[serde(skip_serializing_if = "ThinkingSetting::is_unset")]
    pub thinking: ThinkingSetting,
    /// How it chooses words.
    #[serde(skip_serializing_if = "Sampling::is_unset")]
    pub sampling: Sampling,
    /// How many tokens it may write, thinking included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// What ends its answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// What shape its answer has.
    #[serde(skip_serializing_if = "Output::is_text")]
    pub output: Output,
    /// Whether the answer is wanted as it is written.
    pub stream: bool,
    /// Whom the client asks for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// What requests of one conversation have in common, for the provider's cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<String>,
    /// The client's own name of the conversation. It goes no further than us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Which of the configured backends should answer, where the request itself says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// Members of the client's body this vocabulary has no word for, by dialect.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Map<String, Value>>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub content: Vec<Block>,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Whoever runs the program, in the middle of a conversation.
    System,
    /// The person, and the tools that ran for the model.
    User,
    /// The model.
    Assistant,
}

/// A part of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// What its maker wants back with it, in words of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// What it refers to, in the order it was told.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        citations: Vec<Citation>,
    },
    /// Reasoning that can be read, or that was emptied and keeps its signature.
    Thinking {
        /// The text.
        text: String,
        /// Its signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Reasoning its maker encrypted.
    Redacted {
        /// The whole of it.
        data: String,
    },
    /// The model declined, in these words.
    Refusal {
        /// The words.
        text: String,
    },
    /// A call of a tool.
    ToolCall {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// Its arguments as JSON text, just as the model wrote it; it may be broken.
        arguments: String,
        /// What its maker wants back with it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// What a tool answered.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The tool, where the client says it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The answer.
        content: Vec<Block>,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// A picture, a document, a sound.
    Media {
        /// What it is.
        kind: MediaKind,
        /// Where it is.
        source: Source,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A part this vocabulary has no word for.
    Opaque {
        /// Whose word it is.
        dialect: String,
        /// The part.
        value: Value,
    },
}

impl Block {
    /// Text without a signature.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), signature: None, citations: Vec::new() }
    }
}

/// Kinds of media.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MediaKind {
    /// A picture.
    Image,
    /// A document.
    Document,
    /// A sound.
    Audio,
    /// A film.
    Video,
}

/// Where media are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// Here.
    Base64 {
        /// What the bytes are, such as `image/png`.
        media_type: String,
        /// The bytes.
        data: String,
    },
    /// Here, as plain text.
    Text {
        /// The text.
        text: String,
    },
    /// There.
    Url {
        /// The address.
        url: String,
        /// What the bytes are, if that is said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
    /// At the provider of this dialect, under its id.
    File {
        /// Whose.
        dialect: String,
        /// The id.
        id: String,
    },
}

/// A tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Tool {
    /// One that the client runs.
    Function {
        /// Its name.
        name: String,
        /// What it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The JSON Schema of its arguments.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        parameters: Value,
        /// Whether the arguments must fit the schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
    /// One that the provider of this dialect runs, or of a kind this vocabulary has no word for.
    Opaque {
        /// Whose.
        dialect: String,
        /// The tool.
        value: Value,
    },
}

/// Whether the model may call tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// It may not.
    None,
    /// It must.
    Required,
    /// It must call this one.
    Named {
        /// The tool.
        name: String,
    },
}

/// How a model chooses words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// How freely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Among those that make up this much of the probability.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Among so many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// From where its dice begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How much words that were said are avoided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// The same, by how often they were said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
}

impl Sampling {
    /// Whether nothing was said of it.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

/// What shape an answer has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Output {
    /// Any.
    #[default]
    Text,
    /// JSON.
    Json,
    /// JSON of this schema.
    Schema {
        /// What the schema is called.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The schema.
        schema: Value,
        /// Whether the answer must fit it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
}

impl Output {
    /// Whether any shape will do.
    pub fn is_text(&self) -> bool {
        *self == Self::Text
    }
}
