//! Refusals in this provider's own words.

use http::StatusCode;

use crate::openai::{quoted, refused};
use crate::refusal::Refusal;

/// A word that this model does not take.
pub(crate) fn unsupported_value(path: &str, value: &str, model: &str, allowed: &[&str]) -> Refusal {
    let message = format!(
        "Unsupported value: '{value}' is not supported with the '{model}' model. Supported values are: {}.",
        quoted(allowed)
    );
    refused(path, Some("unsupported_value"), message)
}

/// A member that this model does not take.
pub(crate) fn unsupported(path: &str) -> Refusal {
    let message = format!("Unsupported parameter: '{path}' is not supported with this model.");
    refused(path, Some("unsupported_parameter"), message)
}

/// Something about the conversation; only `input` is named then.
pub(crate) fn of_input(status: StatusCode, message: String) -> Refusal {
    Refusal { parameter: Some("input".to_owned()), ..Refusal::new(status, message) }
}
