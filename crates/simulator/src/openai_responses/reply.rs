//! The response as an object: its items, its status and the repeated settings.

use serde_json::{Map, Value, json};

use crate::prompt_cache::CacheUse;

/// Replies depend on the request only, so their time is fixed.
pub(super) const CREATED: u64 = 1_794_700_000;

/// A finished response.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) id: String,
    pub(crate) model: String,
    pub(crate) outputs: Vec<Output>,
    pub(crate) ending: Ending,
    pub(crate) usage: Usage,
    /// The settings of the request, defaults filled in.
    pub(crate) settings: Map<String, Value>,
}

/// Why a response ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Completed,
    /// With the reason.
    Incomplete(&'static str),
    /// Its last item stays unfinished.
    Failed,
}

/// One item of the output.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub(crate) id: String,
    pub(crate) content: Content,
    /// Whether the item is complete.
    pub(crate) whole: bool,
}

/// The content of an item.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Reasoning {
        /// The parts of its summary.
        summary: Vec<String>,
        /// The reasoning itself; only open servers show it.
        raw: Option<String>,
        encrypted: Option<String>,
    },
    Message {
        text: String,
        refusal: bool,
        phase: &'static str,
        /// The sources of the text.
        annotations: Vec<Value>,
    },
    Call {
        call_id: String,
        name: String,
        arguments: String,
    },
}

/// Token counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) input: CacheUse,
    /// Whether tokens written to the cache are counted.
    pub(crate) counts_writes: bool,
    pub(crate) output: usize,
    pub(crate) reasoning: usize,
}

impl Output {
    /// The item as JSON.
    pub(crate) fn json(&self) -> Value {
        let status = if self.whole { "completed" } else { "incomplete" };
        match &self.content {
            Content::Reasoning { summary, raw, encrypted } => {
                let summary: Vec<Value> = summary.iter().map(|text| summary_part(text)).collect();
                let mut item = json!({"id": self.id, "type": "reasoning", "summary": summary});
                if let Some(encrypted) = encrypted {
                    item["encrypted_content"] = encrypted.as_str().into();
                }
                if let Some(raw) = raw {
                    item["content"] = json!([raw_part(raw)]);
                }
                if !self.whole {
                    item["status"] = status.into();
                }
                item
            }
            Content::Message { text, refusal, phase, annotations } => {
                let mut part = said_part(text, *refusal);
                if !refusal {
                    part["annotations"] = annotations.clone().into();
                }
                json!({"id": self.id, "type": "message", "status": status, "role": "assistant",
                       "phase": phase, "content": [part]})
            }
            Content::Call { call_id, name, arguments } => {
                json!({"id": self.id, "type": "function_call", "status": status,
                       "call_id": call_id, "name": name, "arguments": arguments})
            }
        }
    }
}

/// A part of a summary.
pub(crate) fn summary_part(text: &str) -> Value {
    json!({"type": "summary_text", "text": text})
}

/// A part of the reasoning itself.
pub(crate) fn raw_part(text: &str) -> Value {
    json!({"type": "reasoning_text", "text": text})
}

/// The part of a message.
pub(crate) fn said_part(text: &str, refusal: bool) -> Value {
    if refusal {
        json!({"type": "refusal", "refusal": text})
    } else {
        json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
    }
}

impl Usage {
    fn json(self) -> Value {
        let CacheUse { total, read, write, .. } = self.input;
        let written = if self.counts_writes { write } else { 0 };
        json!({
            "input_tokens": total,
            "input_tokens_details": { "cached_tokens": read, "cache_write_tokens": written },
            "output_tokens": self.output,
            "output_tokens_details": { "reasoning_tokens": self.reasoning },
            "total_tokens": total + self.output,
        })
    }
}

impl Reply {
    /// The finished items; an item that a failure cut off is not included.
    pub(crate) fn items(&self) -> Vec<Value> {
        let kept = self.outputs.iter();
        let kept = kept.filter(|output| output.whole || self.ending != Ending::Failed);
        kept.map(Output::json).collect()
    }

    /// The response as one JSON document.
    pub(crate) fn json(&self) -> Value {
        let (status, error, details) = match self.ending {
            Ending::Completed => ("completed", Value::Null, Value::Null),
            Ending::Incomplete(reason) => ("incomplete", Value::Null, json!({ "reason": reason })),
            Ending::Failed => {
                let message = "The model broke off on demand.";
                let error = json!({ "code": "server_error", "message": message });
                ("failed", error, Value::Null)
            }
        };
        let mut response = self.object(status, &self.items(), &self.usage.json());
        response["error"] = error;
        response["incomplete_details"] = details;
        if self.ending == Ending::Completed {
            response["completed_at"] = CREATED.into();
        }
        response
    }

    /// The response before its first item.
    pub(crate) fn json_at_start(&self) -> Value {
        self.object("in_progress", &[], &Value::Null)
    }

    fn object(&self, status: &str, output: &[Value], usage: &Value) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": CREATED,
            "completed_at": null,
            "status": status,
            "error": null,
            "incomplete_details": null,
            "model": self.model,
            "output": output,
            "usage": usage,
        });
        if let Value::Object(members) = &mut response {
            members.extend(self.settings.clone());
        }
        response
    }
}
