//! The dialogue: each call has its response in the user entries that follow it.
//!
//! Adjacent entries of one role count as one, as at the provider.

use serde_json::Value;

use super::request::ParsedRequest;
use crate::refusal::Refusal;

const AFTER_CALL: &str =
    "Please ensure that function response turn comes immediately after a function call turn.";
const AFTER_USER: &str = "Please ensure that function call turn comes immediately after a user turn or after a function response turn.";
const COUNT: &str = "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.";

/// The calls of the model's last run of entries.
#[derive(Default)]
struct Step<'a> {
    open: Vec<&'a Value>,
    answered: Vec<&'a Value>,
    called: bool,
}

/// Refuses calls without results, results without calls, and turns in the wrong order.
pub(crate) fn check(request: &ParsedRequest) -> Result<(), Refusal> {
    let mut step = Step::default();
    let mut previous_is_model = None;
    for content in &request.contents {
        if content.is_model() && previous_is_model != Some(true) {
            step.close()?;
            step = Step::default();
        }
        for part in &content.parts {
            if let Some(call) = part.get("functionCall") {
                // A call by the user, or before the first user entry.
                if !content.is_model() || previous_is_model.is_none() {
                    return Err(Refusal::invalid(AFTER_USER));
                }
                step.open.push(call);
                step.called = true;
            }
            if let Some(response) = part.get("functionResponse") {
                if content.is_model() || !step.called {
                    return Err(Refusal::invalid(AFTER_CALL));
                }
                step.answer(response)?;
            }
        }
        previous_is_model = Some(content.is_model());
    }
    step.close()
}

impl<'a> Step<'a> {
    /// Finds the call of a response: by id if both have one, else by name, in order.
    fn answer(&mut self, response: &'a Value) -> Result<(), Refusal> {
        // A client repeats responses when it resumes a session.
        if response.get("id").is_some() && self.answered.contains(&response) {
            return Ok(());
        }
        if self.open.is_empty() {
            return Err(Refusal::invalid(COUNT));
        }
        let same = |key: &str, call: &Value| call.get(key) == response.get(key);
        let fits = |call: &&Value| {
            let both = call.get("id").is_some() && response.get("id").is_some();
            same("name", call) && (!both || same("id", call))
        };
        let Some(at) = self.open.iter().position(fits) else {
            return Err(Refusal::invalid(format!(
                "Function response {} does not match any function call of the function call turn.",
                response["name"]
            )));
        };
        self.open.remove(at);
        self.answered.push(response);
        Ok(())
    }

    fn close(&self) -> Result<(), Refusal> {
        if self.open.is_empty() { Ok(()) } else { Err(Refusal::invalid(COUNT)) }
    }
}
