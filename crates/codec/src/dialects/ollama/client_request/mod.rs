//! Reads a client's request: everything but the messages.

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Block, Effort, Fault, Loss, LossReason, LossSubject, Message, Output, Request, Role,
    ThinkingSetting, Tool,
};

use self::messages::images;
use super::{LATEST, NAME, OllamaSession, PATH_GENERATE};
use crate::dialects::shared::losses::read_logprobs;
use crate::dialects::shared::openai_tools::read_function;
use crate::dialects::{Accepted, RequestParts};
use crate::json::{Node, read_object};

mod messages;

/// The members that the canonical request has a field for. All others are kept in `extra`.
const KNOWN: &[&str] = &["model", "stream", "format", "options", "think"];
/// Members of `/api/chat`.
const CHAT: &[&str] = &["messages", "tools"];
/// Members of `/api/generate`.
const GENERATE: &[&str] = &["prompt", "suffix", "system", "template", "context", "raw", "images"];

/// Reads a request of either path.
pub(super) fn read(parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let root = Node::root(&body);
    let generates = parts.path == PATH_GENERATE;
    let own = if generates { GENERATE } else { CHAT };
    let mut extra = root.others(&[KNOWN, own].concat());
    extra.retain(|_, value| !value.is_null());
    let mut losses = Vec::new();
    read_logprobs(&mut extra, &mut losses);
    let (model, tagged_model) = read_model(&root)?;
    let mut request = Request {
        model,
        stream: flag(&root, "stream")?.unwrap_or(true),
        output: read_output(&root)?,
        thinking: read_thinking(&root)?,
        ..Request::default()
    };
    read_options(&root, &mut request, &mut extra)?;
    let silent = if generates {
        read_question(&root, &mut request, &mut losses)?
    } else {
        read_tools(&root, &mut request)?;
        messages::read(&root, &mut request, &mut losses)?
    };
    let end = silent.then(|| if unloads(&extra) { "unload" } else { "load" });
    if !extra.is_empty() {
        request.extra.insert(NAME.to_owned(), extra);
    }
    let session = Box::new(OllamaSession { generates, tagged_model, end });
    Ok(Accepted { request, losses, left_out: Vec::new(), session })
}

/// Reads the model without the default tag that clients append, and the name with it.
fn read_model(root: &Node<'_>) -> Result<(String, Option<String>), Fault> {
    let model = string(root, "model")?.unwrap_or_default();
    Ok(match model.strip_suffix(LATEST) {
        Some(name) if !name.is_empty() => (name.to_owned(), Some(model)),
        _ => (model, None),
    })
}

pub(super) fn string(node: &Node<'_>, name: &str) -> Result<Option<String>, Fault> {
    let member = node.get(name);
    member.map(|member| member.text().map(str::to_owned)).transpose()
}

fn flag(node: &Node<'_>, name: &str) -> Result<Option<bool>, Fault> {
    node.get(name).map(|member| member.flag()).transpose()
}

fn read_output(root: &Node<'_>) -> Result<Output, Fault> {
    let Some(format) = root.get("format") else {
        return Ok(Output::Text);
    };
    match format.value() {
        Value::String(word) if word.is_empty() => Ok(Output::Text),
        Value::String(word) if word == "json" => Ok(Output::Json),
        Value::Object(_) => {
            Ok(Output::Schema { name: None, schema: format.value().clone(), strict: None })
        }
        _ => Err(format.refuse("expected `json` or a JSON Schema")),
    }
}

/// Reads `think`. Clients know the error text of the original server.
fn read_thinking(root: &Node<'_>) -> Result<ThinkingSetting, Fault> {
    let Some(think) = root.get("think") else {
        return Ok(ThinkingSetting::default());
    };
    let amount = match think.value() {
        Value::Bool(true) => Amount::On,
        Value::Bool(false) => Amount::Off,
        Value::String(word) => match Effort::read(word) {
            Some(effort) if super::LEVELS.contains(&effort) && effort.word() == word => {
                Amount::Effort { effort }
            }
            _ => {
                return Err(Fault::invalid(format!(
                    "invalid think value: {think} (must be \"high\", \"medium\", \"low\", \"max\", true, or \
                     false)",
                    think = think.value()
                )));
            }
        },
        _ => return Err(think.wrong("true, false, or one of `low`, `medium`, `high`, `max`")),
    };
    Ok(ThinkingSetting { amount: Some(amount), show: None })
}

/// Reads the known options and keeps the rest.
fn read_options(
    root: &Node<'_>,
    request: &mut Request,
    extra: &mut Map<String, Value>,
) -> Result<(), Fault> {
    let Some(options) = root.get("options") else {
        return Ok(());
    };
    options.object()?;
    let number = |name: &str| -> Result<Option<f64>, Fault> {
        options.get(name).map(|member| member.number()).transpose()
    };
    let whole = |name: &str| -> Result<Option<i64>, Fault> {
        let Some(member) = options.get(name) else {
            return Ok(None);
        };
        let value = member.value();
        // Some clients write integers with a fraction of zero.
        let value = value.as_i64().or_else(|| {
            let value = value.as_f64()?;
            (value.fract() == 0.0 && value.abs() < 2f64.powi(53)).then_some(value as i64)
        });
        value.map(Some).ok_or_else(|| member.wrong("a whole number"))
    };
    let sampling = &mut request.sampling;
    sampling.temperature = number("temperature")?;
    sampling.top_p = number("top_p")?;
    sampling.top_k = whole("top_k")?.and_then(|count| u64::try_from(count).ok());
    sampling.seed = whole("seed")?;
    sampling.presence_penalty = number("presence_penalty")?;
    sampling.frequency_penalty = number("frequency_penalty")?;
    // Zero and negative numbers mean no limit.
    request.max_tokens = whole("num_predict")?
        .and_then(|limit| u64::try_from(limit).ok())
        .filter(|limit| *limit > 0);
    if let Some(stop) = options.get("stop") {
        request.stop = match stop.value() {
            Value::String(text) => vec![text.clone()],
            Value::Array(_) => stop
                .elements()?
                .map(|element| element.text().map(str::to_owned))
                .collect::<Result<_, _>>()?,
            _ => return Err(stop.wrong("a list of strings")),
        };
    }
    let mut rest = options.others(super::OPTIONS);
    rest.retain(|_, value| !value.is_null());
    if !rest.is_empty() {
        extra.insert("options".to_owned(), rest.into());
    }
    Ok(())
}

fn read_tools(root: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
    let Some(tools) = root.get("tools") else {
        return Ok(());
    };
    for tool in tools.elements()? {
        tool.object()?;
        let kind = tool.get("type");
        request.tools.push(match kind.as_ref().map(Node::text) {
            None | Some(Ok("function")) => read_function(&tool.need("function")?)?,
            Some(Ok(_)) => Tool::Opaque { dialect: NAME.to_owned(), value: tool.value().clone() },
            Some(Err(fault)) => return Err(fault),
        });
    }
    Ok(())
}

/// Reads a `/api/generate` request. Returns whether it asks nothing.
fn read_question(
    root: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<bool, Fault> {
    if let Some(suffix) = root.get("suffix")
        && !suffix.text()?.is_empty()
    {
        // Without the suffix the model would answer another question.
        return Err(suffix.refuse("text between a beginning and an end is not written here"));
    }
    let system = string(root, "system")?;
    request.system.extend(system.filter(|text| !text.is_empty()));
    let prompt = string(root, "prompt")?.unwrap_or_default();
    let mut content = Vec::new();
    if !prompt.is_empty() {
        content.push(Block::text(prompt));
    }
    images(root, &mut content)?;
    let mut omit = |part: LossSubject, is_set: bool| {
        if is_set {
            losses.push(Loss::of_part(part, LossReason::NoPlace));
        }
    };
    // The context of the original server consists of tokens of its own model.
    let context = root.get("context");
    if let Some(context) = &context {
        let kept = context.elements()?.next().is_some();
        omit(LossSubject::Context, kept);
    }
    omit(LossSubject::Template, string(root, "template")?.is_some_and(|text| !text.is_empty()));
    omit(LossSubject::Raw, flag(root, "raw")? == Some(true));
    let silent = content.is_empty();
    if !silent {
        request.messages.push(Message::new(Role::User, content));
    }
    Ok(silent)
}

/// Whether the request unloads the model.
fn unloads(extra: &Map<String, Value>) -> bool {
    match extra.get("keep_alive") {
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => matches!(text.as_str(), "0" | "0s" | "0m" | "0h"),
        _ => false,
    }
}
