//! The shape of messages: their members, their content, their calls.
//!
//! Whether reasoning is as it was made is `verify`'s business; here it is only in its place or not.

use serde_json::{Map, Value};

use super::ask::Ask;
use super::variants::{Back, Shows, Variant};
use crate::openai::{empty_list, missing, refused, unknown, wrong_type, wrong_value};
use crate::refusal::Refusal;

const ROLES: &[&str] = &["system", "assistant", "user", "function", "tool", "developer"];

/// Members that one server or another has for reasoning.
const REASONING: &[&str] = &[
    "reasoning_content",
    "reasoning",
    "reasoning_details",
    "reasoning_items",
    "thinking",
    "thinking_blocks",
];

/// Refuses messages of the wrong shape.
pub(crate) fn check(ask: &Ask, variant: &Variant) -> Result<(), Refusal> {
    let messages = match ask.get("messages") {
        Value::Null => return Err(missing("messages")),
        Value::Array(messages) if messages.is_empty() => return Err(empty_list("messages")),
        Value::Array(messages) => messages,
        other => return Err(wrong_type("messages", "an array of objects", other)),
    };
    for (index, message) in messages.iter().enumerate() {
        let path = format!("messages[{index}]");
        let Value::Object(members) = message else {
            return Err(wrong_type(&path, "an object", message));
        };
        check_message(message, members, &path, variant)?;
    }
    Ok(())
}

fn check_message(
    message: &Value,
    members: &Map<String, Value>,
    path: &str,
    variant: &Variant,
) -> Result<(), Refusal> {
    let role = match &message["role"] {
        Value::String(role) if ROLES.contains(&role.as_str()) => role.as_str(),
        Value::String(role) => return Err(wrong_value(&format!("{path}.role"), role, ROLES)),
        Value::Null => return Err(missing(&format!("{path}.role"))),
        other => return Err(wrong_type(&format!("{path}.role"), "a string", other)),
    };
    for key in members.keys() {
        let known = match variant.back {
            Back::Unknown => own_members(role).contains(&key.as_str()),
            Back::InContent => !REASONING.contains(&key.as_str()),
            _ => true,
        };
        if !known {
            return Err(unknown(&format!("{path}.{key}")));
        }
    }
    if role == "tool" {
        need_string(message, path, "tool_call_id")?;
        check_id(&message["tool_call_id"], path, variant)?;
    }
    if role == "assistant" {
        check_calls(&message["tool_calls"], &format!("{path}.tool_calls"), variant)?;
    }
    check_content(message, role, &format!("{path}.content"), variant)
}

/// What the official types have; `annotations` are in replies, and so come back.
fn own_members(role: &str) -> &'static [&'static str] {
    match role {
        "assistant" => &[
            "role",
            "content",
            "refusal",
            "name",
            "audio",
            "tool_calls",
            "function_call",
            "annotations",
        ],
        "tool" => &["role", "content", "tool_call_id", "name"],
        _ => &["role", "content", "name"],
    }
}

fn check_content(
    message: &Value,
    role: &str,
    path: &str,
    variant: &Variant,
) -> Result<(), Refusal> {
    let instead = ["tool_calls", "function_call", "refusal", "audio"];
    match &message["content"] {
        Value::String(_) => Ok(()),
        Value::Array(parts) if parts.is_empty() => Err(empty_list(path)),
        Value::Array(parts) => {
            let numbered = parts.iter().enumerate();
            for (index, part) in numbered {
                check_part(part, role, &format!("{path}[{index}]"), variant)?;
            }
            Ok(())
        }
        Value::Null if role == "assistant" && instead.iter().any(|key| !message[key].is_null()) => {
            Ok(())
        }
        Value::Null => {
            Err(refused(path, None, "Invalid value for 'content': expected a string, got null."))
        }
        other => Err(wrong_type(path, "a string or an array of objects", other)),
    }
}

fn check_part(part: &Value, role: &str, path: &str, variant: &Variant) -> Result<(), Refusal> {
    let Some(kind) = part["type"].as_str() else {
        return Err(missing(&format!("{path}.type")));
    };
    let thinks = variant.shows == Shows::Chunks && role == "assistant";
    let supported: &[&str] = match role {
        "user" => &["text", "image_url", "input_audio", "file"],
        "assistant" if thinks => &["text", "thinking", "reference"],
        "assistant" => &["text", "refusal"],
        _ => &["text"],
    };
    // What a user may show is each server's own matter.
    let known = supported.contains(&kind) || role == "user" && !variant.official;
    if !known || kind == "thinking" && !thinks {
        return Err(wrong_value(&format!("{path}.type"), kind, supported));
    }
    match kind {
        "text" => need_string(part, path, "text"),
        "refusal" => need_string(part, path, "refusal"),
        "thinking" => check_chunk(part, path),
        _ => Ok(()),
    }
}

/// A thought among the content.
fn check_chunk(chunk: &Value, path: &str) -> Result<(), Refusal> {
    let inner = format!("{path}.thinking");
    let Value::Array(parts) = &chunk["thinking"] else {
        return Err(wrong_type(&inner, "an array of objects", &chunk["thinking"]));
    };
    for (index, part) in parts.iter().enumerate() {
        let path = format!("{inner}[{index}]");
        match part["type"].as_str() {
            Some("text") => need_string(part, &path, "text")?,
            Some("reference") => {}
            Some(other) => {
                let kinds = ["text", "reference"];
                return Err(wrong_value(&format!("{path}.type"), other, &kinds));
            }
            None => return Err(missing(&format!("{path}.type"))),
        }
    }
    match (&chunk["signature"], &chunk["closed"]) {
        (Value::Null | Value::String(_), Value::Null | Value::Bool(_)) => Ok(()),
        (Value::Null | Value::String(_), closed) => {
            Err(wrong_type(&format!("{path}.closed"), "a boolean", closed))
        }
        (signature, _) => {
            let path = format!("{path}.signature");
            Err(wrong_type(&path, "a string", signature))
        }
    }
}

fn check_calls(calls: &Value, path: &str, variant: &Variant) -> Result<(), Refusal> {
    let calls = match calls {
        Value::Null => return Ok(()),
        Value::Array(calls) if calls.is_empty() && variant.official => {
            return Err(empty_list(path));
        }
        Value::Array(calls) => calls,
        other => return Err(wrong_type(path, "an array of objects", other)),
    };
    for (index, call) in calls.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let Value::Object(members) = call else {
            return Err(wrong_type(&path, "an object", call));
        };
        need_string(call, &path, "id")?;
        check_id(&call["id"], &path, variant)?;
        let (kind, input) = match call["type"].as_str() {
            Some("custom") if variant.official => ("custom", "input"),
            Some("function") => ("function", "arguments"),
            None if !variant.official => ("function", "arguments"),
            None => return Err(missing(&format!("{path}.type"))),
            Some(other) => {
                let kinds = ["function", "custom"];
                return Err(wrong_value(&format!("{path}.type"), other, &kinds));
            }
        };
        if variant.official
            && let Some(other) =
                members.keys().find(|key| !["id", "type", kind].contains(&key.as_str()))
        {
            return Err(unknown(&format!("{path}.{other}")));
        }
        let inner = format!("{path}.{kind}");
        need_string(&call[kind], &inner, "name")?;
        need_string(&call[kind], &inner, input)?;
        if variant.reads_arguments {
            let arguments = call[kind][input].as_str().unwrap_or_default();
            if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
                let message = format!(
                    "Invalid '{inner}.{input}': expected a JSON object as text, but got {} instead.",
                    Value::from(arguments)
                );
                return Err(refused(&format!("{inner}.{input}"), None, message));
            }
        }
    }
    Ok(())
}

/// The id of a call, where a server is particular about it.
fn check_id(id: &Value, path: &str, variant: &Variant) -> Result<(), Refusal> {
    let id = id.as_str().unwrap_or_default();
    if variant.nine_letters
        && !(id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric()))
    {
        let message =
            format!("Tool call id was {id} but must be a-z, A-Z, 0-9, with a length of 9.");
        return Err(refused(path, None, message));
    }
    Ok(())
}

fn need_string(holder: &Value, path: &str, key: &str) -> Result<(), Refusal> {
    let path = format!("{path}.{key}");
    match &holder[key] {
        Value::String(_) => Ok(()),
        Value::Null => Err(missing(&path)),
        other => Err(wrong_type(&path, "a string", other)),
    }
}
