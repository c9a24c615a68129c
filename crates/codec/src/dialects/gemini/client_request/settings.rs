//! Reads the settings of a client's request: system texts, tools, sampling, thinking, answer
//! format.

use serde_json::{Map, Value};
use throughline_canonical::{
    Amount, Effort, Fault, Loss, LossReason, LossSubject, Output, Request, Show, Tool, ToolChoice,
};

use super::super::names::{is, member, need, others};
use super::super::{NAME, adapt, omit};
use super::{one_or_many, schema};
use crate::dialects::shared::losses::read_logprobs;
use crate::json::Node;

/// Reads the system texts: a content or a string.
pub(crate) fn read_system(system: &Node<'_>) -> Result<Vec<String>, Fault> {
    if let Value::String(text) = system.value() {
        return Ok(vec![text.clone()]);
    }
    system.object()?;
    let Some(parts) = member(system, "parts") else {
        return Ok(Vec::new());
    };
    let mut texts = Vec::new();
    for part in one_or_many(&parts)? {
        part.object()?;
        texts.push(need(&part, "text")?.text()?.to_owned());
    }
    Ok(texts)
}

/// Reads a group of tools: functions of the client and tools of the provider.
pub(crate) fn read_tool(
    group: &Node<'_>,
    tools: &mut Vec<Tool>,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    for key in group.object()?.keys() {
        let Some(value) = group.get(key) else {
            continue;
        };
        if is(key, "functionDeclarations") {
            for function in one_or_many(&value)? {
                tools.push(read_function(&function, losses)?);
            }
        } else {
            value.object()?;
            let mut tool = Map::new();
            tool.insert(key.clone(), value.value().clone());
            tools.push(Tool::Opaque { dialect: NAME.to_owned(), value: Value::Object(tool) });
        }
    }
    Ok(())
}

fn read_function(function: &Node<'_>, losses: &mut Vec<Loss>) -> Result<Tool, Fault> {
    function.object()?;
    let own = member(function, "parameters");
    let standard = member(function, "parametersJsonSchema");
    let parameters = match (own, standard) {
        (Some(own), Some(_)) => {
            return Err(own.refuse("excludes parametersJsonSchema"));
        }
        (Some(own), None) => {
            own.object()?;
            schema::to_json_schema(own.value())
        }
        (None, Some(standard)) => standard.value().clone(),
        (None, None) => Value::Null,
    };
    const KNOWN: [&str; 4] = ["name", "description", "parameters", "parametersJsonSchema"];
    if !others(function, &KNOWN).is_empty() {
        omit(losses, LossSubject::ToolSettings, LossReason::NoWord);
    }
    let description = match member(function, "description") {
        Some(description) => Some(description.text()?.to_owned()),
        None => None,
    };
    Ok(Tool::Function {
        name: need(function, "name")?.text()?.to_owned(),
        description,
        parameters,
        strict: None,
    })
}

/// Reads the tool choice. Returns the unknown members.
pub(crate) fn read_tool_config(
    config: &Node<'_>,
    request: &mut Request,
) -> Result<Map<String, Value>, Fault> {
    config.object()?;
    let mut rest = others(config, &["functionCallingConfig"]);
    let Some(calling) = member(config, "functionCallingConfig") else {
        return Ok(rest);
    };
    calling.object()?;
    let mut left = others(&calling, &["mode", "allowedFunctionNames"]);
    let mut names = Vec::new();
    if let Some(list) = member(&calling, "allowedFunctionNames") {
        for name in list.elements()? {
            names.push(name.text()?.to_owned());
        }
    }
    let mode = match member(&calling, "mode") {
        Some(mode) => {
            let word = mode.text()?.to_ascii_uppercase();
            match word.as_str() {
                "" | "MODE_UNSPECIFIED" | "AUTO" | "ANY" | "NONE" | "VALIDATED" => word,
                _ => return Err(mode.refuse("expected `AUTO`, `ANY`, `NONE` or `VALIDATED`")),
            }
        }
        None => String::new(),
    };
    request.tool_choice = match mode.as_str() {
        "AUTO" => Some(ToolChoice::Auto),
        "NONE" => Some(ToolChoice::None),
        "ANY" if names.len() == 1 => names.pop().map(|name| ToolChoice::Named { name }),
        "ANY" => Some(ToolChoice::Required),
        "VALIDATED" => {
            left.insert("mode".to_owned(), mode.into());
            None
        }
        _ => None,
    };
    if !names.is_empty() {
        left.insert("allowedFunctionNames".to_owned(), names.into());
    }
    if !left.is_empty() {
        rest.insert("functionCallingConfig".to_owned(), Value::Object(left));
    }
    Ok(rest)
}

/// Reads the generation settings. Returns the unknown members.
pub(crate) fn read_generation(
    config: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<Map<String, Value>, Fault> {
    const KNOWN: [&str; 12] = [
        "temperature",
        "topP",
        "topK",
        "maxOutputTokens",
        "stopSequences",
        "seed",
        "presencePenalty",
        "frequencyPenalty",
        "responseMimeType",
        "responseSchema",
        "responseJsonSchema",
        "thinkingConfig",
    ];
    config.object()?;
    let mut rest = others(config, &KNOWN);
    let number = |name: &str| member(config, name).map(|node| node.number()).transpose();
    let count = |name: &str| member(config, name).map(|node| node.count()).transpose();
    request.sampling.temperature = number("temperature")?;
    request.sampling.top_p = number("topP")?;
    request.sampling.top_k = count("topK")?;
    request.sampling.presence_penalty = number("presencePenalty")?;
    request.sampling.frequency_penalty = number("frequencyPenalty")?;
    request.max_tokens = count("maxOutputTokens")?;
    if let Some(seed) = member(config, "seed") {
        request.sampling.seed = Some(whole(&seed)?);
    }
    if let Some(stop) = member(config, "stopSequences") {
        for text in stop.elements()? {
            request.stop.push(text.text()?.to_owned());
        }
    }
    if let Some(count) = member(config, "candidateCount") {
        rest.retain(|name, _| !is(name, "candidateCount"));
        if count.count()? > 1 {
            adapt(losses, LossSubject::N, LossReason::OneAnswer);
        }
    }
    // Clients write names in either case.
    let spelled: Vec<_> =
        rest.keys().filter(|name| is(name, "responseLogprobs")).cloned().collect();
    for name in spelled {
        if let Some(value) = rest.shift_remove(&name) {
            rest.insert("responseLogprobs".to_owned(), value);
        }
    }
    read_logprobs(&mut rest, losses);
    read_output(config, request, &mut rest)?;
    if let Some(thinking) = member(config, "thinkingConfig") {
        let left = read_thinking(&thinking, request, losses)?;
        if !left.is_empty() {
            rest.insert("thinkingConfig".to_owned(), Value::Object(left));
        }
    }
    Ok(rest)
}

/// Reads an integer, which may be negative.
fn whole(node: &Node<'_>) -> Result<i64, Fault> {
    let read = match node.value() {
        Value::String(text) => text.parse().ok(),
        value => value.as_i64(),
    };
    match read {
        Some(number) => Ok(number),
        // A fraction of zero is an integer too.
        None => i64::try_from(node.count()?).map_err(|_| node.wrong("a whole number")),
    }
}

fn read_output(
    config: &Node<'_>,
    request: &mut Request,
    rest: &mut Map<String, Value>,
) -> Result<(), Fault> {
    let own = member(config, "responseSchema");
    let standard = member(config, "responseJsonSchema");
    let schema = match (own, standard) {
        (Some(own), Some(_)) => return Err(own.refuse("excludes responseJsonSchema")),
        (Some(own), None) => {
            own.object()?;
            Some(schema::to_json_schema(own.value()))
        }
        (None, Some(standard)) => Some(standard.value().clone()),
        (None, None) => None,
    };
    let media_type = match member(config, "responseMimeType") {
        Some(found) => found.text()?,
        None => "",
    };
    match (media_type, schema) {
        ("" | "text/plain", None) => {}
        ("application/json", None) => request.output = Output::Json,
        ("" | "application/json", Some(schema)) => {
            request.output = Output::Schema { name: None, schema, strict: None };
        }
        ("text/plain", Some(_)) => {
            return Err(config.refuse("a schema needs responseMimeType `application/json`"));
        }
        // An enumeration, for example. Only this provider has it.
        (other, schema) => {
            rest.insert("responseMimeType".to_owned(), other.into());
            if let Some(schema) = schema {
                rest.insert("responseJsonSchema".to_owned(), schema);
            }
        }
    }
    Ok(())
}

fn read_thinking(
    config: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<Map<String, Value>, Fault> {
    config.object()?;
    if let Some(include) = member(config, "includeThoughts") {
        request.thinking.show = Some(if include.flag()? { Show::Summary } else { Show::Hidden });
    }
    if let Some(budget) = member(config, "thinkingBudget") {
        request.thinking.amount = Some(match whole(&budget)? {
            -1 => Amount::Adaptive { effort: None },
            0 => Amount::Off,
            tokens => Amount::Budget {
                tokens: u64::try_from(tokens)
                    .map_err(|_| budget.refuse("expected -1 or a number of tokens"))?,
            },
        });
    }
    if let Some(level) = member(config, "thinkingLevel") {
        let word = level.text()?;
        let effort = match Effort::read(word) {
            Some(effort) if effort <= Effort::High => Some(effort),
            _ if word.is_empty() || word.eq_ignore_ascii_case("THINKING_LEVEL_UNSPECIFIED") => None,
            _ => return Err(level.refuse("expected `MINIMAL`, `LOW`, `MEDIUM` or `HIGH`")),
        };
        if let Some(effort) = effort {
            // The provider rejects both together, but a common client sends both.
            if request.thinking.amount.is_some() {
                adapt(losses, LossSubject::Thinking, LossReason::Effort);
            }
            request.thinking.amount = Some(Amount::Effort { effort });
        }
    }
    Ok(others(config, &["includeThoughts", "thinkingBudget", "thinkingLevel"]))
}
