//! The tools of a request: their shape, and the schemas of those that are strict.

use serde_json::Value;

use crate::openai::{FUNCTION_NAME, refused};
use crate::refusal::Refusal;
use crate::shape::Shape::{Any, Boolean, Closed, Either, Object, Open, Word};
use crate::shape::{BY_TYPE, Shape, Tagged, optional, required};

/// One of the tools.
pub(super) const TOOL: Shape = Shape::Tagged(&Tagged {
    cases: &[(
        "function",
        Closed(&[
            optional("type", Any),
            // A tool in the shape of the chat dialect has its name one level deeper.
            required("name", FUNCTION_NAME),
            optional("description", Any),
            optional("parameters", Object),
            optional("strict", Boolean),
            optional("async", Any),
            optional("defer_loading", Any),
            optional("allowed_callers", Any),
            optional("output_schema", Any),
        ]),
    )],
    // The provider's own tools have shapes of their own.
    others: Any,
    ..BY_TYPE
});

/// `tool_choice`.
pub(super) const TOOL_CHOICE: Shape = Either(&[
    Word(&["none", "auto", "required"]),
    Shape::Tagged(&Tagged {
        cases: &[
            ("function", Open(&[required("name", Any)])),
            ("custom", Open(&[required("name", Any)])),
            ("allowed_tools", Open(&[required("mode", Word(&["auto", "required"]))])),
        ],
        others: Any,
        ..BY_TYPE
    }),
]);

/// The provider refuses schemas that nest deeper.
const MAX_SCHEMA_DEPTH: usize = 32;

/// Refuses strict tools whose schema is not strict, and a choice of a tool that is not there.
pub(crate) fn check(tools: &Value, choice: &Value) -> Result<(), Refusal> {
    let tools = tools.as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, tool) in tools.iter().enumerate() {
        // Functions are strict by default.
        if tool["type"] == "function" && tool["strict"] != false {
            let what = format!("function '{}'", tool["name"].as_str().unwrap_or_default());
            let path = format!("tools[{index}].parameters");
            refuse_loose(&tool["parameters"], &what, &path, "invalid_function_parameters")?;
        }
    }
    let (kind, name) = (&choice["type"], &choice["name"]);
    let is_offered = || tools.iter().any(|tool| tool["type"] == *kind && tool["name"] == *name);
    match kind.as_str() {
        Some(kind @ ("function" | "custom")) if !is_offered() => Err(refused(
            "tool_choice",
            Some("invalid_value"),
            format!("Tool choice '{kind}' not found in 'tools' parameter."),
        )),
        _ => Ok(()),
    }
}

/// Refuses a strict format whose schema is not strict.
pub(crate) fn check_format(format: &Value) -> Result<(), Refusal> {
    if format["strict"] != true {
        return Ok(());
    }
    let what = format!("response_format '{}'", format["name"].as_str().unwrap_or_default());
    refuse_loose(&format["schema"], &what, "text.format.schema", "invalid_json_schema")
}

fn refuse_loose(schema: &Value, what: &str, path: &str, code: &'static str) -> Result<(), Refusal> {
    check_strict(schema)
        .map_err(|reason| refused(path, Some(code), format!("Invalid schema for {what}: {reason}")))
}

/// Returns the first rule of strict mode that a schema breaks.
fn check_strict(schema: &Value) -> Result<(), String> {
    // A function without parameters has no schema to check.
    if schema.is_null() {
        return Ok(());
    }
    strict(schema, &mut Vec::new())
}

fn strict(schema: &Value, position: &mut Vec<String>) -> Result<(), String> {
    if position.len() > MAX_SCHEMA_DEPTH {
        return Err(format!("In context={}, the schema is nested too deeply.", context(position)));
    }
    let is_object = schema["type"] == "object" || schema.get("properties").is_some();
    if is_object && schema["additionalProperties"] != Value::Bool(false) {
        return Err(format!(
            "In context={}, 'additionalProperties' is required to be supplied and to be false.",
            context(position)
        ));
    }
    for (key, inner) in schema["properties"].as_object().into_iter().flatten() {
        let required = schema["required"].as_array();
        if !required.is_some_and(|list| list.iter().any(|name| name == key)) {
            return Err(format!(
                "In context={}, 'required' is required to be supplied and to be an array including every key in properties. Missing '{key}'.",
                context(position)
            ));
        }
        within(inner, ["properties", key], position)?;
    }
    if schema["items"].is_object() {
        within(&schema["items"], ["items", ""], position)?;
    }
    for (index, inner) in schema["anyOf"].as_array().into_iter().flatten().enumerate() {
        within(inner, ["anyOf", &index.to_string()], position)?;
    }
    for (key, inner) in schema["$defs"].as_object().into_iter().flatten() {
        within(inner, ["$defs", key], position)?;
    }
    Ok(())
}

fn within(schema: &Value, steps: [&str; 2], position: &mut Vec<String>) -> Result<(), String> {
    let before = position.len();
    let steps = steps.into_iter().filter(|step| !step.is_empty());
    position.extend(steps.map(str::to_owned));
    strict(schema, position)?;
    position.truncate(before);
    Ok(())
}

/// A path as the provider writes it: a Python tuple.
fn context(position: &[String]) -> String {
    let steps: Vec<String> = position.iter().map(|step| format!("'{step}'")).collect();
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
    fn strict_schema_needs_closed_objects_and_required_properties() {
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
    fn rejects_a_schema_that_nests_too_deeply() {
        let mut schema = json!({"type": "string"});
        for _ in 0..200 {
            schema = json!({"type": "array", "items": schema});
        }
        assert!(check_strict(&schema).unwrap_err().contains("too deeply"));
    }
}
