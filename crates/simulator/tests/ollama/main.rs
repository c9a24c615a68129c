//! Ollama's own dialect over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../common/mod.rs"]
mod common;

mod refusals;
mod replies;

use common::{Answer, Server};
use serde_json::{Value, json};

const THINKS: &str = "qwen3:8b";
const LEVELS: &str = "gpt-oss:20b";
const PLAIN: &str = "llama3.2:3b";

/// A tool with one required string.
fn lookup() -> Value {
    json!({"type": "function", "function": {"name": "lookup", "description": "Finds a row",
        "parameters": {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"]}}})
}

fn asking(model: &str, text: &str) -> Value {
    json!({"model": model, "stream": false, "messages": [{"role": "user", "content": text}]})
}

fn set(mut body: Value, key: &str, value: impl Into<Value>) -> Value {
    body[key] = value.into();
    body
}

async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    let headers = [("content-type", "application/json")];
    let body = body.to_string();
    server.send("POST", path, &headers, body.as_bytes()).await
}

/// Sends a request and expects a reply.
async fn accept(server: &Server, body: &Value) -> Value {
    let answer = post(server, "/api/chat", body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// Sends a request and expects a refusal with this text.
async fn refuse(server: &Server, body: &Value, words: &str) {
    let answer = post(server, "/api/chat", body).await;
    assert_eq!(answer.status, 400, "{body}: {}", answer.text());
    let body = answer.json();
    let error = body["error"].as_str().unwrap();
    assert!(error.contains(words), "{error:?} lacks {words:?}");
}
