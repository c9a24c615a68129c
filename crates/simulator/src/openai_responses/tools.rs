//! The tools of a request: their shape, and the schemas of those that are strict.

use serde_json::Value;

use super::refusal::{coded, missing, unknown, wrong_type, wrong_value};
use super::shape::one_of;
use crate::refusal::Refusal;

const FUNCTION: &[&str] = &[
    "type",
    "name",
    "description",
    "parameters",
    "strict",
    "async",
    "defer_loading",
    "allowed_callers",
    "output_schema",
];

/// Schemas nest no deeper than this at the provider.
const DEEPEST: usize = 32;

/// Refuses tools of the wrong shape, and a choice of none of them.
pub(crate) fn check(tools: &Value, choice: &Value) -> Result<(), Refusal> {
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, tool) in tools.iter().enumerate() {
        check_tool(tool, &format!("tools[{index}]"))?;
    }
    check_choice(choice, tools)
}

fn check_tool(tool: &Value, path: &str) -> Result<(), Refusal> {
    let Value::Object(members) = tool else {
        return Err(wrong_type(path, "an object", tool));
    };
    match &tool["type"] {
        Value::Null => return Err(missing(&format!("{path}.type"))),
        Value::String(kind) if kind == "function" => {}
        // The provider's own tools have shapes of their own.
        Value::String(_) => return Ok(()),
        other => return Err(wrong_type(&format!("{path}.type"), "a string", other)),
    }
    // A tool in the shape of the chat dialect has its name one level deeper.
    let name = match &tool["name"] {
        Value::Null => return Err(missing(&format!("{path}.name"))),
        Value::String(name) => name,
        other => return Err(wrong_type(&format!("{path}.name"), "a string", other)),
    };
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    if name.is_empty() || !name.chars().all(fits) {
        return Err(coded(
            format!(
                "Invalid '{path}.name': string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            ),
            &format!("{path}.name"),
            "invalid_value",
        ));
    }
    if let Some(key) = members.keys().find(|key| !FUNCTION.contains(&key.as_str())) {
        return Err(unknown(&format!("{path}.{key}")));
    }
    let parameters = &tool["parameters"];
    if !(parameters.is_object() || parameters.is_null()) {
        let path = format!("{path}.parameters");
        return Err(wrong_type(&path, "an object", parameters));
    }
    match &tool["strict"] {
        Value::Bool(false) => Ok(()),
        // A function is strict unless it says that it is not.
        Value::Bool(true) | Value::Null => check_strict(parameters).map_err(|reason| {
            coded(
                format!("Invalid schema for function '{name}': {reason}"),
                &format!("{path}.parameters"),
                "invalid_function_parameters",
            )
        }),
        other => Err(wrong_type(&format!("{path}.strict"), "a boolean", other)),
    }
}

fn check_choice(choice: &Value, tools: &[Value]) -> Result<(), Refusal> {
    let words = ["none", "auto", "required"];
    if !choice.is_object() {
        return one_of(choice, "tool_choice", &words);
    }
    let (kind, name) = (choice["type"].as_str(), &choice["name"]);
    let Some(kind) = kind else {
        return Err(missing("tool_choice.type"));
    };
    match kind {
        "function" | "custom" if name.is_null() => Err(missing("tool_choice.name")),
        "function" | "custom"
            if !tools.iter().any(|tool| tool["type"] == kind && tool["name"] == *name) =>
        {
            Err(coded(
                format!("Tool choice '{kind}' not found in 'tools' parameter."),
                "tool_choice",
                "invalid_value",
            ))
        }
        "allowed_tools" => {
            let mode = &choice["mode"];
            match mode.as_str() {
                Some("auto" | "required") => Ok(()),
                Some(other) => Err(wrong_value("tool_choice.mode", other, &["auto", "required"])),
                None => Err(missing("tool_choice.mode")),
            }
        }
        _ => Ok(()),
    }
}

/// Says what a schema lacks that the strict mode asks for.
pub(crate) fn check_strict(schema: &Value) -> Result<(), String> {
    // A function without parameters has nothing to be strict about.
    if schema.is_null() {
        return Ok(());
    }
    strict(schema, &mut Vec::new())
}

fn strict(schema: &Value, place: &mut Vec<String>) -> Result<(), String> {
    if place.len() > DEEPEST {
        return Err(format!("In context={}, the schema is nested too deeply.", context(place)));
    }
    let is_object = schema["type"] == "object" || schema.get("properties").is_some();
    if is_object && schema["additionalProperties"] != Value::Bool(false) {
        return Err(format!(
            "In context={}, 'additionalProperties' is required to be supplied and to be false.",
            context(place)
        ));
    }
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array();
        if !required.is_some_and(|list| list.iter().any(|name| name == key)) {
            return Err(format!(
                "In context={}, 'required' is required to be supplied and to be an array including every key in properties. Missing '{key}'.",
                context(place)
            ));
        }
        within(inner, ["properties", key], place)?;
    }
    if schema["items"].is_object() {
        within(&schema["items"], ["items", ""], place)?;
    }
    for (index, inner) in schema["anyOf"].as_array().into_iter().flatten().enumerate() {
        within(inner, ["anyOf", &index.to_string()], place)?;
    }
    for (key, inner) in schema["$defs"].as_object().into_iter().flatten() {
        within(inner, ["$defs", key], place)?;
    }
    Ok(())
}

fn within(schema: &Value, steps: [&str; 2], place: &mut Vec<String>) -> Result<(), String> {
    let before = place.len();
    let steps = steps.into_iter().filter(|step| !step.is_empty());
    place.extend(steps.map(str::to_owned));
    strict(schema, place)?;
    place.truncate(before);
    Ok(())
}

/// A place as the provider writes it, in the manner of Python.
fn context(place: &[String]) -> String {
    let steps: Vec<String> = place.iter().map(|step| format!("'{step}'")).collect();
    match steps.as_slice() {
        [one] => format!("({one},)"),
        steps => format!("({})", steps.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_strict_schema_says_everything() {
        let good = json!({"type": "object", "additionalProperties": false, "required": ["a", "b"],
            "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "array",
                "items": {"type": "object", "properties": {}, "additionalProperties": false}}}});
        assert_eq!(check_strict(&good), Ok(()));
        assert_eq!(check_strict(&Value::Null), Ok(()));
        let mut open = good.clone();
        open["properties"]["b"]["items"] = json!({"type": "object"});
        assert_eq!(
            check_strict(&open).unwrap_err(),
            "In context=('properties', 'b', 'items'), 'additionalProperties' is required to be supplied and to be false."
        );
        let mut optional = good;
        optional["required"] = json!(["b"]);
        let error = check_strict(&optional).unwrap_err();
        assert!(error.ends_with("Missing 'a'."), "{error}");
        assert!(check_strict(&json!({"type": "object"})).is_err());
    }

    #[test]
    fn a_bottomless_schema_is_refused() {
        let mut schema = json!({"type": "string"});
        for _ in 0..200 {
            schema = json!({"type": "array", "items": schema});
        }
        assert!(check_strict(&schema).unwrap_err().contains("too deeply"));
    }
}
