//! Which dialect an uploaded file belongs to.

use super::names;

/// The dialect whose providers know the files of this vendor.
pub(crate) fn dialect_of(provider: Option<&str>) -> String {
    let dialect = match provider {
        Some("openai") => names::OPENAI_RESPONSES,
        Some("anthropic") => names::ANTHROPIC,
        Some("google" | "gemini") => names::GEMINI,
        Some(other) => other,
        None => "",
    };
    dialect.to_owned()
}
