//! Verification of the signatures a client sends back: where they must be, and whose they are.

use serde_json::Value;

use super::ask::{Ask, text_of};
use super::models::Model;
use super::shape;
use crate::refusal::Refusal;
use crate::signing::{Kind, Signer, hash};

/// What stands for a signature that was lost: the documented way around the check.
const SKIP: &str = "skip_thought_signature_validator";

/// Refuses signatures that are not as they were made, and their absence where they are enforced.
pub(crate) fn check(ask: &Ask, model: &Model, signer: &Signer) -> Result<(), Refusal> {
    let current = ask.current_turn();
    // Neighbouring entries of the model are one step.
    let mut in_step = false;
    let mut called = false;
    for (index, content) in ask.contents.iter().enumerate() {
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

/// What the signature on a call vouches for. Ids are not part of it, since many clients drop them,
/// nor is the order of arguments.
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
    let valid = match signer.open(Kind::Thought, &standard(text)) {
        // Signatures on text are known to be ours, but nobody looks at the text.
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

/// Base64 in the standard alphabet and padded: clients may send either alphabet.
fn standard(text: &str) -> String {
    let bare = text.trim_end_matches('=');
    let mut standard = bare.replace('-', "+").replace('_', "/");
    while !standard.len().is_multiple_of(4) {
        standard.push('=');
    }
    standard
}

/// JSON whose equal values are equal texts: members in order, and all numbers as doubles, since the
/// provider's objects have no others. No arguments are the same as empty ones.
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
    fn equal_arguments_are_bound_alike() {
        let one = bound_to("f", &json!({"a": 1, "b": [{"c": null, "d": "x"}]}));
        let other = bound_to("f", &json!({"b": [{"d": "x", "c": null}], "a": 1.0}));
        assert_eq!(one, other);
        assert_ne!(one, bound_to("g", &json!({"a": 1, "b": [{"c": null, "d": "x"}]})));
        assert_ne!(bound_to("f", &json!({"a": 1})), bound_to("f", &json!({"a": "1"})));
        assert_eq!(bound_to("f", &json!(null)), bound_to("f", &json!({})));
    }

    #[test]
    fn either_alphabet_and_any_padding_is_one_signature() {
        for text in ["++//AQ==", "--__AQ==", "--__AQ"] {
            assert_eq!(standard(text), "++//AQ==", "{text}");
        }
    }
}
