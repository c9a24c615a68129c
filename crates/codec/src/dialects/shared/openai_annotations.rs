//! Citations in OpenAI's dialects: an address, a title, and the range of characters that refer to
//! it.

use serde_json::{Map, Value, json};
use throughline_canonical::Citation;

/// Reads an annotation. `before` is the number of characters in front of this text block.
pub(crate) fn read(members: &Value, before: u64) -> Citation {
    let text = |key: &str| {
        let found = members.get(key).and_then(Value::as_str);
        found.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let at = |key: &str| members.get(key)?.as_u64()?.checked_sub(before);
    let url = text("url");
    // A source without a title repeats its address as the title.
    let title = text("title").or_else(|| text("filename"));
    Citation {
        title: title.filter(|title| url.as_ref() != Some(title)),
        url,
        quote: text("content"),
        span: at("start_index").zip(at("end_index")),
        verbatim: None,
    }
}

/// Writes an annotation. `block` is the character range of its text block.
pub(crate) fn write(citation: &Citation, url: &str, block: (u64, u64)) -> Map<String, Value> {
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

/// Length in characters, which is how these dialects count.
pub(crate) fn length(text: &str) -> u64 {
    text.chars().count() as u64
}
