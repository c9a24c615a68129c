//! Reads a client's request: everything but the messages.

use serde_json::{Map, Value};
use throughline_canonical::{
    CachePlace, Fault, Loss, LossReason, LossSubject, Output, Request, Tool, ToolChoice,
};

use super::{ChatSession, NAME};
use crate::dialects::shared::cache_control::{CACHE_CONTROL, read_breakpoint, without_breakpoint};
use crate::dialects::shared::fields::{count, flag, string};
use crate::dialects::shared::losses::read_logprobs;
use crate::dialects::shared::openai_tools::read_function;
use crate::dialects::shared::sampling::{read_sampling, read_stop};
use crate::dialects::shared::thinking_options::read_thinking;
use crate::dialects::{Accepted, RequestParts};
use crate::json::{Node, read_object};

mod messages;

/// The members that the canonical request has a field for. All others are kept in `extra`.
const KNOWN: &[&str] = &[
    "model",
    "messages",
    "stream",
    "stream_options",
    "max_completion_tokens",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "random_seed",
    "presence_penalty",
    "frequency_penalty",
    "stop",
    "n",
    "tools",
    "tool_choice",
    "functions",
    "function_call",
    "parallel_tool_calls",
    "response_format",
    "user",
    "prompt_cache_key",
    CACHE_CONTROL,
    "reasoning",
    "reasoning_effort",
    "include_reasoning",
    "thinking",
    "enable_thinking",
    "thinking_budget",
    "chat_template_kwargs",
];

/// Reads a request.
pub(super) fn read(parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let root = Node::root(&body);
    let mut losses = Vec::new();
    let mut extra = root.others(KNOWN);
    extra.retain(|_, value| !value.is_null());
    let mut request = Request {
        model: read_model(&root)?,
        stream: flag(&root, "stream")?.unwrap_or_default(),
        max_tokens: read_limit(&root)?,
        sampling: read_sampling(&root)?,
        stop: read_stop(&root)?,
        output: read_output(&root, &mut losses)?,
        thinking: read_thinking(&root, &mut extra, &mut losses)?,
        parallel_calls: flag(&root, "parallel_tool_calls")?,
        user: string(&root, "user")?,
        cache_key: string(&root, "prompt_cache_key")?,
        ..Request::default()
    };
    if let Some(count) = root.get("n")
        && count.count()? != 1
    {
        if count.count()? == 0 {
            return Err(count.refuse("must be at least 1"));
        }
        losses
            .push(Loss::SettingAdapted { setting: LossSubject::N, reason: LossReason::OneAnswer });
    }
    read_logprobs(&mut extra, &mut losses);
    let mut session = ChatSession::default();
    if let Some(options) = root.get("stream_options") {
        options.object()?;
        session.include_usage = flag(&options, "include_usage")?.unwrap_or_default();
    }
    session.legacy_functions = root.get("functions").is_some();
    read_tools(&root, &mut request, &mut extra)?;
    messages::read(&root.need("messages")?, &mut request, &mut losses)?;
    if let Some(time) = read_breakpoint(&root)? {
        request.cache_breakpoints.add(CachePlace::End, time);
    }
    if !extra.is_empty() {
        request.extra.insert(NAME.to_owned(), extra);
    }
    Ok(Accepted { request, losses, left_out: Vec::new(), session: Box::new(session) })
}

fn read_model(root: &Node<'_>) -> Result<String, Fault> {
    let model = root.need("model")?;
    match model.text()? {
        "" => Err(model.refuse("is empty")),
        name => Ok(name.to_owned()),
    }
}

fn read_limit(root: &Node<'_>) -> Result<Option<u64>, Fault> {
    // The new name takes precedence.
    let old = count(root, "max_tokens")?;
    Ok(count(root, "max_completion_tokens")?.or(old))
}

fn read_output(root: &Node<'_>, losses: &mut Vec<Loss>) -> Result<Output, Fault> {
    let Some(format) = root.get("response_format") else {
        return Ok(Output::Text);
    };
    let kind = format.need("type")?;
    match kind.text()? {
        "text" => Ok(Output::Text),
        "json_object" => Ok(Output::Json),
        "json_schema" => {
            let inner = format.need("json_schema")?;
            inner.object()?;
            if inner.get("description").is_some() {
                losses.push(Loss::PartOmitted {
                    part: LossSubject::OutputDescription,
                    reason: LossReason::NoWord,
                });
            }
            let schema = inner.get("schema");
            if let Some(schema) = &schema {
                schema.object()?;
            }
            Ok(Output::Schema {
                name: string(&inner, "name")?,
                schema: schema.map_or_else(|| Value::Object(Map::new()), |it| it.value().clone()),
                strict: flag(&inner, "strict")?,
            })
        }
        _ => Err(kind.refuse("expected `text`, `json_object` or `json_schema`")),
    }
}

fn read_tools(
    root: &Node<'_>,
    request: &mut Request,
    extra: &mut Map<String, Value>,
) -> Result<(), Fault> {
    if let Some(tools) = root.get("tools") {
        for tool in tools.elements()? {
            let kind = tool.need("type")?;
            let mut breakpoint = read_breakpoint(&tool)?;
            let read = match kind.text()? {
                "function" => {
                    let function = tool.need("function")?;
                    breakpoint = breakpoint.or(read_breakpoint(&function)?);
                    read_function(&function)?
                }
                _ => Tool::Opaque {
                    dialect: NAME.to_owned(),
                    value: without_breakpoint(tool.value()),
                },
            };
            if let Some(time) = breakpoint {
                request
                    .cache_breakpoints
                    .add(CachePlace::Tool { index: request.tools.len() }, time);
            }
            request.tools.push(read);
        }
    }
    if let Some(functions) = root.get("functions") {
        for function in functions.elements()? {
            request.tools.push(read_function(&function)?);
        }
        // The legacy form allows one call only.
        request.parallel_calls = Some(false);
    }
    request.tool_choice = match (root.get("tool_choice"), root.get("function_call")) {
        (Some(choice), _) => Some(read_choice(&choice, extra)?),
        (None, Some(choice)) => Some(read_old_choice(&choice)?),
        (None, None) => None,
    };
    Ok(())
}

const CHOICES: &str = "expected `none`, `auto`, `required` or an object";

fn choice_word(node: &Node<'_>) -> Result<ToolChoice, Fault> {
    match node.text()? {
        "none" => Ok(ToolChoice::None),
        "auto" => Ok(ToolChoice::Auto),
        // `any` is Mistral's spelling.
        "required" | "any" => Ok(ToolChoice::Required),
        _ => Err(node.refuse(CHOICES)),
    }
}

fn read_choice(choice: &Node<'_>, extra: &mut Map<String, Value>) -> Result<ToolChoice, Fault> {
    match choice.value() {
        Value::String(_) => return choice_word(choice),
        Value::Object(_) => {}
        _ => return Err(choice.wrong("a string or an object")),
    }
    let kind = choice.need("type")?;
    match kind.text()? {
        "function" => {
            let function = choice.need("function")?;
            function.object()?;
            let name = function.need("name")?.text()?.to_owned();
            Ok(ToolChoice::Named { name })
        }
        // Kept in `extra`; the canonical choice is an approximation.
        "allowed_tools" => {
            let allowed = choice.need("allowed_tools")?;
            allowed.object()?;
            let mode = choice_word(&allowed.need("mode")?)?;
            extra.insert("tool_choice".to_owned(), choice.value().clone());
            Ok(mode)
        }
        "custom" => {
            let custom = choice.need("custom")?;
            custom.object()?;
            custom.need("name")?.text()?;
            extra.insert("tool_choice".to_owned(), choice.value().clone());
            Ok(ToolChoice::Required)
        }
        _ => Err(kind.refuse("expected `function`, `allowed_tools` or `custom`")),
    }
}

fn read_old_choice(choice: &Node<'_>) -> Result<ToolChoice, Fault> {
    match choice.value() {
        Value::String(_) => choice_word(choice),
        Value::Object(_) => Ok(ToolChoice::Named { name: choice.need("name")?.text()?.to_owned() }),
        _ => Err(choice.wrong("a string or an object")),
    }
}
