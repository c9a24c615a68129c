//! Reads a client's request: an accepted request is JSON, and an edited one can be read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::IgnoredAny;
use throughline_codec::dialects::anthropic::outline::{BlockKind, Outline, Role};
use throughline_codec::dialects::anthropic::rewrite::{
    self, ThinkingEdit, leave_out, set_effort, set_model, set_thinking,
};
use throughline_codec::json::Edits;

/// Less than the depth at which serde_json stops.
const MAX_DEPTH: usize = 100;

fuzz_target!(|body: &[u8]| {
    let Ok(outline) = Outline::read(body, MAX_DEPTH) else {
        return;
    };
    let other = serde_json::from_slice::<IgnoredAny>(body);
    assert!(other.is_ok(), "accepted a body that is not JSON: {other:?}");

    unchanged(body, &outline);
    without_thinking(body, &outline);
    for edit in [
        ThinkingEdit::Keep,
        ThinkingEdit::Remove,
        ThinkingEdit::Budget(1024),
        ThinkingEdit::Adaptive,
        ThinkingEdit::Disabled,
    ] {
        // The gateway never asks twice for a binding.
        let bound = outline.thinking.as_ref().is_some_and(|thinking| thinking.binding.is_some());
        for drop_bound in [false, !bound] {
            with_settings(body, &outline, &edit, drop_bound);
        }
    }
    without_open_loop(body, &outline);
});

fn unchanged(body: &[u8], outline: &Outline) {
    let mut edits = Edits::default();
    let all: Vec<(usize, Vec<bool>)> = keep(outline, |_| true);
    leave_out(&mut edits, outline, &all);
    assert_eq!(edits.apply(body), body, "an empty edit changed bytes");
}

fn without_thinking(body: &[u8], outline: &Outline) {
    let mut edits = Edits::default();
    let kept = keep(outline, |kind| !matches!(kind, BlockKind::Thinking { .. }));
    leave_out(&mut edits, outline, &kept);
    let after = read_again(&edits.apply(body));
    assert_eq!(after.thinking_blocks().count(), 0);
    assert_eq!(roles(&after), roles(outline));
    for (message, before) in after.messages.iter().zip(&outline.messages) {
        assert_eq!(message.blocks().is_empty(), before.blocks().is_empty());
    }
}

fn with_settings(body: &[u8], outline: &Outline, edit: &ThinkingEdit, drop_bound: bool) {
    let mut edits = Edits::default();
    set_thinking(&mut edits, body, outline, edit, drop_bound);
    let after = read_again(&edits.apply(body));
    assert_eq!(roles(&after), roles(outline));

    let mut edits = Edits::default();
    set_model(&mut edits, body, outline, "an \"other\" \u{1F9E0}\n");
    let after = read_again(&edits.apply(body));
    assert!(after.model.is_some_and(|model| model.name == "an \"other\" \u{1F9E0}\n"));

    if outline.effort.is_none() && outline.thinking.is_some() {
        let mut edits = Edits::default();
        set_thinking(&mut edits, body, outline, edit, drop_bound);
        set_effort(&mut edits, body, outline, "high");
        let _ = serde_json::from_slice::<IgnoredAny>(&edits.apply(body)).unwrap();
    }
}

fn without_open_loop(body: &[u8], outline: &Outline) {
    let Some(from) = outline.open_tool_loop() else {
        return;
    };
    let mut edits = Edits::default();
    rewrite::close_loop(&mut edits, body, outline, from);
    let after = read_again(&edits.apply(body));
    assert_eq!(after.open_tool_loop(), None);
}

fn read_again(body: &[u8]) -> Outline {
    match Outline::read(body, MAX_DEPTH + 1) {
        Ok(outline) => outline,
        Err(fault) => panic!("{fault:?} in {}", String::from_utf8_lossy(body)),
    }
}

fn keep(outline: &Outline, wanted: fn(&BlockKind) -> bool) -> Vec<(usize, Vec<bool>)> {
    let assistant =
        outline.messages.iter().enumerate().filter(|(_, message)| message.role == Role::Assistant);
    assistant
        .map(|(at, message)| {
            let blocks = message.blocks().iter();
            (at, blocks.map(|block| wanted(&block.kind)).collect())
        })
        .collect()
}

fn roles(outline: &Outline) -> Vec<Role> {
    outline.messages.iter().map(|message| message.role).collect()
}
