//! The shape of a request: the table of its body, and the provider's words for what does not fit.
//! The table of messages is in `messages`.

use serde_json::{Map, Value};

use super::ask::{Ask, MAX_CHOICES, list};
use super::messages::{self, MESSAGE};
use super::modes::Plan;
use super::variants::{Back, Shows, Variant};
use crate::openai::{self, FUNCTION_NAME, refused};
use crate::refusal::Refusal;
use crate::shape::Shape::{
    Any, Boolean, ClosedWhen, Either, Integer, List, ListOf, Named, Number, Object, Open, Pattern,
    Refused, Text, When, Word,
};
use crate::shape::{
    BY_TYPE, Checker, Flags, INTEGER, Problem, Shape, Step, Tagged, bracketed, optional, required,
};

/// OpenAI's own rules hold. Other servers ignore members they do not know.
pub(super) const OFFICIAL: Flags = 1;
/// Messages have no member for reasoning.
pub(super) const NO_REASONING: Flags = 2;
/// Reasoning comes back as chunks of the content.
pub(super) const CHUNKS: Flags = 4;
/// Ids of calls have nine letters and digits.
const NINE_LETTERS: Flags = 8;
/// The prompt's template reads the arguments of earlier calls, so they must be JSON.
const READS_ARGUMENTS: Flags = 16;
/// Thinking is switched as Anthropic does it.
pub(super) const ANTHROPIC_SWITCH: Flags = 32;
/// `reasoning_details` are verified.
pub(super) const DETAILS: Flags = 64;
/// `thinking_blocks` are verified.
pub(super) const BLOCKS: Flags = 128;

const MAX_STOPS: usize = 4;
const SERVICE_TIERS: &[&str] = &["auto", "default", "flex", "scale", "priority", "fast"];
const NINE: &str = "nine letters";
const JSON: &str = "a JSON object as text";

const BODY: Shape = ClosedWhen(
    OFFICIAL,
    &[
        optional("model", Text),
        optional("stream", Boolean),
        optional(
            "stream_options",
            Open(&[optional("include_usage", Boolean), optional("include_obfuscation", Boolean)]),
        ),
        optional("max_completion_tokens", Integer(1, i64::MAX)),
        optional("max_tokens", Integer(1, i64::MAX)),
        optional("n", When(OFFICIAL, &Integer(1, MAX_CHOICES), &Integer(1, i64::MAX))),
        optional("seed", INTEGER),
        optional("top_logprobs", Integer(0, i64::MAX)),
        optional("logprobs", Boolean),
        optional("temperature", Number(0.0, 2.0)),
        optional("top_p", Number(0.0, 1.0)),
        optional("presence_penalty", Number(-2.0, 2.0)),
        optional("frequency_penalty", Number(-2.0, 2.0)),
        optional("parallel_tool_calls", Boolean),
        optional("response_format", Object),
        optional("user", Text),
        optional("stop", Named("a string or an array of strings", &Either(&[Text, STOPS]))),
        optional("tools", When(OFFICIAL, &ListOf(1, usize::MAX, &TOOL), &List(&TOOL))),
        optional("functions", When(OFFICIAL, &ListOf(1, usize::MAX, &FUNCTION), &List(&FUNCTION))),
        optional("tool_choice", Named("a string or an object", &TOOL_CHOICE)),
        optional("verbosity", When(OFFICIAL, &Word(&["low", "medium", "high"]), &Any)),
        optional("service_tier", When(OFFICIAL, &Word(SERVICE_TIERS), &Any)),
        required("messages", ListOf(1, usize::MAX, &Shape::Tagged(&MESSAGE))),
        optional("audio", Any),
        optional("function_call", Any),
        optional("logit_bias", Any),
        optional("metadata", Any),
        optional("modalities", Any),
        optional("moderation", Any),
        optional("prediction", Any),
        optional("prompt_cache_key", Any),
        optional("prompt_cache_options", Any),
        optional("prompt_cache_retention", Any),
        optional("reasoning_effort", Any),
        optional("safety_identifier", Any),
        optional("store", Any),
        optional("web_search_options", Any),
    ],
);

const STOPS: Shape = When(OFFICIAL, &ListOf(0, MAX_STOPS, &Text), &List(&Text));

const TOOL: Shape = Shape::Tagged(&Tagged {
    cases: &[
        ("function", Open(&[required("function", FUNCTION)])),
        (
            "custom",
            When(
                OFFICIAL,
                &Open(&[required("custom", Open(&[required("name", FUNCTION_NAME)]))]),
                &Any,
            ),
        ),
    ],
    // Many servers have tools of their own.
    others: When(OFFICIAL, &Refused, &Any),
    ..BY_TYPE
});

const FUNCTION: Shape = Open(&[required("name", FUNCTION_NAME), optional("parameters", Object)]);

const TOOL_CHOICE: Shape = Either(&[
    When(
        OFFICIAL,
        &Word(&["none", "auto", "required"]),
        // `any` is Mistral's word for `required`.
        &Word(&["none", "auto", "required", "any"]),
    ),
    Shape::Tagged(&Tagged {
        cases: &[
            ("function", Open(&[required("function", Open(&[required("name", Text)]))])),
            ("allowed_tools", Any),
            ("custom", Any),
        ],
        ..BY_TYPE
    }),
]);

/// The id of a call.
pub(super) const CALL_ID: Shape = When(
    NINE_LETTERS,
    &Pattern(NINE, |id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())),
    &Text,
);

/// The arguments of a call.
pub(super) const ARGUMENTS: Shape = When(
    READS_ARGUMENTS,
    &Pattern(JSON, |text| serde_json::from_str::<Map<String, Value>>(text).is_ok()),
    &Text,
);

/// The checker for requests to this server.
pub(super) fn checker(variant: &Variant, plan: &Plan) -> Checker {
    let no_reasoning = matches!(variant.back, Back::Unknown | Back::InContent);
    let blocks = variant.back == Back::Blocks && plan.shows == Shows::Blocks;
    let conditions = [
        (variant.official, OFFICIAL),
        (no_reasoning, NO_REASONING),
        (variant.shows == Shows::Chunks, CHUNKS),
        (variant.nine_letters, NINE_LETTERS),
        (variant.reads_arguments, READS_ARGUMENTS),
        (variant.name == "litellm", ANTHROPIC_SWITCH),
        (variant.back == Back::Details, DETAILS),
        (blocks, BLOCKS),
    ];
    let flags =
        conditions.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    Checker { flags, null_is_absent: true, unknown_first: false, refuse }
}

/// Refuses a body of the wrong shape.
pub(super) fn check(ask: &Ask, variant: &Variant, plan: &Plan) -> Result<(), Refusal> {
    if matches!(ask.get("model"), Value::Null | Value::String(_)) && ask.model().is_empty() {
        return Err(Refusal::invalid("you must provide a model parameter"));
    }
    checker(variant, plan).check(ask.body(), &BODY)?;
    messages::check_content(ask)?;
    check_chosen_tool(ask)?;
    if variant.official {
        check_official(ask)?;
    }
    Ok(())
}

/// A problem in the provider's words.
fn refuse(path: &[Step<'_>], problem: &Problem<'_>) -> Refusal {
    let at = bracketed(path);
    match problem {
        Problem::Pattern { name: NINE, found } => refused(
            &at,
            None,
            format!("Tool call id was {found} but must be a-z, A-Z, 0-9, with a length of 9."),
        ),
        Problem::Pattern { name: JSON, found } => refused(
            &at,
            None,
            format!("Invalid '{at}': expected {JSON}, but got {} instead.", Value::from(*found)),
        ),
        problem => openai::refuse(path, problem, "a decimal"),
    }
}

fn check_chosen_tool(ask: &Ask) -> Result<(), Refusal> {
    let choice = ask.get("tool_choice");
    let name = &choice["function"]["name"];
    let is_offered = || list(ask.get("tools")).iter().any(|tool| tool["function"]["name"] == *name);
    if choice["type"] != "function" || is_offered() {
        return Ok(());
    }
    let name = name.as_str().unwrap_or_default();
    let message =
        format!("Invalid value for 'tool_choice': function '{name}' is not among the 'tools'.");
    Err(refused("tool_choice", None, message))
}

fn check_official(ask: &Ask) -> Result<(), Refusal> {
    if !ask.get("stream_options").is_null() && !ask.streams() {
        return Err(refused(
            "stream_options",
            None,
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    if !ask.get("tools").is_null() {
        return Ok(());
    }
    match ["tool_choice", "parallel_tool_calls"].iter().find(|key| !ask.get(key).is_null()) {
        Some(key) => {
            let message = format!(
                "Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."
            );
            Err(refused(key, None, message))
        }
        None => Ok(()),
    }
}
