//! Round trips of random replies.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::Value;
use throughline_canonical::{Block, BlockStart, Delta, EndReason, Event, Fold, Reply, Usage};

use super::values::{object, said, word};
use super::{read_reply, streamed, whole};

#[derive(Clone, Debug)]
enum ReplyBlock {
    Text(Vec<String>),
    Thinking(Vec<String>, Option<String>),
    Redacted(String),
    Call(String, Value, usize),
}

fn reply() -> impl Strategy<Value = (Vec<ReplyBlock>, EndReason, Usage, bool)> {
    let block = prop_oneof![
        vec(said(), 0..4).prop_map(ReplyBlock::Text),
        (vec(said(), 0..4), option::of("[a-zA-Z0-9+/=]{1,9}"))
            .prop_map(|(text, mark)| ReplyBlock::Thinking(text, mark)),
        said().prop_map(ReplyBlock::Redacted),
        (word(), object(), 0..9usize)
            .prop_map(|(name, value, cut)| ReplyBlock::Call(name, value, cut)),
    ];
    let reason = prop_oneof![
        Just(EndReason::Stop),
        Just(EndReason::Length),
        Just(EndReason::StopSequence),
        Just(EndReason::Pause),
        Just(EndReason::Refusal),
        Just(EndReason::Other("compaction".to_owned())),
    ];
    let usage = (
        any::<u64>(),
        option::of(any::<u64>()),
        option::of((any::<u64>(), option::of(any::<u64>()))),
        any::<u64>(),
        option::of(any::<u64>()),
    )
        .prop_map(|(input, cache_read, cache_write, output, thinking)| Usage {
            input: Some(input),
            cache_read,
            cache_write: cache_write.map(|(all, _)| all),
            cache_write_1h: cache_write.and_then(|(_, hour)| hour),
            output: Some(output),
            thinking,
        });
    (vec(block, 0..6), reason, usage, any::<bool>())
}

/// The events of a reply: one block after the other, or all at once in turns.
fn events(
    reply_blocks: &[ReplyBlock],
    reason: &EndReason,
    usage: Usage,
    at_once: bool,
) -> Vec<Event<'static>> {
    let mut blocks: Vec<Vec<Event<'static>>> = Vec::new();
    let own = |text: &str| Cow::<'static, str>::Owned(text.to_owned());
    for (index, block) in (0..).zip(reply_blocks) {
        let delta = |delta| Event::BlockDelta { index, delta };
        let start = |block| Event::BlockStarted { index, block };
        let mut events = Vec::new();
        match block {
            ReplyBlock::Text(pieces) => {
                events.push(start(BlockStart::Text { text: "".into() }));
                events.extend(pieces.iter().map(|text| delta(Delta::Text(own(text)))));
            }
            ReplyBlock::Thinking(pieces, mark) => {
                events.push(start(BlockStart::Thinking { text: "".into(), signature: "".into() }));
                events.extend(pieces.iter().map(|text| delta(Delta::Thinking(own(text)))));
                events.extend(mark.iter().map(|mark| delta(Delta::Signature(own(mark)))));
            }
            ReplyBlock::Redacted(data) => {
                events.push(start(BlockStart::Redacted { data: own(data) }));
            }
            ReplyBlock::Call(name, value, cut) => {
                let id = format!("toolu_{index}");
                events.push(start(BlockStart::ToolCall { id: id.into(), name: own(name) }));
                let text = value.to_string();
                let cut = text.char_indices().map(|(at, _)| at).nth(*cut).unwrap_or_default();
                for piece in [&text[..cut], &text[cut..]] {
                    events.push(delta(Delta::ToolArguments(own(piece))));
                }
            }
        }
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
    all.extend([Event::Usage(usage), Event::Ended { reason: reason.clone() }]);
    all
}

/// The content of a reply that every client sees.
fn seen(events: &[Event<'_>]) -> Reply {
    let mut fold = Fold::default();
    for event in events {
        fold.push(event);
    }
    let mut reply = fold.finish();
    (reply.id, reply.model) = ("msg_01abc".to_owned(), "asked-for".to_owned());
    reply.content.retain(|block| !matches!(block, Block::Text { text, .. } if text.is_empty()));
    let called = reply.content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
    if called && reply.reason == Some(EndReason::Stop) {
        reply.reason = Some(EndReason::ToolCalls);
    }
    reply
}

proptest! {
    #[test]
    fn a_reply_survives_a_round_trip((reply_blocks, reason, usage, at_once) in reply(), size in 1..50usize) {
        let events = events(&reply_blocks, &reason, usage, at_once);
        let expected = seen(&events);
        let stream = streamed(&events);
        let (read, ends) = read_reply(stream.as_bytes().chunks(size), true);
        prop_assert_eq!((&read, ends), (&expected, 1));
        let mut fold = Fold::default();
        events.iter().for_each(|event| fold.push(event));
        let body = whole(fold.reply()).to_string();
        let (mut read, ends) = read_reply(body.as_bytes().chunks(size), false);
        // An empty input is not written.
        for block in &mut read.content {
            if let Block::ToolCall { arguments, .. } = block && arguments.is_empty() {
                "{}".clone_into(arguments);
            }
        }
        prop_assert_eq!((&read, ends), (&expected, 1));
        // Any cut ends once, with a fault or a cut.
        let cut = stream.len() * (size % 7) / 7;
        let (read, ends) = read_reply([&stream.as_bytes()[..cut]], true);
        prop_assert_eq!((read.reason, ends), (Some(EndReason::Cut), 1));
    }
}
