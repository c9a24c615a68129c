//! The `extensions` member of whole replies in open dialects: the reasoning and calls that a stream
//! would have sent.

use crate::dialects::shared::arguments::or_empty_object;
use serde_json::{Value, json};
use throughline_canonical::{Block, Reply};

use super::hidden_reasoning::BREAK;

/// Writes `extensions` for a reply with reasoning or calls. Hidden reasoning stays hidden.
pub(crate) fn write(reply: &Reply, hidden: bool) -> Option<Value> {
    let (mut reasoned, mut called) = (Vec::new(), Vec::new());
    for block in &reply.content {
        match block {
            Block::Thinking { text, .. } if !text.is_empty() => reasoned.push(text.as_str()),
            Block::ToolCall { id, name, arguments, .. } => called.extend(call(id, name, arguments)),
            _ => {}
        }
    }
    if reasoned.is_empty() && called.is_empty() {
        return None;
    }
    if hidden {
        reasoned.clear();
    }
    let mut extensions = json!({"reasoning_chunks": reasoned, "tool_call_chunks": called});
    // Only the provider's own summary: we do not summarise.
    if reply.summary && !reasoned.is_empty() {
        extensions["reasoning_summary"] = reasoned.join(BREAK).into();
    }
    Some(extensions)
}

/// The three chunks that a stream sends for a call.
fn call(id: &str, name: &str, arguments: &str) -> [Value; 3] {
    let arguments = or_empty_object(arguments);
    [
        json!({"type": "start", "tool_call_id": id, "tool_name": name}),
        json!({"type": "args", "tool_call_id": id, "delta": arguments}),
        json!({"type": "end", "tool_call_id": id}),
    ]
}
