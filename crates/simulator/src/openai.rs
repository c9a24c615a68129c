//! What OpenAI's two dialects share: error bodies, messages and the models.

use axum::response::Response;
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use crate::RequestId;
use crate::dialect::Models;
use crate::prompt_cache::{Caching, Lifetime, PromptPart};
use crate::refusal::Refusal;
use crate::shape::{Problem, Shape, Step, bracketed};

/// The list of models of both dialects.
pub(crate) const MODELS: Models = Models {
    paths: &["/v1/models", "/models", "/v1beta/openai/models"],
    list,
    describe: |name| Ok(describe(name)),
};

/// One example name for each set of rules; every other name is accepted too.
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

/// The time of every model and reply. It is fixed, so that replies do not depend on the clock.
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

/// The shortest prefix that is cached.
pub(crate) const MIN_CACHED_TOKENS: usize = 1024;
/// The member that ends a cached prefix, on a part of the content.
const BREAKPOINT: &str = "prompt_cache_breakpoint";

/// How prompts are cached: by blocks, or only up to the marked parts if the options say so.
pub(crate) fn caching(options: &Value) -> Caching {
    match options["mode"].as_str() {
        Some("explicit") => Caching::Marks { least: MIN_CACHED_TOKENS },
        _ => Caching::Blocks { least: MIN_CACHED_TOKENS, step: 128 },
    }
}

/// Whether the usage counts tokens that were written to the cache: from GPT-5.6 on.
pub(crate) fn counts_writes(model: &str) -> bool {
    let bare = model.rsplit('/').next().unwrap_or_default();
    let version = bare.strip_prefix("gpt-").and_then(|rest| rest.split('-').next());
    version.and_then(|version| version.parse::<f64>().ok()).is_some_and(|version| version >= 5.6)
}

/// An item or a message as a part of the prompt. A breakpoint on a part of its content counts at its end.
pub(crate) fn prompt_part(item: &Value) -> PromptPart {
    let mut item = item.clone();
    let mut is_marked = false;
    for member in ["content", "output"] {
        for part in item.get_mut(member).and_then(Value::as_array_mut).into_iter().flatten() {
            let breakpoint = part.as_object_mut().and_then(|part| part.shift_remove(BREAKPOINT));
            is_marked |= breakpoint.is_some_and(|breakpoint| !breakpoint.is_null());
        }
    }
    PromptPart::new("", &item.to_string(), is_marked.then_some(Lifetime::Minutes))
}

/// The body of a refusal; all four members are always present.
pub(crate) fn error_body(refusal: &Refusal, _: &RequestId) -> Value {
    let code = refusal.code.or(match refusal.status.as_u16() {
        401 => Some("invalid_api_key"),
        429 => Some("rate_limit_exceeded"),
        _ => None,
    });
    json!({ "error": {
        "message": refusal.message,
        "type": error_type(refusal.status),
        "param": refusal.parameter,
        "code": code,
    } })
}

/// The message of a refusal that a status fault asks for.
pub(crate) fn status_message(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "Rate limit reached for requests. Please try again later.",
        503 => "The server is overloaded or not ready yet.",
        500.. => "The server had an error while processing your request. Sorry about that!",
        _ => "Refused on demand",
    }
}

fn error_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// Adds the request id in the header that OpenAI's clients read.
pub(crate) fn with_request_id(mut response: Response, id: &RequestId) -> Response {
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

/// The refusal of a request without a key.
pub(crate) fn missing_key() -> Refusal {
    Refusal::new(
        StatusCode::UNAUTHORIZED,
        "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth (i.e. Authorization: Bearer YOUR_KEY).",
    )
}

/// The names of functions.
pub(crate) const FUNCTION_NAME: Shape = Shape::Pattern(FUNCTION_NAME_PATTERN, |name| {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    !name.is_empty() && name.chars().all(fits)
});
const FUNCTION_NAME_PATTERN: &str = "^[a-zA-Z0-9_-]+$";

/// A shape problem with OpenAI's message. `number` is the dialect's name for a decimal number.
pub(crate) fn refuse(path: &[Step<'_>], problem: &Problem<'_>, number: &'static str) -> Refusal {
    let at = bracketed(path);
    let (code, message) = match problem {
        Problem::Missing => return missing(&at),
        Problem::Unknown => ("unknown_parameter", format!("Unknown parameter: '{at}'.")),
        Problem::Type { expected, found } => {
            let expected = type_name(expected, number);
            return wrong_type(&at, expected, value_name(found, number));
        }
        Problem::Word { words, found, .. } => return wrong_value(&at, found, words),
        Problem::Tag { tag, known, found } => {
            return wrong_value(&format!("{at}.{tag}"), found, known);
        }
        Problem::Pattern { name, .. } => (
            "invalid_value",
            format!(
                "Invalid '{at}': string does not match pattern. Expected a string that matches the pattern '{name}'."
            ),
        ),
        Problem::Range { expected, found } => return out_of_range(&at, expected, found),
        Problem::Length { found: 0, .. } => (
            "empty_array",
            format!(
                "Invalid '{at}': empty array. Expected an array with minimum length 1, but got an empty array with length 0 instead."
            ),
        ),
        Problem::Length { max, found, .. } => (
            "array_above_max_length",
            format!(
                "Invalid '{at}': array too long. Expected an array with maximum length {max}, but got an array with length {found} instead."
            ),
        ),
    };
    refused(&at, Some(code), message)
}

fn type_name(shape: &Shape, number: &'static str) -> &'static str {
    match shape {
        Shape::Boolean => "a boolean",
        Shape::Integer(..) => "an integer",
        Shape::Number(..) => number,
        Shape::Text | Shape::Pattern(..) | Shape::Word(_) => "a string",
        Shape::List(_) | Shape::ListOf(..) => "an array of objects",
        Shape::Named(name, _) => name,
        _ => "an object",
    }
}

fn value_name(value: &Value, number: &'static str) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(found) if found.is_f64() => number,
        Value::Number(_) => "an integer",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn out_of_range(at: &str, expected: &Shape, found: &Value) -> Refusal {
    let (kind, min, max) = match expected {
        Shape::Integer(min, max) => ("integer", *min as f64, *max as f64),
        Shape::Number(min, max) => ("decimal", *min, *max),
        _ => ("value", f64::MIN, f64::MAX),
    };
    let is_below = found.as_f64().is_some_and(|found| found < min);
    let (side, sign, bound) =
        if is_below { ("below minimum", ">=", min) } else { ("above maximum", "<=", max) };
    let message = format!(
        "Invalid '{at}': {kind} {side} value. Expected a value {sign} {bound}, but got {found} instead."
    );
    let code = match (kind, is_below) {
        ("integer", true) => "integer_below_min_value",
        ("integer", false) => "integer_above_max_value",
        (_, true) => "decimal_below_min_value",
        (_, false) => "decimal_above_max_value",
    };
    refused(at, Some(code), message)
}

/// A missing parameter.
pub(crate) fn missing(path: &str) -> Refusal {
    let message = format!("Missing required parameter: '{path}'.");
    refused(path, Some("missing_required_parameter"), message)
}

/// A parameter of the wrong type; both types are written with their article.
pub(crate) fn wrong_type(path: &str, expected: &str, found: &str) -> Refusal {
    let message =
        format!("Invalid type for '{path}': expected {expected}, but got {found} instead.");
    refused(path, Some("invalid_type"), message)
}

/// An unsupported value.
pub(crate) fn wrong_value(path: &str, value: &str, supported: &[&str]) -> Refusal {
    let message = format!("Invalid value: '{value}'. Supported values are: {}.", quoted(supported));
    refused(path, Some("invalid_value"), message)
}

/// `'a', 'b', and 'c'`, as the provider lists values.
pub(crate) fn quoted(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [first, second] => format!("{first} and {second}"),
        [most @ .., last] if !most.is_empty() => format!("{}, and {last}", most.join(", ")),
        quoted => quoted.concat(),
    }
}
