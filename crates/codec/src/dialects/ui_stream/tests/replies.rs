//! What is written of a reply, beyond what the shared replies show.

use serde_json::json;
use throughline_canonical::{
    BlockStart, Delta, EndReason, Fold, Show, ThinkingSetting, Tool, Usage,
};

use super::checker::build;
use super::*;

fn started(index: u32, block: BlockStart<'static>) -> Event<'static> {
    Event::BlockStarted { index, block }
}

fn grew(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::BlockDelta { index, delta }
}

fn thinking() -> BlockStart<'static> {
    BlockStart::Thinking { text: "".into(), signature: "".into() }
}

fn ended(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

#[test]
fn hidden_reasoning_leaves_a_part_that_holds_its_signature() {
    let request = Request {
        thinking: ThinkingSetting { show: Some(Show::Hidden), ..ThinkingSetting::default() },
        ..Request::default()
    };
    let stream = write(
        &request,
        &[
            started(0, thinking()),
            grew(0, Delta::Thinking("secret".into())),
            grew(0, Delta::Signature("old".into())),
            grew(0, Delta::Signature("S".into())),
            Event::BlockEnded { index: 0 },
            ended(EndReason::Stop),
        ],
    );
    assert!(!stream.contains("secret"));
    let parts = json!([
        {"type": "step-start"},
        {"type": "reasoning", "text": "", "state": "done",
            "providerMetadata": {"throughline": {"signature": "S"}}},
    ]);
    assert_eq!(Value::from(build(&chunks(&stream)).parts), parts);
}

#[test]
fn text_that_was_none_leaves_a_part_only_for_its_signature() {
    for (mark, parts) in [(None, 1), (Some("S"), 2)] {
        let mut events = vec![started(0, BlockStart::Text { text: "".into() })];
        events.extend(mark.map(|mark| grew(0, Delta::Signature(mark.into()))));
        events.extend([Event::BlockEnded { index: 0 }, ended(EndReason::Stop)]);
        let built = build(&chunks(&write(&Request::default(), &events)));
        assert_eq!(built.parts.len(), parts, "{built:?}");
    }
}

/// A tool nobody told of, or one whose name makes an odd part type, gets a part of the general type.
#[test]
fn calls_of_unknown_tools_are_dynamic() {
    let tool = |name: &str| Tool::Function {
        name: name.to_owned(),
        description: None,
        parameters: Value::Null,
        strict: None,
    };
    let request = Request { tools: vec![tool("lookup"), tool("a.b")], ..Request::default() };
    for (name, kind) in
        [("lookup", "tool-lookup"), ("a.b", "dynamic-tool"), ("other", "dynamic-tool")]
    {
        let call = BlockStart::ToolCall { id: "c".into(), name: name.into() };
        let events =
            [started(0, call), Event::BlockEnded { index: 0 }, ended(EndReason::ToolCalls)];
        let built = build(&chunks(&write(&request, &events)));
        assert_eq!(built.parts[1]["type"], kind);
        assert_eq!(built.parts[1]["input"], json!({}));
    }
}

#[test]
fn a_call_that_was_cut_is_none_and_what_was_said_stays() {
    let events = [
        started(0, BlockStart::Text { text: "so far".into() }),
        started(1, thinking()),
        started(2, BlockStart::ToolCall { id: "c".into(), name: "f".into() }),
        grew(2, Delta::ToolArguments("{}".into())),
        ended(EndReason::Cut),
    ];
    let built = build(&chunks(&write(&Request::default(), &events)));
    let states: Vec<&Value> = built.parts.iter().map(|part| &part["state"]).collect();
    assert_eq!(json!(states), json!([null, "done", "done", "input-streaming"]));
    assert_eq!(built.error.as_deref(), Some("the provider's reply ended before it was complete"));
    assert_eq!(built.reason, "error");
}

/// A front end runs calls that look whole, and answers those that failed: with the same limit, for ever.
#[test]
fn a_call_that_a_limit_cut_is_none_whoever_closed_it() {
    let call = |index: u32, id: &'static str| {
        let (id, name) = (id.into(), "f".into());
        started(index, BlockStart::ToolCall { id, name })
    };
    for (half, reason, state) in [
        ("", EndReason::Length, "input-streaming"),
        ("{\"a\":", EndReason::Length, "input-streaming"),
        ("{\"a\":", EndReason::Refusal, "input-streaming"),
        ("{\"a\":1}", EndReason::Length, "input-available"),
        ("", EndReason::ToolCalls, "input-available"),
        ("{\"a\":", EndReason::ToolCalls, "output-error"),
    ] {
        for closed in [true, false] {
            let mut events = vec![
                call(0, "c0"),
                Event::BlockEnded { index: 0 },
                call(1, "c1"),
                grew(1, Delta::ToolArguments(half.into())),
            ];
            events.extend(closed.then_some(Event::BlockEnded { index: 1 }));
            events.extend([Event::Usage(Usage::default()), ended(reason.clone())]);
            let built = build(&chunks(&write(&Request::default(), &events)));
            let states: Vec<&Value> = built.parts.iter().map(|part| &part["state"]).collect();
            let expected = json!([null, "input-available", state]);
            assert_eq!(json!(states), expected, "{half} {reason:?} {closed}");
        }
    }
}

#[test]
fn ends_have_words_every_major_knows() {
    for (reason, word) in [
        (EndReason::Stop, "stop"),
        (EndReason::StopSequence, "stop"),
        (EndReason::Length, "length"),
        (EndReason::ToolCalls, "tool-calls"),
        (EndReason::Refusal, "content-filter"),
        (EndReason::Pause, "other"),
        (EndReason::Other("compaction".to_owned()), "other"),
        (EndReason::Failed, "error"),
        (EndReason::Cut, "error"),
    ] {
        let built = build(&chunks(&write(&Request::default(), &[ended(reason)])));
        assert_eq!(built.reason, word);
    }
}

#[test]
fn counts_are_metadata_of_the_message() {
    let usage = Usage {
        input: Some(5),
        cache_read: Some(10),
        cache_write: Some(1),
        output: Some(4),
        thinking: Some(3),
    };
    let events = [Event::Usage(usage), ended(EndReason::Stop)];
    let built = build(&chunks(&write(&Request::default(), &events)));
    let counts = json!({"inputTokens": 16, "outputTokens": 4, "totalTokens": 20,
        "reasoningTokens": 3, "cachedInputTokens": 10});
    assert_eq!(built.metadata, json!({"usage": counts}));
    let none = build(&chunks(&write(&Request::default(), &[ended(EndReason::Stop)])));
    assert_eq!(none.metadata, Value::Null);
}

#[test]
fn a_whole_reply_is_its_stream_in_one_piece() {
    let events = [
        Event::MessageStarted { id: "m".into(), model: "x".into() },
        started(0, thinking()),
        grew(0, Delta::Thinking("hm".into())),
        grew(0, Delta::Signature("S".into())),
        Event::BlockEnded { index: 0 },
        started(1, BlockStart::Text { text: "".into() }),
        grew(1, Delta::Text("yes".into())),
        Event::BlockEnded { index: 1 },
        ended(EndReason::Stop),
    ];
    let mut fold = Fold::default();
    events.iter().for_each(|event| fold.push(event));
    let writer = UiStream.reply_writer(&Request::default(), &identity());
    let whole = String::from_utf8(writer.whole(fold.reply())).unwrap();
    assert_eq!(whole, write(&Request::default(), &events));
}

#[test]
fn a_sign_of_life_is_a_comment() {
    let mut writer = UiStream.reply_writer(&Request::default(), &identity());
    let mut out = Vec::new();
    writer.keep_alive(&mut out);
    assert_eq!(out, b": keep-alive\n\n");
    writer.push(&ended(EndReason::Stop), &mut out);
    let length = out.len();
    writer.keep_alive(&mut out);
    assert_eq!(out.len(), length, "behind the end");
}
