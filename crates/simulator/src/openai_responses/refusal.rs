//! Refusals with the provider's texts.

use http::StatusCode;

use crate::openai::{quoted, refused};
use crate::refusal::Refusal;

/// A value that this model does not support.
pub(crate) fn unsupported_value(path: &str, value: &str, model: &str, allowed: &[&str]) -> Refusal {
    let message = format!(
        "Unsupported value: '{value}' is not supported with the '{model}' model. Supported values are: {}.",
        quoted(allowed)
    );
    refused(path, Some("unsupported_value"), message)
}

/// A member that this model does not support.
pub(crate) fn unsupported(path: &str) -> Refusal {
    let message = format!("Unsupported parameter: '{path}' is not supported with this model.");
    refused(path, Some("unsupported_parameter"), message)
}

/// A problem with the conversation; its `param` is always `input`.
pub(crate) fn input_refusal(status: StatusCode, message: String) -> Refusal {
    Refusal { parameter: Some("input".to_owned()), ..Refusal::new(status, message) }
}
