//! Citations, both ways. Positions count characters of the whole answer, across all its blocks.

use serde_json::{Value, json};
use throughline_canonical::{Citation, Delta, Verbatim};

use super::NAME;
use crate::dialects::shared::openai_annotations;

/// The annotation type that canonical citations express completely.
const OF_THE_WEB: &str = "url_citation";

/// Reads an annotation. `before` is the number of characters in front of this block. Annotations
/// are rare, so a tree is fine.
pub(super) fn read(json: &[u8], before: u64) -> Option<Delta<'static>> {
    let value: Value = serde_json::from_slice(json).ok()?;
    let kind = value.get("type")?.as_str()?;
    let citation = match value.get(OF_THE_WEB) {
        Some(members) if kind == OF_THE_WEB => openai_annotations::read(members, before),
        _ => Citation {
            verbatim: Some(Verbatim { dialect: NAME.to_owned(), value }),
            ..Citation::default()
        },
    };
    Some(Delta::Citation(citation.into()))
}

/// Writes the annotations of a block with this character range. Sources that only another dialect
/// can express are left out.
pub(super) fn write(citations: &[Citation], block: (u64, u64)) -> Vec<Value> {
    let written = citations.iter().filter_map(|citation| {
        if let Some(own) = citation.written_by(NAME) {
            return Some(own.clone());
        }
        let url = citation.url.as_deref()?;
        let mut members = openai_annotations::write(citation, url, block);
        // Servers that quote their sources do it like this.
        if let Some(quote) = &citation.quote {
            members.insert("content".to_owned(), quote.as_str().into());
        }
        Some(json!({"type": OF_THE_WEB, OF_THE_WEB: members}))
    });
    written.collect()
}
