//! Writes the messages of a request to a provider.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Block, Loss, LossReason, LossSubject, MediaKind, Message, Reason, Request, Role, Source,
};

use crate::dialects::shared::losses::{Losses, foreign_block};

/// Writes the system texts and the conversation.
pub(super) fn write(request: &Request, losses: &mut Losses) -> Vec<Value> {
    let mut writer =
        MessageWriter { out: Vec::new(), losses, thinking_omitted: 0, names: HashMap::new() };
    for text in &request.system {
        writer.out.push(json!({"role": "system", "content": text}));
    }
    for message in &request.messages {
        writer.message(message);
    }
    if writer.thinking_omitted > 0 {
        let blocks = writer.thinking_omitted;
        let reason = Reason::Shape;
        writer.losses.add(Loss::ThinkingOmitted { blocks, reason });
    }
    writer.out
}

struct MessageWriter<'a> {
    out: Vec<Value>,
    losses: &'a mut Losses,
    /// Number of thinking blocks that could not be sent.
    thinking_omitted: usize,
    /// The tool of each call.
    names: HashMap<&'a str, &'a str>,
}

/// The parts of a message.
#[derive(Default)]
struct MessageParts {
    texts: Vec<String>,
    thinking: String,
    images: Vec<Value>,
    calls: Vec<Value>,
}

impl MessageParts {
    fn message(self, role: &str) -> Value {
        let mut message = Map::new();
        let mut put = |name: &str, value: Value| message.insert(name.to_owned(), value);
        put("role", role.into());
        put("content", self.texts.join("\n\n").into());
        if !self.thinking.is_empty() {
            put("thinking", self.thinking.into());
        }
        if !self.images.is_empty() {
            put("images", self.images.into());
        }
        if !self.calls.is_empty() {
            put("tool_calls", self.calls.into());
        }
        message.into()
    }
}

impl<'a> MessageWriter<'a> {
    fn message(&mut self, message: &'a Message) {
        match message.role {
            Role::System => {
                let mut parts = MessageParts::default();
                self.take(message.content.iter(), &mut parts);
                self.out.push(parts.message("system"));
            }
            Role::User => self.user(&message.content),
            Role::Assistant => {
                let mut parts = MessageParts::default();
                for block in &message.content {
                    self.assistant(block, &mut parts);
                }
                self.join(&parts);
                self.out.push(parts.message("assistant"));
            }
        }
    }

    /// Joins texts with blank lines.
    fn join(&mut self, parts: &MessageParts) {
        if parts.texts.len() > 1 {
            self.losses.adapt(LossSubject::Text, LossReason::TextsJoined);
        }
    }

    /// Writes a user message. Tool results are messages of their own and come first, because calls
    /// must be answered at once.
    fn user(&mut self, blocks: &'a [Block]) {
        let mut parts = MessageParts::default();
        let mut results = 0;
        for block in blocks {
            let Block::ToolResult { id, name, content, is_error } = block else {
                continue;
            };
            results += 1;
            if *is_error {
                self.losses.omit(LossSubject::ToolResultIsError, LossReason::NoPlace);
            }
            // A result is text; its images follow as a user message.
            let (media, text_blocks): (Vec<_>, Vec<_>) =
                content.iter().partition(|block| matches!(block, Block::Media { .. }));
            if !media.is_empty() {
                self.losses.adapt(LossSubject::ToolResultMedia, LossReason::Moved);
                self.take(media.into_iter(), &mut parts);
            }
            let mut result = MessageParts::default();
            self.take(text_blocks.into_iter(), &mut result);
            self.join(&result);
            let mut message = result.message("tool");
            let known = self.names.get(id.as_str()).copied();
            if let Some(name) = name.as_deref().or(known) {
                message["tool_name"] = name.into();
            }
            message["tool_call_id"] = id.as_str().into();
            self.out.push(message);
        }
        let others = blocks.iter().filter(|block| !matches!(block, Block::ToolResult { .. }));
        self.take(others, &mut parts);
        if results == 0 || !parts.texts.is_empty() || !parts.images.is_empty() {
            self.join(&parts);
            self.out.push(parts.message("user"));
        }
    }

    /// Collects the content of a user, tool or system message.
    fn take(&mut self, blocks: impl Iterator<Item = &'a Block>, parts: &mut MessageParts) {
        for block in blocks {
            match block {
                Block::Text { text, signature, .. } => {
                    if signature.is_some() {
                        self.losses.omit(LossSubject::TextSignature, LossReason::NoPlace);
                    }
                    if !parts.images.is_empty() {
                        self.losses.adapt(LossSubject::Media, LossReason::Moved);
                    }
                    parts.texts.push(text.clone());
                }
                Block::Refusal { text } => {
                    self.losses.adapt(LossSubject::Refusal, LossReason::AsText);
                    parts.texts.push(text.clone());
                }
                Block::Media { kind, source, name, detail } => {
                    if detail.is_some() {
                        self.losses.omit(LossSubject::MediaSettings, LossReason::NoPlace);
                    }
                    self.media(*kind, source, name.is_some(), parts);
                }
                Block::Opaque { value, .. } => self.losses.add(foreign_block(value)),
                Block::Thinking { .. } | Block::Redacted { .. } => self.thinking_omitted += 1,
                Block::ToolCall { .. } => self.losses.omit(LossSubject::ToolCall, LossReason::Role),
                Block::ToolResult { .. } => {
                    self.losses.omit(LossSubject::ToolResult, LossReason::Role);
                }
            }
        }
    }

    /// Images are sent as bytes only.
    fn media(&mut self, kind: MediaKind, source: &Source, named: bool, parts: &mut MessageParts) {
        match (kind, source) {
            (MediaKind::Image, Source::Base64 { data, .. }) => {
                parts.images.push(data.as_str().into());
                if named {
                    self.losses.omit(LossSubject::MediaName, LossReason::NoPlace);
                }
            }
            (MediaKind::Document, Source::Text { text }) => {
                self.losses.adapt(LossSubject::Document, LossReason::AsText);
                parts.texts.push(text.clone());
            }
            (_, Source::File { .. }) => {
                self.losses.omit(LossSubject::MediaFile, LossReason::ForeignFile);
            }
            _ => self.losses.omit(LossSubject::Media, LossReason::NoPlace),
        }
    }

    fn assistant(&mut self, block: &'a Block, parts: &mut MessageParts) {
        match block {
            Block::Thinking { text, signature } => {
                if text.is_empty() {
                    self.thinking_omitted += 1;
                    return;
                }
                if signature.is_some() {
                    self.losses.omit(LossSubject::ThinkingSignature, LossReason::NoPlace);
                }
                parts.thinking.push_str(text);
            }
            Block::Redacted { .. } => self.thinking_omitted += 1,
            Block::ToolCall { id, name, arguments, signature } => {
                if signature.is_some() {
                    self.losses.omit(LossSubject::ToolCallSignature, LossReason::NoPlace);
                }
                self.names.insert(id, name);
                let number = parts.calls.len();
                let arguments = self.arguments(arguments);
                parts.calls.push(json!({
                    "id": id,
                    "function": {"index": number, "name": name, "arguments": arguments},
                }));
            }
            other => self.take(std::iter::once(other), parts),
        }
    }

    /// The arguments as an object. Malformed arguments are wrapped in an object as text.
    fn arguments(&mut self, arguments: &str) -> Value {
        match serde_json::from_str(arguments) {
            Ok(Value::Object(members)) => members.into(),
            _ if arguments.trim().is_empty() => json!({}),
            _ => {
                self.losses.adapt(LossSubject::ToolCallArguments, LossReason::NotJson);
                json!({"arguments": arguments})
            }
        }
    }
}
