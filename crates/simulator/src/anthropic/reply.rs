//! The reply on the wire: one JSON message, or the same message as events.

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::compaction;
use crate::draft;
use crate::fault::Frame;
use crate::prompt_cache::CacheUse;
use crate::style::SignatureStyle;

/// A finished message.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) stop_reason: &'static str,
    pub(crate) stop_sequence: Option<String>,
    pub(crate) usage: Usage,
    /// Present if the request has the beta that reports them.
    pub(crate) input_transformations: Option<Vec<Value>>,
    pub(crate) style: SignatureStyle,
}

/// One content block.
#[derive(Debug)]
pub(crate) enum Block {
    Thinking { text: String, signature: String },
    Redacted { data: String },
    Text { text: String, citations: Vec<Value> },
    ToolUse { id: String, name: String, input: Value },
    Compaction { summary: String, signature: String },
}

/// Token counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) input: CacheUse,
    pub(crate) output: usize,
    pub(crate) thinking: usize,
}

impl Block {
    /// The block as JSON.
    pub(crate) fn json(&self) -> Value {
        match self {
            Self::Thinking { text, signature } => {
                json!({"type": "thinking", "thinking": text, "signature": signature})
            }
            Self::Redacted { data } => json!({"type": "redacted_thinking", "data": data}),
            Self::Text { text, citations } if citations.is_empty() => {
                json!({"type": "text", "text": text})
            }
            Self::Text { text, citations } => {
                json!({"type": "text", "text": text, "citations": citations})
            }
            Self::ToolUse { id, name, input } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": input})
            }
            Self::Compaction { summary, signature } => {
                json!({"type": compaction::KIND, "content": summary, "signature": signature})
            }
        }
    }
}

impl Usage {
    fn json(self) -> Value {
        let mut usage = self.json_at_start();
        usage["output_tokens"] = self.output.into();
        usage["output_tokens_details"] = json!({ "thinking_tokens": self.thinking });
        usage
    }

    /// The counts before the first token.
    fn json_at_start(self) -> Value {
        let used = self.input;
        json!({
            "input_tokens": used.uncached(),
            "cache_creation_input_tokens": used.write,
            "cache_read_input_tokens": used.read,
            "cache_creation": {
                "ephemeral_5m_input_tokens": used.write - used.write_1h,
                "ephemeral_1h_input_tokens": used.write_1h,
            },
            "output_tokens": 1,
            "service_tier": "standard",
        })
    }
}

impl Reply {
    /// The message as one JSON document.
    pub(crate) fn json(&self) -> Value {
        let content: Vec<Value> = self.blocks.iter().map(Block::json).collect();
        self.message(&content, Some(self.stop_reason), &self.usage.json())
    }

    /// The message as events.
    pub(crate) fn frames(&self, pings: bool) -> Vec<Frame> {
        let mut frames = Vec::new();
        let start = self.message(&[], None, &self.usage.json_at_start());
        frames.push(event(&json!({"type": "message_start", "message": start})));
        if pings {
            frames.push(ping());
        }
        for (index, block) in self.blocks.iter().enumerate() {
            self.write_block(&mut frames, index, block, pings);
        }
        frames.push(event(&json!({
            "type": "message_delta",
            "delta": {
                "stop_reason": self.stop_reason,
                "stop_sequence": self.stop_sequence,
                "stop_details": null,
            },
            "usage": self.usage.json(),
        })));
        frames.push(event(&json!({"type": "message_stop"})));
        frames
    }

    fn message(&self, content: &[Value], stop: Option<&str>, usage: &Value) -> Value {
        let mut message = json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop,
            "stop_sequence": stop.and(self.stop_sequence.as_deref()),
            "stop_details": null,
            "usage": usage,
        });
        if let (Some(list), Some(members)) = (&self.input_transformations, message.as_object_mut())
        {
            members.insert("input_transformations".to_owned(), list.clone().into());
        }
        message
    }

    fn write_block(&self, frames: &mut Vec<Frame>, index: usize, block: &Block, pings: bool) {
        let start = match block {
            Block::Thinking { signature, .. } => {
                let early = match self.style {
                    SignatureStyle::Start => signature.as_str(),
                    _ => "",
                };
                json!({"type": "thinking", "thinking": "", "signature": early})
            }
            Block::Redacted { .. } => block.json(),
            Block::Text { citations, .. } if citations.is_empty() => {
                json!({"type": "text", "text": ""})
            }
            Block::Text { .. } => json!({"type": "text", "text": "", "citations": []}),
            Block::ToolUse { id, name, .. } => {
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
            Block::Compaction { signature, .. } => {
                json!({"type": compaction::KIND, "content": null, "signature": signature})
            }
        };
        frames.push(event(
            &json!({"type": "content_block_start", "index": index, "content_block": start}),
        ));
        match block {
            Block::Thinking { text, signature } => {
                deltas(frames, index, "thinking_delta", "thinking", text);
                if self.style == SignatureStyle::Late && pings {
                    frames.push(ping());
                }
                if self.style != SignatureStyle::Start {
                    let late = self.style == SignatureStyle::Late;
                    frames.push(Frame {
                        tokens: if late { 10 } else { 0 },
                        ..delta(index, "signature_delta", "signature", signature)
                    });
                }
            }
            Block::Redacted { .. } => {}
            Block::Compaction { summary, .. } => {
                frames.push(delta(index, "compaction_delta", "content", summary));
            }
            Block::Text { text, citations } => {
                for citation in citations {
                    let delta = json!({"type": "citations_delta", "citation": citation});
                    let data =
                        json!({"type": "content_block_delta", "index": index, "delta": delta});
                    frames.push(event(&data));
                }
                deltas(frames, index, "text_delta", "text", text);
            }
            Block::ToolUse { input, .. } => {
                // A call without arguments has no delta, or only an empty one.
                let is_bare = input.as_object().is_some_and(Map::is_empty);
                if !is_bare || index.is_multiple_of(2) {
                    frames.push(delta(index, "input_json_delta", "partial_json", ""));
                }
                if !is_bare {
                    deltas(frames, index, "input_json_delta", "partial_json", &input.to_string());
                }
            }
        }
        frames.push(event(&json!({"type": "content_block_stop", "index": index})));
    }
}

/// One event: its name and its data.
pub(crate) fn event(data: &Value) -> Frame {
    Frame::event(data["type"].as_str(), data)
}

fn ping() -> Frame {
    event(&json!({"type": "ping"}))
}

fn deltas(frames: &mut Vec<Frame>, index: usize, kind: &str, member: &str, text: &str) {
    for piece in draft::deltas(text) {
        frames.push(Frame { tokens: 1, ..delta(index, kind, member, piece) });
    }
}

/// Deltas are formatted by hand because a bench sends 200,000 of them.
fn delta(index: usize, kind: &str, member: &str, text: &str) -> Frame {
    let text = Value::from(text);
    Frame {
        bytes: Bytes::from(format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"{kind}\",\"{member}\":{text}}}}}\n\n"
        )),
        tokens: 0,
    }
}
