//! Citations.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A source that a text refers to.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, ts(optional_fields))]
pub struct Citation {
    /// The address of the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The title or the file name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The cited text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quote: Option<String>,
    /// The half-open range of characters in the block that refer to the source. `None` means the
    /// whole block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<(u64, u64)>,
    /// The citation in the provider's own form, for clients of the same dialect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verbatim: Option<Verbatim>,
}

/// A value in the form of one dialect.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verbatim {
    /// The name of the dialect.
    pub dialect: String,
    /// The value.
    #[cfg_attr(test, ts(type = "unknown"))]
    pub value: Value,
}

impl Citation {
    /// The citation in the form of this dialect, if the provider used it.
    pub fn written_by(&self, dialect: &str) -> Option<&Value> {
        let verbatim = self.verbatim.as_ref()?;
        (verbatim.dialect == dialect).then_some(&verbatim.value)
    }
}
