//! What a model makes of a request's settings.

use super::ask::Ask;
use super::models::Model;
use super::refusal::{unsupported, unsupported_value};
use crate::refusal::Refusal;

/// Refused by some models while they reason.
const SAMPLING: &[&str] = &["temperature", "top_p", "top_logprobs"];

/// Refuses what the model does not allow.
pub(crate) fn check(ask: &Ask, model: &Model) -> Result<(), Refusal> {
    let reasoning = ask.get("reasoning");
    if let Some(effort) = reasoning["effort"].as_str() {
        if !model.reasons() {
            return Err(unsupported("reasoning.effort"));
        }
        if !model.efforts.contains(&effort) {
            return Err(unsupported_value("reasoning.effort", effort, &ask.model, model.efforts));
        }
    }
    if !model.reasons() && reasoning["summary"].is_string() {
        return Err(unsupported("reasoning.summary"));
    }
    if model.refuses_sampling && ask.effort(model) != "none" {
        let given = SAMPLING.iter().find(|key| !ask.get(key).is_null());
        if let Some(key) = given {
            return Err(unsupported(key));
        }
    }
    Ok(())
}
