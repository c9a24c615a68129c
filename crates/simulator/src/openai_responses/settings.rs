//! Checks the settings against the rules of the model.

use super::models::Model;
use super::refusal::{unsupported, unsupported_value};
use super::request::ParsedRequest;
use crate::refusal::Refusal;

/// Some models refuse these while they reason.
const SAMPLING: &[&str] = &["temperature", "top_p", "top_logprobs"];

/// Refuses what the model does not allow.
pub(crate) fn check(request: &ParsedRequest, model: &Model) -> Result<(), Refusal> {
    let reasoning = request.get("reasoning");
    if let Some(effort) = reasoning["effort"].as_str() {
        if !model.reasons() {
            return Err(unsupported("reasoning.effort"));
        }
        if !model.efforts.contains(&effort) {
            return Err(unsupported_value(
                "reasoning.effort",
                effort,
                &request.model,
                model.efforts,
            ));
        }
    }
    if !model.reasons() && reasoning["summary"].is_string() {
        return Err(unsupported("reasoning.summary"));
    }
    if model.refuses_sampling && request.effort(model) != "none" {
        let given = SAMPLING.iter().find(|key| !request.get(key).is_null());
        if let Some(key) = given {
            return Err(unsupported(key));
        }
    }
    Ok(())
}
