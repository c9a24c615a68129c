//! The lines of a reply, and their round trip through a client.

use std::borrow::Cow;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::json;
use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Fault, FaultKind, Fold, Show, ThinkingSetting, Usage,
};

use super::*;

fn started(index: u32, block: BlockStart<'static>) -> Event<'static> {
    Event::BlockStarted { index, block }
}

fn grew(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::BlockDelta { index, delta }
}

fn ended(index: u32) -> Event<'static> {
    Event::BlockEnded { index }
}

fn thinking() -> BlockStart<'static> {
    BlockStart::Thinking { text: "".into(), signature: "".into() }
}

fn tool() -> Vec<Event<'static>> {
    vec![
        started(0, BlockStart::ToolCall { id: "c".into(), name: "f".into() }),
        grew(0, Delta::ToolArguments("{\n \"row\":".into())),
        grew(0, Delta::ToolArguments(" 7}".into())),
        grew(0, Delta::Signature("S".into())),
        ended(0),
    ]
}

fn done(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

/// Covers: S4-27, S4-53, S4-54
#[test]
fn a_reply_is_lines_of_ordered_blocks() {
    let mut events = vec![
        Event::MessageStarted { id: "theirs".into(), model: "their-model".into() },
        started(0, thinking()),
        grew(0, Delta::Thinking("First".into())),
        grew(0, Delta::Thinking(", then.".into())),
        grew(0, Delta::Signature("S".into())),
        ended(0),
        started(1, BlockStart::Redacted { data: "D".into() }),
        ended(1),
        started(2, BlockStart::Text { text: "".into() }),
        grew(2, Delta::Text("I".into())),
        grew(2, Delta::Text(" look.".into())),
        ended(2),
        Event::Usage(Usage { input: Some(3), output: Some(5), ..Usage::default() }),
        done(EndReason::Stop),
    ];
    let request = Request { model: "asked-for".to_owned(), ..Request::default() };
    assert_eq!(
        Value::from(lines(&request, &events)),
        json!([
            {"type": "thinking", "content": "First", "append": false, "block": 0, "seq": 1},
            {"type": "thinking", "content": ", then.", "append": true, "block": 0, "seq": 2},
            {"type": "thinking_signature", "content": "S", "block": 0, "seq": 3},
            {"type": "redacted_thinking", "content": "D", "block": 1, "seq": 4},
            {"type": "text", "content": "I", "block": 2, "seq": 5},
            {"type": "text", "content": " look.", "block": 2, "seq": 6},
            {"type": "done", "reason": "completed", "stop_reason": "stop", "model": "asked-for",
                "usage": {"input": 3, "output": 5}, "seq": 7},
        ])
    );
    events.truncate(1);
    events.extend(tool());
    events.push(done(EndReason::ToolCalls));
    assert_eq!(
        Value::from(lines(&Request::default(), &events)),
        json!([
            {"type": "tool_call", "id": "c", "name": "f", "arguments": {"row": 7}, "signature": "S",
                "block": 0, "seq": 1},
            {"type": "done", "reason": "completed", "stop_reason": "tool_calls", "model": "their-model",
                "usage": {}, "seq": 2},
        ])
    );
}

/// Covers: S4-36, S4-52
#[test]
fn redacted_data_never_reaches_a_client() {
    let secret = || Cow::Borrowed("provider-native");
    let events = [
        started(0, BlockStart::Opaque { dialect: "theirs".into(), name: secret() }),
        grew(0, Delta::Opaque(secret())),
        ended(0),
        started(1, BlockStart::Text { text: "hi".into() }),
        grew(1, Delta::Opaque(secret())),
        ended(1),
        done(EndReason::Stop),
    ];
    let mut fold = Fold::default();
    events.iter().for_each(|event| fold.push(event));
    for dialect in [&NdJson as &dyn ClientDialect, &crate::dialects::events::Events] {
        let mut writer = dialect.session().reply_writer(&Request::default(), &identity());
        let mut out = Vec::new();
        events.iter().for_each(|event| writer.push(event, &mut out));
        out.extend(writer.whole(fold.reply()));
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("hi"), "{text}");
        assert!(!text.contains("provider-native"), "{text}");
    }
}

#[test]
fn hidden_reasoning_has_only_its_signature() {
    let request = Request {
        thinking: ThinkingSetting { show: Some(Show::Hidden), ..ThinkingSetting::default() },
        ..Request::default()
    };
    let events = [
        started(0, thinking()),
        grew(0, Delta::Thinking("secret".into())),
        grew(0, Delta::Text("secret".into())),
        grew(0, Delta::Signature("S".into())),
        ended(0),
        done(EndReason::Stop),
    ];
    let written = lines(&request, &events);
    assert_eq!(written.len(), 2);
    assert_eq!(
        written[0],
        json!({"type": "thinking_signature", "content": "S", "block": 0, "seq": 1})
    );
    assert_eq!(written[1]["reason"], "empty");
    let mut writer = crate::dialects::events::Events.session().reply_writer(&request, &identity());
    let mut out = Vec::new();
    events.iter().for_each(|event| writer.push(event, &mut out));
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("secret") && text.contains("\"S\""), "{text}");
}

#[test]
fn each_end_reason_has_a_word() {
    let said = || started(0, BlockStart::Text { text: "hi".into() });
    let fault = |kind| Event::Fault(Fault::new(kind, "what happened"));
    for (events, reason, stop) in [
        (vec![said(), done(EndReason::Stop)], "completed", "stop"),
        (vec![said(), done(EndReason::Length)], "truncated", "length"),
        (vec![done(EndReason::Refusal)], "completed", "refusal"),
        (vec![done(EndReason::Stop)], "empty", "stop"),
        (vec![said(), done(EndReason::Other("odd".to_owned()))], "completed", "odd"),
        (vec![said(), done(EndReason::Cut)], "interrupted", "cut"),
        (
            vec![said(), fault(FaultKind::Unreachable), done(EndReason::Failed)],
            "interrupted",
            "failed",
        ),
        (vec![fault(FaultKind::TimedOut), done(EndReason::Failed)], "timeout", "failed"),
        (vec![said(), fault(FaultKind::Overloaded), done(EndReason::Failed)], "error", "failed"),
    ] {
        let written = lines(&Request::default(), &events);
        let last = written.last().unwrap();
        assert_eq!((&last["reason"], &last["stop_reason"]), (&json!(reason), &json!(stop)));
    }
    let written = lines(
        &Request::default(),
        &[fault(FaultKind::RateLimited), said(), done(EndReason::Failed)],
    );
    let error =
        json!({"type": "error", "message": "what happened", "kind": "rate_limited", "seq": 1});
    assert_eq!(written[0], error);
    assert_eq!(written.len(), 2, "the end follows an error");
}

/// A block as a model writes it.
fn block() -> impl Strategy<Value = (BlockStart<'static>, Vec<Delta<'static>>)> {
    let text = || r#"[a-z"\\\n\rä🧠{}]{0,6}"#.prop_map(Cow::<'static, str>::Owned);
    let mark = || "[a-zA-Z0-9+/=]{1,9}".prop_map(|mark| Delta::Signature(mark.into()));
    let none = || Cow::Borrowed("");
    prop_oneof![
        (vec(text(), 1..4), option::of(mark())).prop_map(move |(text, mark)| {
            let text = text.into_iter().map(Delta::Text);
            (BlockStart::Text { text: none() }, text.chain(mark).collect())
        }),
        (vec(text(), 0..4), mark()).prop_map(|(text, mark)| {
            let text = text.into_iter().map(Delta::Thinking);
            (thinking(), text.chain([mark]).collect())
        }),
        vec(text(), 1..3).prop_map(move |text| {
            let text = text.into_iter().map(Delta::Text).collect();
            (BlockStart::Refusal { text: none() }, text)
        }),
        "[a-z]{1,5}".prop_map(|data| (BlockStart::Redacted { data: data.into() }, Vec::new())),
        ("[a-z]{1,3}", any::<bool>(), option::of(mark())).prop_map(|(key, broken, mark)| {
            let end = if broken { "" } else { "\"}" };
            let arguments = [format!("{{\n\"key\": \"{key}"), end.to_owned()];
            let arguments = arguments.map(|text| Delta::ToolArguments(text.into()));
            let call = BlockStart::ToolCall { id: "c".into(), name: "f".into() };
            (call, arguments.into_iter().chain(mark).collect())
        }),
    ]
}

proptest! {
    /// Blocks come one after the other, or all in turns.
    #[test]
    fn written_lines_read_back_as_the_same_reply(said in vec(block(), 1..6), at_once in any::<bool>()) {
        let mut blocks: Vec<Vec<Event<'static>>> = Vec::new();
        for (index, (block, deltas)) in (0..).zip(said) {
            let deltas = deltas.into_iter().map(|delta| grew(index, delta));
            let all = [started(index, block)].into_iter().chain(deltas);
            blocks.push(all.chain([ended(index)]).collect());
        }
        let mut events = blocks.concat();
        if at_once {
            let longest = blocks.iter().map(Vec::len).max().unwrap_or_default();
            let turn = |turn: usize| blocks.iter().filter_map(move |block| block.get(turn).cloned());
            events = (0..longest).flat_map(turn).collect();
        }
        events.push(done(EndReason::Stop));
        let mut fold = Fold::default();
        events.iter().for_each(|event| fold.push(event));
        let written = lines(&Request::default(), &events);
        for (number, line) in (1..).zip(&written) {
            prop_assert_eq!(&line["seq"], &json!(number));
        }
        let ends = written.iter().filter(|line| line["type"] == "done").count();
        prop_assert_eq!((ends, &written[written.len() - 1]["type"]), (1, &json!("done")));
        let mut expected = fold.finish().content;
        for block in &mut expected {
            if let Block::ToolCall { arguments, .. } = block
                && let Ok(value) = serde_json::from_str::<Value>(arguments)
            {
                *arguments = value.to_string();
            }
        }
        let body = json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": written}]});
        let back = read(&body).value.messages.pop().unwrap().content;
        // The order of blocks is the order of their first lines. Parallel blocks may change it.
        let order = written.iter().filter_map(|line| line["block"].as_u64());
        let mut seen: Vec<u64> = Vec::new();
        for number in order {
            if !seen.contains(&number) {
                seen.push(number);
            }
        }
        let mut numbered: Vec<(u64, Block)> = seen.into_iter().zip(back).collect();
        numbered.sort_by_key(|(number, _)| *number);
        expected.retain(|block| !matches!(block,
            Block::Text { text, signature: None, .. } | Block::Refusal { text } if text.is_empty()));
        let found: Vec<Block> = numbered.into_iter().map(|(_, block)| block).collect();
        prop_assert_eq!(found, expected);
    }

    /// Any events in any order.
    #[test]
    fn any_events_end_in_one_done(order in vec((0..3u32, 0..6usize), 0..30)) {
        let mut events: Vec<Event<'static>> = order.into_iter().map(|(index, what)| match what {
            0 => started(index, thinking()),
            1 => started(index, BlockStart::Text { text: "a".into() }),
            2 => grew(index, Delta::Text("b".into())),
            3 => grew(index, Delta::ToolArguments("{".into())),
            4 => started(index, BlockStart::ToolCall { id: "c".into(), name: "f".into() }),
            _ => ended(index),
        }).collect();
        events.push(done(EndReason::Stop));
        events.push(started(0, BlockStart::Text { text: "late".into() }));
        let written = lines(&Request::default(), &events);
        let ends = written.iter().filter(|line| line["type"] == "done").count();
        prop_assert_eq!((ends, &written[written.len() - 1]["type"]), (1, &json!("done")));
    }
}
