//! The Responses dialect as vLLM speaks it, with gpt-oss and other open models: raw reasoning without
//! encryption, which goes back unchanged.

use http::HeaderMap;
use serde_json::Value;

use super::reply::{Content, Reply};
use super::request::{ItemKind, ParsedRequest};
use crate::exchange::Exchange;
use crate::openai::{missing, refused};
use crate::openai_chat::Variant;
use crate::refusal::Refusal;

const NAME: &str = "vllm";

/// Whether the request asks for this server, by header or by the options of the simulator.
pub(super) fn is_wanted(exchange: &Exchange<'_>, headers: &HeaderMap) -> Result<bool, Refusal> {
    let usual = exchange.simulator().options.variant;
    // The model's name never means this server.
    let variant = Variant::of(headers, usual, "gpt-5")?;
    Ok(variant.name() == NAME)
}

/// Removes the encrypted content, which this server does not have.
pub(super) fn leave_plain(reply: &mut Reply) {
    for output in &mut reply.outputs {
        if let Content::Reasoning { encrypted, .. } = &mut output.content {
            *encrypted = None;
        }
    }
}

/// Refuses what this server cannot read: its type of a reasoning item has an id, and its templates use
/// the first part of the content.
pub(super) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    let items = request.items.iter().filter(|item| item.kind() == ItemKind::Reasoning);
    for item in items {
        let path = |member: &str| format!("input[{}].{member}", item.position.unwrap_or_default());
        if item.get("id").is_none() {
            return Err(missing(&path("id")));
        }
        if !matches!(item.value["encrypted_content"], Value::Null) {
            let message = "Encrypted content is not supported.";
            return Err(refused(&path("encrypted_content"), None, message));
        }
        let parts = item.value["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        match parts {
            [part] if part["type"] == "reasoning_text" && part["text"].is_string() => {}
            _ => {
                let message = "Reasoning content must be one part of type 'reasoning_text'.";
                return Err(refused(&path("content"), None, message));
            }
        }
    }
    Ok(())
}
