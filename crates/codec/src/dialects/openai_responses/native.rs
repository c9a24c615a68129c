//! The items of a captured reply, as a later request sends them back.

use std::collections::BTreeMap;

use crate::dialects::native_turn::NativeForm;
use crate::json::{Kind, Span, each_element, each_member, find_member, inside, number, slice};

/// The items of this dialect.
pub(super) struct Items;

impl NativeForm for Items {
    /// Complete items, by their position in the output. An item that no event completes is read from the
    /// final response.
    fn parts(&self, payload: &str) -> Option<Vec<String>> {
        let json = payload.as_bytes();
        let mut items: BTreeMap<u64, Span> = BTreeMap::new();
        if let Some(events) = find_member(json, 0, b"events", Kind::Array).ok()? {
            each_element(json, events.start, |kind, event| {
                if kind == Kind::Object
                    && let Some((position, item)) = done_item(json, &event)
                {
                    let position = position.unwrap_or(items.len() as u64);
                    items.entry(position).or_insert(item);
                }
            })
            .ok()?;
        }
        if let Some(response) = find_member(json, 0, b"response", Kind::Object).ok()?
            && let Some(output) = find_member(json, response.start, b"output", Kind::Array).ok()?
        {
            let mut positions = 0..;
            each_element(json, output.start, |kind, item| {
                if let Some(position) = positions.next().filter(|_| kind == Kind::Object) {
                    items.entry(position).or_insert(item);
                }
            })
            .ok()?;
        }
        Some(items.into_values().map(|item| payload[item].to_owned()).collect())
    }

    fn reply_of(&self, part: &str) -> String {
        format!(r#"{{"status":"completed","output":[{part}]}}"#)
    }

    /// The block of an item without a canonical type is the item itself.
    fn is_plain(&self, part: &str) -> bool {
        let json = part.as_bytes();
        let kind = find_member(json, 0, b"type", Kind::String).ok().flatten();
        let kind = kind.map(|span| inside(json, &span)).unwrap_or_default();
        !matches!(kind, b"message" | b"reasoning" | b"function_call")
    }
}

/// The item of an event that completes one, and its position.
fn done_item(json: &[u8], event: &Span) -> Option<(Option<u64>, Span)> {
    let (mut is_done, mut position, mut item) = (false, None, None);
    each_member(json, event.start, |key, kind, span| match (key, kind) {
        (b"type", Kind::String) => {
            is_done = slice(json, &span) == br#""response.output_item.done""#;
        }
        (b"output_index", Kind::Number) => position = number(json, &span),
        (b"item", Kind::Object) => item = Some(span),
        _ => {}
    })
    .ok()?;
    item.filter(|_| is_done).map(|item| (position, item))
}
