//! A reply for benchmarks: deltas of thinking, text and arguments.

use std::borrow::Cow;

use throughline_canonical::{BlockStart, Delta, EndReason, Event};

/// One token or a few, as providers send them.
const PIECE: &str = " and so the seventh row";

/// Creates a delta of a block.
type NewDelta = fn(&'static str) -> Delta<'static>;

/// A reply with this many deltas.
pub(crate) fn events(deltas: usize) -> Vec<Event<'static>> {
    let text = Cow::Borrowed;
    let mut events = vec![Event::MessageStarted { id: text("r1"), model: text("m") }];
    let blocks: [(BlockStart<'_>, NewDelta); 3] = [
        (BlockStart::Thinking { text: text(""), signature: text("") }, |piece| {
            Delta::Thinking(Cow::Borrowed(piece))
        }),
        (BlockStart::Text { text: text("") }, |piece| Delta::Text(Cow::Borrowed(piece))),
        (BlockStart::ToolCall { id: text("toolu_01A2b3C4d5"), name: text("lookup") }, |piece| {
            Delta::ToolArguments(Cow::Borrowed(piece))
        }),
    ];
    for (index, (block, delta)) in (0..).zip(blocks) {
        let call = matches!(block, BlockStart::ToolCall { .. });
        let thinking = matches!(block, BlockStart::Thinking { .. });
        events.push(Event::BlockStarted { index, block });
        let mut push = |delta| events.push(Event::BlockDelta { index, delta });
        if call {
            push(delta("{\"row\":\""));
        }
        for _ in 0..deltas / 3 {
            push(delta(PIECE));
        }
        if call {
            push(delta("\"}"));
        }
        if thinking {
            push(Delta::Signature(text("EqQBCkYIBxgCKkDsigned")));
        }
        events.push(Event::BlockEnded { index });
    }
    events.push(Event::Ended { reason: EndReason::ToolCalls });
    events
}
