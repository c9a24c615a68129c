//! The response object around the items: status, usage and settings.

use std::fmt;

use serde_json::{Map, Value, json};
use throughline_canonical::{EndReason, Fault, FaultKind, Request, Usage};

use super::super::errors::reply_code;
use super::super::upstream_request::{reasoning, text, write_choice, write_tool};
use super::super::{NAME, RepeatedMembers};
use crate::dialects::shared::losses::Losses;

/// The response as clients get it. Its texts are JSON, except the status.
pub(crate) struct ResponseObject<'a> {
    /// The id, without quotes.
    pub(crate) id: &'a str,
    pub(crate) created: u64,
    /// When it was completed, if it was.
    pub(crate) completed: Option<u64>,
    pub(crate) status: &'a str,
    pub(crate) error: &'a str,
    pub(crate) details: &'a str,
    /// The members that never change.
    pub(crate) settings: &'a str,
    /// The items, without brackets.
    pub(crate) output: &'a str,
    pub(crate) usage: &'a str,
}

impl fmt::Display for ResponseObject<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, created, status, error, details, settings, output, usage, .. } = self;
        write!(formatter, "{{\"id\":\"{id}\",\"object\":\"response\",\"created_at\":{created}")?;
        match self.completed {
            Some(completed) => write!(formatter, ",\"completed_at\":{completed}")?,
            None => formatter.write_str(",\"completed_at\":null")?,
        }
        write!(
            formatter,
            ",\"status\":\"{status}\",\"error\":{error},\"incomplete_details\":{details},\
             {settings},\"output\":[{output}],\"usage\":{usage}}}"
        )
    }
}

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

/// The settings of the request as JSON, without braces.
pub(crate) fn settings(request: &Request, model: &str, repeated: &RepeatedMembers) -> String {
    let json = Value::Object(setting_members(request, model, repeated)).to_string();
    let inside = json.strip_prefix('{').and_then(|json| json.strip_suffix('}'));
    inside.unwrap_or_default().to_owned()
}

/// The settings of the request, repeated in the response. The specification of Open Responses
/// requires all of them, and most may not be null.
pub(crate) fn setting_members(
    request: &Request,
    model: &str,
    repeated: &RepeatedMembers,
) -> Map<String, Value> {
    let extra = request.extra.get(NAME);
    let own = |key: &str| extra.and_then(|extra| extra.get(key)).cloned();
    // Repeated settings lose nothing.
    let mut losses = Losses::default();
    let choice = request.tool_choice.as_ref().map(write_choice);
    let choice = own("tool_choice").or(choice);
    let tools = request.tools.iter();
    let tools: Vec<Value> =
        tools.filter_map(|tool| write_tool(tool, &mut losses)).map(complete_tool).collect();
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
    if let Value::Object(format) = format
        && format.get("type").is_some_and(|kind| kind == "json_schema")
    {
        format.entry("strict").or_insert_with(|| false.into());
        format.entry("description").or_insert(Value::Null);
    }
    let sampling = &request.sampling;
    let penalty =
        |name: &str, value: Option<f64>| own(name).unwrap_or_else(|| value.unwrap_or(0.0).into());
    let mut members = Map::new();
    for (key, value) in [
        ("model", model.into()),
        ("instructions", request.system.first().map(String::as_str).into()),
        ("background", false.into()),
        ("frequency_penalty", penalty("frequency_penalty", sampling.frequency_penalty)),
        ("max_output_tokens", request.max_tokens.into()),
        ("max_tool_calls", own("max_tool_calls").into()),
        ("metadata", own("metadata").unwrap_or_else(|| json!({}))),
        ("parallel_tool_calls", request.parallel_calls.unwrap_or(true).into()),
        ("presence_penalty", penalty("presence_penalty", sampling.presence_penalty)),
        ("previous_response_id", own("previous_response_id").into()),
        ("prompt_cache_key", request.cache_key.as_deref().into()),
        ("reasoning", thinking.into()),
        ("safety_identifier", Value::Null),
        ("service_tier", service_tier(own("service_tier"))),
        ("store", false.into()),
        ("temperature", sampling.temperature.unwrap_or(1.0).into()),
        ("text", shape.into()),
        ("tool_choice", choice.unwrap_or_else(|| "auto".into())),
        ("tools", tools.into()),
        ("top_logprobs", own("top_logprobs").unwrap_or_else(|| 0.into())),
        ("top_p", sampling.top_p.unwrap_or(1.0).into()),
        ("truncation", own("truncation").unwrap_or_else(|| "disabled".into())),
        ("user", Value::Null),
    ] {
        members.insert(key.to_owned(), value);
    }
    members.extend(repeated.0.clone());
    members
}

/// A tool with the members that a response must name.
fn complete_tool(mut tool: Value) -> Value {
    if let Value::Object(members) = &mut tool
        && members.get("type").is_some_and(|kind| kind == "function")
    {
        members.entry("description").or_insert(Value::Null);
    }
    tool
}

/// The tier of a response. `auto` is a request to choose one.
fn service_tier(requested: Option<Value>) -> Value {
    requested.filter(|tier| tier.is_string() && tier != "auto").unwrap_or_else(|| "default".into())
}
