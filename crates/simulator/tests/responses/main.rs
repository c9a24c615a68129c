//! The OpenAI Responses dialect: what it says, what it takes back and what it refuses.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../common/mod.rs"]
mod common;
mod replies;
mod stream;

use common::{Answer, Server};
use serde_json::{Value, json};

pub(crate) const PATH: &str = "/v1/responses";

/// Posts to a path of this dialect.
pub(crate) async fn post(
    server: &Server,
    path: &str,
    body: &Value,
    more: &[(&str, &str)],
) -> Answer {
    let mut headers = vec![
        ("content-type", "application/json"),
        ("authorization", "Bearer key"),
    ];
    headers.extend_from_slice(more);
    let body = body.to_string();
    server.send("POST", path, &headers, body.as_bytes()).await
}

/// Posts and expects a response.
pub(crate) async fn accept(server: &Server, body: &Value) -> Value {
    accept_with(server, body, &[]).await
}

pub(crate) async fn accept_with(server: &Server, body: &Value, more: &[(&str, &str)]) -> Value {
    let answer = post(server, PATH, body, more).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Posts the same as a stream and expects the same response at its end.
pub(crate) async fn streamed(server: &Server, body: &Value, more: &[(&str, &str)]) -> Value {
    let mut body = body.clone();
    body["stream"] = true.into();
    let answer = post(server, PATH, &body, more).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(
        answer.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    stream::assemble(&answer.events())
}

/// A request that brings everything along.
pub(crate) fn stateless(model: &str, text: &str) -> Value {
    json!({"model": model, "store": false, "include": ["reasoning.encrypted_content"],
           "instructions": "You are terse.", "reasoning": {"summary": "auto"}, "tools": [lookup()],
           "input": [{"role": "user", "content": text}]})
}

/// A tool with one required string.
pub(crate) fn lookup() -> Value {
    json!({"type": "function", "name": "lookup", "description": "Finds a row", "strict": false,
           "parameters": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}})
}

/// The types of the output's items.
pub(crate) fn shape(response: &Value) -> Vec<&str> {
    let items = response["output"].as_array().unwrap();
    items
        .iter()
        .map(|item| item["type"].as_str().unwrap())
        .collect()
}
