//! Writes a whole reply.

use serde_json::{Value, json};
use throughline_canonical::{Block, Citation, EndReason, Reply};

use super::{Writer, done_word, stop_word};
use crate::dialects::shared::extensions;

/// A source with an address.
fn source(citation: &Citation) -> Option<Value> {
    let mut source = json!({"url": citation.url.as_ref()?});
    if let Some(title) = &citation.title {
        source["title"] = title.as_str().into();
    }
    Some(source)
}

/// Writes a whole reply.
pub(super) fn write(writer: &Writer, reply: &Reply) -> Vec<u8> {
    let (mut content, mut blocks) = (String::new(), Vec::new());
    let mut called = false;
    for block in &reply.content {
        blocks.extend(match block {
            Block::Text { text, .. } if text.is_empty() && is_unsigned(block) => None,
            Block::Text { text, signature, citations } => {
                content.push_str(text);
                let mut block = json!({"type": "text", "text": text});
                let sources: Vec<Value> = citations.iter().filter_map(source).collect();
                if !sources.is_empty() {
                    block["sources"] = sources.into();
                }
                Some(signed(block, signature.as_deref()))
            }
            Block::Refusal { text } => {
                content.push_str(text);
                Some(json!({"type": "text", "text": text, "refusal": true}))
            }
            Block::Thinking { text, signature } => {
                let text = if writer.hidden { "" } else { text };
                let block = json!({"type": "thinking", "thinking": text});
                Some(signed(block, signature.as_deref()))
            }
            Block::Redacted { data } => Some(json!({"type": "redacted_thinking", "data": data})),
            Block::ToolCall { id, name, arguments, signature } => {
                let arguments = match arguments.trim() {
                    "" => "{}",
                    _ => arguments,
                };
                called = true;
                let value = serde_json::from_str(arguments);
                let value = value.unwrap_or_else(|_| Value::from(arguments));
                let call = json!({"type": "tool_call", "id": id, "name": name, "arguments": value});
                Some(signed(call, signature.as_deref()))
            }
            // Only their provider can read them.
            Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque { .. } => None,
        });
    }
    let reason = reply.reason.as_ref().unwrap_or(&EndReason::Stop);
    let answered = !content.is_empty() || called;
    let model = match writer.model.as_str() {
        "" => &reply.model,
        requested => requested,
    };
    let mut body = json!({
        "model": model,
        "reason": done_word(reason, answered, None),
        "stop_reason": stop_word(reason),
        "content": content,
        "contentBlocks": blocks,
        "usage": reply.usage,
    });
    if !reply.details.is_empty() {
        body["details"] = json!(reply.details);
    }
    if !reply.losses.is_empty() {
        body["losses"] = json!(reply.losses);
    }
    if let Some(extensions) = extensions::write(reply, writer.hidden) {
        body["extensions"] = extensions;
    }
    body.to_string().into_bytes()
}

fn is_unsigned(block: &Block) -> bool {
    matches!(block, Block::Text { signature: None, .. })
}

fn signed(mut block: Value, signature: Option<&str>) -> Value {
    if let Some(signature) = signature {
        block["signature"] = signature.into();
    }
    block
}
