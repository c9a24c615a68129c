//! Edits of a request that passes through. All other bytes stay the same.

use std::borrow::Cow;

use throughline_canonical as canonical;

use super::super::upstream_request::write_thinking;
use super::outline::{Block, BlockKind, Content, Outline};
use super::settings::is;
use crate::json::{
    Edits, Kind, Span, append_member, each_member, find_member, quote, remove_elements, slice, text,
};

pub use crate::dialects::passthrough::PLACEHOLDER;

/// Removes blocks from messages. `keep` says for each message which blocks stay; messages without
/// an entry are not changed. Returns the number of messages that got a placeholder.
pub fn leave_out(edits: &mut Edits, outline: &Outline, keep: &[(usize, Vec<bool>)]) -> usize {
    let mut filled = 0;
    for (at, keep) in keep {
        let Some(message) = outline.messages.get(*at) else {
            continue;
        };
        let spans: Vec<Span> = message.blocks().iter().map(|block| block.span.clone()).collect();
        if let (Some(first), Some(last)) = (spans.first(), spans.last())
            && !remove_elements(edits, &spans, keep)
        {
            // Providers reject an empty list, and a missing message breaks the order of roles.
            edits.replace(first.start..last.end, text_block(PLACEHOLDER));
            filled += 1;
        }
    }
    filled
}

/// Inserts a thinking block before a block of a message.
pub fn insert_thinking(edits: &mut Edits, before: &Block, thinking: &canonical::Block) {
    let mut inserted = Vec::new();
    write_thinking(&mut inserted, thinking);
    inserted.push(b',');
    edits.replace(before.span.start..before.span.start, inserted);
}

/// Replaces a block of a message by a thinking block.
pub fn replace_by_thinking(edits: &mut Edits, block: &Block, thinking: &canonical::Block) {
    let mut written = Vec::new();
    write_thinking(&mut written, thinking);
    edits.replace(block.span.clone(), written);
}

/// Sets the model name.
pub fn set_model(edits: &mut Edits, body: &[u8], outline: &Outline, name: &str) {
    match &outline.model {
        Some(model) => edits.replace(model.span.clone(), quote(name)),
        None => append_member(edits, body, &outline.body, "model", &quote(name)),
    }
}

/// The edit of the thinking setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThinkingEdit {
    /// Leave it as the client wrote it.
    Keep,
    /// Remove it.
    Remove,
    /// Manual thinking with this budget.
    Budget(u64),
    /// The model decides.
    Adaptive,
    /// Switch thinking off for this request.
    Disabled,
    /// Replace it with this setting, written for the model.
    Written {
        /// The whole setting.
        value: Vec<u8>,
        /// Its mode; empty if it has none.
        mode: &'static str,
    },
}

impl ThinkingEdit {
    /// The mode that is sent; `None` if the request has no thinking setting.
    pub fn mode<'a>(&'a self, outline: &'a Outline) -> Option<&'a str> {
        match self {
            Self::Keep => outline.thinking.as_ref().map(|described| described.mode.as_str()),
            Self::Remove => None,
            Self::Budget(_) => Some("enabled"),
            Self::Adaptive => Some("adaptive"),
            Self::Disabled => Some("disabled"),
            Self::Written { mode, .. } => Some(mode),
        }
    }
}

/// Changes the thinking setting. `drop_bound` asks the provider to drop blocks that are bound to
/// another conversation.
pub fn set_thinking(
    edits: &mut Edits,
    body: &[u8],
    outline: &Outline,
    edit: &ThinkingEdit,
    drop_bound: bool,
) {
    const BINDING: &[u8] = br#"{"prefix_mismatch_behavior":"drop_block"}"#;
    let value = match edit {
        ThinkingEdit::Keep => match (&outline.thinking, drop_bound) {
            (_, false) => return,
            (Some(thinking), true) => {
                return set_member(edits, body, &thinking.span, "block_binding", BINDING);
            }
            // Models that bind blocks think adaptively by default.
            (None, true) => br#"{"type":"adaptive"}"#.to_vec(),
        },
        ThinkingEdit::Remove => {
            if outline.thinking.is_some() {
                remove_members(edits, body, outline, &["thinking"]);
            }
            return;
        }
        ThinkingEdit::Budget(budget) => {
            format!(r#"{{"type":"enabled","budget_tokens":{budget}}}"#).into_bytes()
        }
        ThinkingEdit::Adaptive => br#"{"type":"adaptive"}"#.to_vec(),
        ThinkingEdit::Disabled => br#"{"type":"disabled"}"#.to_vec(),
        ThinkingEdit::Written { value, .. } => value.clone(),
    };
    let value = if drop_bound && *edit != ThinkingEdit::Disabled {
        let mut with = Edits::default();
        append_member(&mut with, &value, &(0..value.len()), "block_binding", BINDING);
        with.apply(&value)
    } else {
        value
    };
    match &outline.thinking {
        Some(thinking) => edits.replace(thinking.span.clone(), value),
        None => set_member(edits, body, &outline.body, "thinking", &value),
    }
}

/// Removes members of the body. All at once, because each takes one comma with it. Returns false,
/// and changes nothing, if no member would stay.
pub fn remove_members(edits: &mut Edits, body: &[u8], outline: &Outline, names: &[&str]) -> bool {
    let stays = |member: &Span| !names.iter().any(|name| is(body, member, name));
    let keep: Vec<bool> = outline.members.iter().map(stays).collect();
    remove_elements(edits, &outline.members, &keep)
}

/// Sets a member of the body.
pub fn set(edits: &mut Edits, body: &[u8], outline: &Outline, name: &str, value: &[u8]) {
    set_member(edits, body, &outline.body, name, value);
}

/// Sets the effort.
pub fn set_effort(edits: &mut Edits, body: &[u8], outline: &Outline, effort: &str) {
    match &outline.output_config {
        Some(config) => set_member(edits, body, config, "effort", &quote(effort)),
        None => {
            let mut config = br#"{"effort":"#.to_vec();
            config.extend_from_slice(&quote(effort));
            config.push(b'}');
            set_member(edits, body, &outline.body, "output_config", &config);
        }
    }
}

/// Sets a member of an object: replaces it if it exists (even as null), else appends it. A key
/// never occurs twice.
fn set_member(edits: &mut Edits, body: &[u8], object: &Span, key: &str, value: &[u8]) {
    let mut member = None;
    let checked = each_member(body, object.start, |name, _, span| {
        if name == key.as_bytes() {
            member = Some(span);
        }
    });
    debug_assert!(checked.is_ok(), "the body was checked before");
    match member {
        Some(member) => edits.replace(member, value),
        None => append_member(edits, body, object, key, value),
    }
}

/// Writes the calls and results of an open tool loop as text, from message `from` on, so that the
/// loop is closed. Returns the number of calls.
pub fn close_loop(edits: &mut Edits, body: &[u8], outline: &Outline, from: usize) -> usize {
    let mut calls = 0;
    for message in outline.messages.iter().skip(from) {
        let Content::Blocks(blocks) = &message.content else {
            continue;
        };
        for block in blocks {
            let described = match block.kind {
                BlockKind::ToolUse => {
                    calls += 1;
                    describe(body, &block.span, "Called tool", "name", "input")
                }
                BlockKind::ToolResult => {
                    describe(body, &block.span, "Result of", "tool_use_id", "content")
                }
                _ => continue,
            };
            edits.replace(block.span.clone(), text_block(&described));
        }
    }
    calls
}

fn text_block(text: &str) -> Vec<u8> {
    let mut block = br#"{"type":"text","text":"#.to_vec();
    block.extend_from_slice(&quote(text));
    block.push(b'}');
    block
}

/// One line about a call or a result: its name, then its value.
fn describe(body: &[u8], block: &Span, what: &str, name: &str, value: &str) -> String {
    let (mut which, mut described) = (Cow::default(), Cow::default());
    let checked = each_member(body, block.start, |key, kind, span| {
        let value_text = match kind {
            Kind::String => text(body, &span),
            _ => String::from_utf8_lossy(slice(body, &span)),
        };
        if key == name.as_bytes() {
            which = value_text;
        } else if key == value.as_bytes() {
            described = value_text;
        }
    });
    debug_assert!(checked.is_ok(), "the body was checked before");
    format!("[{what} {which}: {described}]")
}

/// The span of the model name in a reply: in the message itself or in the message of a
/// `message_start` event. It excludes the quotes.
pub fn reply_model(json: &[u8]) -> Option<Span> {
    let (mut model, mut message) = (None, None);
    each_member(json, 0, |key, kind, span| match (key, kind) {
        (b"model", Kind::String) => model = Some(span),
        (b"message", Kind::Object) => message = Some(span),
        _ => {}
    })
    .ok()?;
    if let Some(message) = message {
        model = find_member(json, message.start, b"model", Kind::String).ok()?.or(model);
    }
    model.map(|span| span.start + 1..span.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(body: &str, change: impl FnOnce(&mut Edits, &Outline)) -> String {
        let outline = Outline::read(body.as_bytes(), 32).unwrap();
        let mut edits = Edits::default();
        change(&mut edits, &outline);
        String::from_utf8(edits.apply(body.as_bytes())).unwrap()
    }

    fn thinking(body: &str, change: &ThinkingEdit, drop_bound: bool) -> String {
        edit(body, |edits, outline| {
            set_thinking(edits, body.as_bytes(), outline, change, drop_bound);
        })
    }

    /// Covers: case 11
    #[test]
    fn emptied_message_gets_a_placeholder() {
        let body = r#"{"messages":[{"role":"assistant","content":[ {"type":"thinking","thinking":"a"} , {"type":"thinking","thinking":"b"} ]}]}"#;
        let edited = edit(body, |edits, outline| {
            assert_eq!(leave_out(edits, outline, &[(0, vec![false, false])]), 1);
        });
        assert_eq!(
            edited,
            r#"{"messages":[{"role":"assistant","content":[ {"type":"text","text":"[reasoning omitted]"} ]}]}"#
        );
    }

    #[test]
    fn inserted_thinking_leaves_all_other_bytes_as_they_are() {
        let body = r#"{"messages":[{"role":"assistant", "content" : [ {"type":"text","text":"\u00e9"} ,{"type":"thinking","thinking":"b"},
            {"type":"tool_use","id":"t","name":"look","input":{"k":1.0}} ]}]}"#;
        let thinking = |text: &str, signature: &str| canonical::Block::Thinking {
            text: text.to_owned(),
            signature: Some(signature.to_owned()),
        };
        let edited = edit(body, |edits, outline| {
            let blocks = outline.messages[0].blocks();
            let hidden = canonical::Block::Redacted { data: "x".to_owned() };
            insert_thinking(edits, &blocks[0], &hidden);
            insert_thinking(edits, &blocks[0], &thinking("a \"b\"\n", "s"));
            replace_by_thinking(edits, &blocks[1], &thinking("b", "t"));
            insert_thinking(edits, &blocks[2], &thinking("", "u"));
        });
        let hidden = r#"{"type":"redacted_thinking","data":"x"},"#;
        let first = r#"{"type":"thinking","thinking":"a \"b\"\n","signature":"s"},"#;
        let last = r#"{"type":"thinking","thinking":"","signature":"u"},"#;
        for added in [hidden, first, last, r#","signature":"t""#] {
            assert!(edited.contains(added), "{edited}");
        }
        let without = edited.replace(hidden, "").replace(first, "").replace(last, "");
        assert_eq!(without.replace(r#","signature":"t""#, ""), body);
        assert!(Outline::read(edited.as_bytes(), 32).is_ok());
    }

    #[test]
    fn setting_edits_keep_all_other_bytes() {
        let body = r#"{"a":1.0,"thinking":{"type":"adaptive","display":"updates"},"b":"\u00e9"}"#;
        assert_eq!(thinking(body, &ThinkingEdit::Keep, false), body);
        assert_eq!(
            thinking(body, &ThinkingEdit::Budget(4095), false),
            r#"{"a":1.0,"thinking":{"type":"enabled","budget_tokens":4095},"b":"\u00e9"}"#
        );
        assert_eq!(thinking(body, &ThinkingEdit::Remove, false), r#"{"a":1.0,"b":"\u00e9"}"#);
        assert_eq!(
            thinking(body, &ThinkingEdit::Keep, true),
            r#"{"a":1.0,"thinking":{"type":"adaptive","display":"updates","block_binding":{"prefix_mismatch_behavior":"drop_block"}},"b":"\u00e9"}"#
        );
        assert_eq!(
            thinking("{\"a\":1}", &ThinkingEdit::Keep, true),
            r#"{"a":1,"thinking":{"type":"adaptive","block_binding":{"prefix_mismatch_behavior":"drop_block"}}}"#
        );
    }

    #[test]
    fn closed_loop_has_no_calls() {
        let body = r#"{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"look","input":{"k":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"seven"}]}]}"#;
        let edited = edit(body, |edits, outline| {
            assert_eq!(close_loop(edits, body.as_bytes(), outline, 1), 1);
        });
        assert!(edited.contains(r#"{"type":"text","text":"[Called tool look: {\"k\":1}]"}"#));
        assert!(edited.contains(r#"{"type":"text","text":"[Result of t: seven]"}"#));
        let outline = Outline::read(edited.as_bytes(), 32).unwrap();
        assert_eq!(outline.open_tool_loop(), None);
    }

    #[test]
    fn model_name_is_found_in_replies() {
        let find = |json: &str| reply_model(json.as_bytes()).map(|span| json[span].to_owned());
        assert_eq!(
            find(r#"{"type":"message_start","message":{"content":[],"model":"glm"}}"#),
            Some("glm".into())
        );
        assert_eq!(find(r#"{"id":"m","model":"glm-5"}"#), Some("glm-5".into()));
        assert_eq!(find(r#"{"content":[{"model":"x"}]}"#), None);
    }
}
