//! What a client asks, read into the canonical vocabulary: everything but the messages.

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Effort, Fault, Loss, Lossy, Output, Request, Sampling, Show, ThinkingSetting, Tool,
    ToolChoice,
};

use super::{NAME, client_messages, ours};
use crate::json::{Node, read_object};

/// Members that have a word in the vocabulary. All others are kept as they are.
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
    "reasoning",
    "reasoning_effort",
    "include_reasoning",
    "thinking",
    "enable_thinking",
    "thinking_budget",
    "chat_template_kwargs",
    // Ours to set, never the client's.
    ours::REASONING_FIELDS,
    ours::LEGACY_FUNCTIONS,
];

/// Reads a request.
pub(super) fn read(body: &[u8]) -> Result<Lossy<Request>, Fault> {
    let body = read_object(body)?;
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
        losses.push(Loss::SettingAdapted { setting: "n", reason: "one_answer" });
    }
    if let Some(options) = root.get(ours::STREAM_OPTIONS) {
        options.object()?;
        flag(&options, "include_usage")?;
        extra.insert(ours::STREAM_OPTIONS.to_owned(), options.value().clone());
    }
    read_tools(&root, &mut request, &mut extra)?;
    client_messages::read(&root.need("messages")?, &mut request, &mut losses)?;
    if !extra.is_empty() {
        request.extra.insert(NAME.to_owned(), extra);
    }
    Ok(Lossy { value: request, losses })
}

fn read_model(root: &Node<'_>) -> Result<String, Fault> {
    let model = root.need("model")?;
    match model.text()? {
        "" => Err(model.refuse("is empty")),
        name => Ok(name.to_owned()),
    }
}

pub(in crate::dialects) fn string(node: &Node<'_>, name: &str) -> Result<Option<String>, Fault> {
    let member = node.get(name);
    member.map(|member| member.text().map(str::to_owned)).transpose()
}

pub(in crate::dialects) fn flag(node: &Node<'_>, name: &str) -> Result<Option<bool>, Fault> {
    node.get(name).map(|member| member.flag()).transpose()
}

pub(in crate::dialects) fn count(node: &Node<'_>, name: &str) -> Result<Option<u64>, Fault> {
    node.get(name).map(|member| member.count()).transpose()
}

fn read_limit(root: &Node<'_>) -> Result<Option<u64>, Fault> {
    // The new name counts, where both are said.
    let old = count(root, "max_tokens")?;
    Ok(count(root, "max_completion_tokens")?.or(old))
}

pub(in crate::dialects) fn read_sampling(root: &Node<'_>) -> Result<Sampling, Fault> {
    let number = |name: &str| -> Result<Option<f64>, Fault> {
        root.get(name).map(|member| member.number()).transpose()
    };
    let seed = |name: &str| -> Result<Option<i64>, Fault> {
        let Some(member) = root.get(name) else {
            return Ok(None);
        };
        let whole = member.value().as_i64();
        whole.map(Some).ok_or_else(|| member.wrong("a whole number"))
    };
    Ok(Sampling {
        temperature: number("temperature")?,
        top_p: number("top_p")?,
        top_k: count(root, "top_k")?,
        seed: seed("seed")?.or(seed("random_seed")?),
        presence_penalty: number("presence_penalty")?,
        frequency_penalty: number("frequency_penalty")?,
    })
}

pub(in crate::dialects) fn read_stop(root: &Node<'_>) -> Result<Vec<String>, Fault> {
    let Some(stop) = root.get("stop") else {
        return Ok(Vec::new());
    };
    match stop.value() {
        Value::String(text) => Ok(vec![text.clone()]),
        Value::Array(_) => {
            stop.elements()?.map(|element| element.text().map(str::to_owned)).collect()
        }
        _ => Err(stop.wrong("a string or a list of strings")),
    }
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
                    part: "output.description".into(),
                    reason: "no_word",
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
            request.tools.push(match kind.text()? {
                "function" => read_function(&tool.need("function")?)?,
                _ => Tool::Opaque { dialect: NAME.to_owned(), value: tool.value().clone() },
            });
        }
    }
    if let Some(functions) = root.get("functions") {
        for function in functions.elements()? {
            request.tools.push(read_function(&function)?);
        }
        // The old form has room for one call only.
        request.parallel_calls = Some(false);
        extra.insert(ours::LEGACY_FUNCTIONS.to_owned(), true.into());
    }
    request.tool_choice = match (root.get("tool_choice"), root.get("function_call")) {
        (Some(choice), _) => Some(read_choice(&choice, extra)?),
        (None, Some(choice)) => Some(read_old_choice(&choice)?),
        (None, None) => None,
    };
    Ok(())
}

/// A function a model may call.
pub(in crate::dialects) fn read_function(function: &Node<'_>) -> Result<Tool, Fault> {
    function.object()?;
    let name = function.need("name")?;
    let parameters = function.get("parameters");
    if let Some(parameters) = &parameters {
        parameters.object()?;
    }
    Ok(Tool::Function {
        name: match name.text()? {
            "" => return Err(name.refuse("is empty")),
            text => text.to_owned(),
        },
        description: string(function, "description")?,
        parameters: parameters.map_or(Value::Null, |parameters| parameters.value().clone()),
        strict: flag(function, "strict")?,
    })
}

const CHOICES: &str = "expected `none`, `auto`, `required` or an object";

fn choice_word(node: &Node<'_>) -> Result<ToolChoice, Fault> {
    match node.text()? {
        "none" => Ok(ToolChoice::None),
        "auto" => Ok(ToolChoice::Auto),
        // Mistral's word.
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
        // What the vocabulary has no word for is kept, and told as nearly as it can be.
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

/// What a client says of thinking, gathered from all the places it may stand in.
#[derive(Default)]
pub(in crate::dialects) struct Said {
    pub(in crate::dialects) switch: Option<bool>,
    pub(in crate::dialects) adaptive: bool,
    pub(in crate::dialects) effort: Option<Effort>,
    pub(in crate::dialects) budget: Option<u64>,
    pub(in crate::dialects) show: Option<Show>,
}

/// Of several places for one thing, `reasoning` comes before `thinking`, and both before the plain
/// members.
pub(in crate::dialects) fn read_thinking(
    root: &Node<'_>,
    extra: &mut Map<String, Value>,
    losses: &mut Vec<Loss>,
) -> Result<ThinkingSetting, Fault> {
    let mut said = Said::default();
    if let Some(object) = root.get("reasoning") {
        object.object()?;
        read_effort(&object, "effort", &mut said)?;
        said.budget = count(&object, "max_tokens")?;
        said.switch = said.switch.or(flag(&object, "enabled")?);
        if let Some(summary) = object.get("summary") {
            said.show = match summary.text()? {
                "none" => Some(Show::Hidden),
                _ => Some(Show::Summary),
            };
        }
        if flag(&object, "exclude")? == Some(true) {
            said.show = Some(Show::Hidden);
        }
    }
    if let Some(thinking) = root.get("thinking") {
        read_switch(&thinking, &mut said, losses)?;
    }
    if let Some(enable) = flag(root, "enable_thinking")? {
        said.switch = said.switch.or(Some(enable));
    }
    said.budget = said.budget.or(count(root, "thinking_budget")?);
    read_effort(root, "reasoning_effort", &mut said)?;
    if flag(root, "include_reasoning")? == Some(false) {
        said.show = Some(Show::Hidden);
    }
    if let Some(template) = root.get("chat_template_kwargs") {
        let mut rest = template.object()?.clone();
        for name in ["enable_thinking", "thinking"] {
            // Templates take these two as flags; anything else there is the template's own.
            if let Some(Value::Bool(value)) = rest.get(name) {
                said.switch = said.switch.or(Some(*value));
                rest.shift_remove(name);
            }
        }
        if !rest.is_empty() {
            extra.insert("chat_template_kwargs".to_owned(), Value::Object(rest));
        }
    }
    Ok(said.setting(losses))
}

impl Said {
    /// Off wins; then a budget, then an effort, then a plain "on".
    pub(in crate::dialects) fn setting(self, losses: &mut Vec<Loss>) -> ThinkingSetting {
        if self.budget.is_some() && self.effort.is_some() && self.switch != Some(false) {
            losses.push(Loss::SettingAdapted { setting: "thinking", reason: "budget" });
        }
        let amount = match self {
            Self { switch: Some(false), .. } | Self { budget: Some(0), .. } => Some(Amount::Off),
            Self { budget: Some(tokens), .. } => Some(Amount::Budget { tokens }),
            Self { adaptive: true, effort, .. } => Some(Amount::Adaptive { effort }),
            Self { effort: Some(effort), .. } => Some(Amount::Effort { effort }),
            Self { switch: Some(true), .. } => Some(Amount::On),
            _ => None,
        };
        ThinkingSetting { amount, show: self.show }
    }
}

pub(in crate::dialects) fn read_effort(
    node: &Node<'_>,
    name: &str,
    said: &mut Said,
) -> Result<(), Fault> {
    let Some(effort) = node.get(name) else {
        return Ok(());
    };
    match effort.text()? {
        "none" => said.switch = said.switch.or(Some(false)),
        // Groq's word.
        "default" => said.switch = said.switch.or(Some(true)),
        word => match Effort::read(word) {
            Some(read) => said.effort = said.effort.or(Some(read)),
            None => {
                return Err(effort.refuse(
                    "expected `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
                ));
            }
        },
    }
    Ok(())
}

pub(in crate::dialects) fn read_switch(
    thinking: &Node<'_>,
    said: &mut Said,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    let on = match thinking.value() {
        Value::Bool(on) => Some(*on),
        Value::Object(_) => {
            let kind = thinking.need("type")?;
            said.budget = said.budget.or(count(thinking, "budget_tokens")?);
            if let Some(display) = thinking.get("display") {
                said.show = match display.text()? {
                    "omitted" => Some(Show::Hidden),
                    "summarized" => Some(Show::Summary),
                    _ => said.show,
                };
            }
            if thinking.get("clear_thinking").is_some() {
                losses.push(Loss::PartOmitted {
                    part: "thinking.clear_thinking".into(),
                    reason: "no_word",
                });
            }
            match kind.text()? {
                "enabled" => Some(true),
                "disabled" => Some(false),
                "adaptive" | "auto" => {
                    said.adaptive = true;
                    None
                }
                _ => return Err(kind.refuse("expected `enabled`, `disabled` or `adaptive`")),
            }
        }
        _ => return Err(thinking.wrong("true, false or an object")),
    };
    said.switch = said.switch.or(on);
    Ok(())
}
