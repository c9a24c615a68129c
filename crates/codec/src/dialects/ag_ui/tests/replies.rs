//! Written runs, beyond the shared replies in `corpus/ag_ui/client_reply`.

use std::time::Duration;

use serde_json::{Value, json};
use throughline_canonical::{
    BlockStart, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Usage,
};

use super::rules::{Age, check};
use super::{asked, read, read_at, writer, written};
use crate::dialects::ClientDialect;
use crate::dialects::ag_ui::AgUi;
use crate::dialects::shared::hidden_reasoning::NOTICE;

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    kinds.collect()
}

fn block(
    index: u32,
    block: BlockStart<'static>,
    deltas: Vec<Delta<'static>>,
) -> Vec<Event<'static>> {
    let mut events = vec![Event::BlockStarted { index, block }];
    events.extend(deltas.into_iter().map(|delta| Event::BlockDelta { index, delta }));
    events.push(Event::BlockEnded { index });
    events
}

fn thinking(index: u32, text: &'static str, mark: &'static str) -> Vec<Event<'static>> {
    let start = BlockStart::Thinking { text: "".into(), signature: "".into() };
    let deltas = vec![Delta::Thinking(text.into()), Delta::Signature(mark.into())];
    block(index, start, deltas)
}

fn text(index: u32, text: &'static str) -> Vec<Event<'static>> {
    let start = BlockStart::Text { text: text.into() };
    block(index, start, Vec::new())
}

fn redacted(index: u32) -> Vec<Event<'static>> {
    let data = "d".into();
    block(index, BlockStart::Redacted { data }, Vec::new())
}

fn ended(reason: EndReason) -> Vec<Event<'static>> {
    vec![Event::Ended { reason }]
}

fn old() -> Value {
    let mut body = asked(&json!({}));
    body.as_object_mut().unwrap().remove("protocolVersion");
    body
}

#[test]
fn a_run_keeps_the_ids_of_its_request() {
    let accepted = read(&asked(&json!({"parentRunId": "r0"})));
    let events = check(Age::Modern, &written(&accepted, &ended(EndReason::Stop))).unwrap();
    let expected = [
        json!({"type": "RUN_STARTED", "threadId": "t1", "runId": "r1", "protocolVersion": "1.0", "parentRunId": "r0"}),
        json!({
            "type": "RUN_FINISHED", "threadId": "t1", "runId": "r1",
            "result": {"finishReason": "stop"}, "outcome": {"type": "success"},
        }),
    ];
    assert_eq!(events, expected);
}

/// Covers: S2-11, S2-12
#[test]
fn reasoning_and_text_are_separate_messages_with_stable_ids() {
    let accepted = read(&asked(&json!({})));
    let said = [thinking(0, "Hm.", "s"), text(1, "Yes."), ended(EndReason::Stop)].concat();
    let events = check(Age::Modern, &written(&accepted, &said)).unwrap();
    assert_eq!(
        kinds(&events),
        [
            "RUN_STARTED",
            "REASONING_START",
            "REASONING_MESSAGE_START",
            "REASONING_MESSAGE_CONTENT",
            "REASONING_MESSAGE_END",
            "REASONING_ENCRYPTED_VALUE",
            "REASONING_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
    );
    let ids = |from: usize, to: usize| {
        let ids = events[from..to].iter().filter_map(|event| event["messageId"].as_str());
        let mut ids: Vec<&str> = ids.collect();
        ids.dedup();
        ids
    };
    let (reasoning, text) = (ids(1, 7), ids(7, 10));
    assert_eq!((reasoning.len(), text.len()), (1, 1));
    assert_ne!(reasoning, text);
    assert_eq!(events[5]["entityId"], reasoning[0]);
    assert_eq!(events[5]["encryptedValue"], "s");
}

/// Covers: S2-2, S2-5, S2-6, S2-7, S2-8, C-25
#[test]
fn a_call_streams_under_its_id() {
    let accepted = read(&asked(&json!({})));
    let start = BlockStart::ToolCall { id: "c\"1".into(), name: "f".into() };
    let deltas = ["", "{\"a\"", ":1}"].map(|piece| Delta::ToolArguments(piece.into()));
    let call = block(0, start, deltas.to_vec());
    let said = [call, ended(EndReason::ToolCalls)].concat();
    let events = check(Age::Modern, &written(&accepted, &said)).unwrap();
    let about = |kind: &str| json!({"type": kind, "toolCallId": "c\"1"});
    let with = |kind: &str, members: Value| {
        let mut event = about(kind);
        for (name, value) in members.as_object().unwrap() {
            event[name] = value.clone();
        }
        event
    };
    let expected = [
        with("TOOL_CALL_START", json!({"toolCallName": "f", "parentMessageId": "message_abc_1"})),
        with("TOOL_CALL_ARGS", json!({"delta": "{\"a\""})),
        with("TOOL_CALL_ARGS", json!({"delta": ":1}"})),
        about("TOOL_CALL_END"),
    ];
    assert_eq!(events[1..5], expected);
}

#[test]
fn older_clients_get_old_events_and_a_notice_for_hidden_reasoning() {
    let said =
        [redacted(0), thinking(1, "Hm.", "s"), text(2, "Yes."), ended(EndReason::Stop)].concat();
    let stream = written(&read(&old()), &said);
    let events = check(Age::Old, &stream).unwrap();
    assert_eq!(
        kinds(&events),
        [
            "RUN_STARTED",
            "THINKING_START",
            "THINKING_TEXT_MESSAGE_START",
            "THINKING_TEXT_MESSAGE_CONTENT",
            "THINKING_TEXT_MESSAGE_END",
            "THINKING_END",
            "THINKING_START",
            "THINKING_TEXT_MESSAGE_START",
            "THINKING_TEXT_MESSAGE_CONTENT",
            "THINKING_TEXT_MESSAGE_END",
            "THINKING_END",
            "TEXT_MESSAGE_START",
            "TEXT_MESSAGE_CONTENT",
            "TEXT_MESSAGE_END",
            "RUN_FINISHED",
        ]
    );
    assert_eq!(events[3]["delta"], NOTICE);
    // Some clients send the notice back, but the model never wrote it.
    let mut body = old();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({"id": "r", "role": "reasoning", "content": NOTICE}));
    assert_eq!(read(&body).request.messages.len(), 1);
}

#[test]
fn the_query_selects_the_form_of_reasoning() {
    let said = [thinking(0, "Hm.", "s"), ended(EndReason::Stop)].concat();
    for (body, query, word) in [
        (asked(&json!({})), "reasoning=reasoning", Some("REASONING_START")),
        (asked(&json!({})), "reasoning=thinking", Some("THINKING_START")),
        (asked(&json!({})), "reasoning=none", None),
        (old(), "reasoning=reasoning", Some("REASONING_START")),
        (old(), "reasoning=thinking", Some("THINKING_START")),
        (old(), "reasoning=none", None),
    ] {
        let stream = written(&read_at("/ag-ui", query, &body).unwrap(), &said);
        for kind in ["REASONING_START", "THINKING_START"] {
            assert_eq!(stream.contains(kind), word == Some(kind), "{query}: {stream}");
        }
    }
}

#[test]
fn hidden_reasoning_keeps_its_encrypted_value() {
    let hidden = json!({"thinking": {"type": "enabled", "display": "omitted"}});
    let said = [thinking(0, "Hm.", "s"), ended(EndReason::Stop)].concat();
    let stream = written(&read(&asked(&hidden)), &said);
    check(Age::Modern, &stream).unwrap();
    assert!(!stream.contains("Hm."), "{stream}");
    assert!(stream.contains("\"encryptedValue\":\"s\""), "{stream}");
}

/// Covers: S2-47
#[test]
fn silence_is_reported_as_an_activity() {
    let accepted = read(&asked(&json!({})));
    let mut writer = writer(&accepted);
    let mut out = Vec::new();
    writer.wait(Duration::from_secs(15), &mut out);
    writer.wait(Duration::from_secs(30), &mut out);
    for event in &thinking(0, "Hm.", "s")[..2] {
        writer.push(event, &mut out);
    }
    writer.wait(Duration::from_secs(15), &mut out);
    for event in [&thinking(0, "Hm.", "s")[2..], &ended(EndReason::Stop)].concat() {
        writer.push(&event, &mut out);
    }
    let events = check(Age::Modern, &String::from_utf8(out).unwrap()).unwrap();
    let mut messages = super::reducer::Messages::default();
    let mut heard = Vec::new();
    for event in &events {
        messages.take(std::slice::from_ref(event)).unwrap();
        if event["type"].as_str().unwrap().starts_with("ACTIVITY") {
            heard.push(messages.activity());
        }
    }
    let first = json!({
        "type": "ACTIVITY_SNAPSHOT", "messageId": "waiting_abc", "activityType": "WAITING",
        "content": {"status": "waiting", "for": "answer", "elapsedSeconds": 15},
    });
    assert_eq!(events[1], first);
    assert_eq!(
        heard,
        [
            json!({"status": "waiting", "for": "answer", "elapsedSeconds": 15}),
            json!({"status": "waiting", "for": "answer", "elapsedSeconds": 30}),
            json!({"status": "done", "for": "answer", "elapsedSeconds": 30}),
            json!({"status": "waiting", "for": "reasoning", "elapsedSeconds": 15}),
            json!({"status": "done", "for": "reasoning", "elapsedSeconds": 15}),
        ]
    );
}

#[test]
fn older_clients_get_a_comment_as_keep_alive() {
    let accepted = read(&old());
    let mut writer = writer(&accepted);
    let mut out = Vec::new();
    writer.wait(Duration::from_secs(15), &mut out);
    assert_eq!(out, b": keep-alive\n\n");
}

#[test]
fn state_and_messages_are_sent_on_request() {
    let mut body = asked(&json!({"state": {"row": null}, "forwardedProps": {"snapshots": true}}));
    body["messages"][0]["name"] = Value::Null;
    let events = check(Age::Modern, &written(&read(&body), &ended(EndReason::Stop))).unwrap();
    let expected = [
        json!({"type": "STATE_SNAPSHOT", "snapshot": {"row": null}}),
        json!({"type": "MESSAGES_SNAPSHOT", "messages": [{"id": "u", "role": "user", "content": "Hi."}]}),
    ];
    assert_eq!(events[1..3], expected);
    body["forwardedProps"] = json!({});
    let events = check(Age::Modern, &written(&read(&body), &ended(EndReason::Stop))).unwrap();
    assert_eq!(kinds(&events), ["RUN_STARTED", "RUN_FINISHED"]);
}

#[test]
fn the_result_of_a_run_has_its_end_reason() {
    for (reason, word) in [
        (EndReason::Stop, "stop"),
        (EndReason::Length, "length"),
        (EndReason::Refusal, "refusal"),
        (EndReason::StopSequence, "stop_sequence"),
        (EndReason::Pause, "pause"),
        (EndReason::ToolCalls, "tool_calls"),
        (EndReason::Other("compaction".to_owned()), "compaction"),
    ] {
        for (age, body) in [(Age::Modern, asked(&json!({}))), (Age::Old, old())] {
            let stream = written(&read(&body), &ended(reason.clone()));
            let events = check(age, &stream).unwrap();
            assert_eq!(events[1]["result"]["finishReason"], word);
        }
    }
}

/// Covers: S2-5
#[test]
fn a_cut_call_is_not_pending() {
    let tools = json!([{"name": "f"}, {"name": "g", "metadata": {"requiresApproval": true}}]);
    let call = |index: u32, name: &'static str, arguments: &'static str| {
        let start = BlockStart::ToolCall { id: format!("c{index}").into(), name: name.into() };
        block(index, start, vec![Delta::ToolArguments(arguments.into())])
    };
    for (name, half, reason, second_arguments) in [
        ("f", "", EndReason::Length, ""),
        ("f", "{\"a\":\"}", EndReason::Length, "{\"a\":\"}"),
        ("f", "{", EndReason::Refusal, "{"),
        ("g", "{", EndReason::Length, "{"),
        ("g", "", EndReason::Length, ""),
    ] {
        for closed in [true, false] {
            let mut said = [call(0, "f", ""), call(1, name, half)].concat();
            said.truncate(said.len() - usize::from(!closed));
            said.push(Event::Usage(Usage::default()));
            said.extend(ended(reason.clone()));
            let accepted = read(&asked(&json!({"tools": tools})));
            let events = check(Age::Modern, &written(&accepted, &said)).unwrap();
            let outcome = &events.last().unwrap()["outcome"];
            let expected = json!({"type": "success", "pendingToolCallIds": ["c0"]});
            assert_eq!(*outcome, expected, "{name} {half} {reason:?}");
            let arguments = |id: &str| -> String {
                let pieces = events.iter().filter(|event| event["toolCallId"] == id);
                pieces.filter_map(|event| event["delta"].as_str()).collect()
            };
            assert_eq!((arguments("c0").as_str(), &*arguments("c1")), ("{}", second_arguments));
        }
    }
}

/// A call needs an answer even if its arguments are no JSON.
#[test]
fn a_call_with_broken_arguments_is_pending() {
    let start = BlockStart::ToolCall { id: "c".into(), name: "f".into() };
    let call = block(0, start, vec![Delta::ToolArguments("{".into())]);
    let said = [call, ended(EndReason::ToolCalls)].concat();
    let events = check(Age::Modern, &written(&read(&asked(&json!({}))), &said)).unwrap();
    let outcome = &events.last().unwrap()["outcome"];
    assert_eq!(outcome["pendingToolCallIds"], json!(["c"]));
}

#[test]
fn a_refusal_has_its_explanation() {
    let details = EndDetails {
        sequence: Some("END".to_owned()),
        category: Some("cyber".to_owned()),
        explanation: Some("It may do harm.".to_owned()),
    };
    let explained = Event::EndExplained(details);
    assert_eq!(AgUi.loss_of(&explained), None);
    let said = [vec![explained], ended(EndReason::Refusal)].concat();
    for (age, body) in [(Age::Modern, asked(&json!({}))), (Age::Old, old())] {
        let events = check(age, &written(&read(&body), &said)).unwrap();
        let expected = json!({
            "finishReason": "refusal", "sequence": "END", "category": "cyber",
            "explanation": "It may do harm.",
        });
        assert_eq!(events[1]["result"], expected);
    }
}

#[test]
fn usage_has_totals_and_details_under_the_requested_model() {
    let usage = Usage {
        input: Some(7),
        cache_read: Some(2),
        cache_write: None,
        output: Some(u64::MAX),
        thinking: Some(3),
        ..Usage::default()
    };
    let started = Event::MessageStarted { id: "m".into(), model: "theirs".into() };
    let said = [vec![started, Event::Usage(usage)], ended(EndReason::Stop)].concat();
    for (asked_for, expected) in
        [(json!({"model": "asked-for"}), "asked-for"), (json!({}), "theirs")]
    {
        let stream = written(&read(&asked(&asked_for)), &said);
        let events = check(Age::Modern, &stream).unwrap();
        let most = (1_u64 << 53) - 1;
        let expected = json!([{
            "model": expected, "inputTokens": 9, "outputTokens": most, "totalTokens": most,
            "reasoningTokens": 3, "cachedInputTokens": 2,
        }]);
        assert_eq!(events[1]["usage"], expected);
    }
}

#[test]
fn an_error_ends_the_run_and_nothing_follows() {
    let mut fault = Fault::new(FaultKind::RateLimited, "slow down");
    fault.retry_after = Some(7);
    let said = [
        thinking(0, "Hm.", "s")[..2].to_vec(),
        vec![Event::Fault(fault.clone())],
        text(1, "Yes."),
        ended(EndReason::Failed),
    ]
    .concat();
    for (age, body, expected) in [
        (
            Age::Modern,
            asked(&json!({})),
            json!({"type": "RUN_ERROR", "message": "slow down", "code": "rate_limited", "metadata": {"retryAfter": 7}}),
        ),
        (
            Age::Old,
            old(),
            json!({"type": "RUN_ERROR", "message": "slow down", "code": "rate_limited"}),
        ),
    ] {
        let events = check(age, &written(&read(&body), &said)).unwrap();
        assert_eq!(*events.last().unwrap(), expected);
    }
    let (status, body) = AgUi.write_fault(&fault, "");
    let body: Value = serde_json::from_slice(&body).unwrap();
    let expected = json!({"type": "RUN_ERROR", "message": "slow down", "code": "rate_limited"});
    assert_eq!((status, body), (429, expected));
}
