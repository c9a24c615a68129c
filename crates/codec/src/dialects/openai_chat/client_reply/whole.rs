//! Writes a whole reply.

use serde_json::{Map, Value, json};
use throughline_canonical::{Block, EndReason, Reply, Usage};

use super::super::{CUSTOM, NAME, annotations, usage};
use super::{Writer, finish_word};
use crate::dialects::shared::arguments::or_empty_object;
use crate::dialects::shared::hidden_reasoning::{BREAK, NOTICE};
use crate::dialects::shared::{extensions, openai_annotations};

/// Writes a whole reply.
pub(super) fn write(writer: &Writer, reply: &Reply) -> Vec<u8> {
    let mut parts = MessageParts::default();
    for block in &reply.content {
        parts.take(block);
    }
    let reason = reply.reason.as_ref().unwrap_or(&EndReason::Stop);
    let legacy = writer.form.legacy;
    let finish = finish_word(reason, (!parts.calls.is_empty(), parts.refusal.is_some()), legacy);
    if *reason == EndReason::Refusal && parts.refusal.is_none() {
        parts.refusal.clone_from(&reply.details.explanation);
    }
    let mut body = json!({
        "id": writer.id,
        "object": "chat.completion",
        "created": writer.created,
        "model": writer.model,
        "choices": [{
            "index": 0,
            "message": parts.message(writer),
            "logprobs": null,
            "finish_reason": finish,
        }],
    });
    if reply.usage != Usage::default() {
        body["usage"] = usage::write(&reply.usage);
    }
    if let Some(extensions) = extensions::write(reply, writer.form.hidden) {
        body["extensions"] = extensions;
    }
    body.to_string().into_bytes()
}

/// The parts of a message.
#[derive(Default)]
struct MessageParts {
    text: String,
    /// Number of characters in the text.
    length: u64,
    annotations: Vec<Value>,
    refusal: Option<String>,
    reasoning: String,
    details: Vec<Value>,
    calls: Vec<Value>,
}

impl MessageParts {
    fn take(&mut self, block: &Block) {
        match block {
            Block::Text { text, citations, .. } => {
                let begins = self.length;
                self.text.push_str(text);
                self.length += openai_annotations::length(text);
                let block = (begins, self.length);
                self.annotations.extend(annotations::write(citations, block));
            }
            Block::Refusal { text } => match &mut self.refusal {
                Some(refusal) => refusal.push_str(text),
                refusal => *refusal = Some(text.clone()),
            },
            Block::Thinking { text, signature } => {
                let mut detail = self.detail("reasoning.text");
                detail["text"] = text.as_str().into();
                if let Some(signature) = signature {
                    detail["signature"] = signature.as_str().into();
                }
                self.details.push(detail);
                if self.reasoning.ends_with(NOTICE) && !text.is_empty() {
                    self.reasoning.push_str(BREAK);
                }
                self.reasoning.push_str(text);
            }
            Block::Redacted { data } => {
                let mut detail = self.detail("reasoning.encrypted");
                detail["data"] = data.as_str().into();
                self.details.push(detail);
                if !self.reasoning.is_empty() {
                    self.reasoning.push_str(BREAK);
                }
                self.reasoning.push_str(NOTICE);
            }
            Block::ToolCall { id, name, arguments, signature } => {
                self.call(id, name, arguments, signature.as_deref());
            }
            Block::Opaque { dialect, value } if dialect == NAME && value["type"] == CUSTOM => {
                self.calls.push(value.clone());
            }
            Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque { .. } => {}
        }
    }

    fn detail(&self, kind: &str) -> Value {
        json!({"type": kind, "index": self.details.len(), "format": "unknown"})
    }

    fn call(&mut self, id: &str, name: &str, arguments: &str, signature: Option<&str>) {
        let function = json!({"name": name, "arguments": or_empty_object(arguments)});
        let mut call = json!({"id": id, "type": "function", "function": function});
        if let Some(signature) = signature {
            call["extra_content"] = json!({"google": {"thought_signature": signature}});
        }
        self.calls.push(call);
    }

    fn message(self, writer: &Writer) -> Value {
        let mut message = Map::new();
        let mut put = |name: &str, value: Value| message.insert(name.to_owned(), value);
        put("role", "assistant".into());
        // Clients expect `content` unless there are calls or a refusal.
        let elsewhere = !self.calls.is_empty() || self.refusal.is_some();
        let content = match self.text {
            text if text.is_empty() && elsewhere => Value::Null,
            text => text.into(),
        };
        put("content", content);
        put("refusal", self.refusal.into());
        if !self.annotations.is_empty() {
            put("annotations", self.annotations.into());
        }
        if !self.details.is_empty() && !writer.form.hidden {
            for field in &writer.form.fields {
                put(field, self.reasoning.as_str().into());
            }
            put("reasoning_details", self.details.into());
        }
        if writer.form.legacy {
            if let Some(call) = self.calls.into_iter().next() {
                put("function_call", call["function"].clone());
            }
        } else if !self.calls.is_empty() {
            put("tool_calls", self.calls.into());
        }
        message.into()
    }
}
