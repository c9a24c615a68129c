//! The rules by which clients of version 1.0 and older ones check a run: the form of a stream, the
//! members of each event, and their order. A mere warning of a client is an error here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The version of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Age {
    /// Version 1.0.
    Modern,
    /// Any older version.
    Old,
}

/// The type of a member.
#[derive(Clone, Copy, Debug)]
enum Is {
    Text,
    /// Older clients fail on an empty one.
    Delta,
    Word(&'static [&'static str]),
    Object,
    List,
    Any,
}

type Members = &'static [(&'static str, Is)];

/// A kind of event: its required and its optional members.
type Row = (&'static str, Members, Members);

const ID: Members = &[("messageId", Is::Text)];
const PIECE: Members = &[("messageId", Is::Text), ("delta", Is::Delta)];
const CALL: Members = &[("toolCallId", Is::Text)];
const RUN: Members = &[("threadId", Is::Text), ("runId", Is::Text)];
const ACTIVITY: (&str, Is) = ("activityType", Is::Text);

const COMMON: &[Row] = &[
    ("TEXT_MESSAGE_START", ID, &[("role", Is::Word(&["assistant"])), ("metadata", Is::Object)]),
    ("TEXT_MESSAGE_CONTENT", PIECE, &[]),
    ("TEXT_MESSAGE_END", ID, &[]),
    (
        "TOOL_CALL_START",
        &[("toolCallId", Is::Text), ("toolCallName", Is::Text)],
        &[("parentMessageId", Is::Text)],
    ),
    ("TOOL_CALL_ARGS", &[("toolCallId", Is::Text), ("delta", Is::Delta)], &[]),
    ("TOOL_CALL_END", CALL, &[]),
    (
        "TOOL_CALL_RESULT",
        &[("messageId", Is::Text), ("toolCallId", Is::Text), ("content", Is::Text)],
        &[("role", Is::Word(&["tool"]))],
    ),
    ("STATE_SNAPSHOT", &[("snapshot", Is::Any)], &[]),
];

const MODERN: &[Row] = &[
    ("RUN_STARTED", RUN, &[("protocolVersion", Is::Text), ("parentRunId", Is::Text)]),
    ("RUN_FINISHED", RUN, &[("result", Is::Any), ("outcome", Is::Object), ("usage", Is::List)]),
    (
        "RUN_ERROR",
        &[("message", Is::Text)],
        &[("code", Is::Text), ("usage", Is::List), ("metadata", Is::Object)],
    ),
    ("MESSAGES_SNAPSHOT", &[("messages", Is::List)], &[]),
    ("REASONING_START", ID, &[]),
    (
        "REASONING_MESSAGE_START",
        &[("messageId", Is::Text), ("role", Is::Word(&["reasoning"]))],
        &[],
    ),
    ("REASONING_MESSAGE_CONTENT", PIECE, &[]),
    ("REASONING_MESSAGE_END", ID, &[]),
    ("REASONING_END", ID, &[]),
    (
        "REASONING_ENCRYPTED_VALUE",
        &[
            ("subtype", Is::Word(&["message", "tool-call"])),
            ("entityId", Is::Text),
            ("encryptedValue", Is::Text),
        ],
        &[],
    ),
    ("ACTIVITY_SNAPSHOT", &[("messageId", Is::Text), ACTIVITY, ("content", Is::Object)], &[]),
    ("ACTIVITY_DELTA", &[("messageId", Is::Text), ACTIVITY, ("patch", Is::List)], &[]),
];

const OLD: &[Row] = &[
    ("RUN_STARTED", RUN, &[("parentRunId", Is::Text)]),
    ("RUN_FINISHED", RUN, &[("result", Is::Any)]),
    ("RUN_ERROR", &[("message", Is::Text)], &[("code", Is::Text)]),
    ("THINKING_START", &[], &[]),
    ("THINKING_TEXT_MESSAGE_START", &[], &[]),
    ("THINKING_TEXT_MESSAGE_CONTENT", &[("delta", Is::Delta)], &[]),
    ("THINKING_TEXT_MESSAGE_END", &[], &[]),
    ("THINKING_END", &[], &[]),
];

/// Checks a stream from its first byte to its last. Returns its events, or the problem.
pub(super) fn check(age: Age, stream: &str) -> Result<Vec<Value>, String> {
    let events = frames(stream)?;
    let mut order = Order::default();
    for event in &events {
        check_members(age, event).map_err(|wrong| format!("{wrong}: {event}"))?;
        order.check(event).map_err(|wrong| format!("{wrong}: {event}"))?;
    }
    match order.state {
        State::Finished | State::Failed => Ok(events),
        State::Before | State::Active => Err("the run has no end".to_owned()),
    }
}

/// Clients cut a stream at two line feeds and nowhere else.
fn frames(stream: &str) -> Result<Vec<Value>, String> {
    if stream.contains('\r') {
        return Err("a carriage return".to_owned());
    }
    let Some(whole) = stream.strip_suffix("\n\n") else {
        return Err("the last event has no end".to_owned());
    };
    let mut events = Vec::new();
    for frame in whole.split("\n\n").filter(|frame| !frame.starts_with(':')) {
        let data = frame.strip_prefix("data: ").ok_or("a line that is no data")?;
        if data.contains('\n') {
            return Err("more than one line".to_owned());
        }
        let event: Value = serde_json::from_str(data).map_err(|error| error.to_string())?;
        match event["type"].as_str() {
            None | Some("") => return Err(format!("no type: {event}")),
            Some(_) => events.push(event),
        }
    }
    Ok(events)
}

fn check_members(age: Age, event: &Value) -> Result<(), String> {
    let rows = match age {
        Age::Modern => MODERN,
        Age::Old => OLD,
    };
    let mut rows = COMMON.iter().chain(rows);
    let Some((_, must, may)) = rows.find(|(kind, ..)| event["type"] == *kind) else {
        return Err("an unknown event".to_owned());
    };
    for (name, is) in *must {
        check_member(name, *is, event.get(*name).ok_or(format!("no `{name}`"))?)?;
    }
    for (name, value) in event.as_object().unwrap() {
        if name == "type" || must.iter().any(|(known, _)| known == name) {
            continue;
        }
        let known = may.iter().find(|(known, _)| known == name);
        let (_, is) = known.ok_or(format!("an unknown member `{name}`"))?;
        check_member(name, *is, value)?;
    }
    check_outcome(&event["outcome"])?;
    for entry in event["usage"].as_array().into_iter().flatten() {
        check_usage(entry)?;
    }
    Ok(())
}

fn check_member(name: &str, is: Is, value: &Value) -> Result<(), String> {
    let fits = match is {
        Is::Text => value.is_string(),
        Is::Delta => value.as_str().is_some_and(|text| !text.is_empty()),
        Is::Word(words) => value.as_str().is_some_and(|word| words.contains(&word)),
        Is::Object => value.is_object(),
        Is::List => value.is_array(),
        Is::Any => !value.is_null(),
    };
    fits.then_some(()).ok_or(format!("`{name}` is wrong"))
}

fn check_outcome(outcome: &Value) -> Result<(), String> {
    let fits = match outcome["type"].as_str() {
        None => outcome.is_null(),
        Some("success") => match outcome.get("pendingToolCallIds") {
            Some(ids) => ids.as_array().is_some_and(|ids| ids.iter().all(Value::is_string)),
            None => true,
        },
        Some("interrupt") => outcome["interrupts"].as_array().is_some_and(|interrupts| {
            let whole = |one: &Value| one["id"].is_string() && one["reason"].is_string();
            !interrupts.is_empty() && interrupts.iter().all(whole)
        }),
        Some(_) => false,
    };
    fits.then_some(()).ok_or("`outcome` is wrong".to_owned())
}

fn check_usage(entry: &Value) -> Result<(), String> {
    const COUNTS: [&str; 6] = [
        "inputTokens",
        "outputTokens",
        "totalTokens",
        "reasoningTokens",
        "cachedInputTokens",
        "cacheWriteInputTokens",
    ];
    for (name, value) in entry.as_object().ok_or("`usage` is wrong")? {
        let fits = match name.as_str() {
            "provider" | "model" => value.is_string(),
            name if COUNTS.contains(&name) => value.as_u64().is_some_and(|count| count < 1 << 53),
            _ => false,
        };
        if !fits {
            return Err(format!("`usage.{name}` is wrong"));
        }
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Before,
    Active,
    Finished,
    Failed,
}

/// The order of events: which parts are open, and which events may follow.
#[derive(Debug, Default)]
struct Order {
    state: State,
    texts: BTreeSet<String>,
    calls: BTreeSet<String>,
    spans: BTreeSet<String>,
    reasoning: BTreeSet<String>,
    /// The old events have one of each, without an id.
    thinking: BTreeSet<String>,
    thoughts: BTreeSet<String>,
    activities: BTreeSet<String>,
}

impl Order {
    fn check(&mut self, event: &Value) -> Result<(), String> {
        let kind = event["type"].as_str().unwrap_or_default();
        match (&self.state, kind) {
            (State::Before, "RUN_STARTED" | "RUN_ERROR") => {}
            (State::Before, _) => return Err("a run has not begun".to_owned()),
            (State::Active, "RUN_STARTED") => return Err("a run in a run".to_owned()),
            (State::Active, _) => {}
            // Another run may follow in the same stream; ours are one.
            (State::Finished | State::Failed, _) => return Err("behind the end".to_owned()),
        }
        let id = |member: &str| event[member].as_str().unwrap_or_default().to_owned();
        let (message, call) = (id("messageId"), id("toolCallId"));
        match kind {
            "RUN_STARTED" => self.state = State::Active,
            "RUN_ERROR" => self.state = State::Failed,
            "RUN_FINISHED" => {
                let open = [
                    &self.texts,
                    &self.calls,
                    &self.spans,
                    &self.reasoning,
                    &self.thinking,
                    &self.thoughts,
                ];
                if open.iter().any(|open| !open.is_empty()) {
                    return Err("something is open".to_owned());
                }
                self.state = State::Finished;
            }
            "TEXT_MESSAGE_START" => open(&mut self.texts, message)?,
            "TEXT_MESSAGE_CONTENT" => known(&self.texts, &message)?,
            "TEXT_MESSAGE_END" => close(&mut self.texts, &message)?,
            "TOOL_CALL_START" => open(&mut self.calls, call)?,
            "TOOL_CALL_ARGS" => known(&self.calls, &call)?,
            "TOOL_CALL_END" => close(&mut self.calls, &call)?,
            "REASONING_START" => open(&mut self.spans, message)?,
            "REASONING_END" => close(&mut self.spans, &message)?,
            "REASONING_MESSAGE_START" => open(&mut self.reasoning, message)?,
            "REASONING_MESSAGE_CONTENT" => known(&self.reasoning, &message)?,
            "REASONING_MESSAGE_END" => close(&mut self.reasoning, &message)?,
            "THINKING_START" => open(&mut self.thinking, message)?,
            "THINKING_END" => close(&mut self.thinking, &message)?,
            "THINKING_TEXT_MESSAGE_START" => {
                known(&self.thinking, &message)?;
                open(&mut self.thoughts, message)?;
            }
            "THINKING_TEXT_MESSAGE_CONTENT" => known(&self.thoughts, &message)?,
            "THINKING_TEXT_MESSAGE_END" => close(&mut self.thoughts, &message)?,
            "ACTIVITY_SNAPSHOT" => open(&mut self.activities, message)?,
            "ACTIVITY_DELTA" => known(&self.activities, &message)?,
            _ => {}
        }
        Ok(())
    }
}

fn open(set: &mut BTreeSet<String>, id: String) -> Result<(), String> {
    set.insert(id).then_some(()).ok_or("it is open".to_owned())
}

fn known(set: &BTreeSet<String>, id: &str) -> Result<(), String> {
    set.contains(id).then_some(()).ok_or("it is not open".to_owned())
}

fn close(set: &mut BTreeSet<String>, id: &str) -> Result<(), String> {
    set.remove(id).then_some(()).ok_or("it is not open".to_owned())
}

fn stream(events: &[Value]) -> String {
    let frame = |event: &Value| format!("data: {event}\n\n");
    events.iter().map(frame).collect()
}

/// A checker that accepts anything would prove nothing.
#[test]
fn rules_reject_what_clients_reject() {
    let start = json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"});
    let end = json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r"});
    let error = json!({"type": "RUN_ERROR", "message": "m"});
    let message = |kind: &str| json!({"type": kind, "messageId": "m"});
    let call = |kind: &str| json!({"type": kind, "toolCallId": "c", "toolCallName": "f"});
    let text =
        |delta: &str| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": "m", "delta": delta});
    let [reasoning, thinking] = ["REASONING", "THINKING"].map(|kind| format!("{kind}_START"));
    let role = json!({"type": "REASONING_MESSAGE_START", "messageId": "m", "role": "reasoning"});
    let bare = |kind: &str| json!({"type": kind});
    let with = |event: &Value, name: &str, value: Value| {
        let mut event = event.clone();
        event[name] = value;
        event
    };
    let both = [Age::Modern, Age::Old];
    let rows: Vec<(&[Age], &str, Vec<Value>)> = vec![
        (&both, "has not begun", vec![end.clone()]),
        (&both, "has no end", vec![start.clone()]),
        (&both, "in a run", vec![start.clone(), start.clone()]),
        (&both, "behind the end", vec![start.clone(), end.clone(), message("TEXT_MESSAGE_START")]),
        (&both, "behind the end", vec![start.clone(), error.clone(), end.clone()]),
        (
            &both,
            "is open",
            vec![start.clone(), message("TEXT_MESSAGE_START"), message("TEXT_MESSAGE_START")],
        ),
        (&both, "not open", vec![start.clone(), text("x")]),
        (&both, "not open", vec![start.clone(), message("TEXT_MESSAGE_END")]),
        (
            &both,
            "something is open",
            vec![start.clone(), message("TEXT_MESSAGE_START"), end.clone()],
        ),
        (&both, "something is open", vec![start.clone(), call("TOOL_CALL_START"), end.clone()]),
        (&both, "is open", vec![start.clone(), call("TOOL_CALL_START"), call("TOOL_CALL_START")]),
        (&both, "`delta` is wrong", vec![start.clone(), message("TEXT_MESSAGE_START"), text("")]),
        (&both, "an unknown event", vec![start.clone(), bare("STEP_DREAMT")]),
        (&both, "an unknown member", vec![with(&start, "mood", "good".into())]),
        (&both, "`parentRunId` is wrong", vec![with(&start, "parentRunId", Value::Null)]),
        (&both, "no `runId`", vec![json!({"type": "RUN_STARTED", "threadId": "t"})]),
        (&[Age::Modern], "an unknown event", vec![start.clone(), bare(&thinking)]),
        (&[Age::Old], "an unknown event", vec![start.clone(), message(&reasoning)]),
        (
            &[Age::Old],
            "an unknown member",
            vec![start.clone(), with(&end, "outcome", json!({"type": "success"}))],
        ),
        (&[Age::Old], "not open", vec![start.clone(), bare("THINKING_TEXT_MESSAGE_START")]),
        (&[Age::Old], "is open", vec![start.clone(), bare(&thinking), bare(&thinking)]),
        (
            &[Age::Modern],
            "something is open",
            vec![start.clone(), message(&reasoning), end.clone()],
        ),
        (&[Age::Modern], "something is open", vec![start.clone(), role.clone(), end.clone()]),
        (&[Age::Modern], "no `role`", vec![start.clone(), message("REASONING_MESSAGE_START")]),
        (
            &[Age::Modern],
            "`role` is wrong",
            vec![start.clone(), with(&role, "role", "assistant".into())],
        ),
        (
            &[Age::Modern],
            "`subtype` is wrong",
            vec![
                start.clone(),
                json!({"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool_call", "entityId": "c", "encryptedValue": "v"}),
            ],
        ),
        (
            &[Age::Modern],
            "not open",
            vec![
                start.clone(),
                json!({"type": "ACTIVITY_DELTA", "messageId": "m", "activityType": "WAITING", "patch": []}),
            ],
        ),
        (
            &[Age::Modern],
            "`outcome` is wrong",
            vec![
                start.clone(),
                with(&end, "outcome", json!({"type": "interrupt", "interrupts": []})),
            ],
        ),
        (
            &[Age::Modern],
            "`usage.inputTokens` is wrong",
            vec![start.clone(), with(&end, "usage", json!([{"inputTokens": null}]))],
        ),
        (
            &[Age::Modern],
            "`usage.totalTokens` is wrong",
            vec![start.clone(), with(&end, "usage", json!([{"totalTokens": 1_u64 << 53}]))],
        ),
    ];
    for (ages, wrong, events) in rows {
        for age in ages {
            let found = check(*age, &stream(&events)).unwrap_err();
            assert!(found.contains(wrong), "{age:?}: {found} is not: {wrong}");
        }
    }
    let good = stream(&[start, end]);
    for age in both {
        check(age, &good).unwrap();
        for (wrong, bytes) in [
            ("carriage return", good.replace('\n', "\r\n")),
            ("expected value", format!("{good}data: [DONE]\n\n")),
            ("no end", good.trim_end().to_owned()),
            ("no data", format!("event: x\n{good}")),
            ("no type", format!("{good}data: {{}}\n\n")),
        ] {
            let found = check(age, &bytes).unwrap_err();
            assert!(found.contains(wrong), "{found} is not: {wrong}");
        }
    }
}
