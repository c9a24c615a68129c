//! The shape of a request: which members there are and what they may hold. Servers of this dialect
//! pass over what they do not know, and say of the rest what their decoder says.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::ask::{Ask, Path, list};
use crate::refusal::Refusal;

/// What a member must be, null aside.
#[derive(Clone, Copy)]
enum Type {
    Bool,
    String,
    Integer,
    Number,
    Object,
    List,
    /// A time, as text or as seconds.
    Duration,
}

/// Members of a request, of its options and of a message.
const MEMBERS: &[(&str, Type)] = &[
    ("model", Type::String),
    ("stream", Type::Bool),
    ("options", Type::Object),
    ("keep_alive", Type::Duration),
    ("truncate", Type::Bool),
    ("shift", Type::Bool),
    ("logprobs", Type::Bool),
    ("top_logprobs", Type::Integer),
    ("messages", Type::List),
    ("tools", Type::List),
    ("prompt", Type::String),
    ("system", Type::String),
    ("suffix", Type::String),
    ("raw", Type::Bool),
    ("images", Type::List),
    ("context", Type::List),
];

const OPTIONS: &[(&str, Type)] = &[
    ("num_predict", Type::Integer),
    ("num_ctx", Type::Integer),
    ("temperature", Type::Number),
    ("top_p", Type::Number),
    ("top_k", Type::Integer),
    ("min_p", Type::Number),
    ("seed", Type::Integer),
    ("stop", Type::List),
    ("repeat_penalty", Type::Number),
    ("presence_penalty", Type::Number),
    ("frequency_penalty", Type::Number),
];

const MESSAGE: &[(&str, Type)] = &[
    ("role", Type::String),
    ("content", Type::String),
    ("thinking", Type::String),
    ("images", Type::List),
    ("tool_calls", Type::List),
    ("tool_name", Type::String),
    ("tool_call_id", Type::String),
];

const LEVELS: [&str; 4] = ["high", "medium", "low", "max"];

/// The body, which must be an object.
pub(super) fn object(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    if body.is_empty() {
        return Err(Refusal::invalid("missing request body"));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(other) => Err(cannot(&other, "", "api.ChatRequest")),
        Err(error) => Err(Refusal::invalid(error.to_string())),
    }
}

/// Refuses a body of the wrong shape.
pub(super) fn check(ask: &Ask) -> Result<(), Refusal> {
    for (key, kind) in MEMBERS {
        member(key, ask.get(key), *kind)?;
    }
    if ask.model().is_empty() {
        return Err(Refusal::invalid("model is required"));
    }
    for (key, kind) in OPTIONS {
        if wrong(ask.option(key), *kind).is_some() {
            let message = format!("option \"{key}\" must be of type {}", name(*kind));
            return Err(Refusal::invalid(message));
        }
    }
    check_think(ask.get("think"))?;
    match ask.get("format") {
        Value::Null | Value::Object(_) => {}
        Value::String(word) if matches!(word.as_str(), "" | "json") => {}
        other => {
            return Err(Refusal::invalid(format!(
                "invalid format: {other}; expected \"json\" or a valid JSON Schema object"
            )));
        }
    }
    for tool in list(ask.get("tools")) {
        let function = &tool["function"];
        member("tools.function", function, Type::Object)?;
        member("tools.function.name", &function["name"], Type::String)?;
        let parameters = &function["parameters"];
        member("tools.function.parameters", parameters, Type::Object)?;
    }
    if ask.path() == Path::Chat {
        for message in ask.messages() {
            check_message(message)?;
        }
    }
    Ok(())
}

fn check_think(think: &Value) -> Result<(), Refusal> {
    match think {
        Value::Null | Value::Bool(_) => Ok(()),
        Value::String(word) if LEVELS.contains(&word.as_str()) => Ok(()),
        Value::String(_) => Err(Refusal::invalid(format!(
            "invalid think value: {think} (must be \"high\", \"medium\", \"low\", \"max\", true, or false)"
        ))),
        _ => Err(Refusal::invalid(
            "think must be a boolean or string (\"high\", \"medium\", \"low\", \"max\", true, or false)",
        )),
    }
}

fn check_message(message: &Value) -> Result<(), Refusal> {
    if !message.is_object() {
        return Err(cannot(message, "messages", "api.Message"));
    }
    for (key, kind) in MESSAGE {
        member(&format!("messages.{key}"), &message[*key], *kind)?;
    }
    let role = message["role"].as_str().unwrap_or_default();
    let roles = ["system", "user", "assistant", "tool"];
    if !roles.iter().any(|known| role.eq_ignore_ascii_case(known)) {
        return Err(Refusal::invalid(format!(
            "invalid role: {role}, role must be one of [system, user, assistant, tool]"
        )));
    }
    for image in list(&message["images"]) {
        let read = image.as_str().and_then(|text| STANDARD.decode(text).ok());
        if read.is_none_or(|bytes| bytes.is_empty()) {
            return Err(Refusal::invalid("illegal base64 data in messages.images: invalid image"));
        }
    }
    for call in list(&message["tool_calls"]) {
        let function = &call["function"];
        member("messages.tool_calls.id", &call["id"], Type::String)?;
        member("messages.tool_calls.function", function, Type::Object)?;
        member("messages.tool_calls.function.name", &function["name"], Type::String)?;
        // An object, never its text.
        member("messages.tool_calls.function.arguments", &function["arguments"], Type::Object)?;
        if function["name"].as_str().unwrap_or_default().is_empty() {
            return Err(Refusal::invalid("tool call without a function name"));
        }
    }
    Ok(())
}

fn member(path: &str, value: &Value, kind: Type) -> Result<(), Refusal> {
    match wrong(value, kind) {
        Some(kind) => Err(cannot(value, path, name(kind))),
        None => Ok(()),
    }
}

/// The type that a value should have and has not.
fn wrong(value: &Value, kind: Type) -> Option<Type> {
    let fits = match (kind, value) {
        (_, Value::Null)
        | (Type::Bool, Value::Bool(_))
        | (Type::String, Value::String(_))
        | (Type::Number, Value::Number(_))
        | (Type::Object, Value::Object(_))
        | (Type::List, Value::Array(_))
        | (Type::Duration, Value::String(_) | Value::Number(_)) => true,
        (Type::Integer, Value::Number(number)) => !number.is_f64(),
        _ => false,
    };
    (!fits).then_some(kind)
}

fn name(kind: Type) -> &'static str {
    match kind {
        Type::Bool => "bool",
        Type::String => "string",
        Type::Integer => "integer",
        Type::Number => "float32",
        Type::Object => "map[string]interface {}",
        Type::List => "array",
        Type::Duration => "api.Duration",
    }
}

fn cannot(value: &Value, path: &str, kind: &str) -> Refusal {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let place = match path {
        "" => "value".to_owned(),
        path => format!("struct field ChatRequest.{path}"),
    };
    Refusal::invalid(format!("json: cannot unmarshal {found} into Go {place} of type {kind}"))
}
