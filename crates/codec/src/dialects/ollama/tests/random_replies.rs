//! Round trips of random replies.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::{Block, BlockStart, Delta, EndReason, Event, Fold, Reply, Usage};

use super::{Ollama, identity, lines, read_reply};
use crate::dialects::ClientDialect;
use crate::dialects::shared::hidden_reasoning::NOTICE;

#[derive(Clone, Debug)]
enum ReplyBlock {
    Text(Vec<String>),
    Thinking(Vec<String>),
    Redacted,
    Call(String, String, usize),
}

fn words() -> impl Strategy<Value = String> {
    "[a-z \"\\\\\n\r\t\u{0}é漢🧠]{0,8}"
}

fn block() -> impl Strategy<Value = ReplyBlock> {
    prop_oneof![
        vec(words(), 0..4).prop_map(ReplyBlock::Text),
        vec(words(), 0..4).prop_map(ReplyBlock::Thinking),
        Just(ReplyBlock::Redacted),
        ("[a-z]{1,5}", vec(("[a-z]{1,3}", words()), 0..3), 0..9usize).prop_map(
            |(name, members, cut)| {
                let members = members.into_iter().map(|(key, text)| (key, text.into()));
                let arguments = Value::Object(members.collect());
                ReplyBlock::Call(name, format!("{arguments:#}"), cut)
            }
        ),
    ]
}

fn events(
    reply_blocks: &[ReplyBlock],
    reason: &EndReason,
    usage: Usage,
    at_once: bool,
) -> Vec<Event<'static>> {
    let own = |text: &str| Cow::<'static, str>::Owned(text.to_owned());
    let mut blocks: Vec<Vec<Event<'static>>> = Vec::new();
    for (index, block) in (0..).zip(reply_blocks) {
        let delta = |delta| Event::BlockDelta { index, delta };
        let (block, deltas): (_, Vec<_>) = match block {
            ReplyBlock::Text(pieces) => (
                BlockStart::Text { text: "".into() },
                pieces.iter().map(|text| Delta::Text(own(text))).collect(),
            ),
            ReplyBlock::Thinking(pieces) => (
                BlockStart::Thinking { text: "".into(), signature: "".into() },
                pieces
                    .iter()
                    .map(|text| Delta::Thinking(own(text)))
                    .chain([Delta::Signature("envelope".into())])
                    .collect(),
            ),
            ReplyBlock::Redacted => (BlockStart::Redacted { data: "d".into() }, Vec::new()),
            ReplyBlock::Call(name, text, cut) => {
                let mut places = text.char_indices().map(|(at, _)| at);
                let (one, two) = text.split_at(places.nth(*cut).unwrap_or_default());
                (
                    BlockStart::ToolCall { id: format!("c{index}").into(), name: own(name) },
                    vec![Delta::ToolArguments(own(one)), Delta::ToolArguments(own(two))],
                )
            }
        };
        let mut events = vec![Event::BlockStarted { index, block }];
        events.extend(deltas.into_iter().map(delta));
        events.push(Event::BlockEnded { index });
        blocks.push(events);
    }
    let mut all = vec![Event::MessageStarted { id: "theirs".into(), model: "their-model".into() }];
    if at_once {
        for turn in 0..blocks.iter().map(Vec::len).max().unwrap_or_default() {
            all.extend(blocks.iter().filter_map(|block| block.get(turn).cloned()));
        }
    } else {
        all.extend(blocks.concat());
    }
    all.push(Event::Usage(usage));
    all.push(Event::Ended { reason: reason.clone() });
    all
}

/// All thinking, all text and all calls of a reply, each in order. This dialect keeps nothing else.
fn seen(reply: &Reply) -> (String, String, Vec<(String, String, Value)>) {
    let (mut thinking, mut text, mut calls) = (String::new(), String::new(), Vec::new());
    for block in &reply.content {
        match block {
            Block::Thinking { text, .. } => thinking.push_str(text),
            Block::Redacted { .. } => thinking.push_str(NOTICE),
            Block::Text { text: more, .. } => text.push_str(more),
            Block::ToolCall { id, name, arguments, .. } => {
                let arguments = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
                calls.push((id.clone(), name.clone(), arguments));
            }
            _ => {}
        }
    }
    // Parallel calls are written in the order of their ends.
    calls.sort_by(|one, other| one.0.cmp(&other.0));
    (thinking, text, calls)
}

proptest! {
    #[test]
    fn a_reply_survives_a_round_trip(
        reply_blocks in vec(block(), 0..6),
        long in any::<bool>(),
        counts in (0u64..1000, 0u64..1000),
        at_once in any::<bool>(),
        size in 1..50usize,
    ) {
        let reason = if long { EndReason::Length } else { EndReason::Stop };
        let usage = Usage { input: Some(counts.0), output: Some(counts.1), ..Usage::default() };
        let events = events(&reply_blocks, &reason, usage, at_once);
        let mut fold = Fold::default();
        events.iter().for_each(|event| fold.push(event));
        let original = fold.finish();
        let called = original.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
        let expected = if called && !long { EndReason::ToolCalls } else { reason };
        let writer = || Ollama.session().reply_writer(&throughline_canonical::Request::default(), &identity());
        let stream = lines(writer(), &events);
        // Every line is JSON, and only the last one is marked as done.
        let lines: Vec<Value> = stream
            .split_terminator('\n')
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = lines.len() - 1;
        for (place, line) in lines.iter().enumerate() {
            prop_assert_eq!(&line["done"], &Value::from(place == last));
        }
        let whole = writer().whole(&original);
        for (bytes, streamed) in [(stream.as_bytes(), true), (&whole[..], false)] {
            let (read, ends) = read_reply(bytes.chunks(size), streamed);
            prop_assert_eq!(ends, 1);
            prop_assert_eq!(read.usage, usage);
            prop_assert_eq!(read.reason.as_ref(), Some(&expected));
            let (shown, meant) = (seen(&read), seen(&original));
            prop_assert_eq!(&shown.2, &meant.2);
            // Parallel blocks of one kind are mixed.
            if !at_once || !streamed {
                prop_assert_eq!((shown.0, shown.1), (meant.0, meant.1));
            }
        }
        let cut = stream.len() * (size % 7) / 7;
        let (read, ends) = read_reply([&stream.as_bytes()[..cut]], true);
        prop_assert_eq!((read.reason, ends), (Some(EndReason::Cut), 1));
    }
}
