//! The response object around the items: status, usage and settings.

use serde_json::{Map, Value, json};
use throughline_canonical::{EndReason, Fault, FaultKind, Request, Usage};

use super::super::errors::reply_code;
use super::super::upstream_request::{reasoning, text, write_choice, write_tool};
use super::super::{NAME, StoreMembers};
use crate::dialects::shared::losses::Losses;

/// The end of a reply that did not fail.
pub(crate) struct Ending {
    pub(crate) event: &'static str,
    pub(crate) status: &'static str,
    pub(crate) details: &'static str,
}

impl Ending {
    /// A refusal in words ends like an answer.
    pub(crate) fn of(reason: &EndReason, refused: bool) -> Result<Self, Fault> {
        let incomplete =
            |details| Ending { event: "response.incomplete", status: "incomplete", details };
        Ok(match reason {
            EndReason::Length => incomplete("{\"reason\":\"max_output_tokens\"}"),
            EndReason::Refusal if !refused => incomplete("{\"reason\":\"content_filter\"}"),
            EndReason::Other(word) if word == "content_filter" => {
                incomplete("{\"reason\":\"content_filter\"}")
            }
            EndReason::Stop
            | EndReason::Refusal
            | EndReason::StopSequence
            | EndReason::ToolCalls
            | EndReason::Pause
            | EndReason::Other(_) => {
                Ending { event: "response.completed", status: "completed", details: "null" }
            }
            EndReason::Failed => {
                return Err(Fault::new(FaultKind::Internal, "the reply failed"));
            }
            EndReason::Cut => {
                let message = "the provider's reply stopped before its end";
                return Err(Fault::new(FaultKind::Unreachable, message));
            }
        })
    }
}

pub(crate) fn error(fault: &Fault) -> String {
    let code = fault.code.as_deref();
    json!({"code": code.unwrap_or(reply_code(fault.kind)), "message": fault.message}).to_string()
}

/// Strict clients require all counts, even unknown ones.
pub(crate) fn usage(usage: &Usage) -> String {
    let count = |count: Option<u64>| count.unwrap_or_default();
    let (read, write) = (count(usage.cache_read), count(usage.cache_write));
    let input = count(usage.input).saturating_add(read).saturating_add(write);
    let output = count(usage.output);
    json!({
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": count(usage.thinking)},
        "total_tokens": input.saturating_add(output),
    })
    .to_string()
}

/// The settings of the request, repeated in the response.
pub(crate) fn settings(request: &Request, model: &str, store: &StoreMembers) -> String {
    let extra = request.extra.get(NAME);
    let own = |key: &str| extra.and_then(|extra| extra.get(key)).cloned();
    // Repeated settings lose nothing.
    let mut losses = Losses::default();
    let choice = request.tool_choice.as_ref().map(write_choice);
    let choice = own("tool_choice").or(choice);
    let tools = request.tools.iter();
    let tools: Vec<Value> = tools.filter_map(|tool| write_tool(tool, &mut losses)).collect();
    // Typed clients require some members even if they were not set.
    let object = |value: Option<Value>| match value {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    };
    let mut thinking = object(reasoning(&request.thinking, own("reasoning"), &mut losses));
    for key in ["effort", "summary"] {
        thinking.entry(key).or_insert(Value::Null);
    }
    let mut shape = object(text(&request.output, own("text")));
    let format = shape.entry("format").or_insert_with(|| json!({"type": "text"}));
    if format["type"] == "json_schema" && format.get("strict").is_none() {
        format["strict"] = false.into();
    }
    let mut members = Map::new();
    for (key, value) in [
        ("model", model.into()),
        ("instructions", request.system.first().map(String::as_str).into()),
        ("max_output_tokens", request.max_tokens.into()),
        ("metadata", own("metadata").unwrap_or_else(|| json!({}))),
        ("parallel_tool_calls", request.parallel_calls.unwrap_or(true).into()),
        ("previous_response_id", own("previous_response_id").into()),
        ("reasoning", thinking.into()),
        ("store", false.into()),
        ("temperature", request.sampling.temperature.into()),
        ("text", shape.into()),
        ("tool_choice", choice.unwrap_or_else(|| "auto".into())),
        ("tools", tools.into()),
        ("top_p", request.sampling.top_p.into()),
        ("truncation", own("truncation").unwrap_or_else(|| "disabled".into())),
    ] {
        members.insert(key.to_owned(), value);
    }
    members.extend(store.0.clone());
    let json = Value::Object(members).to_string();
    let inside = json.strip_prefix('{').and_then(|json| json.strip_suffix('}'));
    inside.unwrap_or_default().to_owned()
}
