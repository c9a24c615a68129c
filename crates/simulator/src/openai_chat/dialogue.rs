//! The dialogue: each call is followed by its result.

use serde_json::Value;

use super::request::{CALL, ParsedRequest, is, list, text};
use super::variants::{ReasoningOutput, Variant};
use crate::openai::refused;
use crate::refusal::Refusal;

/// The calls that wait for their results.
#[derive(Default)]
struct PendingCall<'a> {
    /// There was a call, so results may follow.
    called: bool,
    ids: Vec<&'a str>,
    /// The calls were text, so they have no ids.
    nameless: bool,
}

/// Refuses calls without results, results without calls, and turns in the wrong order.
pub(crate) fn check(request: &ParsedRequest, variant: &Variant) -> Result<(), Refusal> {
    let mut open = PendingCall::default();
    for (index, message) in request.messages().iter().enumerate() {
        if is(message, "tool") {
            answer(&mut open, message, index)?;
            continue;
        }
        if is(message, "function") {
            if !open.called {
                return Err(unexpected("function", "function_call", index));
            }
            continue;
        }
        refuse_unanswered(&open, index)?;
        open = if is(message, "assistant") {
            calls(message, index, variant)?
        } else {
            PendingCall::default()
        };
    }
    refuse_unanswered(&open, request.messages().len())
}

fn answer(open: &mut PendingCall<'_>, message: &Value, index: usize) -> Result<(), Refusal> {
    if !open.called {
        return Err(unexpected("tool", "tool_calls", index));
    }
    let id = message["tool_call_id"].as_str().unwrap_or_default();
    match open.ids.iter().position(|waiting| *waiting == id) {
        Some(at) => {
            open.ids.remove(at);
            Ok(())
        }
        None if open.nameless => Ok(()),
        None => Err(refused(
            &format!("messages.[{index}].tool_call_id"),
            None,
            format!(
                "Invalid parameter: 'tool_call_id' of '{id}' not found in 'tool_calls' of previous message."
            ),
        )),
    }
}

fn calls<'a>(
    message: &'a Value,
    index: usize,
    variant: &Variant,
) -> Result<PendingCall<'a>, Refusal> {
    let mut ids: Vec<&str> = Vec::new();
    for call in list(&message["tool_calls"]) {
        let id = call["id"].as_str().unwrap_or_default();
        // A server that repeats ids itself cannot refuse repeated ids.
        if ids.contains(&id) && variant.name != "reasoning-field" {
            return Err(refused(
                &format!("messages.[{index}].tool_calls"),
                None,
                format!("Invalid parameter: Duplicate value for 'tool_call_id' of '{id}'."),
            ));
        }
        ids.push(id);
    }
    let nameless =
        variant.reasoning_output == ReasoningOutput::Tags && text(message).contains(CALL);
    Ok(PendingCall {
        called: nameless || !ids.is_empty() || message["function_call"].is_object(),
        ids,
        nameless,
    })
}

fn unexpected(role: &str, member: &str, index: usize) -> Refusal {
    refused(
        &format!("messages.[{index}].role"),
        None,
        format!(
            "Invalid parameter: messages with role '{role}' must be a response to a preceeding message with '{member}'."
        ),
    )
}

fn refuse_unanswered(open: &PendingCall<'_>, index: usize) -> Result<(), Refusal> {
    if open.ids.is_empty() {
        return Ok(());
    }
    Err(refused(
        &format!("messages.[{index}].role"),
        None,
        format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
            open.ids.join(", ")
        ),
    ))
}
