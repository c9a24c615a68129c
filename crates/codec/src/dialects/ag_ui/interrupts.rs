//! Calls that wait for approval. A tool with `"metadata": {"requiresApproval": true}` does not run
//! at once: the run ends with one interrupt per call, and the next run brings the answers.
//!
//! Nothing is stored in between. The id of an interrupt contains the id of its call. The answer
//! becomes the result of the call, unless the client ran the tool and brings a result.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};
use throughline_canonical::{Block, Fault, Message, Role, WaitingCall};

use crate::json::{Node, ObjectWriter};

/// Prefix of interrupt ids.
const PREFIX: &str = "approval_";

/// A call of this run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunCall {
    pub(super) id: String,
    pub(super) name: String,
    /// Whether it needs approval.
    pub(super) waits: bool,
    /// Whether its arguments are complete.
    pub(super) whole: bool,
}

/// An answer that became a tool result.
#[derive(Clone, Debug)]
pub(super) struct AnsweredCall {
    pub(super) call: String,
    pub(super) content: String,
}

/// Whether calls of a tool need approval.
pub(super) fn needs_approval(tool: &Node<'_>) -> Result<bool, Fault> {
    let Some(metadata) = tool.get("metadata") else {
        return Ok(false);
    };
    metadata.object()?;
    match metadata.get("requiresApproval") {
        Some(wanted) => wanted.flag(),
        None => Ok(false),
    }
}

/// Writes the outcome of a run with interrupts.
pub(super) fn write_outcome(calls: &[RunCall], outcome: &mut ObjectWriter<'_>) {
    let waiting = calls.iter().filter(|call| call.waits);
    let interrupts: Value = waiting
        .map(|call| {
            json!({
                "id": format!("{PREFIX}{}", call.id),
                "reason": "tool_approval",
                "message": format!("May `{}` be called?", call.name),
                "toolCallId": call.id,
                "responseSchema": {
                    "type": "object",
                    "properties": {
                        "approved": {"type": "boolean"},
                        "result": {"description": "what the tool gave, where it has run"},
                    },
                    "required": ["approved"],
                },
            })
        })
        .collect();
    outcome.text("type", "interrupt").value("interrupts", &interrupts);
}

/// Writes the outcome of a run in which the server waits for a person before it runs calls.
pub(super) fn write_waiting(calls: &[WaitingCall], outcome: &mut ObjectWriter<'_>) {
    let interrupts: Value = calls
        .iter()
        .map(|call| {
            let question = || format!("May `{}` be called?", call.name);
            let mut properties = json!({"approved": {"type": "boolean"}});
            if let Some(schema) = &call.schema {
                properties["input"] = schema.clone();
            }
            json!({
                "id": format!("{PREFIX}{}", call.id),
                "reason": if call.message.is_some() { "input_required" } else { "tool_approval" },
                "message": call.message.clone().unwrap_or_else(question),
                "toolCallId": call.id,
                "responseSchema": {
                    "type": "object",
                    "properties": properties,
                    "required": ["approved"],
                },
            })
        })
        .collect();
    outcome.text("type", "interrupt").value("interrupts", &interrupts);
}

/// Adds answers to the conversation as tool results. Returns the results that the client does not
/// have as messages.
pub(super) fn resume(
    entries: &Node<'_>,
    messages: &mut Vec<Message>,
) -> Result<Vec<AnsweredCall>, Fault> {
    let mut answered = Vec::new();
    let call_positions = call_positions(messages);
    let mut results = results(messages);
    let mut made: BTreeMap<usize, Vec<Block>> = BTreeMap::new();
    for entry in entries.elements()? {
        entry.object()?;
        let interrupt = entry.need("interruptId")?;
        let status = entry.need("status")?;
        let resolved = match status.text()? {
            "resolved" => true,
            "cancelled" => false,
            _ => return Err(status.refuse("expected `resolved` or `cancelled`")),
        };
        let Some(call) = interrupt.text()?.strip_prefix(PREFIX) else {
            return Err(interrupt.refuse(&format!(
                "is no interrupt of this gateway; theirs are `{PREFIX}` and the id of a tool call"
            )));
        };
        let Some(at) = call_positions.get(call) else {
            return Err(interrupt.refuse(&format!(
                "tool call `{call}` is not in `messages`; send the messages of the run it interrupted"
            )));
        };
        if !results.insert(call.to_owned()) {
            continue;
        }
        let (content, is_error) = match (resolved, entry.get("payload")) {
            (true, Some(payload)) => read_payload(payload.value()),
            (true, None) => {
                return Err(entry.refuse(&format!(
                    "`payload` is required, or a message with the result of tool call `{call}`"
                )));
            }
            (false, _) => ("The call was cancelled.".to_owned(), true),
        };
        made.entry(*at).or_default().push(Block::ToolResult {
            id: call.to_owned(),
            name: None,
            content: vec![Block::text(&*content)],
            is_error,
        });
        answered.push(AnsweredCall { call: call.to_owned(), content });
    }
    insert_results(made, messages);
    Ok(answered)
}

/// Rejects a conversation that ends in calls without an approval.
pub(super) fn refuse_unanswered(
    approvals: &BTreeSet<String>,
    messages: &[Message],
) -> Result<(), Fault> {
    let spoke = |message: &&Message| {
        let is_no_result = |block: &Block| !matches!(block, Block::ToolResult { .. });
        message.role == Role::Assistant || message.content.iter().any(is_no_result)
    };
    // A later message means that the user no longer waits.
    let Some(last) = messages.iter().rfind(spoke) else {
        return Ok(());
    };
    let results = results(messages);
    for block in &last.content {
        if let Block::ToolCall { id, name, .. } = block
            && approvals.contains(name)
            && !results.contains(id)
        {
            return Err(Fault::at(
                "resume",
                format!(
                    "tool call `{id}` of `{name}` waits for an answer; give one for interrupt `{PREFIX}{id}`"
                ),
            ));
        }
    }
    Ok(())
}

/// Reads an answer as a tool result. A denial is an error result.
fn read_payload(payload: &Value) -> (String, bool) {
    let denied = payload.get("approved") == Some(&Value::Bool(false));
    let content = match payload.get("result").unwrap_or(payload) {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    (content, denied)
}

/// The message index of each call.
fn call_positions(messages: &[Message]) -> HashMap<String, usize> {
    let blocks = messages
        .iter()
        .enumerate()
        .flat_map(|(at, message)| message.content.iter().map(move |block| (at, block)));
    let call = |(at, block): (usize, &Block)| match block {
        Block::ToolCall { id, .. } => Some((id.clone(), at)),
        _ => None,
    };
    blocks.filter_map(call).collect()
}

/// The ids of calls that have results.
pub(super) fn results(messages: &[Message]) -> HashSet<String> {
    let blocks = messages.iter().flat_map(|message| &message.content);
    let result = |block: &Block| match block {
        Block::ToolResult { id, .. } => Some(id.clone()),
        _ => None,
    };
    blocks.filter_map(result).collect()
}

/// Inserts results after the messages of their calls, and after other results there.
pub(super) fn insert_results(made: BTreeMap<usize, Vec<Block>>, messages: &mut Vec<Message>) {
    let mut rest = std::mem::take(messages).into_iter().enumerate().peekable();
    let mut made = made.into_iter().peekable();
    while let Some((at, message)) = rest.next() {
        messages.push(message);
        let Some((_, blocks)) = made.next_if(|(of, _)| *of == at) else {
            continue;
        };
        let results = |(_, message): &(usize, Message)| {
            let first = message.content.first();
            message.role == Role::User && matches!(first, Some(Block::ToolResult { .. }))
        };
        let mut content = match rest.next_if(results) {
            Some((_, message)) => message.content,
            None => Vec::new(),
        };
        content.extend(blocks);
        messages.push(Message::new(Role::User, content));
    }
}
