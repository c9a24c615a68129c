//! Requests: a conversation, tools and settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::Citation;
use crate::cache::CacheBreakpoints;
use crate::native::{Alignment, MadeTurn};
use crate::setting::ThinkingSetting;

/// One request. An absent member means that the client did not set it. No defaults are filled in.
/// Many fields: each one is a setting that several dialects have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// The client's name of the model.
    pub model: String,
    /// System texts before the conversation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system: Vec<String>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The tools that the model may call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether the model may or must call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether the model may call several tools at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_calls: Option<bool>,
    /// How much the model thinks, and how much of it is shown.
    #[serde(skip_serializing_if = "ThinkingSetting::is_unset")]
    pub thinking: ThinkingSetting,
    /// Sampling settings.
    #[serde(skip_serializing_if = "Sampling::is_unset")]
    pub sampling: Sampling,
    /// Maximum number of output tokens, thinking included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Stop sequences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// The format of the answer.
    #[serde(skip_serializing_if = "Output::is_text")]
    pub output: Output,
    /// Whether to stream the reply.
    pub stream: bool,
    /// The end user that the client names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// A key for the provider's prompt cache, shared by the requests of a conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<String>,
    /// Where the provider's prompt cache is asked to end prefixes.
    #[serde(skip_serializing_if = "CacheBreakpoints::is_empty")]
    pub cache_breakpoints: CacheBreakpoints,
    /// The client's id of the conversation. It is not sent to providers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// The backend that the request names, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// What the provider stores of the conversation.
    #[serde(skip_serializing_if = "ProviderState::is_unset")]
    pub provider_state: ProviderState,
    /// Members that the vocabulary has no field for, by dialect.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Map<String, Value>>,
}

/// What a provider stores of a conversation, if its dialect can say that. Other dialects ignore it:
/// the messages of the request are always the whole conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProviderState {
    /// Whether the provider is asked to store the reply.
    pub store: bool,
    /// The provider's id of the newest reply among the messages, which it has stored together with
    /// everything before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous: Option<String>,
}

impl ProviderState {
    /// Whether the provider stores nothing.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author.
    pub role: Role,
    /// The blocks, in order.
    pub content: Vec<Block>,
    /// The message as its maker wrote it, if that is known.
    #[serde(skip)]
    pub made: Option<Arc<MadeTurn>>,
}

impl Message {
    /// A message in canonical form only.
    pub fn new(role: Role, content: Vec<Block>) -> Self {
        Self { role, content, made: None }
    }

    /// Where the parts of this dialect go that the maker of the message wrote.
    pub fn native_parts(&self, dialect: &str) -> Alignment<'_> {
        let made = self.made.as_deref().filter(|made| made.native.dialect == dialect);
        made.map(|made| made.align(&self.content)).unwrap_or_default()
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The operator, in the middle of a conversation.
    System,
    /// The user, and the tools that ran for the model.
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
        /// An opaque value that the provider wants back with the text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
        /// Sources, in order of arrival.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        citations: Vec<Citation>,
    },
    /// Readable reasoning. Its text may be empty while the signature remains.
    Thinking {
        /// The text.
        text: String,
        /// Its signature.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Encrypted reasoning.
    Redacted {
        /// All its data.
        data: String,
    },
    /// The model declined.
    Refusal {
        /// The words of the refusal.
        text: String,
    },
    /// A tool call.
    ToolCall {
        /// The id of the call.
        id: String,
        /// The name of the tool.
        name: String,
        /// The arguments as the model wrote them: JSON text that may be malformed, or empty. An
        /// empty text means none, and every dialect writes it as `{}`.
        arguments: String,
        /// An opaque value that the provider wants back with the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// The result of a tool call.
    ToolResult {
        /// The id of the call.
        id: String,
        /// The name of the tool, if the client sends it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The content of the result.
        content: Vec<Block>,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
    /// An image, a document, audio or video.
    Media {
        /// The kind of media.
        kind: MediaKind,
        /// Where the bytes are.
        source: Source,
        /// The file name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// How closely the model looks at an image, in the words of OpenAI's dialects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
    },
    /// A block that the vocabulary has no type for.
    Opaque {
        /// The dialect it belongs to.
        dialect: String,
        /// The block in the form of that dialect.
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
    /// An image.
    Image,
    /// A document, such as a PDF file.
    Document,
    /// Audio.
    Audio,
    /// Video.
    Video,
}

/// Where media are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// Inline, in base64.
    Base64 {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The base64 data.
        data: String,
    },
    /// Inline, as plain text.
    Text {
        /// The text.
        text: String,
    },
    /// At an address.
    Url {
        /// The address.
        url: String,
        /// The media type, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        media_type: Option<String>,
    },
    /// A file stored by the provider of this dialect.
    File {
        /// The name of the dialect.
        dialect: String,
        /// The provider's id of the file.
        id: String,
    },
}

/// A tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Tool {
    /// A tool that the client runs.
    Function {
        /// The name that the model calls.
        name: String,
        /// The description for the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The JSON Schema of its arguments.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        parameters: Value,
        /// Whether arguments must match the schema exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
    /// A tool that the provider runs, or one that the vocabulary has no type for.
    Opaque {
        /// The dialect it belongs to.
        dialect: String,
        /// The tool in the form of that dialect.
        value: Value,
    },
}

/// Whether the model may call tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model must not call tools.
    None,
    /// The model must call a tool.
    Required,
    /// The model must call this tool.
    Named {
        /// The name of the tool.
        name: String,
    },
}

/// Sampling settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Nucleus sampling: probability mass of the candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Number of candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Seed of the random generator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Penalty for tokens that have occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// Penalty for tokens by how often they have occurred.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
}

impl Sampling {
    /// Whether no setting is present.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }
}

/// The format of an answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Output {
    /// Free text.
    #[default]
    Text,
    /// Any JSON.
    Json,
    /// JSON that matches a schema.
    Schema {
        /// The name of the schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
        /// The schema.
        schema: Value,
        /// Whether the answer must match the schema exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
    },
}

impl Output {
    /// Whether the answer is free text.
    pub fn is_text(&self) -> bool {
        *self == Self::Text
    }
}
