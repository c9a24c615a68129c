//! The shape of a request: which members there are and what they may hold.
//!
//! What stands in `input` is in `items`, the tools are in `tools`, and what a model makes of the
//! values in `settings`.

use serde_json::{Map, Value};

use super::models::EFFORTS;
use super::refusal::{coded, missing, unknown, wrong_type, wrong_value};
use super::{items, tools};
use crate::refusal::Refusal;

/// Which body is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Responses,
    InputTokens,
}

/// What a member holds.
#[derive(Clone, Copy, Debug)]
enum Holds {
    Text,
    Flag,
    Number,
    Whole,
    Object,
    List,
    TextOrObject,
    TextOrList,
    /// Nobody says what.
    Anything,
}

/// Members, what they hold, and whether tokens can be counted with them.
const MEMBERS: &[(&str, Holds, bool)] = &[
    ("model", Holds::Text, true),
    ("input", Holds::TextOrList, true),
    ("instructions", Holds::Text, true),
    ("previous_response_id", Holds::Text, true),
    ("conversation", Holds::TextOrObject, true),
    ("reasoning", Holds::Object, true),
    ("text", Holds::Object, true),
    ("tools", Holds::List, true),
    ("tool_choice", Holds::TextOrObject, true),
    ("parallel_tool_calls", Holds::Flag, true),
    ("truncation", Holds::Text, true),
    ("store", Holds::Flag, false),
    ("stream", Holds::Flag, false),
    ("stream_options", Holds::Object, false),
    ("background", Holds::Flag, false),
    ("include", Holds::List, false),
    ("max_output_tokens", Holds::Whole, false),
    ("max_tool_calls", Holds::Whole, false),
    ("temperature", Holds::Number, false),
    ("top_p", Holds::Number, false),
    ("top_logprobs", Holds::Whole, false),
    ("metadata", Holds::Object, false),
    ("prompt", Holds::Object, false),
    ("prompt_cache_key", Holds::Text, false),
    ("prompt_cache_options", Holds::Object, false),
    ("prompt_cache_retention", Holds::Text, false),
    ("service_tier", Holds::Text, false),
    ("safety_identifier", Holds::Text, false),
    ("context_management", Holds::List, false),
    ("moderation", Holds::Anything, false),
    ("access_programs", Holds::Anything, false),
    ("image", Holds::Anything, false),
    ("user", Holds::Text, false),
    // Codex sends it, and the provider takes it.
    ("client_metadata", Holds::Object, false),
];

const INCLUDES: &[&str] = &[
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
];

/// Refuses a body of the wrong shape.
pub(crate) fn check(body: &Map<String, Value>, endpoint: Endpoint) -> Result<(), Refusal> {
    for (key, value) in body {
        let known = MEMBERS
            .iter()
            .find(|(name, _, counts)| name == key && (*counts || endpoint == Endpoint::Responses));
        let Some((_, holds, _)) = known else {
            return Err(unknown(key));
        };
        check_type(key, value, *holds)?;
    }
    let get = |key: &str| body.get(key).unwrap_or(&Value::Null);
    check_presence(body, endpoint)?;
    check_reasoning(get("reasoning"))?;
    check_text(get("text"))?;
    one_of(get("truncation"), "truncation", &["auto", "disabled"])?;
    known_members(get("stream_options"), "stream_options", &["include_obfuscation"])?;
    if !get("stream_options").is_null() && get("stream") != &Value::Bool(true) {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(coded(message.to_owned(), "stream_options", "invalid_value"));
    }
    for (index, value) in get("include").as_array().into_iter().flatten().enumerate() {
        one_of(value, &format!("include[{index}]"), INCLUDES)?;
    }
    tools::check(get("tools"), get("tool_choice"))?;
    items::check(get("input"))
}

fn check_type(path: &str, value: &Value, holds: Holds) -> Result<(), Refusal> {
    let (fits, expected) = match holds {
        Holds::Text => (value.is_string(), "a string"),
        Holds::Flag => (value.is_boolean(), "a boolean"),
        Holds::Number => (value.is_number(), "a decimal number"),
        Holds::Whole => (value.is_i64() || value.is_u64(), "an integer"),
        Holds::Object => (value.is_object(), "an object"),
        Holds::List => (value.is_array(), "an array of objects"),
        Holds::TextOrObject => {
            (value.is_string() || value.is_object(), "one of a string or object")
        }
        Holds::Anything => (true, "anything"),
        Holds::TextOrList => {
            (value.is_string() || value.is_array(), "one of a string or array of input items")
        }
    };
    if fits || value.is_null() {
        return Ok(());
    }
    Err(wrong_type(path, expected, value))
}

fn check_presence(body: &Map<String, Value>, endpoint: Endpoint) -> Result<(), Refusal> {
    let has = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
    let named = body.get("model").and_then(Value::as_str);
    if endpoint == Endpoint::Responses && named.is_none_or(str::is_empty) && !has("prompt") {
        return Err(missing("model"));
    }
    let told = ["input", "previous_response_id", "prompt", "conversation"];
    if endpoint == Endpoint::Responses && !told.iter().any(|key| has(key)) {
        let message = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.";
        return Err(coded(message.to_owned(), "input", "missing_required_parameter"));
    }
    if has("conversation") && has("previous_response_id") {
        let message = "Mutually exclusive parameters: 'previous_response_id' cannot be used together with 'conversation'.";
        return Err(coded(
            message.to_owned(),
            "previous_response_id",
            "mutually_exclusive_parameters",
        ));
    }
    // What the simulator cannot do it says, rather than do something else.
    if body.get("background") == Some(&Value::Bool(true)) {
        return Err(Refusal::invalid("The simulator runs nothing in the background."));
    }
    if has("conversation") {
        return Err(Refusal::invalid(
            "The simulator holds no conversations. Use 'previous_response_id' or send all items.",
        ));
    }
    match body.get("max_output_tokens").and_then(Value::as_i64) {
        Some(most) if most < 1 => Err(coded(
            format!(
                "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 1, but got {most} instead."
            ),
            "max_output_tokens",
            "integer_below_min_value",
        )),
        _ => Ok(()),
    }
}

fn check_reasoning(reasoning: &Value) -> Result<(), Refusal> {
    let members = ["effort", "summary", "generate_summary", "context", "mode"];
    known_members(reasoning, "reasoning", &members)?;
    let summaries = &["auto", "concise", "detailed"];
    let contexts = &["auto", "current_turn", "all_turns"];
    one_of(&reasoning["effort"], "reasoning.effort", EFFORTS)?;
    one_of(&reasoning["summary"], "reasoning.summary", summaries)?;
    one_of(&reasoning["generate_summary"], "reasoning.generate_summary", summaries)?;
    one_of(&reasoning["context"], "reasoning.context", contexts)?;
    one_of(&reasoning["mode"], "reasoning.mode", &["standard", "pro"])
}

fn check_text(text: &Value) -> Result<(), Refusal> {
    known_members(text, "text", &["format", "verbosity"])?;
    one_of(&text["verbosity"], "text.verbosity", &["low", "medium", "high"])?;
    let format = &text["format"];
    if format.is_null() {
        return Ok(());
    }
    if format["type"].is_null() {
        return Err(missing("text.format.type"));
    }
    one_of(&format["type"], "text.format.type", &["text", "json_object", "json_schema"])?;
    if format["type"] != "json_schema" {
        return known_members(format, "text.format", &["type"]);
    }
    // The chat dialect has them one level deeper.
    let members = ["type", "name", "schema", "strict", "description"];
    for key in ["name", "schema"] {
        if format[key].is_null() {
            return Err(missing(&format!("text.format.{key}")));
        }
    }
    known_members(format, "text.format", &members)?;
    if format["strict"] == true {
        let name = format["name"].as_str().unwrap_or_default();
        tools::check_strict(&format["schema"]).map_err(|reason| {
            coded(
                format!("Invalid schema for response_format '{name}': {reason}"),
                "text.format.schema",
                "invalid_json_schema",
            )
        })?;
    }
    Ok(())
}

/// Refuses members that are none of these.
pub(crate) fn known_members(value: &Value, path: &str, known: &[&str]) -> Result<(), Refusal> {
    let keys = value.as_object().into_iter().flat_map(Map::keys);
    let strange = keys.into_iter().find(|key| !known.contains(&key.as_str()));
    strange.map_or(Ok(()), |key| Err(unknown(&format!("{path}.{key}"))))
}

/// Refuses a word that is none of these; nothing is fine.
pub(crate) fn one_of(value: &Value, path: &str, allowed: &[&str]) -> Result<(), Refusal> {
    match value {
        Value::Null => Ok(()),
        Value::String(word) if allowed.contains(&word.as_str()) => Ok(()),
        Value::String(word) => Err(wrong_value(path, word, allowed)),
        other => Err(wrong_type(path, "a string", other)),
    }
}
