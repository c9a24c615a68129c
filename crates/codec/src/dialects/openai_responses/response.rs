//! What the response around the items of a reply says: how it ended, what it cost, what was asked.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, EndReason, Fault, FaultKind, Output, Request, Show, ToolChoice, Usage,
};

use super::NAME;
use super::faults::reply_code;
use super::state::KEPT;

/// How a reply ends that did not fail.
pub(super) struct Ending {
    pub(super) event: &'static str,
    pub(super) status: &'static str,
    pub(super) details: &'static str,
}

impl Ending {
    /// What was declined in words ends as an answer does.
    pub(super) fn of(reason: &EndReason, refused: bool) -> Result<Self, Fault> {
        let incomplete = |details| Ending {
            event: "response.incomplete",
            status: "incomplete",
            details,
        };
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
            | EndReason::Other(_) => Ending {
                event: "response.completed",
                status: "completed",
                details: "null",
            },
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

pub(super) fn error(fault: &Fault) -> String {
    json!({"code": reply_code(fault.kind), "message": fault.message}).to_string()
}

/// Strict clients want all counts, also where nobody counted.
pub(super) fn usage(usage: &Usage) -> String {
    let count = |count: Option<u64>| count.unwrap_or_default();
    let (read, write) = (count(usage.cache_read), count(usage.cache_write));
    let input = count(usage.input)
        .saturating_add(read)
        .saturating_add(write);
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

/// What the response says of the request.
pub(super) fn settings(request: &Request) -> String {
    let extra = request.extra.get(NAME);
    let own = |key: &str| extra.and_then(|extra| extra.get(key)).cloned();
    let choice = match &request.tool_choice {
        None | Some(ToolChoice::Auto) => "auto".into(),
        Some(ToolChoice::None) => "none".into(),
        Some(ToolChoice::Required) => "required".into(),
        Some(ToolChoice::Named { name }) => json!({"type": "function", "name": name}),
    };
    let effort = match request.thinking.amount {
        Some(Amount::Off) => Some("none"),
        Some(Amount::Effort { effort }) => Some(effort.word()),
        _ => None,
    };
    let summary = match request.thinking.show {
        Some(Show::Full) => Some("detailed"),
        Some(Show::Summary) => Some("auto"),
        _ => None,
    };
    let format = match &request.output {
        Output::Text => json!({"type": "text"}),
        Output::Json => json!({"type": "json_object"}),
        Output::Schema {
            name,
            schema,
            strict,
        } => json!({
            "type": "json_schema",
            "name": name.as_deref().unwrap_or("output"),
            "schema": schema,
            "strict": strict.unwrap_or(false),
        }),
    };
    let mut members = Map::new();
    for (key, value) in [
        ("model", request.model.as_str().into()),
        ("instructions", Value::Null),
        ("max_output_tokens", request.max_tokens.into()),
        ("metadata", own("metadata").unwrap_or_else(|| json!({}))),
        (
            "parallel_tool_calls",
            request.parallel_calls.unwrap_or(true).into(),
        ),
        ("previous_response_id", own("previous_response_id").into()),
        ("reasoning", json!({"effort": effort, "summary": summary})),
        ("store", false.into()),
        ("temperature", request.sampling.temperature.into()),
        ("text", json!({"format": format})),
        ("tool_choice", own("tool_choice").unwrap_or(choice)),
        // The client knows its tools; they may be as long as everything else.
        ("tools", json!([])),
        ("top_p", request.sampling.top_p.into()),
        (
            "truncation",
            own("truncation").unwrap_or_else(|| "disabled".into()),
        ),
    ] {
        members.insert(key.to_owned(), value);
    }
    // Whoever keeps the conversation knows better.
    if let Some(Value::Object(kept)) = own(KEPT) {
        members.extend(kept);
    }
    let text = Value::Object(members).to_string();
    let inside = text
        .strip_prefix('{')
        .and_then(|text| text.strip_suffix('}'));
    inside.unwrap_or_default().to_owned()
}
