//! Settings that all front-end dialects share, in the spellings that people use. They are ours, not
//! any provider's.

use serde_json::Value;
use throughline_canonical::{
    Effort, Fault, Loss, Request, Show, ThinkingSetting, Tool, ToolChoice,
};

use super::fields::{count, flag, string};
use super::sampling::{read_sampling, read_stop};
use super::thinking_options::{ThinkingOptions, read_effort, read_switch};
use crate::json::Node;

/// Reads settings, system texts and tools. Absent members keep their value, so a second object can
/// override a first.
pub(crate) fn read(
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

/// The members that [`settings`] reads.
pub(crate) const SETTINGS: [&str; 14] = [
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

/// Reads the model, the backend and the generation settings.
pub(crate) fn settings(
    node: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    // A front end without a model picker sends an empty string.
    let filled = |name| Ok(string(node, name)?.filter(|text| !text.is_empty()));
    if let Some(model) = filled("model")? {
        request.model = model;
    }
    request.backend = filled("backend")?.or(request.backend.take());
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

/// Reads sampling settings.
pub(crate) fn sample(node: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
    let (new, before) = (read_sampling(node)?, &mut request.sampling);
    before.temperature = new.temperature.or(before.temperature);
    before.top_p = new.top_p.or(before.top_p);
    before.top_k = new.top_k.or(before.top_k);
    before.seed = new.seed.or(before.seed);
    before.presence_penalty = new.presence_penalty.or(before.presence_penalty);
    before.frequency_penalty = new.frequency_penalty.or(before.frequency_penalty);
    Ok(())
}

/// Reads a string or a list of strings.
pub(crate) fn read_texts(node: &Node<'_>) -> Result<Vec<String>, Fault> {
    match node.value() {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(_) => node.elements()?.map(|text| text.text().map(str::to_owned)).collect(),
        _ => Err(node.wrong("a string or a list of strings")),
    }
}

const AMOUNTS: &str =
    "expected `off`, `on`, `adaptive`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`";

/// Reads `thinking` (a boolean, a word, a number of tokens or an object) and `reasoning_effort` (a
/// word).
fn read_thinking(node: &Node<'_>, losses: &mut Vec<Loss>) -> Result<ThinkingSetting, Fault> {
    let mut options = ThinkingOptions::default();
    if let Some(thinking) = node.get("thinking") {
        match thinking.value() {
            Value::String(word) => match word.as_str() {
                "off" | "none" => options.switch = Some(false),
                "on" => options.switch = Some(true),
                "adaptive" | "auto" => options.adaptive = true,
                word => match Effort::read(word) {
                    Some(effort) => options.effort = Some(effort),
                    None => return Err(thinking.refuse(AMOUNTS)),
                },
            },
            Value::Number(_) => options.budget = Some(thinking.count()?),
            Value::Bool(_) => read_switch(&thinking, &mut options, losses)?,
            Value::Object(members) if members.contains_key("type") => {
                read_switch(&thinking, &mut options, losses)?;
                read_effort(&thinking, "effort", &mut options)?;
            }
            // The canonical spelling.
            Value::Object(members) if members.contains_key("amount") => {
                return serde_json::from_value(thinking.value().clone())
                    .map_err(|error| thinking.refuse(&error.to_string()));
            }
            Value::Object(_) => {
                read_effort(&thinking, "effort", &mut options)?;
                options.budget = count(&thinking, "budget")?;
                if let Some(show) = thinking.get("show") {
                    options.show = Some(match show.text()? {
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
    read_effort(node, "reasoning_effort", &mut options)?;
    Ok(options.resolve(losses))
}

/// Reads a list of tools, or an object with tools by name.
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
    // The canonical spelling of a tool that only its provider knows.
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
            // The AI SDK wraps schemas in `jsonSchema`.
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

/// Reads a word, or an object that names a tool.
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
            // `toolName` is the AI SDK's spelling.
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
