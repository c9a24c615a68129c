//! Writes a request for a provider: settings and tools.
//!
//! Nothing is stored at the provider unless the request says so, and what is stored may be lost. So
//! every reply must return its reasoning encrypted.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, Effort, LossReason, LossSubject, Lossy, Output, Request, Show, ThinkingSetting, Tool,
    ToolChoice,
};

use super::{ENCRYPTED, NAME};
use crate::dialects::shared::cache_control::{PROMPT_CACHE_BREAKPOINT, PartBreakpoints};
use crate::dialects::shared::losses::{Losses, omit_foreign_members};
use crate::dialects::{Outgoing, Target};
use crate::json::ObjectWriter;

mod items;

/// The member with the conversation.
const INPUT: &str = "input";

/// Writes a request.
pub(super) fn write(request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
    let mut losses = Losses::default();
    let mut extra = request.extra.get(NAME).cloned().unwrap_or_default();
    omit_foreign_members(request, NAME, &mut losses.0);
    let mut body = Map::new();
    let mut put = |key: &str, value: Value| {
        body.insert(key.to_owned(), value);
    };
    put("model", target.model.into());
    let breakpoints = PartBreakpoints::new(request, target, PROMPT_CACHE_BREAKPOINT, &mut losses.0);
    let (instructions, items) = items::write(request, &breakpoints, &mut losses);
    if let Some(instructions) = instructions {
        put("instructions", instructions.into());
    }
    // It is written below.
    put(INPUT, Value::Null);
    if request.stream {
        put("stream", true.into());
    }
    put("store", request.provider_state.store.into());
    if let Some(previous) = &request.provider_state.previous {
        put("previous_response_id", previous.as_str().into());
    }
    put("include", include(extra.remove("include")));
    if let Some(reasoning) = reasoning(&request.thinking, extra.remove("reasoning"), &mut losses) {
        put("reasoning", reasoning);
    }
    if let Some(text) = text(&request.output, extra.remove("text")) {
        put("text", text);
    }
    let tools: Vec<Value> =
        request.tools.iter().filter_map(|tool| write_tool(tool, &mut losses)).collect();
    if !tools.is_empty() {
        put("tools", tools.into());
    }
    // The client's own form is more exact than the canonical one.
    let choice = extra.remove("tool_choice");
    if let Some(choice) = choice.or_else(|| request.tool_choice.as_ref().map(write_choice)) {
        put("tool_choice", choice);
    }
    let sampling = &request.sampling;
    for (is_set, part) in [
        (sampling.top_k.is_some(), LossSubject::TopK),
        (sampling.seed.is_some(), LossSubject::Seed),
        (sampling.presence_penalty.is_some(), LossSubject::PresencePenalty),
        (sampling.frequency_penalty.is_some(), LossSubject::FrequencyPenalty),
        (!request.stop.is_empty(), LossSubject::Stop),
    ] {
        // Only clients of this dialect know which of its servers have penalties.
        if is_set && !extra.contains_key(part.as_str()) {
            losses.omit(part, LossReason::NoPlace);
        }
    }
    for (key, value) in [
        ("parallel_tool_calls", request.parallel_calls.map(Value::from)),
        // OpenAI refuses less than 16. More than the client said would be worse.
        ("max_output_tokens", request.max_tokens.map(Value::from)),
        ("temperature", sampling.temperature.map(Value::from)),
        ("top_p", sampling.top_p.map(Value::from)),
        ("user", request.user.as_deref().map(Value::from)),
        ("prompt_cache_key", request.cache_key.as_deref().map(Value::from)),
    ] {
        if let Some(value) = value {
            put(key, value);
        }
    }
    write_extra(extra, request.stream, &mut body, &mut losses);
    Lossy {
        value: Outgoing {
            path: "/v1/responses".to_owned(),
            body: write_body(&body, &items),
            ..Outgoing::default()
        },
        losses: losses.0,
    }
}

/// Writes the body. Items are JSON texts, so that those of the provider keep their spelling.
fn write_body(body: &Map<String, Value>, items: &[String]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut object = ObjectWriter::new(&mut out);
    for (key, value) in body {
        match key.as_str() {
            INPUT => object.raw(INPUT, format!("[{}]", items.join(",")).as_bytes()),
            key => object.raw(key, value.to_string().as_bytes()),
        };
    }
    object.end();
    out
}

/// Adds the members of this dialect that are not canonical.
fn write_extra(
    extra: Map<String, Value>,
    stream: bool,
    body: &mut Map<String, Value>,
    losses: &mut Losses,
) {
    for (key, value) in extra {
        match key.as_str() {
            // Storage is between the client and us.
            "store" | "background" => {}
            "previous_response_id" | "conversation" => {
                losses.omit(LossSubject::StoredResponse, LossReason::Stateless);
            }
            "stream_options" if !stream => {}
            // Members that we wrote take precedence.
            _ if body.contains_key(&key) => {}
            _ => {
                body.insert(key, value);
            }
        }
    }
}

fn include(wished: Option<Value>) -> Value {
    let mut names = match wished {
        Some(Value::Array(names)) => names,
        _ => Vec::new(),
    };
    if !names.iter().any(|name| name == ENCRYPTED) {
        names.push(ENCRYPTED.into());
    }
    names.into()
}

pub(super) fn reasoning(
    setting: &ThinkingSetting,
    more: Option<Value>,
    losses: &mut Losses,
) -> Option<Value> {
    let mut reasoning = Map::new();
    let mut adapted = |effort| {
        losses.adapt(LossSubject::Thinking, LossReason::Effort);
        Some(effort)
    };
    let effort = match setting.amount {
        None => None,
        Some(Amount::Off) => Some("none"),
        Some(Amount::Effort { effort }) => Some(effort.word()),
        // Some models do not think without an effort.
        Some(Amount::On) => adapted(Effort::Medium.word()),
        Some(Amount::Budget { tokens }) => adapted(Effort::of_budget(tokens).word()),
        Some(Amount::Adaptive { effort }) => adapted(effort.unwrap_or(Effort::Medium).word()),
    };
    if let Some(effort) = effort {
        reasoning.insert("effort".to_owned(), effort.into());
    }
    let mut more = match more {
        Some(Value::Object(more)) => more,
        _ => Map::new(),
    };
    let wished = more.remove("summary");
    let summary = match setting.show {
        Some(Show::Summary) => Some(wished.unwrap_or_else(|| "auto".into())),
        Some(Show::Full) => Some("detailed".into()),
        // Summaries must be requested.
        Some(Show::Hidden) | None => None,
    };
    if let Some(summary) = summary {
        reasoning.insert("summary".to_owned(), summary);
    }
    reasoning.extend(more);
    (!reasoning.is_empty()).then(|| reasoning.into())
}

pub(super) fn text(output: &Output, more: Option<Value>) -> Option<Value> {
    let mut text = match more {
        Some(Value::Object(more)) => more,
        _ => Map::new(),
    };
    let more = text.remove("format");
    let format = match output {
        Output::Text => None,
        Output::Json => Some(json!({"type": "json_object"})),
        Output::Schema { name, schema, strict } => {
            let name = name.as_deref().unwrap_or("output");
            let mut format = Map::new();
            format.insert("type".to_owned(), "json_schema".into());
            format.insert("name".to_owned(), name.into());
            format.insert("schema".to_owned(), schema.clone());
            if let Some(strict) = strict {
                format.insert("strict".to_owned(), (*strict).into());
            }
            if let Some(Value::Object(more)) = more {
                format.extend(more);
            }
            Some(format.into())
        }
    };
    if let Some(format) = format {
        text.insert("format".to_owned(), format);
    }
    (!text.is_empty()).then(|| text.into())
}

pub(super) fn write_tool(tool: &Tool, losses: &mut Losses) -> Option<Value> {
    match tool {
        Tool::Function { name, description, parameters, strict } => {
            let mut tool = Map::new();
            tool.insert("type".to_owned(), "function".into());
            tool.insert("name".to_owned(), name.as_str().into());
            if let Some(description) = description {
                tool.insert("description".to_owned(), description.as_str().into());
            }
            let parameters = match parameters {
                Value::Null => json!({"type": "object", "properties": {}}),
                parameters => parameters.clone(),
            };
            tool.insert("parameters".to_owned(), parameters);
            // In this dialect, tools are strict by default.
            tool.insert("strict".to_owned(), strict.unwrap_or(false).into());
            Some(tool.into())
        }
        Tool::Opaque { dialect, value } if dialect == NAME => Some(value.clone()),
        Tool::Opaque { .. } => {
            losses.omit(LossSubject::Tool, LossReason::ForeignDialect);
            None
        }
    }
}

pub(super) fn write_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::Named { name } => json!({"type": "function", "name": name}),
    }
}
