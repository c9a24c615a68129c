//! What front ends say of the model and of how it should answer. They share these members, in the
//! forms people write them in; no provider has a say in them.

use serde_json::Value;
use throughline_canonical::{
    Effort, Fault, FaultKind, Loss, Request, Show, ThinkingSetting, Tool, ToolChoice,
};

use super::openai_chat::client_request::{
    Said, count, flag, read_effort, read_sampling, read_stop, read_switch, string,
};
use crate::json::Node;

/// Reads what an object says. What it does not say stays as it is, so that a second object may be
/// read over a first one.
pub(super) fn read(
    node: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    if let Some(system) = node.get("system") {
        request.system = read_texts(&system)?;
    }
    if let Some(tools) = node.get("tools") {
        request.tools = read_tools(&tools)?;
    }
    settings(node, request, losses)
}

/// What `settings` reads.
pub(super) const SETTINGS: [&str; 14] = [
    "model",
    "backend",
    "tool_choice",
    "parallel_calls",
    "thinking",
    "reasoning_effort",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "presence_penalty",
    "frequency_penalty",
    "max_tokens",
    "stop",
];

/// Reads who should answer, and how.
pub(super) fn settings(
    node: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    // A front end without a choice of models sends an empty one.
    let said = |name| Ok(string(node, name)?.filter(|text| !text.is_empty()));
    if let Some(model) = said("model")? {
        request.model = model;
    }
    request.backend = said("backend")?.or(request.backend.take());
    if let Some(choice) = node.get("tool_choice") {
        request.tool_choice = Some(read_choice(&choice)?);
    }
    request.parallel_calls = flag(node, "parallel_calls")?.or(request.parallel_calls);
    let thinking = read_thinking(node, losses)?;
    request.thinking.amount = thinking.amount.or(request.thinking.amount);
    request.thinking.show = thinking.show.or(request.thinking.show);
    sample(node, request)?;
    request.max_tokens = count(node, "max_tokens")?.or(request.max_tokens);
    if node.get("stop").is_some() {
        request.stop = read_stop(node)?;
    }
    Ok(())
}

/// Reads how words are to be chosen.
pub(super) fn sample(node: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
    let (said, before) = (read_sampling(node)?, &mut request.sampling);
    before.temperature = said.temperature.or(before.temperature);
    before.top_p = said.top_p.or(before.top_p);
    before.top_k = said.top_k.or(before.top_k);
    before.seed = said.seed.or(before.seed);
    before.presence_penalty = said.presence_penalty.or(before.presence_penalty);
    before.frequency_penalty = said.frequency_penalty.or(before.frequency_penalty);
    Ok(())
}

/// A text, or a list of texts.
pub(super) fn read_texts(node: &Node<'_>) -> Result<Vec<String>, Fault> {
    match node.value() {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(_) => node.elements()?.map(|text| text.text().map(str::to_owned)).collect(),
        _ => Err(node.wrong("a string or a list of strings")),
    }
}

const AMOUNTS: &str =
    "expected `off`, `on`, `adaptive`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`";

/// `thinking` is true or false, a word, so many tokens, or an object; `reasoning_effort` a word.
fn read_thinking(node: &Node<'_>, losses: &mut Vec<Loss>) -> Result<ThinkingSetting, Fault> {
    let mut said = Said::default();
    if let Some(thinking) = node.get("thinking") {
        match thinking.value() {
            Value::String(word) => match word.as_str() {
                "off" | "none" => said.switch = Some(false),
                "on" => said.switch = Some(true),
                "adaptive" | "auto" => said.adaptive = true,
                word => match Effort::read(word) {
                    Some(effort) => said.effort = Some(effort),
                    None => return Err(thinking.refuse(AMOUNTS)),
                },
            },
            Value::Number(_) => said.budget = Some(thinking.count()?),
            Value::Bool(_) => read_switch(&thinking, &mut said, losses)?,
            Value::Object(members) if members.contains_key("type") => {
                read_switch(&thinking, &mut said, losses)?;
                read_effort(&thinking, "effort", &mut said)?;
            }
            // As the vocabulary spells it.
            Value::Object(members) if members.contains_key("amount") => {
                return serde_json::from_value(thinking.value().clone())
                    .map_err(|error| thinking.refuse(&error.to_string()));
            }
            Value::Object(_) => {
                read_effort(&thinking, "effort", &mut said)?;
                said.budget = count(&thinking, "budget")?;
                if let Some(show) = thinking.get("show") {
                    said.show = Some(match show.text()? {
                        "full" => Show::Full,
                        "summary" => Show::Summary,
                        "hidden" => Show::Hidden,
                        _ => return Err(show.refuse("expected `full`, `summary` or `hidden`")),
                    });
                }
            }
            _ => return Err(thinking.wrong("true, false, a word, a number or an object")),
        }
    }
    read_effort(node, "reasoning_effort", &mut said)?;
    Ok(said.setting(losses))
}

/// A list of tools, or an object of them by name.
fn read_tools(tools: &Node<'_>) -> Result<Vec<Tool>, Fault> {
    let Value::Object(by_name) = tools.value() else {
        let list = match tools.value() {
            Value::Array(_) => tools.elements()?,
            _ => return Err(tools.wrong("a list, or an object by name")),
        };
        return list.map(|tool| read_tool(&tool, None)).collect();
    };
    by_name.keys().filter_map(|name| Some(read_tool(&tools.get(name)?, Some(name)))).collect()
}

fn read_tool(tool: &Node<'_>, name: Option<&str>) -> Result<Tool, Fault> {
    tool.object()?;
    // As the vocabulary spells one that only its maker knows.
    if let (Some(value), Some(dialect)) = (tool.get("value"), tool.get("dialect")) {
        return Ok(Tool::Opaque {
            dialect: dialect.text()?.to_owned(),
            value: value.value().clone(),
        });
    }
    if let Some(function) = tool.get("function") {
        return read_tool(&function, name);
    }
    let name = match name {
        Some(name) => name.to_owned(),
        None => {
            let name = tool.need("name")?;
            match name.text()? {
                "" => return Err(name.refuse("is empty")),
                text => text.to_owned(),
            }
        }
    };
    let schema = ["parameters", "inputSchema", "input_schema"];
    let parameters = match schema.iter().find_map(|name| tool.get(name)) {
        Some(schema) => {
            // What the AI SDK wraps a schema in is no part of it.
            let wrapped = schema.get("jsonSchema");
            let schema = wrapped.as_ref().unwrap_or(&schema);
            schema.object()?;
            schema.value().clone()
        }
        None => Value::Null,
    };
    Ok(Tool::Function {
        name,
        description: string(tool, "description")?,
        parameters,
        strict: flag(tool, "strict")?,
    })
}

/// A word, or an object that names a tool.
fn read_choice(choice: &Node<'_>) -> Result<ToolChoice, Fault> {
    let kind = match choice.value() {
        Value::String(_) => None,
        Value::Object(_) => Some(choice.need("type")?),
        _ => return Err(choice.wrong("a string or an object")),
    };
    let word = kind.as_ref().unwrap_or(choice);
    Ok(match word.text()? {
        "auto" => ToolChoice::Auto,
        "none" => ToolChoice::None,
        "required" => ToolChoice::Required,
        "named" | "tool" | "function" if kind.is_some() => {
            // The second is the AI SDK's word.
            let function = choice.get("function");
            let inside = function.as_ref().filter(|function| function.value().is_object());
            let name = match choice.get("toolName") {
                Some(name) => name,
                None => inside.unwrap_or(choice).need("name")?,
            };
            ToolChoice::Named { name: name.text()?.to_owned() }
        }
        _ => {
            return Err(word.refuse(
                "expected `auto`, `none`, `required`, or an object with `type` `named` and a `name`",
            ));
        }
    })
}

/// The result of a call that nobody answered: no model takes one without.
pub(super) fn not_run(losses: &mut Vec<Loss>) -> &'static str {
    omit(losses, "tool_result", "missing");
    "The tool was not run."
}

/// Tells that a call is left out, since it broke off before it was whole.
pub(super) fn unfinished(losses: &mut Vec<Loss>) {
    omit(losses, "tool_call", "unfinished");
}

/// Adds a loss that is not told yet.
pub(super) fn omit(losses: &mut Vec<Loss>, part: &'static str, reason: &'static str) {
    let loss = Loss::of_part(part, reason);
    if !losses.contains(&loss) {
        losses.push(loss);
    }
}

/// The status of a fault, where the dialect has none of its own.
pub(super) fn status(kind: FaultKind) -> u16 {
    match kind {
        FaultKind::Invalid => 400,
        FaultKind::Unauthenticated => 401,
        FaultKind::Forbidden => 403,
        FaultKind::NotFound => 404,
        FaultKind::WrongMethod => 405,
        FaultKind::Conflict => 409,
        FaultKind::TooLarge => 413,
        FaultKind::RateLimited => 429,
        FaultKind::Overloaded => 503,
        FaultKind::Unreachable | FaultKind::ToolCallUnreadable => 502,
        FaultKind::TimedOut => 504,
        FaultKind::Internal => 500,
    }
}
