//! The shape of a request: which members there are and what they may hold, messages aside.

use serde_json::Value;

use super::ask::{Ask, MOST_CHOICES, list};
use super::variants::Variant;
use crate::openai::{empty_list, missing, refused, too_small, unknown, wrong_type, wrong_value};
use crate::refusal::Refusal;

/// All that OpenAI itself takes. Other servers pass over what they do not know.
const KNOWN: &[&str] = &[
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "moderation",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

const SERVICE_TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];

/// OpenAI takes no more stop sequences.
const MOST_STOPS: usize = 4;

/// What a member must be, null aside.
#[derive(Clone, Copy)]
enum Type {
    Boolean,
    /// At least so much.
    Integer(i64),
    /// Between these.
    Number(f64, f64),
    String,
    Object,
}

const TYPES: &[(&str, Type)] = &[
    ("stream", Type::Boolean),
    ("stream_options", Type::Object),
    ("stream_options.include_usage", Type::Boolean),
    ("stream_options.include_obfuscation", Type::Boolean),
    ("max_completion_tokens", Type::Integer(1)),
    ("max_tokens", Type::Integer(1)),
    ("n", Type::Integer(1)),
    ("seed", Type::Integer(i64::MIN)),
    ("top_logprobs", Type::Integer(0)),
    ("logprobs", Type::Boolean),
    ("temperature", Type::Number(0.0, 2.0)),
    ("top_p", Type::Number(0.0, 1.0)),
    ("presence_penalty", Type::Number(-2.0, 2.0)),
    ("frequency_penalty", Type::Number(-2.0, 2.0)),
    ("parallel_tool_calls", Type::Boolean),
    ("response_format", Type::Object),
    ("user", Type::String),
];

/// Refuses a body of the wrong shape.
pub(crate) fn check(ask: &Ask, variant: &Variant) -> Result<(), Refusal> {
    match ask.get("model") {
        Value::String(name) if !name.is_empty() => {}
        Value::Null | Value::String(_) => {
            return Err(Refusal::invalid("you must provide a model parameter"));
        }
        other => return Err(wrong_type("model", "a string", other)),
    }
    for (path, kind) in TYPES {
        let value = match path.split_once('.') {
            Some((outer, inner)) => &ask.get(outer)[inner],
            None => ask.get(path),
        };
        check_type(path, value, *kind)?;
    }
    check_stop(ask, variant)?;
    check_tools(ask, variant)?;
    check_tool_choice(ask, variant)?;
    if variant.official {
        check_official(ask)?;
    }
    Ok(())
}

fn check_type(path: &str, value: &Value, kind: Type) -> Result<(), Refusal> {
    match (kind, value) {
        (_, Value::Null)
        | (Type::Boolean, Value::Bool(_))
        | (Type::String, Value::String(_))
        | (Type::Object, Value::Object(_)) => Ok(()),
        (Type::Integer(least), Value::Number(number)) if !number.is_f64() => {
            match number.as_i64() {
                Some(number) if number < least => Err(too_small(path, least, value)),
                _ => Ok(()),
            }
        }
        (Type::Number(least, most), Value::Number(number)) => {
            let number = number.as_f64().unwrap_or_default();
            if number > most {
                let message = format!(
                    "Invalid '{path}': decimal above maximum value. Expected a value <= {most}, but got {value} instead."
                );
                Err(refused(path, Some("decimal_above_max_value"), message))
            } else if number < least {
                let message = format!(
                    "Invalid '{path}': decimal below minimum value. Expected a value >= {least}, but got {value} instead."
                );
                Err(refused(path, Some("decimal_below_min_value"), message))
            } else {
                Ok(())
            }
        }
        (Type::Boolean, _) => Err(wrong_type(path, "a boolean", value)),
        (Type::Integer(_), _) => Err(wrong_type(path, "an integer", value)),
        (Type::Number(..), _) => Err(wrong_type(path, "a decimal", value)),
        (Type::String, _) => Err(wrong_type(path, "a string", value)),
        (Type::Object, _) => Err(wrong_type(path, "an object", value)),
    }
}

fn check_official(ask: &Ask) -> Result<(), Refusal> {
    for key in ask.body().keys() {
        if !KNOWN.contains(&key.as_str()) {
            return Err(unknown(key));
        }
    }
    check_word(ask, "verbosity", &["low", "medium", "high"])?;
    check_word(ask, "service_tier", SERVICE_TIERS)?;
    if !ask.get("stream_options").is_null() && !ask.streams() {
        return Err(refused(
            "stream_options",
            None,
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    if ask.get("n").as_u64().is_some_and(|most| most > MOST_CHOICES) {
        let message = format!(
            "Invalid 'n': integer above maximum value. Expected a value <= {MOST_CHOICES}, but got {} instead.",
            ask.get("n")
        );
        return Err(refused("n", Some("integer_above_max_value"), message));
    }
    if ask.get("tools").is_null() {
        for key in ["tool_choice", "parallel_tool_calls"] {
            if !ask.get(key).is_null() {
                let message = format!(
                    "Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."
                );
                return Err(refused(key, None, message));
            }
        }
    }
    Ok(())
}

fn check_word(ask: &Ask, key: &str, words: &[&str]) -> Result<(), Refusal> {
    match ask.get(key) {
        Value::Null => Ok(()),
        Value::String(word) if words.contains(&word.as_str()) => Ok(()),
        Value::String(word) => Err(wrong_value(key, word, words)),
        other => Err(wrong_type(key, "a string", other)),
    }
}

fn check_stop(ask: &Ask, variant: &Variant) -> Result<(), Refusal> {
    let stop = ask.get("stop");
    let strings = match stop {
        Value::Null | Value::String(_) => return Ok(()),
        Value::Array(strings) => strings,
        other => return Err(wrong_type("stop", "a string or an array of strings", other)),
    };
    for (index, string) in strings.iter().enumerate() {
        if !string.is_string() {
            return Err(wrong_type(&format!("stop[{index}]"), "a string", string));
        }
    }
    if variant.official && strings.len() > MOST_STOPS {
        let message = format!(
            "Invalid 'stop': array too long. Expected an array with maximum length {MOST_STOPS}, but got an array with length {} instead.",
            strings.len()
        );
        return Err(refused("stop", Some("array_above_max_length"), message));
    }
    Ok(())
}

fn check_tools(ask: &Ask, variant: &Variant) -> Result<(), Refusal> {
    for (key, inner) in [("tools", ".function"), ("functions", "")] {
        let tools = match ask.get(key) {
            Value::Null => continue,
            Value::Array(tools) => tools,
            other => return Err(wrong_type(key, "an array of objects", other)),
        };
        if variant.official && tools.is_empty() {
            return Err(empty_list(key));
        }
        for (index, tool) in tools.iter().enumerate() {
            let path = format!("{key}[{index}]");
            if !tool.is_object() {
                return Err(wrong_type(&path, "an object", tool));
            }
            let function = match key {
                "tools" => match tool["type"].as_str() {
                    Some("function") => &tool["function"],
                    Some("custom") if variant.official => {
                        check_name(&tool["custom"]["name"], &format!("{path}.custom.name"))?;
                        continue;
                    }
                    // Many servers have tools of their own.
                    Some(_) if !variant.official => continue,
                    Some(other) => {
                        let path = format!("{path}.type");
                        return Err(wrong_value(&path, other, &["function", "custom"]));
                    }
                    None => return Err(missing(&format!("{path}.type"))),
                },
                _ => tool,
            };
            let path = format!("{path}{inner}");
            check_name(&function["name"], &format!("{path}.name"))?;
            check_type(&format!("{path}.parameters"), &function["parameters"], Type::Object)?;
        }
    }
    Ok(())
}

fn check_name(name: &Value, path: &str) -> Result<(), Refusal> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    match name {
        Value::String(name) if !name.is_empty() && name.chars().all(fits) => Ok(()),
        Value::String(_) => {
            let message = format!(
                "Invalid '{path}': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            );
            Err(refused(path, Some("invalid_value"), message))
        }
        Value::Null => Err(missing(path)),
        other => Err(wrong_type(path, "a string", other)),
    }
}

fn check_tool_choice(ask: &Ask, variant: &Variant) -> Result<(), Refusal> {
    let choice = ask.get("tool_choice");
    let words: &[&str] = if variant.official {
        &["none", "auto", "required"]
    } else {
        // Mistral's word for `required`.
        &["none", "auto", "required", "any"]
    };
    match choice {
        Value::Null => Ok(()),
        Value::String(word) if words.contains(&word.as_str()) => Ok(()),
        Value::String(word) => Err(wrong_value("tool_choice", word, words)),
        Value::Object(_) => match choice["type"].as_str() {
            Some("function") => {
                let name = &choice["function"]["name"];
                let Some(name) = name.as_str() else {
                    return Err(missing("tool_choice.function.name"));
                };
                let mut tools = list(ask.get("tools")).iter();
                if tools.any(|tool| tool["function"]["name"] == name) {
                    return Ok(());
                }
                Err(refused(
                    "tool_choice",
                    None,
                    format!(
                        "Invalid value for 'tool_choice': function '{name}' is not among the 'tools'."
                    ),
                ))
            }
            Some("custom" | "allowed_tools") => Ok(()),
            Some(other) => {
                let kinds = ["function", "allowed_tools", "custom"];
                Err(wrong_value("tool_choice.type", other, &kinds))
            }
            None => Err(missing("tool_choice.type")),
        },
        other => Err(wrong_type("tool_choice", "a string or an object", other)),
    }
}
