//! The shape of a request: its tables, and what the server's JSON decoder says of the rest. Servers
//! of this dialect ignore members they do not know.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::request::{ParsedRequest, Path};
use crate::refusal::Refusal;
use crate::shape::Shape::{
    Any, Boolean, Either, List, Named, Object, Open, Pattern, Text, When, Word, WordAnyCase,
};
use crate::shape::{Checker, Flags, INTEGER, NUMBER, Problem, Shape, Step, optional, required};

/// The request is for `/api/chat`, so its messages are read.
const CHAT: Flags = 1;

static BODY: Shape = Open(&[
    required("model", NON_EMPTY),
    optional("stream", Boolean),
    optional("options", OPTIONS),
    optional("keep_alive", Named("api.Duration", &Either(&[Text, NUMBER]))),
    optional("truncate", Boolean),
    optional("shift", Boolean),
    optional("logprobs", Boolean),
    optional("top_logprobs", INTEGER),
    optional("messages", When(CHAT, &List(&Named("api.Message", &MESSAGE)), &List(&Any))),
    optional("tools", List(&Named("api.Tool", &TOOL))),
    optional("prompt", Text),
    optional("system", Text),
    optional("suffix", Text),
    optional("raw", Boolean),
    optional("images", List(&Any)),
    optional("context", List(&Any)),
    optional("think", Either(&[Boolean, Word(&["high", "medium", "low", "max"])])),
    optional("format", Either(&[Object, Word(&["", "json"])])),
]);

const OPTIONS: Shape = Open(&[
    optional("num_predict", INTEGER),
    optional("num_ctx", INTEGER),
    optional("temperature", NUMBER),
    optional("top_p", NUMBER),
    optional("top_k", INTEGER),
    optional("min_p", NUMBER),
    optional("seed", INTEGER),
    optional("stop", List(&Any)),
    optional("repeat_penalty", NUMBER),
    optional("presence_penalty", NUMBER),
    optional("frequency_penalty", NUMBER),
]);

const TOOL: Shape =
    Open(&[optional("function", Open(&[optional("name", Text), optional("parameters", Object)]))]);

const MESSAGE: Shape = Open(&[
    optional("content", Text),
    optional("thinking", Text),
    optional("images", List(&IMAGE)),
    optional("tool_calls", List(&CALL)),
    optional("tool_name", Text),
    optional("tool_call_id", Text),
    required("role", WordAnyCase(&["system", "user", "assistant", "tool"])),
]);

const IMAGE: Shape =
    Pattern("base64", |text| STANDARD.decode(text).is_ok_and(|bytes| !bytes.is_empty()));

const CALL: Shape = Open(&[
    optional("id", Text),
    required(
        "function",
        // Arguments are an object, never its text.
        Open(&[optional("arguments", Object), required("name", NON_EMPTY)]),
    ),
]);

const NON_EMPTY: Shape = Pattern("non-empty", |text| !text.is_empty());

/// The body, which must be an object.
pub(super) fn object(body: &Bytes) -> Result<Map<String, Value>, Refusal> {
    if body.is_empty() {
        return Err(Refusal::invalid("missing request body"));
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(body)) => Ok(body),
        Ok(other) => Err(wrong_type("value", &other, "api.ChatRequest")),
        Err(error) => Err(Refusal::invalid(error.to_string())),
    }
}

/// Refuses a body of the wrong shape.
pub(super) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    let flags = if request.path() == Path::Chat { CHAT } else { 0 };
    Checker { flags, null_is_absent: true, unknown_first: false, refuse }
        .check(request.body(), &BODY)
}

/// Writes a problem as the server reports it. Its paths have no list indexes.
fn refuse(path: &[Step<'_>], problem: &Problem<'_>) -> Refusal {
    let names = path.iter().filter_map(|step| match step {
        Step::Member(name) => Some(*name),
        _ => None,
    });
    let at = names.collect::<Vec<_>>().join(".");
    let is_item = matches!(path.last(), Some(Step::Index(_)));
    Refusal::invalid(match (at.as_str(), problem) {
        ("model", Problem::Missing | Problem::Pattern { .. }) => "model is required".to_owned(),
        ("think", Problem::Word { found, .. }) => format!(
            "invalid think value: {found:?} (must be \"high\", \"medium\", \"low\", \"max\", true, or false)"
        ),
        ("think", _) => {
            "think must be a boolean or string (\"high\", \"medium\", \"low\", \"max\", true, or false)"
                .to_owned()
        }
        ("format", Problem::Word { found, .. }) => invalid_format(&Value::from(*found)),
        ("format", Problem::Type { found, .. }) => invalid_format(found),
        ("messages.role", Problem::Word { found, .. }) => invalid_role(found),
        ("messages.role", Problem::Missing) => invalid_role(""),
        ("messages.images", _) if is_item => {
            "illegal base64 data in messages.images: invalid image".to_owned()
        }
        (
            "messages.tool_calls.function.name",
            Problem::Missing | Problem::Pattern { .. },
        ) => "tool call without a function name".to_owned(),
        (at, Problem::Type { expected, found }) => match at.strip_prefix("options.") {
            Some(option) => format!("option \"{option}\" must be of type {}", type_name(expected)),
            None => {
                let at = format!("struct field ChatRequest.{at}");
                return wrong_type(&at, found, type_name(expected));
            }
        },
        (at, _) => format!("invalid value for {at}"),
    })
}

fn invalid_format(found: &Value) -> String {
    format!("invalid format: {found}; expected \"json\" or a valid JSON Schema object")
}

fn invalid_role(found: &str) -> String {
    format!("invalid role: {found}, role must be one of [system, user, assistant, tool]")
}

fn wrong_type(at: &str, found: &Value, expected: &str) -> Refusal {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    Refusal::invalid(format!("json: cannot unmarshal {found} into Go {at} of type {expected}"))
}

fn type_name(shape: &Shape) -> &'static str {
    match shape {
        Boolean => "bool",
        Shape::Integer(..) => "integer",
        Shape::Number(..) => "float32",
        Text | Pattern(..) | Word(_) | WordAnyCase(_) => "string",
        List(_) => "array",
        Named(name, _) => name,
        _ => "map[string]interface {}",
    }
}
