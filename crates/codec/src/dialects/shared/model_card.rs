//! The description of a model by its server. `None` means that the server does not say.

use serde_json::Value;
use throughline_canonical::{Effort, Fault};

use super::segments::query_value;

/// One model, as its server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCard {
    /// The server's name of the model.
    pub name: String,
    /// Maximum number of output tokens.
    pub max_output: Option<u64>,
    /// Maximum number of input tokens.
    pub context: Option<u64>,
    /// Whether the model can think.
    pub thinks: Option<bool>,
    /// Whether it accepts adaptive thinking.
    pub adaptive: Option<bool>,
    /// Whether it accepts a thinking budget.
    pub budget: Option<bool>,
    /// Whether thinking can be switched off.
    pub off: Option<bool>,
    /// Whether it accepts thinking between tool calls only.
    pub between_tools: Option<bool>,
    /// The efforts it accepts; empty if unknown.
    pub efforts: Vec<Effort>,
}

/// The abilities of a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Whether it thinks.
    pub thinks: bool,
    /// Whether it reads images.
    pub sees: bool,
    /// Maximum number of input tokens.
    pub context: Option<u64>,
}

/// How a dialect asks for the abilities of one model, and how it answers.
#[derive(Clone, Copy, Debug)]
pub struct ModelDetailsFormat {
    /// Reads the name of the model from a request.
    pub read_request: fn(&[u8]) -> Result<String, Fault>,
    /// Writes a request for a model of this name.
    pub write_request: fn(&str) -> String,
    /// Writes the answer.
    pub write_answer: fn(Abilities) -> Value,
    /// The message for an unknown model.
    pub not_found: fn(&str) -> String,
}

const MAX_PAGE: usize = 1000;

/// Reads the page size from the query; unlimited if absent.
pub(crate) fn page_length(query: &str, name: &str, least: usize) -> Result<usize, Fault> {
    let Some(value) = query_value(query, name) else {
        return Ok(usize::MAX);
    };
    match value.parse::<usize>() {
        Ok(count) if count >= least => Ok(count.min(MAX_PAGE)),
        _ => Err(Fault::at(name, format!("expected a whole number {least} to {MAX_PAGE}"))),
    }
}

/// The index of the model that this query member names.
pub(crate) fn index_of(
    cards: &[ModelCard],
    query: &str,
    name: &str,
) -> Result<Option<usize>, Fault> {
    let Some(value) = query_value(query, name) else {
        return Ok(None);
    };
    match cards.iter().position(|card| card.name == value) {
        Some(index) => Ok(Some(index)),
        None => Err(Fault::at(name, format!("`{value}` is not in the list of models"))),
    }
}
