//! The OpenAI Responses dialect over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../common/mod.rs"]
mod common;
mod compact;
mod reasoning;
mod replies;
mod requests;
mod stored;
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
    let mut headers = vec![("content-type", "application/json"), ("authorization", "Bearer key")];
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
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    stream::assemble(&answer.events())
}

/// Posts and expects a refusal with this text in it.
pub(crate) async fn refuse(server: &Server, body: &Value, text: &str) -> Value {
    refuse_as(server, body, 400, text).await
}

pub(crate) async fn refuse_as(server: &Server, body: &Value, status: u16, text: &str) -> Value {
    let answer = post(server, PATH, body, &[]).await;
    assert_eq!(answer.status, status, "{} (wanted {text})", answer.text());
    let error = answer.json()["error"].clone();
    assert_eq!(error["type"], "invalid_request_error");
    assert!(error.get("param").is_some() && error.get("code").is_some());
    let message = error["message"].as_str().unwrap();
    assert!(message.contains(text), "{message:?} lacks {text:?}");
    error
}

/// Plays a conversation until the answer calls no tool, and returns the last body with the
/// answer appended.
pub(crate) async fn play(server: &Server, mut body: Value) -> Value {
    loop {
        let response = accept(server, &body).await;
        if append(&mut body, &response) == 0 {
            return body;
        }
    }
}

/// Appends an answer and the outputs of its calls. Returns the number of calls.
pub(crate) fn append(body: &mut Value, response: &Value) -> usize {
    let output = response["output"].as_array().unwrap();
    let outputs = outputs(response);
    let count = outputs.len();
    let input = body["input"].as_array_mut().unwrap();
    input.extend(output.iter().cloned());
    input.extend(outputs);
    count
}

/// The outputs of a response's calls.
pub(crate) fn outputs(response: &Value) -> Vec<Value> {
    let items = response["output"].as_array().unwrap().iter();
    let calls = items.filter(|item| item["type"] == "function_call");
    calls
        .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "21 degrees"}))
        .collect()
}

/// Appends a user message.
pub(crate) fn say(body: &mut Value, text: &str) {
    let input = body["input"].as_array_mut().unwrap();
    input.push(json!({"role": "user", "content": text}));
}

/// The indexes of the items of one type in the input.
pub(crate) fn places(body: &Value, kind: &str) -> Vec<usize> {
    let input = body["input"].as_array().unwrap().iter().enumerate();
    let found = input.filter(|(_, item)| item["type"] == kind);
    found.map(|(place, _)| place).collect()
}

/// A request without `store`, with encrypted reasoning.
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
    items.iter().map(|item| item["type"].as_str().unwrap()).collect()
}
