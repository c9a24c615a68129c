//! Citations, as both of OpenAI's dialects tell them: an address, a title, and which characters of the
//! text refer to it.

use serde_json::{Map, Value, json};
use throughline_canonical::Citation;

/// Reads the members of an annotation of a text before which stand so many characters of others.
pub(super) fn read(members: &Value, before: u64) -> Citation {
    let text = |key: &str| {
        let found = members.get(key).and_then(Value::as_str);
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let at = |key: &str| members.get(key)?.as_u64()?.checked_sub(before);
    let url = text("url");
    // A source without a title is told under its address.
    let title = text("title").or_else(|| text("filename"));
    Citation {
        title: title.filter(|title| url.as_ref() != Some(title)),
        url,
        quote: text("content"),
        span: at("start_index").zip(at("end_index")),
        verbatim: None,
    }
}

/// Writes the members of an annotation. `block` says from where to where its block reaches.
pub(super) fn write(citation: &Citation, url: &str, block: (u64, u64)) -> Map<String, Value> {
    let (start, end) = match citation.span {
        Some((start, end)) => (block.0 + start, block.0 + end),
        None => block,
    };
    let title = citation.title.as_deref().unwrap_or(url);
    let members = json!({"start_index": start, "end_index": end, "url": url, "title": title});
    match members {
        Value::Object(members) => members,
        _ => Map::new(),
    }
}

/// How many characters a text has, as these dialects count them.
pub(super) fn length(text: &str) -> u64 {
    text.chars().count() as u64
}
