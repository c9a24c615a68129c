//! The shape of a request: the table of its body, and the provider's messages for shape problems.
//! The table of messages is in `messages`.

use serde_json::{Map, Value};

use super::messages::{self, MESSAGE};
use super::modes::ThinkingPlan;
use super::request::{MAX_CHOICES, ParsedRequest, list};
use super::variants::{ReasoningInput, ReasoningOutput, Variant};
use crate::openai::{self, FUNCTION_NAME, refused};
use crate::refusal::Refusal;
use crate::shape::Shape::{
    Any, Boolean, Closed, ClosedWhen, Either, Integer, List, ListOf, Named, Number, Object, Open,
    Pattern, Refused, Text, When, Word,
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
const NINE_CHARACTER_IDS: Flags = 8;
/// The prompt's template reads the arguments of earlier calls, so they must be JSON.
const JSON_ARGUMENTS: Flags = 16;
/// Thinking is switched as Anthropic does it.
pub(super) const ANTHROPIC_SWITCH: Flags = 32;
/// `reasoning_details` are verified.
pub(super) const DETAILS: Flags = 64;
/// `thinking_blocks` are verified.
pub(super) const BLOCKS: Flags = 128;

/// Only `json_object` is known as a format of the answer.
const NO_SCHEMAS: Flags = 256;

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
        optional("top_logprobs", When(OFFICIAL, &Integer(0, 20), &Integer(0, i64::MAX))),
        optional("logprobs", Boolean),
        optional("temperature", Number(0.0, 2.0)),
        optional("top_p", Number(0.0, 1.0)),
        optional("presence_penalty", Number(-2.0, 2.0)),
        optional("frequency_penalty", Number(-2.0, 2.0)),
        optional("parallel_tool_calls", Boolean),
        optional("response_format", RESPONSE_FORMAT),
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

const RESPONSE_FORMAT: Shape = Shape::Tagged(&Tagged {
    cases: &[
        ("text", Closed(&[optional("type", Any)])),
        ("json_object", Closed(&[optional("type", Any)])),
        (
            "json_schema",
            // Responses has these one level higher.
            When(
                NO_SCHEMAS,
                &Refused,
                &Closed(&[
                    optional("type", Any),
                    required(
                        "json_schema",
                        Closed(&[
                            required("name", Text),
                            optional("schema", Object),
                            optional("strict", Boolean),
                            optional("description", Text),
                        ]),
                    ),
                ]),
            ),
        ),
    ],
    // Servers have grammars of their own.
    others: When(OFFICIAL, &Refused, &Any),
    ..BY_TYPE
});

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
        // Mistral writes `any` instead of `required`.
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
    NINE_CHARACTER_IDS,
    &Pattern(NINE, |id| id.len() == 9 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())),
    &Text,
);

/// The arguments of a call.
pub(super) const ARGUMENTS: Shape = When(
    JSON_ARGUMENTS,
    &Pattern(JSON, |text| serde_json::from_str::<Map<String, Value>>(text).is_ok()),
    &Text,
);

/// The checker for requests to this server.
pub(super) fn checker(variant: &Variant, plan: &ThinkingPlan) -> Checker {
    let no_reasoning =
        matches!(variant.reasoning_input, ReasoningInput::Unknown | ReasoningInput::InContent);
    let blocks = variant.reasoning_input == ReasoningInput::Blocks
        && plan.reasoning_output == ReasoningOutput::Blocks;
    let conditions = [
        (variant.official, OFFICIAL),
        (variant.refuses_schemas, NO_SCHEMAS),
        (no_reasoning, NO_REASONING),
        (variant.reasoning_output == ReasoningOutput::Chunks, CHUNKS),
        (variant.nine_character_ids, NINE_CHARACTER_IDS),
        (variant.needs_json_arguments, JSON_ARGUMENTS),
        (variant.name == "litellm", ANTHROPIC_SWITCH),
        (variant.reasoning_input == ReasoningInput::Details, DETAILS),
        (blocks, BLOCKS),
    ];
    let flags =
        conditions.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
    Checker { flags, null_is_absent: true, unknown_first: false, refuse }
}

/// Refuses a body of the wrong shape.
pub(super) fn check(
    request: &ParsedRequest,
    variant: &Variant,
    plan: &ThinkingPlan,
) -> Result<(), Refusal> {
    if matches!(request.get("model"), Value::Null | Value::String(_)) && request.model().is_empty()
    {
        return Err(Refusal::invalid("you must provide a model parameter"));
    }
    checker(variant, plan).check(request.body(), &BODY)?;
    messages::check_content(request)?;
    check_chosen_tool(request)?;
    if variant.official {
        check_official(request)?;
    }
    Ok(())
}

/// Writes a problem as the provider reports it.
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

fn check_chosen_tool(request: &ParsedRequest) -> Result<(), Refusal> {
    let choice = request.get("tool_choice");
    let name = &choice["function"]["name"];
    let is_offered =
        || list(request.get("tools")).iter().any(|tool| tool["function"]["name"] == *name);
    if choice["type"] != "function" || is_offered() {
        return Ok(());
    }
    let name = name.as_str().unwrap_or_default();
    let message =
        format!("Invalid value for 'tool_choice': function '{name}' is not among the 'tools'.");
    Err(refused("tool_choice", None, message))
}

fn check_official(request: &ParsedRequest) -> Result<(), Refusal> {
    if !request.get("stream_options").is_null() && !request.streams() {
        return Err(refused(
            "stream_options",
            None,
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        ));
    }
    if !request.get("tools").is_null() {
        return Ok(());
    }
    match ["tool_choice", "parallel_tool_calls"].iter().find(|key| !request.get(key).is_null()) {
        Some(key) => {
            let message = format!(
                "Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified."
            );
            Err(refused(key, None, message))
        }
        None => Ok(()),
    }
}
