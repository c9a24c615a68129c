//! Citations, both ways.

use serde_json::Value;
use throughline_canonical::{Citation, Delta, Verbatim};

use super::NAME;
use crate::dialects::shared::openai_annotations;

/// The annotation type that canonical citations express completely.
const OF_THE_WEB: &str = "url_citation";

/// Reads an annotation. They are rare, so a tree is fine.
pub(super) fn read(json: &[u8]) -> Option<Delta<'static>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let kind = value.get("type")?.as_str()?;
    let of_the_web = kind == OF_THE_WEB;
    let mut citation = openai_annotations::read(&value, 0);
    if !of_the_web {
        citation.verbatim = Some(Verbatim { dialect: NAME.to_owned(), value });
    }
    Some(Delta::Citation(citation.into()))
}

/// Writes an annotation of a text with this many characters; `None` for sources that only another
/// dialect can express.
pub(super) fn write(citation: &Citation, length: u64) -> Option<String> {
    if let Some(own) = citation.written_by(NAME) {
        return Some(own.to_string());
    }
    let url = citation.url.as_deref()?;
    let mut members = openai_annotations::write(citation, url, (0, length));
    members.insert("type".to_owned(), OF_THE_WEB.into());
    Some(Value::Object(members).to_string())
}
