//! The shape of a request: the table of its body, and the rules about which members go together.
//!
//! `items` has the table of `input`, `tools` that of the tools, and `settings` checks values
//! against the model.

use serde_json::{Map, Value};

use super::items::ITEM;
use super::models::EFFORTS;
use super::tools::{self, TOOL, TOOL_CHOICE};
use crate::openai::{self, missing, refused};
use crate::refusal::Refusal;
use crate::shape::Shape::{Any, Boolean, Closed, Either, Integer, List, Named, Object, Text, Word};
use crate::shape::{
    BY_TYPE, Checker, Flags, INTEGER, Member, NUMBER, Problem, Shape, Step, Tagged, bracketed,
    optional, required,
};

/// Which body is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Responses,
    InputTokens,
    Compact,
}

/// The request asks for a response, not for a token count.
const RESPONSES: Flags = 1;

const SUMMARIES: &[&str] = &["auto", "concise", "detailed"];
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

static BODY: Shape = Closed(&[
    optional("model", Text),
    optional("instructions", Text),
    optional("previous_response_id", Text),
    optional("conversation", Named("one of a string or object", &Either(&[Text, Object]))),
    optional("reasoning", REASONING),
    optional("text", Closed(&[optional("format", FORMAT), VERBOSITY])),
    optional("parallel_tool_calls", Boolean),
    optional("truncation", Word(&["auto", "disabled"])),
    optional("store", Boolean).needs(RESPONSES),
    optional("stream", Boolean).needs(RESPONSES),
    optional("stream_options", Closed(&[optional("include_obfuscation", Any)])).needs(RESPONSES),
    optional("background", Boolean).needs(RESPONSES),
    optional("include", List(&Word(INCLUDES))).needs(RESPONSES),
    optional("max_output_tokens", Integer(1, i64::MAX)).needs(RESPONSES),
    optional("max_tool_calls", INTEGER).needs(RESPONSES),
    optional("temperature", NUMBER).needs(RESPONSES),
    optional("top_p", NUMBER).needs(RESPONSES),
    optional("top_logprobs", INTEGER).needs(RESPONSES),
    optional("metadata", Object).needs(RESPONSES),
    optional("prompt", Object).needs(RESPONSES),
    optional("prompt_cache_key", Text).needs(RESPONSES),
    optional("prompt_cache_options", Object).needs(RESPONSES),
    optional("prompt_cache_retention", Text).needs(RESPONSES),
    optional("service_tier", Text).needs(RESPONSES),
    optional("safety_identifier", Text).needs(RESPONSES),
    optional("context_management", List(&Any)).needs(RESPONSES),
    optional("moderation", Any).needs(RESPONSES),
    optional("access_programs", Any).needs(RESPONSES),
    optional("image", Any).needs(RESPONSES),
    optional("user", Text).needs(RESPONSES),
    // Codex sends it, and the provider takes it.
    optional("client_metadata", Object).needs(RESPONSES),
    optional("tools", List(&TOOL)),
    optional("tool_choice", Named("one of a string or object", &TOOL_CHOICE)),
    optional(
        "input",
        Named("one of a string or array of input items", &Either(&[Text, List(&ITEM)])),
    ),
]);

const REASONING: Shape = Closed(&[
    optional("effort", Word(EFFORTS)),
    optional("summary", Word(SUMMARIES)),
    optional("generate_summary", Word(SUMMARIES)),
    optional("context", Word(&["auto", "current_turn", "all_turns"])),
    optional("mode", Word(&["standard", "pro"])),
]);

const VERBOSITY: Member = optional("verbosity", Word(&["low", "medium", "high"]));

const FORMAT: Shape = Shape::Tagged(&Tagged {
    cases: &[
        ("text", Closed(&[optional("type", Any)])),
        ("json_object", Closed(&[optional("type", Any)])),
        (
            "json_schema",
            // The chat dialect has these one level deeper.
            Closed(&[
                optional("type", Any),
                required("name", Any),
                required("schema", Any),
                optional("strict", Any),
                optional("description", Any),
            ]),
        ),
    ],
    ..BY_TYPE
});

/// Refuses a body of the wrong shape.
pub(crate) fn check(body: &Map<String, Value>, endpoint: Endpoint) -> Result<(), Refusal> {
    let flags = if endpoint == Endpoint::InputTokens { 0 } else { RESPONSES };
    Checker { flags, null_is_absent: true, unknown_first: false, refuse }.check(body, &BODY)?;
    let get = |key: &str| body.get(key).unwrap_or(&Value::Null);
    check_presence(body, endpoint)?;
    if !get("stream_options").is_null() && get("stream") != &Value::Bool(true) {
        let message = "The 'stream_options' parameter is only allowed when 'stream' is enabled.";
        return Err(refused("stream_options", Some("invalid_value"), message));
    }
    tools::check_format(&get("text")["format"])?;
    tools::check(get("tools"), get("tool_choice"))
}

/// Writes a problem as the provider reports it.
fn refuse(path: &[Step<'_>], problem: &Problem<'_>) -> Refusal {
    match problem {
        Problem::Pattern { name, found } if is_id(path) => {
            let at = bracketed(path);
            let message =
                format!("Invalid '{at}': '{found}'. Expected an ID that begins with '{name}'.");
            refused(&at, Some("invalid_value"), message)
        }
        problem => openai::refuse(path, problem, "a decimal number"),
    }
}

fn is_id(path: &[Step<'_>]) -> bool {
    path.last() == Some(&Step::Member("id"))
}

fn check_presence(body: &Map<String, Value>, endpoint: Endpoint) -> Result<(), Refusal> {
    let has = |key: &str| body.get(key).is_some_and(|value| !value.is_null());
    let named = body.get("model").and_then(Value::as_str);
    if endpoint != Endpoint::InputTokens && named.is_none_or(str::is_empty) && !has("prompt") {
        return Err(missing("model"));
    }
    let sources = ["input", "previous_response_id", "prompt", "conversation"];
    if endpoint != Endpoint::InputTokens && !sources.iter().any(|key| has(key)) {
        let message = "One of \"input\" or \"previous_response_id\" or 'prompt' or 'conversation' must be provided.";
        return Err(refused("input", Some("missing_required_parameter"), message));
    }
    if has("conversation") && has("previous_response_id") {
        let message = "Mutually exclusive parameters: 'previous_response_id' cannot be used together with 'conversation'.";
        return Err(refused(
            "previous_response_id",
            Some("mutually_exclusive_parameters"),
            message,
        ));
    }
    // The simulator refuses what it cannot do.
    if body.get("background") == Some(&Value::Bool(true)) {
        return Err(Refusal::invalid("The simulator runs nothing in the background."));
    }
    if has("conversation") {
        return Err(Refusal::invalid(
            "The simulator holds no conversations. Use 'previous_response_id' or send all items.",
        ));
    }
    Ok(())
}
