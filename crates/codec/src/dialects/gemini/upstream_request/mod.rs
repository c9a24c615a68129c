//! Writes a request to a provider. Parts that it cannot express are losses.

use serde_json::{Map, Value, json};
use throughline_canonical::{
    Amount, Effort, Loss, LossReason, LossSubject, Lossy, Output, Request, Show, ThinkingSetting,
    Tool, ToolChoice,
};

use super::address::{self, Method};
use super::{NAME, Variant, adapt, names, omit, quote_into};
use crate::dialects::shared::losses::omit_foreign_members;
use crate::dialects::{Outgoing, Target};

pub mod contents;

/// How many stop sequences the provider accepts.
const MAX_STOPS: usize = 5;

/// Writes a request for a target.
pub fn write(request: &Request, target: &Target<'_>, method: Method) -> Lossy<Outgoing> {
    let mut losses = Vec::new();
    let variant = target.profile.gemini();
    let mut body = String::from("{");
    // A count of a whole request is wrapped in another request.
    let wrapped = method == Method::Count && !variant.vertex;
    if wrapped {
        body.push_str("\"generateContentRequest\":{\"model\":");
        let name = target.model.strip_prefix("models/").unwrap_or(target.model);
        quote_into(&format!("models/{name}"), &mut body);
        body.push(',');
    }
    write_members(request, variant, &mut body, &mut losses);
    body.push_str(if wrapped { "}}" } else { "}" });
    let outgoing = Outgoing {
        path: address::write(target.model, method, variant),
        query: match method {
            Method::Stream => "alt=sse".to_owned(),
            Method::Generate | Method::Count => String::new(),
        },
        headers: Vec::new(),
        body: body.into_bytes(),
    };
    Lossy { value: outgoing, losses }
}

fn write_members(request: &Request, variant: Variant, body: &mut String, losses: &mut Vec<Loss>) {
    let (conversation, before) = contents::write(&request.messages, variant, losses);
    body.push_str("\"contents\":");
    body.push_str(&conversation);
    let mut member = |name: &str, value: &Value| {
        body.push(',');
        quote_into(name, body);
        body.push(':');
        body.push_str(&value.to_string());
    };
    let system: Vec<_> = request.system.iter().chain(&before).collect();
    if !system.is_empty() {
        let parts: Vec<_> = system.iter().map(|text| json!({"text": text})).collect();
        member("systemInstruction", &json!({"parts": parts}));
    }
    let tools = tools(&request.tools, losses);
    if !tools.is_empty() {
        member("tools", &tools.into());
    }
    let mut extra = request.extra.get(NAME).cloned().unwrap_or_default();
    let tool_config = tool_config(request, take(&mut extra, "toolConfig"), losses);
    if !tool_config.is_empty() {
        member("toolConfig", &tool_config.into());
    }
    let mut generation = generation(request, losses);
    fill(&mut generation, take(&mut extra, "generationConfig"));
    if generation.get("candidateCount").is_some_and(|count| *count != json!(1)) {
        // Our replies have one candidate.
        generation.remove("candidateCount");
        adapt(losses, LossSubject::N, LossReason::OneAnswer);
    }
    if !generation.is_empty() {
        member("generationConfig", &generation.into());
    }
    const OURS: [&str; 4] = ["model", "contents", "systemInstruction", "tools"];
    for (name, value) in &extra {
        if !OURS.iter().any(|ours| names::is(name, ours)) {
            member(name, value);
        }
    }
    omit_foreign_members(request, NAME, losses);
    if request.user.is_some() {
        omit(losses, LossSubject::User, LossReason::NoPlace);
    }
    if request.cache_key.is_some() {
        omit(losses, LossSubject::CacheKey, LossReason::NoPlace);
    }
    if !request.cache_breakpoints.is_empty() {
        omit(losses, LossSubject::CacheControl, LossReason::NoPlace);
    }
    if request.parallel_calls == Some(false) {
        omit(losses, LossSubject::ParallelToolCalls, LossReason::NoPlace);
    }
}

/// Removes an object from the unknown members.
fn take(extra: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
    match extra.shift_remove(name) {
        Some(Value::Object(members)) => members,
        _ => Map::new(),
    }
}

/// Adds missing members at every level.
fn fill(into: &mut Map<String, Value>, from: Map<String, Value>) {
    for (key, value) in from {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(there)), Value::Object(more)) => fill(there, more),
            (Some(_), _) => {}
            (None, value) => {
                into.insert(key, value);
            }
        }
    }
}

fn tools(tools: &[Tool], losses: &mut Vec<Loss>) -> Vec<Value> {
    let mut groups: Vec<Value> = Vec::new();
    let mut functions = Vec::new();
    let close = |functions: &mut Vec<Value>, groups: &mut Vec<Value>| {
        if !functions.is_empty() {
            groups.push(json!({"functionDeclarations": std::mem::take(functions)}));
        }
    };
    for tool in tools {
        match tool {
            Tool::Function { name, description, parameters, strict } => {
                let mut function = Map::new();
                function.insert("name".to_owned(), name.clone().into());
                if let Some(description) = description {
                    function.insert("description".to_owned(), description.clone().into());
                }
                if !parameters.is_null() {
                    function.insert("parametersJsonSchema".to_owned(), parameters.clone());
                }
                if *strict == Some(true) {
                    omit(losses, LossSubject::ToolStrict, LossReason::NoPlace);
                }
                functions.push(Value::Object(function));
            }
            Tool::Opaque { dialect, value } if dialect == NAME && value.is_object() => {
                close(&mut functions, &mut groups);
                groups.push(value.clone());
            }
            Tool::Opaque { .. } => omit(losses, LossSubject::Tool, LossReason::ForeignDialect),
        }
    }
    close(&mut functions, &mut groups);
    groups
}

fn tool_config(
    request: &Request,
    extra: Map<String, Value>,
    losses: &mut Vec<Loss>,
) -> Map<String, Value> {
    let mut config = Map::new();
    let calling = match &request.tool_choice {
        None => None,
        Some(ToolChoice::Auto) => Some(json!({"mode": "AUTO"})),
        Some(ToolChoice::None) => Some(json!({"mode": "NONE"})),
        Some(ToolChoice::Required) => Some(json!({"mode": "ANY"})),
        Some(ToolChoice::Named { name }) => {
            Some(json!({"mode": "ANY", "allowedFunctionNames": [name]}))
        }
    };
    if let Some(calling) = calling {
        config.insert("functionCallingConfig".to_owned(), calling);
    }
    fill(&mut config, extra);
    if let Some(Value::Object(calling)) = config.get_mut("functionCallingConfig")
        && !matches!(calling.get("mode").and_then(Value::as_str), Some("ANY" | "VALIDATED"))
        && calling.remove("allowedFunctionNames").is_some()
    {
        omit(losses, LossSubject::ToolChoiceAllowed, LossReason::NoPlace);
    }
    config
}

fn generation(request: &Request, losses: &mut Vec<Loss>) -> Map<String, Value> {
    let mut config = Map::new();
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            config.insert(name.to_owned(), value);
        }
    };
    let sampling = &request.sampling;
    set("temperature", sampling.temperature.map(Value::from));
    set("topP", sampling.top_p.map(Value::from));
    set("topK", sampling.top_k.map(Value::from));
    set("presencePenalty", sampling.presence_penalty.map(Value::from));
    set("frequencyPenalty", sampling.frequency_penalty.map(Value::from));
    match sampling.seed {
        Some(seed) if i32::try_from(seed).is_err() => {
            omit(losses, LossSubject::Seed, LossReason::Range);
        }
        seed => set("seed", seed.map(Value::from)),
    }
    set("maxOutputTokens", request.max_tokens.map(Value::from));
    if !request.stop.is_empty() {
        if request.stop.len() > MAX_STOPS {
            adapt(losses, LossSubject::Stop, LossReason::TooMany);
        }
        let stops: Vec<&String> = request.stop.iter().take(MAX_STOPS).collect();
        set("stopSequences", Some(json!(stops)));
    }
    match &request.output {
        Output::Text => {}
        Output::Json => set("responseMimeType", Some("application/json".into())),
        Output::Schema { name, schema, .. } => {
            set("responseMimeType", Some("application/json".into()));
            set("responseJsonSchema", Some(schema.clone()));
            if name.is_some() {
                omit(losses, LossSubject::OutputName, LossReason::NoPlace);
            }
        }
    }
    let thinking = thinking(request.thinking, losses);
    if !thinking.is_empty() {
        set("thinkingConfig", Some(thinking.into()));
    }
    config
}

/// Writes the thinking setting, which the gateway has adapted to the model.
fn thinking(setting: ThinkingSetting, losses: &mut Vec<Loss>) -> Map<String, Value> {
    let mut config = Map::new();
    let mut level = |effort: Effort, losses: &mut Vec<Loss>| {
        if effort > Effort::High {
            adapt(losses, LossSubject::Thinking, LossReason::Effort);
        }
        let word = effort.min(Effort::High).word().to_ascii_uppercase();
        config.insert("thinkingLevel".to_owned(), word.into());
    };
    match setting.amount {
        None => {}
        Some(Amount::Effort { effort }) => level(effort, losses),
        Some(Amount::Adaptive { effort: Some(effort) }) => {
            adapt(losses, LossSubject::Thinking, LossReason::Effort);
            level(effort, losses);
        }
        // Models of this provider think by default.
        Some(Amount::On) => adapt(losses, LossSubject::Thinking, LossReason::Default),
        Some(Amount::Adaptive { effort: None }) => {
            config.insert("thinkingBudget".to_owned(), json!(-1));
        }
        Some(Amount::Off) => {
            config.insert("thinkingBudget".to_owned(), json!(0));
        }
        Some(Amount::Budget { tokens }) => {
            config.insert("thinkingBudget".to_owned(), json!(tokens));
        }
    }
    if let Some(show) = setting.show {
        if show == Show::Full {
            adapt(losses, LossSubject::ThinkingShow, LossReason::Summaries);
        }
        config.insert("includeThoughts".to_owned(), (show != Show::Hidden).into());
    }
    config
}
