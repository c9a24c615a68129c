//! Errors of OpenAI-shaped servers, which differ in where they put the message and the code.

use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};

use super::{error_codes, fault_status};
use crate::json::{Kind, Span, slice};

/// Reads an error that arrives instead of a reply.
pub(crate) fn read(status: u16, body: &[u8]) -> Fault {
    let value = serde_json::from_slice::<Value>(body).unwrap_or_default();
    let error = error_of(&value);
    let kind = match status {
        401 | 403 | 404 | 409 | 413 | 429 | 500.. | 402 | 408 => fault_status::kind_of(status),
        // The error type says more than a plain 400.
        _ => match kind_of(error) {
            FaultKind::Internal => FaultKind::Invalid,
            kind => kind,
        },
    };
    let message = message_of(error).unwrap_or_else(|| match String::from_utf8_lossy(body).trim() {
        "" => format!("the provider answered with status {status}"),
        text => text.chars().take(2000).collect(),
    });
    error_codes::with_code(Fault::new(kind, message), code_of(error))
}

/// Reads an error inside a reply.
pub(crate) fn read_inside(json: &[u8], kind: Kind, error: &Span) -> Option<Fault> {
    let value: Value = serde_json::from_slice(slice(json, error)).ok()?;
    // Some servers send `false` or an empty string when there is no error.
    let is_error = match kind {
        Kind::String => value.as_str().is_some_and(|text| !text.is_empty()),
        Kind::Object => true,
        _ => false,
    };
    is_error.then(|| {
        let message = message_of(&value);
        let fault = Fault::new(
            kind_of(&value),
            message.unwrap_or_else(|| "the provider reported an error".to_owned()),
        );
        error_codes::with_code(fault, code_of(&value))
    })
}

/// Finds the error in a body. Some servers send it without the `error` member around it.
fn error_of(body: &Value) -> &Value {
    match body {
        // Google sends a list with one element.
        Value::Array(list) => list.first().map_or(body, error_of),
        _ => body.get("error").filter(|error| !error.is_null()).unwrap_or(body),
    }
}

fn message_of(error: &Value) -> Option<String> {
    let text = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Object(_) | Value::Array(_) => Some(value.to_string()),
        _ => None,
    };
    if error.is_string() {
        return text(error);
    }
    let message = ["message", "detail", "msg"].iter().find_map(|name| text(error.get(*name)?));
    // OpenRouter says "Provider returned error" and puts the provider's own text in `metadata.raw`.
    match (message, error.pointer("/metadata/raw").and_then(text)) {
        (Some(message), Some(raw)) if message != raw => Some(format!("{message}: {raw}")),
        (message, raw) => message.or(raw),
    }
}

fn code_of(error: &Value) -> Option<&str> {
    error.get("code").and_then(Value::as_str)
}

fn kind_of(error: &Value) -> FaultKind {
    let code = error.get("code").or_else(|| error.get("status"));
    if let Some(status) = code.and_then(Value::as_u64) {
        return fault_status::kind_of(u16::try_from(status).unwrap_or(500));
    }
    let words = [code, error.get("type")].into_iter().flatten();
    words.filter_map(Value::as_str).find_map(kind_of_word).unwrap_or(FaultKind::Internal)
}

fn kind_of_word(word: &str) -> Option<FaultKind> {
    Some(match word {
        "invalid_api_key" | "authentication_error" | "UNAUTHENTICATED" => {
            FaultKind::Unauthenticated
        }
        "permission_error" | "PERMISSION_DENIED" => FaultKind::Forbidden,
        "not_found" | "model_not_found" | "not_found_error" | "NotFoundError" | "NOT_FOUND" => {
            FaultKind::NotFound
        }
        "conflict_error" => FaultKind::Conflict,
        "request_too_large" => FaultKind::TooLarge,
        "rate_limit_exceeded"
        | "insufficient_quota"
        | "rate_limit_error"
        | "RateLimitError"
        | "RESOURCE_EXHAUSTED" => FaultKind::RateLimited,
        "overloaded" | "overloaded_error" | "server_is_overloaded" | "UNAVAILABLE" => {
            FaultKind::Overloaded
        }
        "upstream_unreachable" => FaultKind::Unreachable,
        "timeout" | "timeout_error" | "DEADLINE_EXCEEDED" => FaultKind::TimedOut,
        "tool_call_parse_error" => FaultKind::ToolCallUnreadable,
        "invalid_request_error" | "BadRequestError" | "INVALID_ARGUMENT" => FaultKind::Invalid,
        _ => return None,
    })
}

/// The member that an error names.
pub(crate) fn parameter(body: &[u8]) -> String {
    let value: Value = serde_json::from_slice(body).unwrap_or_default();
    let parameter = value.pointer("/error/param").and_then(Value::as_str);
    parameter.unwrap_or_default().to_owned()
}
