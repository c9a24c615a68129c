//! Refusals in this provider's own words.

use http::StatusCode;
use serde_json::Value;

use crate::refusal::Refusal;

/// A member nobody knows.
pub(crate) fn unknown(path: &str) -> Refusal {
    coded(format!("Unknown parameter: '{path}'."), path, "unknown_parameter")
}

/// A member that has to be there.
pub(crate) fn missing(path: &str) -> Refusal {
    coded(format!("Missing required parameter: '{path}'."), path, "missing_required_parameter")
}

/// A member of the wrong type.
pub(crate) fn wrong_type(path: &str, expected: &str, found: &Value) -> Refusal {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal number",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message =
        format!("Invalid type for '{path}': expected {expected}, but got {found} instead.");
    coded(message, path, "invalid_type")
}

/// A word that is none of those there are.
pub(crate) fn wrong_value(path: &str, value: &str, allowed: &[&str]) -> Refusal {
    let message = format!("Invalid value: '{value}'. Supported values are: {}.", list(allowed));
    coded(message, path, "invalid_value")
}

/// A word that this model does not take.
pub(crate) fn unsupported_value(path: &str, value: &str, model: &str, allowed: &[&str]) -> Refusal {
    let message = format!(
        "Unsupported value: '{value}' is not supported with the '{model}' model. Supported values are: {}.",
        list(allowed)
    );
    coded(message, path, "unsupported_value")
}

/// A member that this model does not take.
pub(crate) fn unsupported(path: &str) -> Refusal {
    let message = format!("Unsupported parameter: '{path}' is not supported with this model.");
    coded(message, path, "unsupported_parameter")
}

/// Something about the conversation; only `input` is named then.
pub(crate) fn of_input(status: StatusCode, message: String) -> Refusal {
    Refusal { parameter: Some("input".to_owned()), ..Refusal::new(status, message) }
}

/// A status 400 with a code.
pub(crate) fn coded(message: String, path: &str, code: &'static str) -> Refusal {
    Refusal { parameter: Some(path.to_owned()), code: Some(code), ..Refusal::invalid(message) }
}

/// `'a', 'b', and 'c'`, as the provider lists things.
fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [one, two] => format!("{one} and {two}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refusals_read_as_the_providers() {
        let refusal = wrong_value("phase", "x", &["a", "b", "c"]);
        assert_eq!(refusal.message, "Invalid value: 'x'. Supported values are: 'a', 'b', and 'c'.");
        let refusal = unsupported_value("reasoning.effort", "low", "m", &["high"]);
        assert_eq!(
            refusal.message,
            "Unsupported value: 'low' is not supported with the 'm' model. Supported values are: 'high'."
        );
        let refusal = wrong_type("store", "a boolean", &json!(1.5));
        assert_eq!(
            refusal.message,
            "Invalid type for 'store': expected a boolean, but got a decimal number instead."
        );
        assert_eq!(list(&["a", "b"]), "'a' and 'b'");
    }
}
