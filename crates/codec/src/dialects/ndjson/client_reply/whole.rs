//! Writes a whole reply.

use serde_json::{Value, json};
use throughline_canonical::{Block, EndReason, Reply};

use super::line::DoneReason;
use super::{Writer, stop_word};
use crate::dialects::content_blocks;
use crate::dialects::shared::extensions;

/// Writes a whole reply.
pub(super) fn write(writer: &Writer, reply: &Reply) -> Vec<u8> {
    let (mut content, mut blocks) = (String::new(), Vec::<Value>::new());
    let mut called = false;
    for block in &reply.content {
        match block {
            Block::Text { text, .. } if text.is_empty() && is_unsigned(block) => continue,
            Block::Text { text, .. } | Block::Refusal { text } => content.push_str(text),
            Block::Thinking { signature, .. } if writer.hidden => {
                let hidden = Block::Thinking { text: String::new(), signature: signature.clone() };
                blocks.push(content_blocks::write(&hidden));
                continue;
            }
            Block::Thinking { .. } | Block::Redacted { .. } => {}
            Block::ToolCall { .. } => called = true,
            Block::ToolResult { .. } => {}
            // Only their provider can read them.
            Block::Media { .. } | Block::Opaque { .. } => continue,
        }
        blocks.push(content_blocks::write(block));
    }
    let reason = reply.reason.as_ref().unwrap_or(&EndReason::Stop);
    let answered = !content.is_empty() || called;
    let model = match writer.model.as_str() {
        "" => &reply.model,
        requested => requested,
    };
    let mut body = json!({
        "model": model,
        "reason": DoneReason::of(reason, answered, None),
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
