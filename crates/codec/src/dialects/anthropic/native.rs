//! The blocks of a captured reply, as a later request sends them back.

use super::threads::message::EventMessage;
use crate::dialects::native_turn::NativeForm;
use crate::json::{Kind, each_element, each_member, find_member, inside, slice};

/// The blocks of this dialect.
pub(super) struct Blocks;

impl NativeForm for Blocks {
    fn parts(&self, payload: &str) -> Option<Vec<String>> {
        let json = payload.as_bytes();
        let (mut message, mut whole) = (EventMessage::default(), None);
        each_element(json, 0, |_, event| {
            if let Ok(Some(data)) = find_member(json, event.start, b"data", Kind::Object) {
                message.take(slice(json, &data), true);
                whole = find_member(json, data.start, b"content", Kind::Array).ok().flatten();
            }
        })
        .ok()?;
        let Some(content) = whole else {
            return message.into_blocks();
        };
        let mut blocks = Vec::new();
        each_element(json, content.start, |_, block| blocks.push(payload[block].to_owned()))
            .ok()?;
        Some(blocks)
    }

    fn reply_of(&self, part: &str) -> String {
        format!(r#"{{"id":"","model":"","content":[{part}],"stop_reason":"end_turn"}}"#)
    }

    /// The block without a canonical type is the block itself.
    fn is_plain(&self, part: &str) -> bool {
        let json = part.as_bytes();
        let kind = find_member(json, 0, b"type", Kind::String).ok().flatten();
        let members: &[&[u8]] = match kind.map(|span| inside(json, &span)).unwrap_or_default() {
            b"text" => &[b"type", b"text"],
            b"thinking" => &[b"type", b"thinking", b"signature"],
            b"redacted_thinking" => &[b"type", b"data"],
            b"tool_use" => &[b"type", b"id", b"name", b"input"],
            _ => return true,
        };
        let mut is_plain = true;
        let read = each_member(json, 0, |key, kind, _| {
            is_plain &= members.contains(&key) || kind == Kind::Null;
        });
        read.is_ok() && is_plain
    }
}
