//! The dialogue: each call is followed by its result, which names its tool. A real server does not
//! refuse the opposite; its template renders it wrongly and the model misreads it.

use serde_json::Value;

use super::request::{ParsedRequest, is, list};
use crate::refusal::Refusal;

/// Refuses calls without results, results without calls, and turns in the wrong order.
pub(super) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    for (index, message) in request.messages().iter().enumerate() {
        if is(message, "tool") {
            answer(&mut open, message, index)?;
            continue;
        }
        refuse_unanswered(&open, index)?;
        open = list(&message["tool_calls"]).iter().map(named).collect();
    }
    refuse_unanswered(&open, request.messages().len())
}

/// A call's id, which may be missing, and its tool.
fn named(call: &Value) -> (&str, &str) {
    (call["id"].as_str().unwrap_or_default(), call["function"]["name"].as_str().unwrap_or_default())
}

fn answer(open: &mut Vec<(&str, &str)>, message: &Value, index: usize) -> Result<(), Refusal> {
    let tool = message["tool_name"].as_str().unwrap_or_default();
    let id = message["tool_call_id"].as_str().unwrap_or_default();
    let fits = |(called, name): &(&str, &str)| {
        *name == tool && (id.is_empty() || called.is_empty() || *called == id)
    };
    match open.iter().position(fits) {
        Some(at) => {
            open.remove(at);
            Ok(())
        }
        None => Err(Refusal::invalid(format!(
            "messages[{index}]: the result of tool \"{tool}\" ({id}) answers no call before it"
        ))),
    }
}

fn refuse_unanswered(open: &[(&str, &str)], index: usize) -> Result<(), Refusal> {
    match open.first() {
        None => Ok(()),
        Some((id, tool)) => Err(Refusal::invalid(format!(
            "messages[{index}]: the call of tool \"{tool}\" ({id}) has no result"
        ))),
    }
}
