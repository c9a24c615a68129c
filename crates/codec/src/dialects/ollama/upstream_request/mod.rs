//! Writes a request to a provider: everything but the messages. It always goes to `/api/chat`: a
//! single prompt becomes a conversation with one message.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, Effort, LossReason, LossSubject, Lossy, Output, Request, Show, ThinkingSetting, Tool,
    ToolChoice,
};

use super::{LEVELS, NAME, PATH_CHAT};
use crate::dialects::shared::losses::{Losses, omit_foreign_members};
use crate::dialects::{Outgoing, Target};

mod messages;

/// Writes a request.
pub(super) fn write(request: &Request, target: &Target<'_>) -> Lossy<Outgoing> {
    let mut losses = Losses::default();
    let mut body = Map::new();
    let mut put = |name: &str, value: Value| body.insert(name.to_owned(), value);
    put("model", target.model.into());
    put("messages", messages::write(request, &mut losses).into());
    let tools = tools(request, &mut losses);
    if !tools.is_empty() {
        put("tools", tools.into());
    }
    // Streaming is the default.
    put("stream", request.stream.into());
    if let Some(think) = think(&request.thinking, &mut losses) {
        put("think", think);
    }
    match &request.output {
        Output::Text => {}
        Output::Json => {
            put("format", "json".into());
        }
        Output::Schema { name, schema, .. } => {
            if name.is_some() {
                losses.omit(LossSubject::OutputName, LossReason::NoPlace);
            }
            put("format", schema.clone());
        }
    }
    let options = options(request);
    if !options.is_empty() {
        put("options", options.into());
    }
    for (part, is_set) in [
        (LossSubject::User, request.user.is_some()),
        (LossSubject::CacheKey, request.cache_key.is_some()),
        (LossSubject::CacheControl, !request.cache_breakpoints.is_empty()),
    ] {
        if is_set {
            losses.omit(part, LossReason::NoPlace);
        }
    }
    extra(request, &mut body, &mut losses);
    Lossy {
        value: Outgoing {
            path: PATH_CHAT.to_owned(),
            body: Value::Object(body).to_string().into_bytes(),
            ..Outgoing::default()
        },
        losses: losses.0,
    }
}

fn tools(request: &Request, losses: &mut Losses) -> Vec<Value> {
    match &request.tool_choice {
        None | Some(ToolChoice::Auto) => {}
        // Without permission to call, no tools are sent.
        Some(ToolChoice::None) => {
            if !request.tools.is_empty() {
                losses.adapt(LossSubject::ToolChoice, LossReason::NoToolsOffered);
            }
            return Vec::new();
        }
        Some(ToolChoice::Required | ToolChoice::Named { .. }) => {
            losses.omit(LossSubject::ToolChoice, LossReason::NoPlace);
        }
    }
    if request.parallel_calls == Some(false) {
        losses.omit(LossSubject::ParallelToolCalls, LossReason::NoPlace);
    }
    let mut tools = Vec::new();
    for tool in &request.tools {
        match tool {
            Tool::Function { name, description, parameters, strict } => {
                if *strict == Some(true) {
                    losses.omit(LossSubject::ToolStrict, LossReason::NoPlace);
                }
                let mut function = Map::new();
                function.insert("name".to_owned(), name.as_str().into());
                if let Some(description) = description {
                    function.insert("description".to_owned(), description.as_str().into());
                }
                // Templates read the parameters even if there are none.
                let parameters = match parameters {
                    Value::Null => json!({"type": "object", "properties": {}}),
                    parameters => parameters.clone(),
                };
                function.insert("parameters".to_owned(), parameters);
                tools.push(json!({"type": "function", "function": function}));
            }
            Tool::Opaque { dialect, value } if dialect == NAME => tools.push(value.clone()),
            Tool::Opaque { .. } => losses.omit(LossSubject::Tool, LossReason::ForeignDialect),
        }
    }
    tools
}

/// Writes the amount of thinking. Without a setting, servers decide by model.
fn think(setting: &ThinkingSetting, losses: &mut Losses) -> Option<Value> {
    // The model shows all its thinking.
    if let Some(Show::Hidden | Show::Summary) = setting.show {
        losses.adapt(LossSubject::ThinkingShow, LossReason::NoPlace);
    }
    let effort = match setting.amount? {
        Amount::Off => return Some(false.into()),
        Amount::On | Amount::Adaptive { effort: None } => return Some(true.into()),
        Amount::Effort { effort } | Amount::Adaptive { effort: Some(effort) } => effort,
        Amount::Budget { tokens } => {
            losses.adapt(LossSubject::Thinking, LossReason::BudgetAsEffort);
            let level = Effort::of_budget(tokens).nearest(&LEVELS)?;
            return Some(level.word().into());
        }
    };
    let level = effort.nearest(&LEVELS)?;
    if level != effort {
        losses.adapt(LossSubject::Thinking, LossReason::Effort);
    }
    Some(level.word().into())
}

fn options(request: &Request) -> Map<String, Value> {
    let mut options = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            options.insert(name.to_owned(), value);
        }
    };
    let sampling = &request.sampling;
    put("num_predict", request.max_tokens.map(Value::from));
    put("temperature", sampling.temperature.map(Value::from));
    put("top_p", sampling.top_p.map(Value::from));
    put("top_k", sampling.top_k.map(Value::from));
    put("seed", sampling.seed.map(Value::from));
    put("presence_penalty", sampling.presence_penalty.map(Value::from));
    put("frequency_penalty", sampling.frequency_penalty.map(Value::from));
    let stop = (!request.stop.is_empty()).then(|| request.stop.clone().into());
    put("stop", stop);
    options
}

/// Adds the unknown members of this dialect. They come last and override.
fn extra(request: &Request, body: &mut Map<String, Value>, losses: &mut Losses) {
    omit_foreign_members(request, NAME, &mut losses.0);
    for (name, value) in request.extra.get(NAME).into_iter().flatten() {
        match (name.as_str(), value) {
            ("options", Value::Object(rest)) => {
                let options = body.entry(name).or_insert_with(|| json!({}));
                if let Value::Object(options) = options {
                    options.extend(rest.clone());
                }
            }
            _ => {
                body.insert(name.clone(), value.clone());
            }
        }
    }
}
