//! A request in the canonical vocabulary, as the `ndjson` and `events` dialects send it. It reads
//! every canonical request, and shorter forms too.

use serde_json::{Map, Value};
use throughline_canonical::{
    Block, Fault, Loss, LossReason, LossSubject, Lossy, Message, Output, Request, Role,
};

use super::fields::{flag, string};
use super::frontend_settings;
use super::losses::omit;
use crate::dialects::RequestParts;
use crate::json::{Node, read_object};

mod blocks;

/// Members read here, in addition to the shared front-end settings.
const OWN: &[&str] = &[
    "system",
    "messages",
    "tools",
    "sampling",
    "output",
    "stream",
    "user",
    "cache_key",
    "cache_breakpoints",
    "thread",
    "extra",
];

/// Members that `extra` must not contain, because they are validated at the top level.
const SAID_OUTSIDE: &[&str] = &[
    "model",
    "messages",
    "input",
    "contents",
    "system",
    "instructions",
    "systemInstruction",
    "system_instruction",
    "tools",
    "stream",
];

/// Reads a request.
pub(crate) fn read(parts: &RequestParts<'_>) -> Result<Lossy<Request>, Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let root = Node::root(&body);
    let mut losses = Vec::new();
    let mut request = Request {
        stream: flag(&root, "stream")?.unwrap_or(true),
        user: string(&root, "user")?,
        cache_key: string(&root, "cache_key")?,
        thread: string(&root, "thread")?,
        ..Request::default()
    };
    frontend_settings::read(&root, &mut request, &mut losses)?;
    if let Some(sampling) = root.get("sampling") {
        sampling.object()?;
        frontend_settings::sample(&sampling, &mut request)?;
    }
    if let Some(breakpoints) = root.get("cache_breakpoints") {
        request.cache_breakpoints = serde_json::from_value(breakpoints.value().clone())
            .map_err(|error| breakpoints.refuse(&error.to_string()))?;
    }
    if let Some(output) = root.get("output") {
        request.output = read_output(&output)?;
    }
    if let Some(extra) = root.get("extra") {
        read_extra(&extra, &mut request)?;
    }
    let messages = root.need("messages")?;
    for message in messages.elements()? {
        read_message(&message, &mut request, &mut losses)?;
    }
    if request.messages.is_empty() {
        return Err(messages.refuse("is empty"));
    }
    let known = [OWN, &frontend_settings::SETTINGS[..]].concat();
    if !root.others(&known).is_empty() {
        omit(&mut losses, LossSubject::Member, LossReason::NoWord);
    }
    Ok(Lossy { value: request, losses })
}

fn read_message(
    message: &Node<'_>,
    request: &mut Request,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    message.object()?;
    let role = message.need("role")?;
    let content = match message.get("contentBlocks") {
        // A stored message: its `content` is derived from these blocks.
        Some(content) => content,
        None => message.need("content")?,
    };
    let content = blocks::read(&content, losses)?;
    let role = match role.text()? {
        "system" if request.messages.is_empty() => {
            request.system.extend(content.into_iter().filter_map(text));
            return Ok(());
        }
        "system" => Role::System,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        _ => return Err(role.refuse("expected `system`, `user` or `assistant`")),
    };
    request.messages.push(Message::new(role, content));
    Ok(())
}

fn text(block: Block) -> Option<String> {
    match block {
        Block::Text { text, .. } => Some(text),
        _ => None,
    }
}

fn read_output(output: &Node<'_>) -> Result<Output, Fault> {
    let kind = match output.value() {
        Value::String(_) => None,
        Value::Object(_) => Some(output.need("type")?),
        _ => return Err(output.wrong("a string or an object")),
    };
    let word = kind.as_ref().unwrap_or(output);
    match word.text()? {
        "text" => Ok(Output::Text),
        "json" => Ok(Output::Json),
        "schema" if kind.is_some() => {
            let schema = output.need("schema")?;
            schema.object()?;
            Ok(Output::Schema {
                name: string(output, "name")?,
                schema: schema.value().clone(),
                strict: flag(output, "strict")?,
            })
        }
        _ => Err(word.refuse("expected `text`, `json`, or an object with `type` `schema`")),
    }
}

/// Reads provider-specific members, grouped by dialect.
fn read_extra(extra: &Node<'_>, request: &mut Request) -> Result<(), Fault> {
    for dialect in extra.object()?.keys() {
        let Some(members) = extra.get(dialect) else {
            continue;
        };
        let all: &Map<String, Value> = members.object()?;
        for name in all.keys() {
            if let (true, Some(member)) = (SAID_OUTSIDE.contains(&name.as_str()), members.get(name))
            {
                return Err(member.refuse("is said outside of `extra`"));
            }
        }
        request.extra.insert(dialect.clone(), all.clone());
    }
    Ok(())
}
