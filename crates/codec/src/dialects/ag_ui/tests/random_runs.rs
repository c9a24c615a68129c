//! Random runs: old and new clients accept any events in any order, and a client of version 1.0 sends
//! back the same reply.

use std::borrow::Cow;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Fold, Reply, Role, Usage,
};

use super::reducer::Messages;
use super::rules::{Age, check};
use super::{asked, body, read, read_at, writer};
use crate::dialects::shared::hidden_reasoning::NOTICE;

#[derive(Clone, Debug)]
enum ReplyBlock {
    Text(Vec<String>, Option<String>),
    Refusal(Vec<String>),
    /// With a signature that comes first, and one that comes last.
    Thinking(Vec<String>, [Option<String>; 2]),
    Redacted(String),
    Call(Vec<String>, Option<String>),
    Opaque,
}

/// The course of a run.
#[derive(Clone, Debug)]
struct Plan {
    blocks: Vec<ReplyBlock>,
    /// Which open block continues at each step.
    turns: Vec<usize>,
    /// Where the provider is silent for a while.
    pauses: Vec<usize>,
    /// Blocks that get no end.
    unclosed: Vec<u32>,
    end: EndReason,
    usage: Usage,
}

fn pieces() -> impl Strategy<Value = Vec<String>> {
    let piece = prop_oneof![
        Just(String::new()),
        "[a-z ]{1,6}",
        "\\PC{1,4}",
        Just("\r\n\n\"\\\u{2028}data: ".to_owned()),
    ];
    vec(piece, 0..4)
}

fn mark() -> impl Strategy<Value = Option<String>> {
    option::of("[a-zA-Z0-9+/=]{1,9}")
}

fn plan() -> impl Strategy<Value = Plan> {
    let block = prop_oneof![
        3 => (pieces(), mark()).prop_map(|(text, mark)| ReplyBlock::Text(text, mark)),
        1 => pieces().prop_map(ReplyBlock::Refusal),
        3 => (pieces(), mark(), mark()).prop_map(|(text, early, late)| ReplyBlock::Thinking(text, [early, late])),
        2 => "[a-z]{0,4}".prop_map(ReplyBlock::Redacted),
        3 => (pieces(), mark()).prop_map(|(arguments, mark)| ReplyBlock::Call(arguments, mark)),
        1 => Just(ReplyBlock::Opaque),
    ];
    let end = prop_oneof![
        Just(EndReason::Stop),
        Just(EndReason::Length),
        Just(EndReason::StopSequence),
        Just(EndReason::ToolCalls),
        Just(EndReason::Pause),
        Just(EndReason::Refusal),
        Just(EndReason::Other("compaction".to_owned())),
    ];
    let counts = [(); 5].map(|()| option::of(any::<u64>()));
    let usage = counts.prop_map(|[input, cache_read, cache_write, output, thinking]| Usage {
        input,
        cache_read,
        cache_write,
        output,
        thinking,
        ..Usage::default()
    });
    // Half of them one block after the other, half of them in any order.
    let turns = prop_oneof![Just(Vec::new()), vec(0..6usize, 40)];
    let pauses = vec(0..40usize, 0..4);
    let unclosed = prop_oneof![Just(Vec::new()), vec(0..7u32, 1..3)];
    (vec(block, 0..7), turns, pauses, unclosed, end, usage).prop_map(
        |(blocks, turns, pauses, unclosed, end, usage)| Plan {
            blocks,
            turns,
            pauses,
            unclosed,
            end,
            usage,
        },
    )
}

fn own(text: &str) -> Cow<'static, str> {
    text.to_owned().into()
}

/// The events of one block.
fn block(index: u32, reply_block: &ReplyBlock) -> Vec<Event<'static>> {
    let grown = |delta| Event::BlockDelta { index, delta };
    let signed = |mark: &String| grown(Delta::Signature(own(mark)));
    let (start, deltas): (BlockStart<'static>, Vec<Event<'static>>) = match reply_block {
        ReplyBlock::Text(text, mark) => (
            BlockStart::Text { text: "".into() },
            text.iter()
                .map(|text| grown(Delta::Text(own(text))))
                .chain(mark.iter().map(signed))
                .collect(),
        ),
        ReplyBlock::Refusal(text) => (
            BlockStart::Refusal { text: "".into() },
            text.iter().map(|text| grown(Delta::Text(own(text)))).collect(),
        ),
        ReplyBlock::Thinking(text, [early, late]) => (
            BlockStart::Thinking {
                text: "".into(),
                signature: own(early.as_deref().unwrap_or_default()),
            },
            text.iter()
                .map(|text| grown(Delta::Thinking(own(text))))
                .chain(late.iter().map(signed))
                .collect(),
        ),
        ReplyBlock::Redacted(data) => (BlockStart::Redacted { data: own(data) }, Vec::new()),
        ReplyBlock::Call(arguments, mark) => (
            BlockStart::ToolCall { id: format!("call_{index}\"").into(), name: "f".into() },
            arguments
                .iter()
                .map(|text| grown(Delta::ToolArguments(own(text))))
                .chain(mark.iter().map(signed))
                .collect(),
        ),
        ReplyBlock::Opaque => {
            (BlockStart::Opaque { dialect: "theirs".into(), name: "odd".into() }, Vec::new())
        }
    };
    let mut events = vec![Event::BlockStarted { index, block: start }];
    events.extend(deltas);
    events.push(Event::BlockEnded { index });
    events
}

impl Plan {
    fn events(&self) -> Vec<Event<'static>> {
        let blocks = (0..).zip(&self.blocks);
        let mut blocks: Vec<_> =
            blocks.map(|(index, reply_block)| block(index, reply_block).into_iter()).collect();
        let mut turns = self.turns.iter();
        let mut events =
            vec![Event::MessageStarted { id: "theirs".into(), model: "their-model".into() }];
        while !blocks.is_empty() {
            let place = turns.next().unwrap_or(&0) % blocks.len();
            match blocks[place].next() {
                Some(event) => events.push(event),
                None => drop(blocks.remove(place)),
            }
        }
        let closes = |event: &Event<'_>| match event {
            Event::BlockEnded { index } => !self.unclosed.contains(index),
            _ => true,
        };
        events.retain(closes);
        events.push(Event::Usage(self.usage));
        events.push(Event::Ended { reason: self.end.clone() });
        events
    }

    /// The stream of a run, cut before `cut` by a fault or by nothing.
    fn stream(&self, asked: &Value, query: &str, cut: Option<(usize, bool)>) -> String {
        let accepted = read_at("/ag-ui", query, asked).unwrap();
        let mut events = self.events();
        if let Some((at, failed)) = cut {
            events.truncate(at % events.len());
            if failed {
                events.push(Event::Fault(Fault::new(FaultKind::Overloaded, "busy")));
            }
            let reason = if failed { EndReason::Failed } else { EndReason::Cut };
            events.push(Event::Ended { reason });
        }
        let mut writer = writer(&accepted);
        let mut out = Vec::new();
        for (at, event) in events.iter().enumerate() {
            for pause in self.pauses.iter().filter(|pause| **pause == at) {
                writer.wait(Duration::from_secs(15 + *pause as u64), &mut out);
            }
            writer.push(event, &mut out);
        }
        // Nothing is written after the end.
        writer.wait(Duration::from_secs(99), &mut out);
        writer.push(&Event::Ended { reason: EndReason::Cut }, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn folded(&self) -> Reply {
        let mut fold = Fold::default();
        self.events().iter().for_each(|event| fold.push(event));
        fold.finish()
    }
}

/// The blocks of a turn that a client sends back: no empty blocks, and no parts of other dialects.
fn kept(mut content: Vec<Block>) -> Vec<Block> {
    content.retain(|block| match block {
        Block::Text { text, signature, .. } | Block::Thinking { text, signature } => {
            !text.is_empty() || signature.is_some()
        }
        Block::Refusal { text } => !text.is_empty(),
        Block::Redacted { data } => !data.is_empty(),
        Block::Opaque { .. } => false,
        _ => true,
    });
    for block in &mut content {
        if let Block::ToolCall { arguments, .. } = block
            && arguments.is_empty()
        {
            "{}".clone_into(arguments);
        }
    }
    content
}

fn old() -> Value {
    let mut body = asked(&json!({}));
    body.as_object_mut().unwrap().remove("protocolVersion");
    body
}

proptest! {
    ///
    #[test]
    fn any_run_passes_the_rules_of_old_and_new_clients(plan in plan(), cut in option::of((any::<usize>(), any::<bool>()))) {
        for (age, asked, query) in [
            (Age::Modern, asked(&json!({})), ""),
            (Age::Modern, asked(&json!({})), "reasoning=none"),
            (Age::Old, old(), ""),
            (Age::Old, old(), "x=1&reasoning=none"),
        ] {
            let stream = plan.stream(&asked, query, cut);
            let events = check(age, &stream).map_err(|wrong| format!("{wrong}\n{stream}"));
            let events = events.map_err(TestCaseError::fail)?;
            let said = |kind: &str| events.iter().any(|event| event["type"].as_str().is_some_and(|it| it.contains(kind)));
            if query.ends_with("none") {
                prop_assert!(!said("REASONING") && !said("THINKING"), "{}", stream);
            }
            prop_assert_eq!(said("RUN_ERROR"), cut.is_some());
            if age == Age::Old {
                prop_assert!(!said("ACTIVITY") && !said("REASONING"), "{}", stream);
            }
        }
    }

    /// Covers: S2-48
    #[test]
    fn a_client_sends_back_the_written_reply(plan in plan()) {
        let begun = asked(&json!({}));
        let stream = plan.stream(&begun, "", None);
        let events = check(Age::Modern, &stream).map_err(TestCaseError::fail)?;
        let user = begun["messages"][0].clone();
        let mut messages = Messages::new(vec![user.clone()]);
        messages.take(&events).map_err(|wrong| TestCaseError::fail(format!("{wrong}\n{stream}")))?;
        let mut sent = messages.sent();
        let content = kept(plan.folded().content);
        let list = sent.as_array_mut().unwrap();
        let calls = content.iter().filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(json!({"id": id, "role": "tool", "toolCallId": id, "content": ""})),
            _ => None,
        });
        list.extend(calls);
        list.push(json!({"id": "next", "role": "user", "content": "Go on."}));
        let read = read(&body(&sent));
        let turns = &read.request.messages;
        prop_assert!(read.losses.is_empty());
        if content.is_empty() {
            prop_assert_eq!(turns.len(), 2);
        } else {
            let called = content.iter().any(|block| matches!(block, Block::ToolCall { .. }));
            prop_assert_eq!(turns.len(), 3 + usize::from(called));
            prop_assert_eq!(turns[1].role, Role::Assistant);
            prop_assert_eq!(&kept(turns[1].content.clone()), &content, "{}", stream);
        }
    }

    /// Older clients get all reasoning, one block after the other if several are open.
    #[test]
    fn older_clients_get_all_reasoning(plan in plan()) {
        let stream = plan.stream(&old(), "", None);
        let events = check(Age::Old, &stream).map_err(TestCaseError::fail)?;
        let shown: String = events
            .iter()
            .filter(|event| event["type"] == "THINKING_TEXT_MESSAGE_CONTENT")
            .filter_map(|event| event["delta"].as_str())
            .filter(|delta| *delta != NOTICE)
            .collect();
        let said = plan.events();
        let said = said.iter().filter_map(|event| match event {
            Event::BlockDelta { delta: Delta::Thinking(text), .. } => Some(&**text),
            _ => None,
        });
        prop_assert_eq!(shown, said.collect::<String>());
    }

    /// A whole reply is written as its stream.
    #[test]
    fn a_whole_reply_is_a_valid_run(plan in plan()) {
        let accepted = read(&asked(&json!({})));
        let whole = writer(&accepted).whole(&plan.folded());
        let whole = String::from_utf8(whole).unwrap();
        check(Age::Modern, &whole).map_err(TestCaseError::fail)?;
    }
}
