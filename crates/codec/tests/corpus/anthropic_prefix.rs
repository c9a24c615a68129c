//! The prefix of a thinking block: what changes it, and what does not.

use throughline_codec::dialects::anthropic::outline::{BlockKind, Outline};
use throughline_codec::dialects::anthropic::prefix::Prefixes;
use throughline_codec::json::{Edits, Span, append_member, remove_elements};

use super::anthropic_request::{DEPTH, requests};

fn read(body: &[u8]) -> (Outline, Prefixes) {
    let outline = Outline::read(body, DEPTH).unwrap();
    let prefixes = Prefixes::read(body, &outline);
    (outline, prefixes)
}

#[test]
fn a_longer_conversation_keeps_its_earlier_prefixes() {
    for capture in requests() {
        let (outline, long) = read(&capture.bytes);
        let spans: Vec<Span> =
            outline.messages.iter().map(|message| message.span.clone()).collect();
        for length in 1..=spans.len() {
            let keep: Vec<bool> = (0..spans.len()).map(|at| at < length).collect();
            let mut edits = Edits::default();
            assert!(remove_elements(&mut edits, &spans, &keep));
            let (_, short) = read(&edits.apply(&capture.bytes));
            let at = format!("{} after {length} messages", capture.name);
            assert_eq!(short.whole(), long.before_message(length), "{at}");
            for message in 0..length {
                assert_eq!(short.before_message(message), long.before_message(message));
                assert_ne!(short.before_message(message), short.whole(), "{at}");
            }
        }
    }
}

#[test]
fn moving_cache_breakpoints_changes_no_prefix() {
    const MARK: &[u8] = br#"{"type":"ephemeral","ttl":"1h"}"#;
    for capture in requests() {
        let (outline, before) = read(&capture.bytes);
        for marked in 0..outline.messages.len() {
            let mut edits = Edits::default();
            for block in outline.messages[marked].blocks() {
                let object = capture.bytes[block.span.start] == b'{';
                if object && !matches!(block.kind, BlockKind::Thinking { .. }) {
                    let (span, bytes) = (&block.span, &capture.bytes);
                    append_member(&mut edits, bytes, span, "cache_control", MARK);
                }
            }
            let (_, after) = read(&edits.apply(&capture.bytes));
            assert_eq!(after.whole(), before.whole(), "{}", capture.name);
        }
    }
}

#[test]
fn white_space_changes_neither_names_nor_prefixes() {
    for capture in requests() {
        let (outline, before) = read(&capture.bytes);
        let (spread_outline, after) = read(&spread(&capture.bytes));
        let names = |outline: &Outline| outline.thinking_blocks().collect::<Vec<_>>();
        assert_eq!(names(&outline), names(&spread_outline), "{}", capture.name);
        assert_eq!(before.whole(), after.whole(), "{}", capture.name);
    }
}

/// The same JSON, with white space between all tokens.
fn spread(json: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let (mut string, mut escaped) = (false, false);
    for &byte in json {
        let structural = !string && b"{}[],:".contains(&byte);
        if structural {
            text.extend_from_slice(b"\t ");
        }
        text.push(byte);
        if structural {
            text.extend_from_slice(b"\r\n");
        }
        if byte == b'"' && !escaped {
            string = !string;
        }
        escaped = string && byte == b'\\' && !escaped;
    }
    text
}
