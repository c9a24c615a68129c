//! Calls that nobody answered, in the conversations that go on behind them.

use serde_json::{Value, json};
use throughline_canonical::{Block, Loss, Role};

use super::{body, read};

fn call(id: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": "look", "arguments": arguments}})
}

fn asked(calls: &Value, more: &[Value]) -> Value {
    let mut messages = vec![
        json!({"id": "u1", "role": "user", "content": "Look."}),
        json!({"id": "a1", "role": "assistant", "toolCalls": calls}),
    ];
    messages.extend_from_slice(more);
    body(&json!(messages))
}

fn result(id: &str) -> Value {
    json!({"id": format!("m_{id}"), "role": "tool", "toolCallId": id, "content": "seen"})
}

fn user() -> Value {
    json!({"id": "u2", "role": "user", "content": "NoPassthrough mind."})
}

/// The results in a request: the message they stand in, the call, the text, whether it failed.
fn results(body: &Value) -> Vec<(usize, String, String, bool)> {
    let messages = read(body).value.messages.into_iter().enumerate();
    let blocks = messages.flat_map(|(place, message)| {
        let blocks = message.content.into_iter();
        blocks.map(move |block| (place, block))
    });
    let found = blocks.filter_map(|(place, block)| match block {
        Block::ToolResult { id, content, is_error, .. } => match content.as_slice() {
            [Block::Text { text, .. }] => Some((place, id, text.clone(), is_error)),
            _ => None,
        },
        _ => None,
    });
    found.collect()
}

#[test]
fn a_call_nobody_answered_is_told_as_not_run() {
    let calls = json!([call("c1", "{}"), call("c2", "{\"a\":1}")]);
    let not_run = |id: &str| (2, id.to_owned(), "The tool was not run.".to_owned(), true);
    let seen = |id: &str| (2, id.to_owned(), "seen".to_owned(), false);
    for (more, expected) in [
        (vec![user()], vec![not_run("c1"), not_run("c2")]),
        (vec![result("c2"), user()], vec![seen("c2"), not_run("c1")]),
        (vec![result("c2")], vec![seen("c2"), not_run("c1")]),
        (vec![], vec![not_run("c1"), not_run("c2")]),
    ] {
        let body = asked(&calls, &more);
        assert_eq!(results(&body), expected, "{body}");
        let missing = Loss::of_part("tool_result", "missing");
        assert_eq!(read(&body).losses, [missing], "{body}");
    }
}

#[test]
fn a_call_that_has_its_result_is_left_alone() {
    let calls = json!([call("c1", "{\"a\":")]);
    let body = asked(&calls, &[user(), result("c1")]);
    let read = read(&body);
    assert_eq!(read.losses, []);
    assert_eq!(read.value.messages.len(), 4);
}

/// It was cut, and a model would take it for one it had made.
#[test]
fn a_call_that_is_not_whole_is_left_out() {
    for half in ["", "{\"a\":", "{\"a\":\"b"] {
        let calls = json!([call("c1", "{}"), call("c2", half)]);
        let body = asked(&calls, &[result("c1"), user()]);
        let read = read(&body);
        assert_eq!(read.losses, [Loss::of_part("tool_call", "unfinished")]);
        assert_eq!(read.value.messages[1].content.len(), 1, "{half:?}");
    }
    // Nothing else was said, so there was no turn.
    let alone = read(&asked(&json!([call("c1", "{")]), &[user()]));
    let roles = alone.value.messages.iter().map(|message| message.role);
    assert_eq!(roles.collect::<Vec<_>>(), [Role::User, Role::User]);
}
