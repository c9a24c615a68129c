//! The dialogue: each call has its output, and each output its call.

use http::StatusCode;

use super::refusal::input_refusal;
use super::request::{ItemKind, ParsedRequest};
use crate::refusal::Refusal;

/// Refuses calls without results, results without calls, and turns in the wrong order.
pub(crate) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    for item in &request.items {
        let kind = item.get("type").unwrap_or_default();
        let id = item.get("call_id").unwrap_or_default();
        match item.kind() {
            ItemKind::Call => open.push((id, kind)),
            ItemKind::Output => {
                let made_by = kind.trim_end_matches("_output");
                let call = open.iter().position(|call| *call == (id, made_by));
                let Some(call) = call else {
                    return Err(refused(format!(
                        "No tool call found for {} output with call_id {id}.",
                        spell_kind(made_by)
                    )));
                };
                open.remove(call);
            }
            _ => {}
        }
    }
    match open.first() {
        Some((id, kind)) => {
            Err(refused(format!("No tool output found for {} {id}.", spell_kind(kind))))
        }
        None => Ok(()),
    }
}

fn refused(message: String) -> Refusal {
    input_refusal(StatusCode::BAD_REQUEST, message)
}

fn spell_kind(kind: &str) -> String {
    kind.replace('_', " ")
}
