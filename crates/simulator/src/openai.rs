//! What both dialects of OpenAI share: the envelope of a refusal, its words, and the models.

use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::RequestId;
use crate::dialect::Models;
use crate::refusal::Refusal;

/// The models, wherever the two dialects list them.
pub(crate) const MODELS: Models = Models {
    paths: &["/v1/models", "/models", "/v1beta/openai/models"],
    list,
    describe: |name| Ok(describe(name)),
};

/// Names that stand for the rules and servers there are; every other name is answered too.
const LISTED: &[(&str, &str)] = &[
    ("gpt-6.1-sol", "openai"),
    ("gpt-6-astra", "openai"),
    ("gpt-6-sol", "openai"),
    ("gpt-6-luna", "openai"),
    ("gpt-5.6-luna", "openai"),
    ("gpt-5.4", "openai"),
    ("gpt-5", "openai"),
    ("o3", "openai"),
    ("gpt-4o", "openai"),
    ("deepseek-v4-pro", "deepseek"),
    ("deepseek-v4-flash", "deepseek"),
    ("deepseek-reasoner", "deepseek"),
    ("qwen3-think-tags", "simulator"),
    ("qwen3-think-tags-implicit", "simulator"),
    ("qwen3-think-tags-raw-tools", "simulator"),
    ("open-model", "simulator"),
    ("open-model-repeat-ids", "simulator"),
];

/// The moment of every model and reply: what is said must not hang on the clock.
pub(crate) const CREATED: u64 = 1_794_700_000;

fn list() -> Value {
    let data: Vec<Value> = LISTED.iter().map(|(name, _)| describe(name)).collect();
    json!({ "object": "list", "data": data })
}

fn describe(name: &str) -> Value {
    let listed = LISTED.iter().find(|(listed, _)| *listed == name);
    let owner = listed.map_or("simulator", |(_, owner)| owner);
    json!({ "id": name, "object": "model", "created": CREATED, "owned_by": owner })
}

/// The body of a refusal; all four members are always there.
pub(crate) fn envelope(refusal: &Refusal, _: &RequestId) -> Value {
    let code = refusal.code.or(match refusal.status.as_u16() {
        401 => Some("invalid_api_key"),
        429 => Some("rate_limit_exceeded"),
        _ => None,
    });
    json!({ "error": {
        "message": refusal.message,
        "type": kind(refusal.status),
        "param": refusal.parameter,
        "code": code,
    } })
}

/// What is said with a status that was asked for.
pub(crate) fn words(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "Rate limit reached for requests. Please try again later.",
        503 => "The server is overloaded or not ready yet.",
        500.. => "The server had an error while processing your request. Sorry about that!",
        _ => "Refused on demand",
    }
}

fn kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// Puts the request's id where OpenAI's clients look for it.
pub(crate) fn stamped(mut response: Response, id: &RequestId) -> Response {
    if let Ok(value) = HeaderValue::try_from(id.0.as_str()) {
        let name = HeaderName::from_static("x-request-id");
        response.headers_mut().insert(name, value);
    }
    response
}

/// A refusal of one parameter.
pub(crate) fn refused(
    parameter: &str,
    code: Option<&'static str>,
    message: impl Into<String>,
) -> Refusal {
    Refusal { parameter: Some(parameter.to_owned()), code, ..Refusal::invalid(message) }
}

/// A request without a key.
pub(crate) fn lacks_key() -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
    )
}

/// A parameter that the API does not know, or not here.
pub(crate) fn unknown(path: &str) -> Refusal {
    let message = format!("Unknown parameter: '{path}'.");
    refused(path, Some("unknown_parameter"), message)
}

/// A parameter that must be there.
pub(crate) fn missing(path: &str) -> Refusal {
    let message = format!("Missing required parameter: '{path}'.");
    refused(path, Some("missing_required_parameter"), message)
}

/// A parameter of another type than `expected`, which is written with its article.
pub(crate) fn wrong_type(path: &str, expected: &str, value: &Value) -> Refusal {
    let got = match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a decimal",
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    };
    let message = format!("Invalid type for '{path}': expected {expected}, but got {got} instead.");
    refused(path, Some("invalid_type"), message)
}

/// A word that is none of those there are.
pub(crate) fn wrong_value(path: &str, value: &str, supported: &[&str]) -> Refusal {
    let quoted: Vec<String> = supported.iter().map(|word| format!("'{word}'")).collect();
    let choices = match quoted.as_slice() {
        [only] => only.clone(),
        [first, second] => format!("{first} and {second}"),
        [most @ .., last] => format!("{}, and {last}", most.join(", ")),
        [] => String::new(),
    };
    let message = format!("Invalid value: '{value}'. Supported values are: {choices}.");
    refused(path, Some("invalid_value"), message)
}

/// A list that must hold something.
pub(crate) fn empty_list(path: &str) -> Refusal {
    let message = format!(
        "Invalid '{path}': empty array. Expected an array with minimum length 1, but got an empty array with length 0 instead."
    );
    refused(path, Some("empty_array"), message)
}

/// A number below the least there may be.
pub(crate) fn too_small(path: &str, least: i64, value: &Value) -> Refusal {
    let message = format!(
        "Invalid '{path}': integer below minimum value. Expected a value >= {least}, but got {value} instead."
    );
    refused(path, Some("integer_below_min_value"), message)
}
