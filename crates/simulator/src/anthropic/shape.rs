//! The shape of a request: its tables, the provider's messages for shape problems, and the rules
//! about content that no table can state.
//!
//! How messages follow each other is in `dialogue`.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::request::ApiHeaders;
use crate::refusal::Refusal;
use crate::shape::Shape::{
    Any, Boolean, Closed, Either, Integer, List, ListOf, Null, Object, Open, Pattern, Rule, Text,
    When, Word,
};
use crate::shape::{
    BY_TYPE, Checker, Flags, Member, Problem, Shape, Step, Tagged, optional, required,
};

/// Which body is being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    Messages,
    CountTokens,
}

/// The request asks for a message, not for a token count.
const MESSAGES: Flags = 1;
/// Any beta header is present; the simulator does not look at which one.
const BETA: Flags = 2;
/// The beta header that controls the binding of thinking blocks is present.
const BINDING: Flags = 4;

const MAX_MESSAGES: usize = 100_000;
const MIN_BUDGET: i64 = 1024;
const EFFORTS: &[&str] = &["low", "medium", "high", "xhigh", "max"];

static BODY: Shape = Closed(&[
    required("model", Pattern("non-empty", |name| !name.is_empty())),
    // Zero is legal: it warms the prompt cache.
    required("max_tokens", Integer(0, i64::MAX)).needs(MESSAGES),
    optional("stream", Boolean).needs(MESSAGES),
    optional("output_config", OUTPUT_CONFIG),
    optional("system", Either(&[Text, List(&Shape::Tagged(&SYSTEM_BLOCK))])),
    optional("tools", List(&Shape::Tagged(&TOOL))),
    optional("tool_choice", Shape::Tagged(&TOOL_CHOICE)),
    optional("thinking", Either(&[Null, Shape::Tagged(&THINKING)])),
    required("messages", ListOf(1, MAX_MESSAGES, &Shape::Tagged(&MESSAGE))),
    // `thread` is not here: the conversation of a thread is put in before.
    optional("cache_control", Any),
    optional("temperature", Any),
    optional("top_p", Any),
    optional("top_k", Any),
    optional("stop_sequences", Any).needs(MESSAGES),
    optional("metadata", Any).needs(MESSAGES),
    optional("container", Any).needs(MESSAGES),
    optional("diagnostics", Any).needs(MESSAGES),
    optional("inference_geo", Any).needs(MESSAGES),
    optional("service_tier", Any).needs(MESSAGES),
    optional("speed", Any).needs(MESSAGES),
    optional("user_profile_id", Any).needs(MESSAGES),
    optional("context_management", Any).needs(BETA),
    optional("compaction", Any).needs(BETA),
    optional("fallbacks", Any).needs(BETA),
    optional("fallback_credit_token", Any).needs(BETA),
    optional("mcp_servers", Any).needs(BETA),
]);

const OUTPUT_CONFIG: Shape = Closed(&[
    optional("effort", Word(EFFORTS)),
    optional("format", Rule(&FORMAT, |format, _| check_schema(&format["schema"]))),
    optional("task_budget", Any).needs(BETA),
]);

const FORMAT: Shape =
    Closed(&[required("type", Word(&["json_schema"])), required("schema", Object)]);

const SYSTEM_BLOCK: Tagged = Tagged { cases: &[("text", TEXT)], in_path: true, ..BY_TYPE };

const TOOL: Tagged = Tagged {
    untagged: |_| Some("custom"),
    cases: &[("custom", Open(&[required("name", Text)]))],
    // The provider's own tools, and toolsets of a beta, which have no name.
    others: Any,
    in_path: true,
    ..BY_TYPE
};

const TOOL_CHOICE: Tagged = Tagged {
    cases: &[("auto", Object), ("any", Object), ("tool", Object), ("none", Object)],
    ..BY_TYPE
};

const THINKING: Tagged = Tagged {
    // The binding alone may be set; the model then thinks in its default mode.
    untagged: |members| members.get("block_binding")?.is_object().then_some(""),
    cases: &[
        ("adaptive", Closed(&[TYPE, DISPLAY, BLOCK_BINDING])),
        (
            "enabled",
            Closed(&[
                TYPE,
                required("budget_tokens", Integer(MIN_BUDGET, i64::MAX)),
                DISPLAY,
                BLOCK_BINDING,
            ]),
        ),
        ("disabled", Closed(&[TYPE])),
        ("between_tools", Closed(&[TYPE])),
        ("", Closed(&[TYPE, BLOCK_BINDING])),
    ],
    in_path: true,
    ..BY_TYPE
};

const TYPE: Member = optional("type", Any);
const DISPLAY: Member = optional(
    "display",
    When(BETA, &Word(&["summarized", "omitted", "updates"]), &Word(&["summarized", "omitted"])),
);
const BLOCK_BINDING: Member =
    optional("block_binding", Either(&[Null, Open(&[PREFIX_MISMATCH])])).needs(BINDING);
const PREFIX_MISMATCH: Member =
    optional("prefix_mismatch_behavior", Either(&[Null, Word(&["error", "drop_block"])]));

const MESSAGE: Tagged = Tagged {
    tag: "role",
    cases: &[
        ("user", Closed(&[ROLE, CONTENT])),
        ("assistant", Closed(&[ROLE, CONTENT])),
        (
            "system",
            Closed(&[
                ROLE,
                CONTENT,
                optional("output_config", Any).needs(BETA),
                optional("clear_at", Any).needs(BETA),
            ]),
        ),
    ],
    ..BY_TYPE
};

const ROLE: Member = optional("role", Any);
const CONTENT: Member = required("content", Either(&[Text, List(&Shape::Tagged(&CONTENT_BLOCK))]));

const CONTENT_BLOCK: Tagged = Tagged {
    cases: &[
        ("text", TEXT),
        ("image", Any),
        ("document", Any),
        ("search_result", Any),
        // A missing signature has its own refusal, so the table does not require it. Nothing may be
        // added to these two, not even `cache_control`.
        ("thinking", Closed(&[TYPE, required("thinking", Text), optional("signature", Any)])),
        ("redacted_thinking", Closed(&[TYPE, required("data", Text)])),
        (
            "tool_use",
            Open(&[required("input", Object), required("id", Text), required("name", Text)]),
        ),
        ("tool_result", Open(&[required("tool_use_id", Text)])),
        ("server_tool_use", Any),
        ("web_search_tool_result", Any),
        ("web_fetch_tool_result", Any),
        ("code_execution_tool_result", Any),
        ("bash_code_execution_tool_result", Any),
        ("text_editor_code_execution_tool_result", Any),
        ("tool_search_tool_result", Any),
        ("container_upload", Any),
        ("mcp_tool_use", Any),
        ("mcp_tool_result", Any),
        ("mcp_tool_listing", Any),
        ("advisor_tool_result", Any),
        ("compaction", Any),
        ("fallback", Any),
        ("tool_addition", Any),
        ("tool_removal", Any),
    ],
    in_path: true,
    ..BY_TYPE
};

const TEXT: Shape = Open(&[required("text", Pattern("text", |text| !text.trim().is_empty()))]);

/// Refuses a body of the wrong shape.
pub(crate) fn check(
    body: &Map<String, Value>,
    endpoint: Endpoint,
    api_headers: &ApiHeaders,
) -> Result<(), Refusal> {
    let flag = |is_set: bool, flag: Flags| if is_set { flag } else { 0 };
    let flags = flag(endpoint == Endpoint::Messages, MESSAGES)
        | flag(!api_headers.betas.is_empty(), BETA)
        | flag(api_headers.has_binding_controls(), BINDING);
    Checker { flags, null_is_absent: false, unknown_first: true, refuse }.check(body, &BODY)?;
    check_tools(body)?;
    let messages =
        body.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (index, message) in messages.iter().enumerate() {
        check_message(message, index, index + 1 == messages.len(), api_headers)?;
    }
    Ok(())
}

/// Writes a problem as the provider reports it.
fn refuse(path: &[Step<'_>], problem: &Problem<'_>) -> Refusal {
    let at = dotted(path);
    // Refusals of text name the top-level member instead of the path.
    if let [Step::Member(field), .., Step::Tag("text"), Step::Member("text")] = path {
        let problem = match problem {
            Problem::Pattern { found: "", .. } => "be non-empty",
            Problem::Pattern { .. } => "contain non-whitespace text",
            _ => "have a `text` string",
        };
        return Refusal::invalid(format!("{field}: text content blocks must {problem}"));
    }
    Refusal::invalid(match problem {
        Problem::Missing => format!("{at}: Field required"),
        Problem::Unknown => return Refusal::extra(&at),
        Problem::Type { expected: Word(words), .. } => {
            format!("{at}: Input should be {}", choices(words))
        }
        Problem::Type { expected, .. } => {
            format!("{at}: Input should be a valid {}", type_name(expected))
        }
        Problem::Word { words, .. } => format!("{at}: Input should be {}", choices(words)),
        Problem::Pattern { .. } => format!("{at}: String should have at least 1 character"),
        Problem::Range { expected: Integer(min, _), .. } => {
            format!("{at}: Input should be greater than or equal to {min}")
        }
        Problem::Range { .. } => format!("{at}: Input should be a valid number"),
        Problem::Length { found: 0, .. } => format!("{at}: at least one message is required"),
        Problem::Length { max, .. } => format!("{at}: at most {max} messages are allowed"),
        Problem::Tag { tag: "type", known, found } if known.len() > 1 => {
            let known: Vec<String> = known.iter().map(|tag| format!("'{tag}'")).collect();
            format!(
                "{at}: Input tag '{found}' found using 'type' does not match any of the expected tags: {}",
                known.join(", ")
            )
        }
        Problem::Tag { tag, known, .. } => {
            format!("{at}.{tag}: Input should be {}", choices(known))
        }
    })
}

/// `messages.0.content.1.tool_use.id`
fn dotted(path: &[Step<'_>]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Member(name) | Step::Tag(name) => (*name).to_owned(),
        Step::Index(index) => index.to_string(),
    });
    steps.filter(|step| !step.is_empty()).collect::<Vec<_>>().join(".")
}

fn type_name(shape: &Shape) -> &'static str {
    match shape {
        Boolean => "boolean",
        Integer(..) => "integer",
        Text | Pattern(..) | Word(_) => "string",
        List(_) | ListOf(..) => "list",
        // The last alternative is the one that can hold everything.
        Either(shapes) => shapes.last().map_or("value", type_name),
        _ => "dictionary",
    }
}

/// `'a', 'b' or 'c'`
fn choices(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    match quoted.as_slice() {
        [most @ .., last] if !most.is_empty() => format!("{} or {last}", most.join(", ")),
        quoted => quoted.concat(),
    }
}

/// The provider turns the schema into a grammar, which has only closed objects and no bounds.
fn check_schema(schema: &Value) -> Result<(), Refusal> {
    let refuse =
        |what: String| Err(Refusal::invalid(format!("output_config.format.schema: {what}")));
    let Value::Object(members) = schema else {
        return Ok(());
    };
    let kind = members.get("type").and_then(Value::as_str).unwrap_or("any");
    if kind == "object" && members.get("additionalProperties") != Some(&Value::Bool(false)) {
        return refuse(
            "For 'object' type, 'additionalProperties' must be explicitly set to false".to_owned(),
        );
    }
    for bound in ["minimum", "maximum", "multipleOf", "minLength", "maxLength", "maxItems"] {
        if members.contains_key(bound) {
            return refuse(format!("For '{kind}' type, property '{bound}' is not supported"));
        }
    }
    let named = |name: &str| members.get(name).and_then(Value::as_object);
    for schema in [named("properties"), named("$defs")]
        .into_iter()
        .flatten()
        .flat_map(Map::values)
        .chain(members.get("items"))
    {
        check_schema(schema)?;
    }
    Ok(())
}

/// Tool names are unique, and `tool_choice` names one of them.
fn check_tools(body: &Map<String, Value>) -> Result<(), Refusal> {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    let mut names = HashSet::new();
    if !tools.filter_map(|tool| tool["name"].as_str()).all(|name| names.insert(name)) {
        return Err(Refusal::invalid("tools: Tool names must be unique."));
    }
    match body.get("tool_choice") {
        Some(choice) if choice["type"] == "tool" => {
            let name = choice["name"].as_str().unwrap_or_default();
            if names.contains(name) {
                return Ok(());
            }
            Err(Refusal::invalid(format!(
                "tool_choice.tool: Tool '{name}' not found in provided tools"
            )))
        }
        _ => Ok(()),
    }
}

fn check_message(
    message: &Value,
    index: usize,
    last: bool,
    api_headers: &ApiHeaders,
) -> Result<(), Refusal> {
    let role = message["role"].as_str().unwrap_or_default();
    let empty = match &message["content"] {
        Value::Array(blocks) => {
            for (at, block) in blocks.iter().enumerate() {
                check_block(block, role, &format!("messages.{index}.content.{at}"), api_headers)?;
            }
            blocks.is_empty()
        }
        text => text == "",
    };
    if empty && !(last && role == "assistant") {
        return Err(Refusal::invalid(format!(
            "messages.{index}: all messages must have non-empty content except for the optional final assistant message"
        )));
    }
    Ok(())
}

/// Refuses blocks that do not belong in messages of this role.
fn check_block(
    block: &Value,
    role: &str,
    path: &str,
    api_headers: &ApiHeaders,
) -> Result<(), Refusal> {
    let kind = block["type"].as_str().unwrap_or_default();
    let new = api_headers.is_new_version();
    let misplaced = match role {
        "assistant" => matches!(kind, "tool_result" | "image") || kind == "document" && new,
        "system" => !matches!(kind, "text" | "tool_addition" | "tool_removal"),
        _ => matches!(kind, "thinking" | "redacted_thinking" | "tool_use" | "server_tool_use"),
    };
    if misplaced {
        return Err(Refusal::invalid(format!(
            "{path}: `{kind}` blocks are not allowed in `{role}` messages"
        )));
    }
    let cited = block["citations"].as_array().is_some_and(|citations| !citations.is_empty());
    if kind == "text" && role == "user" && new && cited {
        return Err(Refusal::extra(&format!("{path}.text.citations")));
    }
    Ok(())
}
