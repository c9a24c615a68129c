//! Reads a client's request: settings and tools.
//!
//! Members without a canonical field are kept in `extra`; those of `reasoning` and `text` under the
//! same names.

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Effort, Fault, LossReason, LossSubject, Lossy, Output, Request, Sampling, Show,
    ThinkingSetting, Tool, ToolChoice,
};

use self::items::Conversation;
use super::{NAME, RepeatedMembers, state};
use crate::dialects::RequestParts;
use crate::dialects::shared::losses::{Losses, omit_logprobs, read_logprobs};
use crate::json::{Node, read_object};

pub(super) mod items;

/// The members that the canonical request has a field for. Null counts as absent.
const KNOWN: &[&str] = &[
    "model",
    "input",
    "instructions",
    "stream",
    "reasoning",
    "text",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "max_output_tokens",
    "temperature",
    "top_p",
    "prompt_cache_key",
    "user",
    "safety_identifier",
    // We ask providers for encrypted reasoning, and never store anything there.
    "include",
    "store",
    "stream_options",
];

/// The `include` value that asks for the probabilities of tokens.
const LOGPROBS: &str = "message.output_text.logprobs";

/// Reads a request, and what only its response repeats.
pub(super) fn read(parts: &RequestParts<'_>) -> Result<(Lossy<Request>, RepeatedMembers), Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let request = read_value(&body, 0)?;
    Ok((request, body.as_object().map(RepeatedMembers::of).unwrap_or_default()))
}

/// Reads a request that was parsed already. The client did not send the first `history` items.
pub(super) fn read_value(body: &Value, history: usize) -> Result<Lossy<Request>, Fault> {
    let root = Node::root(body);
    refuse_state(&root)?;
    check_others(&root)?;

    let mut losses = Losses::default();
    let mut extra = root.others(KNOWN);
    extra.retain(|_, value| !value.is_null());
    read_logprobs(&mut extra, &mut losses.0);
    let included = root.get("include").map(|include| include.value().as_array());
    if included.flatten().is_some_and(|names| names.iter().any(|name| name == LOGPROBS)) {
        omit_logprobs(&mut losses.0);
    }

    let mut conversation = Conversation::new(&mut losses);
    if let Some(instructions) = root.get("instructions") {
        conversation.instruct(instructions.text()?);
    }
    // The earlier conversation may be stored elsewhere.
    let continued = root.get("previous_response_id").is_some() || root.get("prompt").is_some();
    match root.get("input") {
        Some(input) => {
            let read = conversation.read(&input);
            read.map_err(|fault| state::with_client_index(fault, history))?;
        }
        None if continued => {}
        None => conversation.read(&root.need("input")?)?,
    }
    let (system, messages, cache_breakpoints) = conversation.finish();

    let mut request = Request {
        model: root.need("model")?.text()?.to_owned(),
        system,
        messages,
        thinking: read_reasoning(&root, &mut extra)?,
        sampling: Sampling {
            temperature: optional(root.get("temperature"), Node::number)?,
            top_p: optional(root.get("top_p"), Node::number)?,
            presence_penalty: optional(root.get("presence_penalty"), Node::number)?,
            frequency_penalty: optional(root.get("frequency_penalty"), Node::number)?,
            ..Sampling::default()
        },
        max_tokens: optional(root.get("max_output_tokens"), Node::count)?,
        parallel_calls: optional(root.get("parallel_tool_calls"), Node::flag)?,
        output: read_text(&root, &mut extra)?,
        stream: optional(root.get("stream"), Node::flag)?.unwrap_or_default(),
        user: optional(root.get("user"), Node::text)?.map(str::to_owned),
        cache_key: optional(root.get("prompt_cache_key"), Node::text)?.map(str::to_owned),
        cache_breakpoints,
        ..Request::default()
    };
    // The newer name of `user`; the vocabulary has one field for both.
    if let Some(identifier) = root.get("safety_identifier") {
        let text = identifier.text()?;
        match request.user {
            None => request.user = Some(text.to_owned()),
            Some(_) => {
                extra.insert("safety_identifier".to_owned(), text.into());
            }
        }
    }
    if let Some(tools) = root.get("tools") {
        for tool in tools.elements()? {
            request.tools.push(read_tool(&tool, &mut losses)?);
        }
    }
    if let Some(choice) = root.get("tool_choice") {
        request.tool_choice = read_tool_choice(&choice, &mut extra)?;
    }
    if !extra.is_empty() {
        request.extra.insert(NAME.to_owned(), extra);
    }
    Ok(Lossy { value: request, losses: losses.0 })
}

/// Reads an optional member.
fn optional<'a, T>(
    node: Option<Node<'a>>,
    read: impl FnOnce(&Node<'a>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    node.as_ref().map(read).transpose()
}

/// Rejects members that need stored conversations: without them the answer would be wrong.
fn refuse_state(root: &Node<'_>) -> Result<(), Fault> {
    if let Some(conversation) = root.get("conversation") {
        return Err(conversation
            .refuse("conversations are not stored here; send the whole conversation as `input`"));
    }
    if let Some(background) = root.get("background")
        && background.flag()?
    {
        return Err(background.refuse("is not supported here; use `stream` instead"));
    }
    Ok(())
}

/// Validates the types of members that are only kept.
fn check_others(root: &Node<'_>) -> Result<(), Fault> {
    optional(root.get("store"), Node::flag)?;
    for key in ["max_tool_calls", "top_logprobs"] {
        optional(root.get(key), Node::count)?;
    }
    for key in ["previous_response_id", "truncation", "service_tier", "prompt_cache_retention"] {
        optional(root.get(key), Node::text)?;
    }
    for key in ["metadata", "stream_options", "prompt", "prompt_cache_options"] {
        optional(root.get(key), |node| node.object().map(|_| ()))?;
    }
    if let Some(include) = root.get("include") {
        for name in include.elements()? {
            name.text()?;
        }
    }
    Ok(())
}

fn read_reasoning(
    root: &Node<'_>,
    extra: &mut Map<String, Value>,
) -> Result<ThinkingSetting, Fault> {
    let Some(reasoning) = root.get("reasoning") else {
        return Ok(ThinkingSetting::default());
    };
    reasoning.object()?;
    let mut others = reasoning.others(&["effort", "summary", "generate_summary"]);
    others.retain(|_, value| !value.is_null());
    let amount = match reasoning.get("effort") {
        None => None,
        Some(effort) => Some(match effort.text()? {
            "none" => Amount::Off,
            word => Amount::Effort {
                effort: Effort::read(word)
                    .ok_or_else(|| effort.refuse(&format!("`{word}` is no effort")))?,
            },
        }),
    };
    let summary = reasoning.get("summary");
    let summary = summary.or_else(|| reasoning.get("generate_summary"));
    let show = match summary {
        None => None,
        Some(summary) => Some(match summary.text()? {
            "auto" => Show::Summary,
            "concise" => {
                others.insert("summary".to_owned(), "concise".into());
                Show::Summary
            }
            "detailed" => Show::Full,
            word => return Err(summary.refuse(&format!("`{word}` is no kind of summary"))),
        }),
    };
    if !others.is_empty() {
        extra.insert("reasoning".to_owned(), others.into());
    }
    Ok(ThinkingSetting { amount, show })
}

fn read_text(root: &Node<'_>, extra: &mut Map<String, Value>) -> Result<Output, Fault> {
    let Some(text) = root.get("text") else {
        return Ok(Output::Text);
    };
    text.object()?;
    let mut others = text.others(&["format"]);
    others.retain(|_, value| !value.is_null());
    let mut output = Output::Text;
    if let Some(format) = text.get("format") {
        let kind = format.need("type")?;
        output = match kind.text()? {
            "text" => Output::Text,
            "json_object" => Output::Json,
            "json_schema" => {
                let schema = format.need("schema")?;
                schema.object()?;
                let mut more = format.others(&["type", "name", "schema", "strict"]);
                more.retain(|_, value| !value.is_null());
                if !more.is_empty() {
                    others.insert("format".to_owned(), more.into());
                }
                Output::Schema {
                    name: Some(format.need("name")?.text()?.to_owned()),
                    schema: schema.value().clone(),
                    strict: optional(format.get("strict"), Node::flag)?,
                }
            }
            word => return Err(kind.refuse(&format!("`{word}` is no format of text"))),
        };
    }
    if !others.is_empty() {
        extra.insert("text".to_owned(), others.into());
    }
    Ok(output)
}

fn read_tool(tool: &Node<'_>, losses: &mut Losses) -> Result<Tool, Fault> {
    tool.object()?;
    if tool.need("type")?.text()? != "function" {
        return Ok(Tool::Opaque { dialect: NAME.to_owned(), value: tool.value().clone() });
    }
    let parameters = match tool.get("parameters") {
        None => Value::Null,
        Some(parameters) => {
            parameters.object()?;
            parameters.value().clone()
        }
    };
    let known = ["type", "name", "description", "parameters", "strict"];
    if tool.others(&known).values().any(|value| !value.is_null()) {
        losses.omit(LossSubject::ToolSettings, LossReason::NoWord);
    }
    Ok(Tool::Function {
        name: tool.need("name")?.text()?.to_owned(),
        description: optional(tool.get("description"), Node::text)?.map(str::to_owned),
        parameters,
        strict: optional(tool.get("strict"), Node::flag)?,
    })
}

fn read_tool_choice(
    choice: &Node<'_>,
    extra: &mut Map<String, Value>,
) -> Result<Option<ToolChoice>, Fault> {
    if choice.value().is_string() {
        return read_mode(choice).map(Some);
    }
    if !choice.value().is_object() {
        return Err(choice.wrong("a string or an object"));
    }
    let kind = choice.need("type")?.text()?;
    if kind == "function" {
        let name = choice.need("name")?.text()?.to_owned();
        return Ok(Some(ToolChoice::Named { name }));
    }
    // Allowed tools and choices of provider tools are kept in `extra`; only whether the model must
    // call one is canonical.
    extra.insert("tool_choice".to_owned(), choice.value().clone());
    match (kind, choice.get("mode")) {
        ("allowed_tools", Some(mode)) => read_mode(&mode).map(Some),
        _ => Ok(None),
    }
}

fn read_mode(mode: &Node<'_>) -> Result<ToolChoice, Fault> {
    match mode.text()? {
        "auto" => Ok(ToolChoice::Auto),
        "none" => Ok(ToolChoice::None),
        "required" => Ok(ToolChoice::Required),
        word => Err(mode.refuse(&format!("`{word}` is no choice of tools"))),
    }
}
