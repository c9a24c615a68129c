//! The shape of a request: which members there are and what they may hold.
//!
//! How messages follow each other is in `dialogue`.

use serde_json::{Map, Value};

use super::ask::Terms;
use crate::refusal::Refusal;

/// Which body is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Messages,
    CountTokens,
}

const KNOWN: &[&str] = &[
    "model",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "cache_control",
    "temperature",
    "top_p",
    "top_k",
];

/// Members that mean nothing when tokens are only counted.
const MESSAGES_ONLY: &[&str] = &[
    "max_tokens",
    "stream",
    "stop_sequences",
    "metadata",
    "container",
    "diagnostics",
    "inference_geo",
    "service_tier",
    "speed",
    "user_profile_id",
];

/// Members that need a beta header; which one is not looked at.
const BETA: &[&str] = &[
    "context_management",
    "compaction",
    "fallbacks",
    "fallback_credit_token",
    "mcp_servers",
    "thread",
];

const BLOCKS: &[&str] = &[
    "text",
    "image",
    "document",
    "search_result",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_result",
    "server_tool_use",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "container_upload",
    "mcp_tool_use",
    "mcp_tool_result",
    "mcp_tool_listing",
    "advisor_tool_result",
    "compaction",
    "fallback",
    "tool_addition",
    "tool_removal",
];

const MOST_MESSAGES: usize = 100_000;

/// Refuses a body of the wrong shape.
pub(crate) fn check(
    body: &Map<String, Value>,
    endpoint: Endpoint,
    terms: &Terms,
) -> Result<(), Refusal> {
    check_members(body, endpoint, terms)?;
    match body.get("model") {
        Some(Value::String(name)) if !name.is_empty() => {}
        Some(Value::String(_)) => {
            return Err(Refusal::invalid("model: String should have at least 1 character"));
        }
        Some(_) => return Err(Refusal::invalid("model: Input should be a valid string")),
        None => return Err(Refusal::invalid("model: Field required")),
    }
    if endpoint == Endpoint::Messages {
        match body.get("max_tokens") {
            // Zero is legal: it warms the prompt cache.
            Some(most) if most.is_u64() => {}
            Some(most) if most.is_i64() => {
                return Err(Refusal::invalid(
                    "max_tokens: Input should be greater than or equal to 0",
                ));
            }
            Some(_) => {
                return Err(Refusal::invalid("max_tokens: Input should be a valid integer"));
            }
            None => return Err(Refusal::invalid("max_tokens: Field required")),
        }
        if body.get("stream").is_some_and(|stream| !stream.is_boolean()) {
            return Err(Refusal::invalid("stream: Input should be a valid boolean"));
        }
    }
    check_effort(body, terms)?;
    check_system(body)?;
    check_tools(body)?;
    check_tool_choice(body)?;
    check_messages(body, terms)
}

fn check_members(
    body: &Map<String, Value>,
    endpoint: Endpoint,
    terms: &Terms,
) -> Result<(), Refusal> {
    for key in body.keys() {
        let key = key.as_str();
        let known = KNOWN.contains(&key)
            || endpoint == Endpoint::Messages && MESSAGES_ONLY.contains(&key)
            || !terms.betas.is_empty() && BETA.contains(&key);
        if !known {
            return Err(Refusal::extra(key));
        }
    }
    Ok(())
}

fn check_effort(body: &Map<String, Value>, terms: &Terms) -> Result<(), Refusal> {
    let config = match body.get("output_config") {
        None => return Ok(()),
        Some(Value::Object(config)) => config,
        Some(_) => {
            return Err(Refusal::invalid("output_config: Input should be a valid dictionary"));
        }
    };
    for (key, value) in config {
        match (key.as_str(), value.as_str()) {
            ("effort", Some("low" | "medium" | "high" | "xhigh" | "max")) => {}
            ("effort", _) => {
                return Err(Refusal::invalid(
                    "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'",
                ));
            }
            ("format", _) => check_schema(&value["schema"])?,
            ("task_budget", _) if !terms.betas.is_empty() => {}
            _ => return Err(Refusal::extra(&format!("output_config.{key}"))),
        }
    }
    Ok(())
}

/// A grammar is made of it, which knows closed objects and no bounds.
fn check_schema(schema: &Value) -> Result<(), Refusal> {
    let refuse =
        |what: String| Err(Refusal::invalid(format!("output_config.format.schema: {what}")));
    let Value::Object(members) = schema else {
        return Ok(());
    };
    let kind = members.get("type").and_then(Value::as_str).unwrap_or("any");
    if kind == "object" && members.get("additionalProperties") != Some(&Value::Bool(false)) {
        return refuse(
            "For 'object' type, 'additionalProperties' must be explicitly set to false".to_owned(),
        );
    }
    for bound in ["minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems"] {
        if members.contains_key(bound) {
            return refuse(format!("For '{kind}' type, property '{bound}' is not supported"));
        }
    }
    let named = |name: &str| members.get(name).and_then(Value::as_object);
    for schema in [named("properties"), named("$defs")]
        .into_iter()
        .flatten()
        .flat_map(Map::values)
        .chain(members.get("items"))
    {
        check_schema(schema)?;
    }
    Ok(())
}

fn check_system(body: &Map<String, Value>) -> Result<(), Refusal> {
    match body.get("system") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(blocks)) => {
            for (index, block) in blocks.iter().enumerate() {
                if block["type"] != "text" {
                    return Err(Refusal::invalid(format!(
                        "system.{index}.type: Input should be 'text'"
                    )));
                }
                check_text(block, "system")?;
            }
            Ok(())
        }
        Some(_) => Err(Refusal::invalid("system: Input should be a valid list")),
    }
}

fn check_tools(body: &Map<String, Value>) -> Result<(), Refusal> {
    let tools = match body.get("tools") {
        None => return Ok(()),
        Some(Value::Array(tools)) => tools,
        Some(_) => return Err(Refusal::invalid("tools: Input should be a valid list")),
    };
    let mut names = Vec::with_capacity(tools.len());
    for (index, tool) in tools.iter().enumerate() {
        // Toolsets of a beta have a type and no name.
        match (tool["name"].as_str(), tool.get("type")) {
            (Some(name), _) if names.contains(&name) => {
                return Err(Refusal::invalid("tools: Tool names must be unique."));
            }
            (Some(name), _) => names.push(name),
            (None, Some(_)) => {}
            (None, None) => {
                return Err(Refusal::invalid(format!("tools.{index}.custom.name: Field required")));
            }
        }
    }
    Ok(())
}

fn check_tool_choice(body: &Map<String, Value>) -> Result<(), Refusal> {
    let Some(choice) = body.get("tool_choice") else {
        return Ok(());
    };
    match choice["type"].as_str() {
        Some("auto" | "any" | "none") => Ok(()),
        Some("tool") => {
            let name = choice["name"].as_str().unwrap_or_default();
            let tools = body.get("tools").and_then(Value::as_array);
            if tools.is_some_and(|tools| tools.iter().any(|tool| tool["name"] == name)) {
                return Ok(());
            }
            Err(Refusal::invalid(format!(
                "tool_choice.tool: Tool '{name}' not found in provided tools"
            )))
        }
        _ => Err(Refusal::invalid(
            "tool_choice: Input should be of type 'auto', 'any', 'tool' or 'none'",
        )),
    }
}

fn check_messages(body: &Map<String, Value>, terms: &Terms) -> Result<(), Refusal> {
    let messages = match body.get("messages") {
        Some(Value::Array(messages)) => messages,
        Some(_) => return Err(Refusal::invalid("messages: Input should be a valid list")),
        None => return Err(Refusal::invalid("messages: Field required")),
    };
    if messages.is_empty() {
        return Err(Refusal::invalid("messages: at least one message is required"));
    }
    if messages.len() > MOST_MESSAGES {
        return Err(Refusal::invalid(format!(
            "messages: at most {MOST_MESSAGES} messages are allowed"
        )));
    }
    for (index, message) in messages.iter().enumerate() {
        check_message(message, index, index + 1 == messages.len(), terms)?;
    }
    Ok(())
}

fn check_message(message: &Value, index: usize, last: bool, terms: &Terms) -> Result<(), Refusal> {
    let path = format!("messages.{index}");
    let Value::Object(members) = message else {
        return Err(Refusal::invalid(format!("{path}: Input should be a valid dictionary")));
    };
    let role = message["role"].as_str().unwrap_or_default();
    if !matches!(role, "user" | "assistant" | "system") {
        return Err(Refusal::invalid(format!(
            "{path}.role: Input should be 'user', 'assistant' or 'system'"
        )));
    }
    for key in members.keys() {
        let known = match key.as_str() {
            "role" | "content" => true,
            "output_config" | "clear_at" => role == "system" && !terms.betas.is_empty(),
            _ => false,
        };
        if !known {
            return Err(Refusal::extra(&format!("{path}.{key}")));
        }
    }
    let empty = match members.get("content") {
        None => return Err(Refusal::invalid(format!("{path}.content: Field required"))),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(blocks)) => {
            for (at, block) in blocks.iter().enumerate() {
                check_block(block, role, &format!("{path}.content.{at}"), terms)?;
            }
            blocks.is_empty()
        }
        Some(_) => {
            return Err(Refusal::invalid(format!("{path}.content: Input should be a valid list")));
        }
    };
    if empty && !(last && role == "assistant") {
        return Err(Refusal::invalid(format!(
            "{path}: all messages must have non-empty content except for the optional final assistant message"
        )));
    }
    Ok(())
}

fn check_block(block: &Value, role: &str, path: &str, terms: &Terms) -> Result<(), Refusal> {
    let Some(kind) = block["type"].as_str() else {
        return Err(Refusal::invalid(format!("{path}.type: Field required")));
    };
    if !BLOCKS.contains(&kind) {
        return Err(Refusal::invalid(format!(
            "{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags"
        )));
    }
    let misplaced = match role {
        "assistant" => {
            matches!(kind, "tool_result" | "image") || kind == "document" && terms.is_new_version()
        }
        "system" => !matches!(kind, "text" | "tool_addition" | "tool_removal"),
        _ => matches!(kind, "thinking" | "redacted_thinking" | "tool_use" | "server_tool_use"),
    };
    if misplaced {
        return Err(Refusal::invalid(format!(
            "{path}: `{kind}` blocks are not allowed in `{role}` messages"
        )));
    }
    match kind {
        "text" => {
            check_text(block, "messages")?;
            let citations = block["citations"].as_array();
            if role == "user"
                && terms.is_new_version()
                && citations.is_some_and(|list| !list.is_empty())
            {
                return Err(Refusal::extra(&format!("{path}.text.citations")));
            }
            Ok(())
        }
        // The signature has its own refusal, so it is not asked for here.
        "thinking" => check_strings(block, path, &["thinking"], &["signature"]),
        "redacted_thinking" => check_strings(block, path, &["data"], &[]),
        "tool_use" if !block["input"].is_object() => Err(Refusal::invalid(format!(
            "{path}.tool_use.input: Input should be a valid dictionary"
        ))),
        "tool_use" => {
            need_string(block, path, "id").and_then(|()| need_string(block, path, "name"))
        }
        "tool_result" => need_string(block, path, "tool_use_id"),
        _ => Ok(()),
    }
}

fn check_text(block: &Value, field: &str) -> Result<(), Refusal> {
    match block["text"].as_str() {
        Some("") => {
            Err(Refusal::invalid(format!("{field}: text content blocks must be non-empty")))
        }
        Some(text) if text.trim().is_empty() => Err(Refusal::invalid(format!(
            "{field}: text content blocks must contain non-whitespace text"
        ))),
        Some(_) => Ok(()),
        None => {
            Err(Refusal::invalid(format!("{field}: text content blocks must have a `text` string")))
        }
    }
}

/// Thinking blocks hold what they were sent with and nothing else; not even
/// `cache_control` may be added.
fn check_strings(
    block: &Value,
    path: &str,
    needed: &[&str],
    other: &[&str],
) -> Result<(), Refusal> {
    let kind = block["type"].as_str().unwrap_or_default();
    for key in block.as_object().into_iter().flat_map(Map::keys) {
        if key != "type" && !needed.contains(&key.as_str()) && !other.contains(&key.as_str()) {
            return Err(Refusal::extra(&format!("{path}.{kind}.{key}")));
        }
    }
    needed.iter().try_for_each(|key| need_string(block, path, key))
}

fn need_string(block: &Value, path: &str, key: &str) -> Result<(), Refusal> {
    let kind = block["type"].as_str().unwrap_or_default();
    match block.get(key) {
        Some(Value::String(_)) => Ok(()),
        Some(_) => {
            Err(Refusal::invalid(format!("{path}.{kind}.{key}: Input should be a valid string")))
        }
        None => Err(Refusal::invalid(format!("{path}.{kind}.{key}: Field required"))),
    }
}
