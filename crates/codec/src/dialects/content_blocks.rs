//! Blocks as front ends see them: the `contentBlocks` of a whole NDJSON reply and of a stored node.
//! The canonical request reads the same form.

use serde_json::{Value, json};
use throughline_canonical::{Block, Citation, MediaKind, Source};

/// Writes a block.
pub fn write(block: &Block) -> Value {
    match block {
        Block::Text { text, signature, citations } => {
            let mut value = json!({"type": "text", "text": text});
            let sources: Vec<Value> = citations.iter().filter_map(source).collect();
            if !sources.is_empty() {
                value["sources"] = sources.into();
            }
            signed(value, signature.as_deref())
        }
        Block::Refusal { text } => json!({"type": "text", "text": text, "refusal": true}),
        Block::Thinking { text, signature } => {
            signed(json!({"type": "thinking", "thinking": text}), signature.as_deref())
        }
        Block::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
        Block::ToolCall { id, name, arguments, signature } => {
            let arguments = arguments_value(arguments);
            let call = json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments});
            signed(call, signature.as_deref())
        }
        Block::ToolResult { id, name, content, is_error } => {
            let content: Vec<Value> = content.iter().map(write).collect();
            let mut result = json!({"type": "tool_result", "id": id, "content": content});
            if let Some(name) = name {
                result["name"] = name.as_str().into();
            }
            if *is_error {
                result["is_error"] = true.into();
            }
            result
        }
        Block::Media { kind, source, name, detail } => {
            media(*kind, source, name.as_deref(), detail.as_deref())
        }
        // Kinds that the vocabulary has no type for keep their own form.
        Block::Opaque { value, .. } => value.clone(),
    }
}

/// The content of a result, for events: a text if it has nothing else, or blocks.
pub(crate) fn result_content(content: &[Block]) -> Value {
    match result_text(content) {
        Some(text) => text.into(),
        None => content.iter().map(write).collect(),
    }
}

/// The content of a result as a text, if it has nothing else.
pub(crate) fn result_text(content: &[Block]) -> Option<String> {
    let texts = content.iter().map(|block| match block {
        Block::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    Some(texts.collect::<Option<Vec<&str>>>()?.join("\n"))
}

fn media(kind: MediaKind, source: &Source, name: Option<&str>, detail: Option<&str>) -> Value {
    let mut value = json!({"type": "media", "kind": kind, "source": source});
    for (member, text) in [("name", name), ("detail", detail)] {
        if let Some(text) = text {
            value[member] = text.into();
        }
    }
    value
}

/// The arguments of a call: as JSON, or as a string if they are malformed.
fn arguments_value(arguments: &str) -> Value {
    match arguments.trim() {
        "" => json!({}),
        _ => serde_json::from_str(arguments).unwrap_or_else(|_| Value::from(arguments)),
    }
}

/// A source with an address.
fn source(citation: &Citation) -> Option<Value> {
    let mut source = json!({"url": citation.url.as_ref()?});
    if let Some(title) = &citation.title {
        source["title"] = title.as_str().into();
    }
    Some(source)
}

fn signed(mut block: Value, signature: Option<&str>) -> Value {
    if let Some(signature) = signature {
        block["signature"] = signature.into();
    }
    block
}
