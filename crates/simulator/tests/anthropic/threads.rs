//! Message threads: the simulator keeps the conversation, and refuses what its provider refuses.

use std::time::Duration;

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::{Server, lookup};

const BETA: &[(&str, &str)] = &[("anthropic-beta", "message-threads-2026-08-12")];

async fn keeping(lifetime: Duration) -> Server {
    Server::start(Options { threads: Some(lifetime), ..Options::default() }).await
}

fn request(thread: Value, said: &str) -> Value {
    let mut body = json!({
        "model": "claude-sonnet-4-5", "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": said}],
    });
    body["thread"] = thread;
    body
}

fn created(said: &str) -> Value {
    let mut body = request(json!({"type": "create"}), said);
    body["tools"] = json!([lookup()]);
    body
}

fn continued(previous: &Value, said: &str) -> Value {
    request(json!({"type": "continue", "previous_message_id": previous}), said)
}

async fn refused(server: &Server, body: &Value, more: &[(&str, &str)]) -> (u16, Value) {
    let answer = server.post(body, &[BETA, more].concat()).await;
    (answer.status, answer.json()["error"]["details"]["error_code"].clone())
}

#[tokio::test]
async fn thread_has_the_conversation_and_can_be_continued_once() {
    let server = keeping(Duration::from_secs(300)).await;
    let first = server.accept_with(&created("use the tool"), BETA).await;
    let call = first["content"].as_array().unwrap().last().unwrap();
    assert_eq!(call["type"], "tool_use");
    let mut next = continued(&first["id"], "");
    let result = json!({"type": "tool_result", "tool_use_id": call["id"], "content": "blue"});
    next["messages"][0]["content"] = json!([result]);
    // Without the thread, the result would belong to no call.
    let second = server.accept_with(&next, BETA).await;
    assert_eq!(refused(&server, &next, &[]).await, (400, json!("thread_already_continued")));
    server.accept_with(&continued(&second["id"], "go on"), BETA).await;
}

#[tokio::test]
async fn thread_that_does_not_fit_is_refused() {
    let server = keeping(Duration::from_secs(300)).await;
    let first = server.accept_with(&created("hello"), BETA).await;
    let next = || continued(&first["id"], "go on");
    let with = |name: &str, value: Value| {
        let mut body = next();
        body[name] = value;
        body
    };
    for (body, more, expected) in [
        (continued(&json!("msg_none"), "x"), &[][..], (404, json!("thread_not_found"))),
        (next(), &[("x-api-key", "other")][..], (404, json!("thread_not_found"))),
        (
            with("model", json!("claude-opus-5")),
            &[][..],
            (400, json!("thread_fingerprint_mismatch")),
        ),
        (with("system", json!("s")), &[][..], (400, json!("thread_unsupported_request"))),
        (with("tools", json!([lookup()])), &[][..], (400, json!("thread_unsupported_request"))),
        (with("messages", json!([])), &[][..], (400, Value::Null)),
        (with("thread", json!({"type": "fork"})), &[][..], (400, Value::Null)),
    ] {
        assert_eq!(refused(&server, &body, more).await, expected, "{body}");
    }
    let slow = [BETA, &[("x-simulator-fault", "head-delay:ms=300")]].concat();
    let body = next();
    let (slow, fast) = tokio::join!(server.post(&body, &slow), refused(&server, &body, &[]));
    assert_eq!((slow.status, fast), (200, (409, json!("thread_continue_in_flight"))));
}

#[tokio::test]
async fn thread_expires_and_needs_its_beta() {
    let server = keeping(Duration::ZERO).await;
    let first = server.accept_with(&created("hello"), BETA).await;
    let next = continued(&first["id"], "x");
    assert_eq!(refused(&server, &next, &[]).await, (404, json!("thread_not_found")));
    let extra = "thread: Extra inputs are not permitted";
    server.refuse(&created("hello"), extra).await;
    Server::strict().await.refuse_with(&created("hello"), BETA, extra).await;
    // Many servers ignore it and answer without the conversation.
    let lenient = Server::start(Options { strict: false, ..Options::default() }).await;
    lenient.accept_with(&next, BETA).await;
}
