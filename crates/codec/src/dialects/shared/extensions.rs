//! What a whole reply of an open dialect says besides: its reasoning and calls as a stream would have told them.

use serde_json::{Value, json};
use throughline_canonical::{Block, Reply};

use super::BREAK;

/// The `extensions` of a reply that holds reasoning or calls. Hidden reasoning stays hidden.
pub(super) fn write(reply: &Reply, hidden: bool) -> Option<Value> {
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
    // Only the provider's own: nobody here sums up what a model thought.
    if reply.summary && !reasoned.is_empty() {
        extensions["reasoning_summary"] = reasoned.join(BREAK).into();
    }
    Some(extensions)
}

/// A call as a stream would have told it.
fn call(id: &str, name: &str, arguments: &str) -> [Value; 3] {
    let arguments = match arguments.trim() {
        "" => "{}",
        _ => arguments,
    };
    [
        json!({"type": "start", "tool_call_id": id, "tool_name": name}),
        json!({"type": "args", "tool_call_id": id, "delta": arguments}),
        json!({"type": "end", "tool_call_id": id}),
    ]
}
