//! What a server tells of one of its models. What it does not tell is `None`.

use throughline_canonical::Effort;

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
