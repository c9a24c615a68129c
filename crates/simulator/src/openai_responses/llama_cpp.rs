//! The Responses dialect as llama.cpp speaks it: events without numbers and indexes, responses with
//! few members, raw reasoning without encryption, calls without item ids. Items end in the order of
//! the output only after the last delta.

use http::HeaderMap;
use serde_json::{Value, json};

use super::reply::{CREATED, Content, Output, Reply, raw_part, said_part};
use super::request::{ItemKind, ParsedRequest};
use crate::draft;
use crate::exchange::Exchange;
use crate::fault::Frame;
use crate::openai::refused;
use crate::openai_chat::Variant;
use crate::refusal::Refusal;

const NAME: &str = "llamacpp";

/// Whether the request asks for this server, by header or by the options of the simulator.
pub(super) fn is_wanted(exchange: &Exchange<'_>, headers: &HeaderMap) -> Result<bool, Refusal> {
    let usual = exchange.simulator().options.variant;
    // The model's name never means this server.
    let variant = Variant::of(headers, usual, "gpt-5")?;
    Ok(variant.name() == NAME)
}

/// Refuses what this server cannot read.
pub(super) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    if !request.get("previous_response_id").is_null() {
        let message = "llama.cpp does not support 'previous_response_id'.";
        return Err(refused("previous_response_id", None, message));
    }
    for item in &request.items {
        let text = &item.value["content"][0]["text"];
        if item.kind() == ItemKind::Reasoning && !text.is_string() {
            return Err(Refusal::invalid("item['content'] is not an array"));
        }
    }
    Ok(())
}

/// The whole response.
pub(super) fn json(reply: &Reply) -> Value {
    let mut response = end(reply);
    response["completed_at"] = CREATED.into();
    response
}

fn end(reply: &Reply) -> Value {
    let usage = &reply.usage;
    json!({
        "id": reply.id, "object": "response", "created_at": CREATED, "status": "completed",
        "model": reply.model,
        "output": reply.outputs.iter().map(item).collect::<Vec<Value>>(),
        "usage": {
            "input_tokens": usage.input.total,
            "output_tokens": usage.output,
            "total_tokens": usage.input.total + usage.output,
            "input_tokens_details": { "cached_tokens": usage.input.read },
        },
    })
}

/// The response as events.
pub(super) fn events(reply: &Reply) -> Vec<Frame> {
    let mut writer = Writer { frames: Vec::new() };
    let start = json!({"id": reply.id, "object": "response", "status": "in_progress"});
    writer.event(&json!({"type": "response.created", "response": start}));
    writer.event(&json!({"type": "response.in_progress", "response": start}));
    for output in &reply.outputs {
        writer.begin(output);
    }
    for output in &reply.outputs {
        writer.finish(output);
    }
    writer.event(&json!({"type": "response.completed", "response": end(reply)}));
    writer.frames
}

struct Writer {
    frames: Vec<Frame>,
}

impl Writer {
    fn event(&mut self, event: &Value) {
        self.frames.push(Frame::event(event["type"].as_str(), event));
    }

    fn begin(&mut self, output: &Output) {
        let mut begun = item(output);
        begun["status"] = "in_progress".into();
        let (id, event, text) = match &output.content {
            Content::Reasoning { raw, .. } => {
                begun["content"] = json!([]);
                let text = raw.as_deref().unwrap_or_default();
                (output.id.clone(), "response.reasoning_text.delta", text)
            }
            Content::Message { text, .. } => {
                begun["content"] = json!([]);
                (output.id.clone(), "response.output_text.delta", text.as_str())
            }
            Content::Call { call_id, arguments, .. } => {
                begun["arguments"] = "".into();
                let id = self::call_id(call_id);
                (id, "response.function_call_arguments.delta", arguments.as_str())
            }
        };
        self.event(&json!({"type": "response.output_item.added", "item": begun}));
        if matches!(output.content, Content::Message { .. }) {
            let part = json!({"type": "output_text", "text": ""});
            let kind = "response.content_part.added";
            self.event(&json!({"type": kind, "item_id": id, "part": part}));
        }
        for delta in draft::deltas(text) {
            self.event(&json!({"type": event, "item_id": id, "delta": delta}));
            if let Some(frame) = self.frames.last_mut() {
                frame.tokens = 1;
            }
        }
    }

    fn finish(&mut self, output: &Output) {
        let id = &output.id;
        if let Content::Message { text, .. } = &output.content {
            let kind = "response.output_text.done";
            self.event(&json!({"type": kind, "item_id": id, "text": text}));
            let kind = "response.content_part.done";
            self.event(&json!({"type": kind, "item_id": id, "part": said_part(text, false)}));
        }
        self.event(&json!({"type": "response.output_item.done", "item": item(output)}));
    }
}

fn item(output: &Output) -> Value {
    match &output.content {
        Content::Reasoning { raw, .. } => json!({
            "type": "reasoning", "id": output.id, "summary": [], "encrypted_content": "",
            "content": [raw_part(raw.as_deref().unwrap_or_default())],
        }),
        Content::Message { text, .. } => json!({
            "type": "message", "id": output.id, "status": "completed", "role": "assistant",
            "content": [said_part(text, false)],
        }),
        Content::Call { call_id, name, arguments } => json!({
            "type": "function_call", "status": "completed", "call_id": self::call_id(call_id),
            "name": name, "arguments": arguments,
        }),
    }
}

fn call_id(id: &str) -> String {
    format!("fc_{id}")
}
