//! What an answer refers to.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A source that a text refers to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Citation {
    /// Its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Its title, or the name of its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it says, in its own words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// Which characters of the block refer to it: from the first, up to the second. All of them, where
    /// that is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<(u64, u64)>,
    /// The citation as its maker wrote it, for clients of the same dialect: much of it may be for
    /// nobody else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbatim: Option<Verbatim>,
}

/// A value of one dialect.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verbatim {
    /// Whose.
    pub dialect: String,
    /// The value.
    pub value: Value,
}

impl Citation {
    /// The citation as its maker wrote it, if that was in this dialect.
    pub fn written_by(&self, dialect: &str) -> Option<&Value> {
        let verbatim = self.verbatim.as_ref()?;
        (verbatim.dialect == dialect).then_some(&verbatim.value)
    }
}
