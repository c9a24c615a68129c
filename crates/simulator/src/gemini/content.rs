//! Rules about the members of a request that the tables cannot state. The provider checks them
//! after the shape and words them differently.
//!
//! How contents follow each other is in `dialogue`.

use std::collections::HashSet;

use serde_json::Value;

use super::request::ParsedRequest;
use super::shape::snake;
use crate::refusal::Refusal;

const REQUEST: &str = "* GenerateContentRequest.";

/// A part has exactly one of these members.
const DATA: &[&str] = &[
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
];

const MAX_NAME_LENGTH: usize = 64;

/// Refuses contents, tools and choices that break these rules.
pub(crate) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    check_contents(request)?;
    check_declarations(request)?;
    check_calling(request)
}

fn wrong<T>(path: &str, message: &str) -> Result<T, Refusal> {
    Err(Refusal::invalid(format!("{REQUEST}{path}: {message}")))
}

fn check_contents(request: &ParsedRequest) -> Result<(), Refusal> {
    if request.contents.is_empty() {
        return wrong("contents", "contents is not specified");
    }
    for (index, content) in request.contents.iter().enumerate() {
        let path = format!("contents[{index}]");
        // A content without a role belongs to the user.
        if !matches!(content.role.as_str(), "" | "user" | "model") {
            return Err(Refusal::invalid("Please use a valid role: user, model."));
        }
        check_parts(&content.parts, &path)?;
    }
    if let Some(parts) = request.system.get("parts").and_then(Value::as_array) {
        check_parts(parts, "system_instruction")?;
    }
    Ok(())
}

fn check_parts(parts: &[Value], path: &str) -> Result<(), Refusal> {
    if parts.is_empty() {
        return wrong(&format!("{path}.parts"), "contents.parts must not be empty.");
    }
    for (at, part) in parts.iter().enumerate() {
        let path = format!("{path}.parts[{at}]");
        let mut data = DATA.iter().filter(|name| part.get(**name).is_some());
        let Some(first) = data.next() else {
            return wrong(
                &format!("{path}.data"),
                "required oneof field 'data' must have one initialized field",
            );
        };
        if let Some(second) = data.next() {
            return Err(Refusal::invalid(format!(
                "Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{second}'"
            )));
        }
        if matches!(*first, "functionCall" | "functionResponse") {
            check_function(first, part, &format!("{path}.{}", snake(first)))?;
        }
    }
    Ok(())
}

fn check_function(kind: &str, part: &Value, path: &str) -> Result<(), Refusal> {
    let function = &part[kind];
    if function["name"].as_str().is_none_or(str::is_empty) {
        return wrong(&format!("{path}.name"), "Name cannot be empty.");
    }
    if kind == "functionResponse" && !function["response"].is_object() {
        return wrong(&format!("{path}.response"), "Response must be specified.");
    }
    Ok(())
}

fn check_declarations(request: &ParsedRequest) -> Result<(), Refusal> {
    let mut names = HashSet::new();
    for (index, tool) in request.tools.iter().enumerate() {
        let declarations = tool["functionDeclarations"].as_array();
        for (at, declaration) in declarations.into_iter().flatten().enumerate() {
            let path = format!("tools[{index}].function_declarations[{at}]");
            let name = declaration["name"].as_str().unwrap_or_default();
            if !is_function_name(name) {
                return wrong(
                    &format!("{path}.name"),
                    "Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.",
                );
            }
            if !names.insert(name) {
                return Err(Refusal::invalid(format!(
                    "Duplicate function declaration found: {name}"
                )));
            }
            let given = |key: &str| declaration.get(key).is_some();
            if given("parameters") && given("parametersJsonSchema") {
                return wrong(
                    &path,
                    "only one of parameters and parameters_json_schema can be set",
                );
            }
        }
    }
    Ok(())
}

fn is_function_name(name: &str) -> bool {
    let first = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
    let other = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    name.len() <= MAX_NAME_LENGTH && name.starts_with(first) && name.chars().all(other)
}

fn check_calling(request: &ParsedRequest) -> Result<(), Refusal> {
    let names: HashSet<&str> =
        request.declarations().filter_map(|declaration| declaration["name"].as_str()).collect();
    let forced = matches!(request.calling["mode"].as_str(), Some("ANY" | "VALIDATED"));
    let path = "tool_config.function_calling_config";
    if forced && names.is_empty() {
        return Err(Refusal::invalid(
            "Function calling config is set without function_declarations.",
        ));
    }
    let allowed = request.allowed();
    let path = format!("{path}.allowed_function_names");
    if !forced && !allowed.is_empty() {
        return wrong(&path, "only allowed when mode is ANY or VALIDATED");
    }
    match allowed.iter().find(|name| !names.contains(**name)) {
        Some(name) => wrong(&path, &format!("\"{name}\" is not a declared function")),
        None => Ok(()),
    }
}
