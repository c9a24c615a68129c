//! The dialogue: each call its output, and each output its call.

use http::StatusCode;

use super::ask::{Ask, Kind};
use super::refusal::of_input;
use crate::refusal::Refusal;

/// Refuses a dialogue that does not hold together.
pub(crate) fn check(ask: &Ask) -> Result<(), Refusal> {
    let mut open: Vec<(&str, &str)> = Vec::new();
    for item in &ask.items {
        let kind = item.get("type").unwrap_or_default();
        let id = item.get("call_id").unwrap_or_default();
        match item.kind() {
            Kind::Call => open.push((id, kind)),
            Kind::Output => {
                let made_by = kind.trim_end_matches("_output");
                let call = open.iter().position(|call| *call == (id, made_by));
                let Some(call) = call else {
                    return Err(refused(format!(
                        "No tool call found for {} output with call_id {id}.",
                        spoken(made_by)
                    )));
                };
                open.remove(call);
            }
            _ => {}
        }
    }
    match open.first() {
        Some((id, kind)) => {
            Err(refused(format!("No tool output found for {} {id}.", spoken(kind))))
        }
        None => Ok(()),
    }
}

fn refused(message: String) -> Refusal {
    of_input(StatusCode::BAD_REQUEST, message)
}

fn spoken(kind: &str) -> String {
    kind.replace('_', " ")
}
