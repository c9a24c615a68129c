//! Reads the input of a run: the conversation, tools and settings.

use serde_json::{Map, Value};
use throughline_canonical::{Fault, Loss, LossReason, LossSubject, Request, Tool};

use self::messages::{Conversation, filled};
use super::run::{ReasoningForm, Run};
use super::{RunSession, interrupts, pinned};
use crate::dialects::shared::fields::string;
use crate::dialects::shared::frontend_settings;
use crate::dialects::shared::thinking_options::read_thinking;
use crate::dialects::{Accepted, RequestParts};
use crate::json::{Node, read_object};

mod content;
mod messages;
mod unanswered;

/// Settings in `forwardedProps` or the body, in addition to the shared front-end settings.
const MORE: [&str; 5] = [
    "snapshots",
    // Other spellings of the amount of thinking.
    "reasoning",
    "enable_thinking",
    "thinking_budget",
    "include_reasoning",
];

/// Members of the body.
const KNOWN: [&str; 10] = [
    "threadId",
    "runId",
    "parentRunId",
    "protocolVersion",
    "state",
    "messages",
    "tools",
    "context",
    "forwardedProps",
    "resume",
];

/// Reads a request.
pub(super) fn read(parts: &RequestParts<'_>) -> Result<Accepted, Fault> {
    let body = read_object(parts.body, parts.max_depth)?;
    let root = Node::root(&body);
    let protocol = string(&root, "protocolVersion")?;
    let modern = protocol.is_some();
    let mut run = Run {
        thread: filled(&root.need("threadId")?)?,
        id: filled(&root.need("runId")?)?,
        parent: string(&root, "parentRunId")?,
        modern,
        reasoning: read_form(parts.query, modern)?,
        state: read_state(&root),
        ..Run::default()
    };
    let mut request =
        Request { stream: true, thread: Some(run.thread.clone()), ..Request::default() };
    let mut conversation = Conversation::default();
    let messages = root.need("messages")?;
    for message in messages.elements()? {
        conversation.read(&message)?;
    }
    read_settings(&root, &mut request, &mut run, &mut conversation.losses)?;
    if let Some(backend) = pinned(parts.path).filter(|backend| !backend.is_empty()) {
        request.backend = Some(backend.to_owned());
    }
    read_context(&root, &mut conversation.system)?;
    read_tools(&root, &mut request, &mut run)?;
    if let Some(resume) = root.get("resume") {
        run.answered = interrupts::resume(&resume, &mut conversation.messages)?;
    }
    if modern {
        interrupts::refuse_unanswered(&run.approvals, &conversation.messages)?;
    }
    unanswered::settle(&mut conversation.messages, &mut conversation.losses);
    if conversation.messages.is_empty() {
        return Err(messages.refuse("holds nothing a model could answer"));
    }
    if run.snapshots && modern {
        run.messages = Some(echoed(messages.value()));
    }
    if run.state.is_some() {
        // The state belongs to the application and is returned to it. Models read `context`
        // instead.
        omit(LossSubject::State, &mut conversation.losses);
    }
    request.system = conversation.system;
    request.messages = conversation.messages;
    let session = Box::new(RunSession(Some(run)));
    Ok(Accepted { request, losses: conversation.losses, left_out: Vec::new(), session })
}

/// The kind of reasoning events: from the query, else from the age of the client.
fn read_form(query: &str, modern: bool) -> Result<ReasoningForm, Fault> {
    let wish = query.split('&').find_map(|pair| pair.strip_prefix("reasoning="));
    match wish {
        Some(word) => ReasoningForm::read(word).ok_or_else(|| {
            Fault::invalid(format!(
                "`?reasoning={word}` is not known; it may be `reasoning`, `thinking` or `none`"
            ))
        }),
        None if modern => Ok(ReasoningForm::Reasoning),
        None => Ok(ReasoningForm::Thinking),
    }
}

fn read_settings(
    root: &Node<'_>,
    request: &mut Request,
    run: &mut Run,
    losses: &mut Vec<Loss>,
) -> Result<(), Fault> {
    let settings = [&frontend_settings::SETTINGS[..], &MORE[..]].concat();
    let forwarded = root.get("forwardedProps");
    if let Some(forwarded) = &forwarded {
        forwarded.object()?;
        if !forwarded.others(&settings).is_empty() {
            omit(LossSubject::ForwardedProps, losses);
        }
    }
    let others = root.others(&[&KNOWN[..], &settings[..]].concat());
    if others.values().any(|value| !value.is_null()) {
        omit(LossSubject::Member, losses);
    }
    // `forwardedProps` take precedence over the body.
    for source in [Some(root), forwarded.as_ref()].into_iter().flatten() {
        frontend_settings::settings(source, request, losses)?;
        if let Some(snapshots) = source.get("snapshots") {
            run.snapshots |= snapshots.flag()?;
        }
        if source.get("thinking").is_none() {
            let thinking = read_thinking(source, &mut Map::new(), losses)?;
            if !thinking.is_unset() {
                request.thinking = thinking;
            }
        }
    }
    Ok(())
}

/// Adds `context` after the system texts.
fn read_context(root: &Node<'_>, system: &mut Vec<String>) -> Result<(), Fault> {
    let Some(context) = root.get("context") else {
        return Ok(());
    };
    for entry in context.elements()? {
        entry.object()?;
        let description = entry.need("description")?;
        let value = entry.need("value")?;
        let value = match value.value() {
            Value::String(text) => text.clone(),
            // Older clients allow any value.
            other => other.to_string(),
        };
        system.push(format!("{}: {value}", description.text()?));
    }
    Ok(())
}

fn read_tools(root: &Node<'_>, request: &mut Request, run: &mut Run) -> Result<(), Fault> {
    let Some(tools) = root.get("tools") else {
        return Ok(());
    };
    for tool in tools.elements()? {
        tool.object()?;
        let name = filled(&tool.need("name")?)?;
        if interrupts::needs_approval(&tool)? {
            run.approvals.insert(name.clone());
        }
        let parameters = match tool.get("parameters") {
            Some(parameters) => {
                parameters.object()?;
                parameters.value().clone()
            }
            None => Value::Null,
        };
        request.tools.push(Tool::Function {
            name,
            description: string(&tool, "description")?,
            parameters,
            strict: None,
        });
    }
    Ok(())
}

fn omit(part: LossSubject, losses: &mut Vec<Loss>) {
    losses.push(Loss::of_part(part, LossReason::NoWord));
}

/// The application's state. Clients send an empty object for none.
fn read_state(root: &Node<'_>) -> Option<Value> {
    let state = root.get("state")?;
    let empty = match state.value() {
        Value::Object(members) => members.is_empty(),
        _ => false,
    };
    (!empty).then(|| state.value().clone())
}

/// The conversation without null members, which clients reject.
fn echoed(messages: &Value) -> Value {
    match messages {
        Value::Object(members) => {
            let members = members.iter().filter(|(_, value)| !value.is_null());
            let members = members.map(|(name, value)| (name.clone(), echoed(value)));
            Value::Object(members.collect())
        }
        Value::Array(list) => list.iter().map(echoed).collect(),
        other => other.clone(),
    }
}
