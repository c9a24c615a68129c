//! Verifies the signatures a client sends back: where they are required, and which identity made
//! them.

use serde_json::Value;

use super::models::Model;
use super::request::{ParsedRequest, text_of};
use super::shape;
use crate::refusal::Refusal;
use crate::signing::{SignatureKind, Signer, hash};

/// The documented value that a client may send instead of a lost signature.
const SKIP: &str = "skip_thought_signature_validator";

/// Refuses altered and foreign signatures, and missing ones where the model requires them.
pub(crate) fn check(
    request: &ParsedRequest,
    model: &Model,
    signer: &Signer,
) -> Result<(), Refusal> {
    let current = request.current_turn();
    // Adjacent entries of the model are one step.
    let mut in_step = false;
    let mut called = false;
    for (index, content) in request.contents.iter().enumerate() {
        if content.is_model() && !in_step {
            called = false;
        }
        in_step = content.is_model();
        for part in &content.parts {
            let signature = part["thoughtSignature"].as_str().unwrap_or_default();
            let call = part.get("functionCall");
            if !signature.is_empty() {
                check_signature(signature, call, signer)?;
            } else if let Some(call) = call
                && model.enforces
                && index >= current
                && !called
            {
                return Err(missing(call, index));
            }
            called |= call.is_some();
        }
    }
    Ok(())
}

/// What the signature on a call protects: the name and the arguments, but not the id, which many
/// clients drop, and not the order of the arguments.
pub(crate) fn bound_to(name: &str, args: &Value) -> String {
    let mut text = format!("{name}(");
    match args {
        Value::Null => text.push_str("{}"),
        args => write_ordered(args, &mut text),
    }
    text.push(')');
    text
}

fn check_signature(text: &str, call: Option<&Value>, signer: &Signer) -> Result<(), Refusal> {
    let skips = || text == SKIP || shape::bytes(text).is_some_and(|bytes| bytes == SKIP.as_bytes());
    let valid = match signer.open(SignatureKind::Thought, &standard(text)) {
        // A signature on text must be ours, but the text is not compared.
        Some(opened) => call.is_none_or(|call| {
            let bound_to = bound_to(&text_of(&call["name"]), &call["args"]);
            opened.shown == hash(&[bound_to.as_bytes()])
        }),
        None => skips(),
    };
    if valid { Ok(()) } else { Err(Refusal::invalid("Invalid thought signature.")) }
}

fn missing(call: &Value, index: usize) -> Refusal {
    Refusal::invalid(format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, and missing thought_signature may lead to degraded model performance. Additional data, function call `default_api:{}` , position {}. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures for more details.",
        text_of(&call["name"]),
        index + 1,
    ))
}

/// Rewrites base64 to the standard alphabet with padding; clients may send either alphabet.
fn standard(text: &str) -> String {
    let bare = text.trim_end_matches('=');
    let mut standard = bare.replace('-', "+").replace('_', "/");
    while !standard.len().is_multiple_of(4) {
        standard.push('=');
    }
    standard
}

/// Writes JSON in a canonical form: members sorted, and all numbers as doubles, because the
/// provider's objects have no other numbers.
fn write_ordered(value: &Value, text: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            text.push('{');
            for (key, value) in members {
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_ordered(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_ordered(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Number(number) => {
            text.push_str(&number.as_f64().unwrap_or_default().to_string());
        }
        other => text.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_arguments_have_one_canonical_form() {
        let one = bound_to("f", &json!({"a": 1, "b": [{"c": null, "d": "x"}]}));
        let other = bound_to("f", &json!({"b": [{"d": "x", "c": null}], "a": 1.0}));
        assert_eq!(one, other);
        assert_ne!(one, bound_to("g", &json!({"a": 1, "b": [{"c": null, "d": "x"}]})));
        assert_ne!(bound_to("f", &json!({"a": 1})), bound_to("f", &json!({"a": "1"})));
        assert_eq!(bound_to("f", &json!(null)), bound_to("f", &json!({})));
    }
}
