//! What a server tells of one of its models. What it does not tell is `None`.

use throughline_canonical::{Effort, Fault};

use super::segments::query_value;

/// One model, as its server describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCard {
    /// Its name.
    pub name: String,
    /// The most tokens it writes.
    pub max_output: Option<u64>,
    /// The most tokens it reads.
    pub context: Option<u64>,
    /// Whether it thinks at all.
    pub thinks: Option<bool>,
    /// Whether it takes adaptive thinking.
    pub adaptive: Option<bool>,
    /// Whether it takes a budget.
    pub budget: Option<bool>,
    /// Whether thinking can be switched off.
    pub off: Option<bool>,
    /// Whether it takes thinking between tool calls only.
    pub between_tools: Option<bool>,
    /// The efforts it takes; empty if they are not told.
    pub efforts: Vec<Effort>,
}

/// No page has more.
const LONGEST_PAGE: usize = 1000;

/// How many models a query wants under this name; all of them where it does not say.
pub(super) fn page_length(query: &str, name: &str, least: usize) -> Result<usize, Fault> {
    let Some(value) = query_value(query, name) else {
        return Ok(usize::MAX);
    };
    match value.parse::<usize>() {
        Ok(count) if count >= least => Ok(count.min(LONGEST_PAGE)),
        _ => Err(Fault::invalid(format!(
            "{name}: expected a whole number {least} to {LONGEST_PAGE}"
        ))),
    }
}

/// The place of the model a query names under this name.
pub(super) fn place_of(
    cards: &[ModelCard],
    query: &str,
    name: &str,
) -> Result<Option<usize>, Fault> {
    let Some(value) = query_value(query, name) else {
        return Ok(None);
    };
    match cards.iter().position(|card| card.name == value) {
        Some(place) => Ok(Some(place)),
        None => Err(Fault::invalid(format!("{name}: `{value}` is not in the list of models"))),
    }
}
