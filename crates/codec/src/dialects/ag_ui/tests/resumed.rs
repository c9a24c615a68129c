//! Calls that wait for a person: the run that ends with them, and the run that continues.

use serde_json::{Value, json};
use throughline_canonical::{Block, BlockStart, Delta, EndReason, Event, Role};

use super::reducer::Messages;
use super::rules::{Age, check};
use super::{asked, body, read, read_at, written};

fn tools() -> Value {
    json!([
        {"name": "drop", "description": "", "metadata": {"requiresApproval": true}},
        {"name": "look", "description": "", "metadata": {"requiresApproval": false}},
    ])
}

fn calls(names: &[&'static str]) -> Vec<Event<'static>> {
    let mut events = Vec::new();
    for (index, name) in (0..).zip(names) {
        let id = format!("c{index}").into();
        let name = (*name).into();
        let block = BlockStart::ToolCall { id, name };
        let delta = Delta::ToolArguments("{}".into());
        events.extend([
            Event::BlockStarted { index, block },
            Event::BlockDelta { index, delta },
            Event::BlockEnded { index },
        ]);
    }
    let reason = EndReason::ToolCalls;
    events.push(Event::Ended { reason });
    events
}

/// The events of a run whose model makes these calls, and the client's messages after it.
fn run(asked: &Value, names: &[&'static str]) -> (Vec<Value>, Messages) {
    let events = check(Age::Modern, &written(&read(asked), &calls(names))).unwrap();
    let mut messages = Messages::new(asked["messages"].as_array().unwrap().clone());
    messages.take(&events).unwrap();
    (events, messages)
}

fn next(messages: &Messages, resume: &Value) -> Value {
    let mut body = body(&messages.sent());
    body["tools"] = tools();
    if !resume.is_null() {
        body["resume"] = resume.clone();
    }
    body
}

#[test]
fn a_call_that_needs_approval_interrupts_the_run() {
    let (events, _) =
        run(&asked(&json!({"tools": tools(), "state": {"row": 7}})), &["look", "drop"]);
    let end = events.last().unwrap();
    let interrupts = &end["outcome"]["interrupts"];
    assert_eq!(end["outcome"]["type"], "interrupt");
    assert_eq!(interrupts.as_array().unwrap().len(), 1);
    assert_eq!(interrupts[0]["id"], "approval_c1");
    assert_eq!(interrupts[0]["toolCallId"], "c1");
    assert_eq!(interrupts[0]["responseSchema"]["required"], json!(["approved"]));
    // The person who decides should see the state of the application.
    let state = &events[events.len() - 2];
    assert_eq!(*state, json!({"type": "STATE_SNAPSHOT", "snapshot": {"row": 7}}));
}

#[test]
fn calls_without_approval_are_pending() {
    let (events, _) = run(&asked(&json!({"tools": tools()})), &["look", "look"]);
    let expected = json!({"type": "success", "pendingToolCallIds": ["c0", "c1"]});
    assert_eq!(events.last().unwrap()["outcome"], expected);
}

#[test]
fn older_clients_get_no_interrupts() {
    let mut old = asked(&json!({"tools": tools()}));
    old.as_object_mut().unwrap().remove("protocolVersion");
    let stream = written(&read(&old), &calls(&["drop"]));
    let events = check(Age::Old, &stream).unwrap();
    assert_eq!(events.last().unwrap()["outcome"], Value::Null);
    // They need not send an answer either.
    let mut messages = Messages::new(Vec::new());
    messages.take(&events).unwrap();
    let mut next = next(&messages, &Value::Null);
    next.as_object_mut().unwrap().remove("protocolVersion");
    read(&next);
}

#[test]
fn an_answer_becomes_a_tool_result_for_model_and_client() {
    let rows = [
        (
            json!({"status": "resolved", "payload": {"approved": true, "result": "gone"}}),
            "gone",
            false,
        ),
        (
            json!({"status": "resolved", "payload": {"approved": true, "result": {"rows": 1}}}),
            "{\"rows\":1}",
            false,
        ),
        (
            json!({"status": "resolved", "payload": {"approved": true}}),
            "{\"approved\":true}",
            false,
        ),
        (json!({"status": "resolved", "payload": "go"}), "go", false),
        (
            json!({"status": "resolved", "payload": {"approved": false, "reason": "no"}}),
            "{\"approved\":false,\"reason\":\"no\"}",
            true,
        ),
        (json!({"status": "cancelled"}), "The call was cancelled.", true),
    ];
    for (mut entry, content, is_error) in rows {
        let (_, mut messages) = run(&asked(&json!({"tools": tools()})), &["drop"]);
        entry["interruptId"] = "approval_c0".into();
        let accepted = read(&next(&messages, &json!([entry])));
        let result = Block::ToolResult {
            id: "c0".to_owned(),
            name: None,
            content: vec![Block::text(content)],
            is_error,
        };
        assert_eq!(accepted.request.messages.last().unwrap().content, [result]);
        // The next run of this client includes the result.
        let ended = [Event::Ended { reason: EndReason::Stop }];
        let events = check(Age::Modern, &written(&accepted, &ended)).unwrap();
        assert_eq!(events[1]["type"], "TOOL_CALL_RESULT");
        messages.take(&events).unwrap();
        let last = read(&next(&messages, &Value::Null)).request.messages.pop().unwrap();
        assert!(matches!(&last.content[..], [Block::ToolResult { id, .. }] if id == "c0"));
    }
}

#[test]
fn a_result_of_the_client_replaces_the_answer() {
    let (_, messages) = run(&asked(&json!({"tools": tools()})), &["drop"]);
    let resume = json!([{"interruptId": "approval_c0", "status": "resolved"}]);
    let mut body = next(&messages, &resume);
    let result = json!({"id": "t", "role": "tool", "toolCallId": "c0", "content": "gone"});
    body["messages"].as_array_mut().unwrap().push(result);
    let accepted = read(&body);
    let results = accepted.request.messages.iter().flat_map(|message| &message.content);
    let results = results.filter(|block| matches!(block, Block::ToolResult { .. }));
    assert_eq!(results.count(), 1);
    let stream = written(&accepted, &calls(&[]));
    assert!(!stream.contains("TOOL_CALL_RESULT"), "{stream}");
}

/// The answers are beside the results of the same turn, before all later messages.
#[test]
fn results_follow_their_calls() {
    let (_, messages) = run(&asked(&json!({"tools": tools()})), &["look", "drop", "drop"]);
    let resume = json!([
        {"interruptId": "approval_c2", "status": "cancelled"},
        {"interruptId": "approval_c1", "status": "cancelled"},
        {"interruptId": "approval_c1", "status": "cancelled"},
    ]);
    let mut body = next(&messages, &resume);
    let later = [
        json!({"id": "t", "role": "tool", "toolCallId": "c0", "content": "seen"}),
        json!({"id": "u2", "role": "user", "content": "And?"}),
    ];
    body["messages"].as_array_mut().unwrap().extend(later);
    let accepted = read(&body);
    let roles: Vec<Role> = accepted.request.messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::User, Role::User]);
    let ids: Vec<&str> = accepted.request.messages[2]
        .content
        .iter()
        .filter_map(|block| match block {
            Block::ToolResult { id, .. } => Some(id.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(ids, ["c0", "c2", "c1"]);
}

#[test]
fn rejects_an_unanswered_call_unless_a_message_follows() {
    let (_, messages) = run(&asked(&json!({"tools": tools()})), &["drop"]);
    let mut body = next(&messages, &Value::Null);
    let fault = read_at("/ag-ui", "", &body).unwrap_err();
    assert_eq!(
        fault.message,
        "resume: tool call `c0` of `drop` waits for an answer; give one for interrupt `approval_c0`"
    );
    let said = json!({"id": "u2", "role": "user", "content": "Never mind."});
    body["messages"].as_array_mut().unwrap().push(said);
    read(&body);
}
