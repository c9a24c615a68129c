//! The dialogue: the order of turns, and the pairing of calls and results.
//!
//! Adjacent turns of one role count as one, and system turns are skipped, because both may come
//! between a call and its result.

use std::collections::HashSet;

use super::models::Model;
use super::request::{ParsedRequest, Turn, kind_of};
use crate::refusal::Refusal;

/// Refuses calls without results, results without calls, and turns in the wrong order.
pub(crate) fn check(request: &ParsedRequest, model: &Model) -> Result<(), Refusal> {
    if !model.prefill && request.turns.last().is_some_and(Turn::is_assistant) {
        return Err(Refusal::invalid(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        ));
    }
    check_calls(request)
}

/// A call that waits for its result.
struct PendingCall {
    turn: usize,
    id: String,
}

fn check_calls(request: &ParsedRequest) -> Result<(), Refusal> {
    let mut all: HashSet<&str> = HashSet::new();
    // Open calls of the last assistant turns, and the ids that already have a result.
    let mut open: Vec<PendingCall> = Vec::new();
    let mut answered: Vec<&str> = Vec::new();
    let mut previous = "";
    for (index, turn) in request.turns.iter().enumerate() {
        if turn.role == "system" {
            continue;
        }
        if turn.is_assistant() && previous != "assistant" {
            refuse_unanswered(&open)?;
            open.clear();
            answered.clear();
        }
        previous = turn.role.as_str();
        for (at, block) in turn.blocks.iter().enumerate() {
            match kind_of(block) {
                "tool_use" => {
                    let id = block["id"].as_str().unwrap_or_default();
                    if !all.insert(id) {
                        return Err(Refusal::invalid("messages: `tool_use` ids must be unique"));
                    }
                    open.push(PendingCall { turn: index, id: id.to_owned() });
                }
                "tool_result" => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    let path = format!("messages.{index}.content.{at}");
                    if answered.contains(&id) {
                        return Err(Refusal::invalid(format!(
                            "{path}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}"
                        )));
                    }
                    let Some(call) = open.iter().position(|call| call.id == id) else {
                        return Err(Refusal::invalid(format!(
                            "{path}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                        )));
                    };
                    open.remove(call);
                    answered.push(id);
                }
                _ => {}
            }
        }
    }
    refuse_unanswered(&open)
}

fn refuse_unanswered(open: &[PendingCall]) -> Result<(), Refusal> {
    let Some(first) = open.first() else {
        return Ok(());
    };
    let ids: Vec<&str> = open.iter().map(|call| call.id.as_str()).collect();
    Err(Refusal::invalid(format!(
        "messages.{}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each `tool_use` block must have a corresponding `tool_result` block in the next message.",
        first.turn,
        ids.join(", ")
    )))
}
