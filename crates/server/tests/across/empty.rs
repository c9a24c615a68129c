//! Answers that were empty, sent back: whatever a client makes of one, no upstream refuses it.

use http::Method;
use serde_json::{Value, json};

use crate::support::{House, Wrong};

/// What a client may say of an answer that was empty, with the request around it.
fn asked() -> Vec<(&'static str, &'static str, Value)> {
    let mut all = Vec::new();
    for content in [json!(null), json!(""), json!([])] {
        all.push((
            "openai_chat",
            "/v1/chat/completions",
            json!({"model": "m", "messages": [
                {"role": "user", "content": "say nothing"},
                {"role": "assistant", "content": content},
                {"role": "user", "content": "now plain"},
            ]}),
        ));
        all.push((
            "anthropic",
            "/v1/messages",
            json!({"model": "m", "max_tokens": 500, "messages": [
                {"role": "user", "content": "say nothing"},
                {"role": "assistant", "content": content},
                {"role": "user", "content": "now plain"},
            ]}),
        ));
        all.push((
            "openai_responses",
            "/v1/responses",
            json!({"model": "m", "store": false, "input": [
                {"role": "user", "content": "say nothing"},
                {"role": "assistant", "content": content},
                {"role": "user", "content": "now plain"},
            ]}),
        ));
    }
    for content in [
        json!({"role": "model"}),
        json!({"role": "model", "parts": null}),
        json!({"role": "model", "parts": []}),
    ] {
        all.push((
            "gemini",
            "/v1beta/models/m:generateContent",
            json!({"contents": [
                {"role": "user", "parts": [{"text": "say nothing"}]},
                content,
                {"role": "user", "parts": [{"text": "now plain"}]},
            ]}),
        ));
    }
    // Nobody but the system has spoken.
    all.push((
        "openai_chat",
        "/v1/chat/completions",
        json!({"model": "m", "messages": [
            {"role": "system", "content": "Be plain."}, {"role": "developer", "content": "Say hello, plain."},
        ]}),
    ));
    // A tool that answered nothing.
    all.push((
        "openai_chat",
        "/v1/chat/completions",
        json!({"model": "m", "messages": [
            {"role": "user", "content": "look"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": null},
            {"role": "user", "content": "now plain"},
        ]}),
    ));
    all
}

/// Covers: case 12, C-32
#[tokio::test]
async fn an_empty_answer_is_taken_back_by_every_upstream() {
    let mut wrong = Wrong::default();
    for upstream in ["anthropic, budget", "gemini 3", "openai_responses", "vllm", "deepseek-v4"] {
        let house = House::over(&[upstream]).await;
        for (dialect, path, body) in asked() {
            let headers = [("content-type", "application/json")];
            let client = &house.gateway.client;
            let sent = client.send(Method::POST, path, &headers, body.to_string());
            let answer = sent.await;
            let what = format!("{dialect} over {upstream}: {body}: {}", answer.text());
            let passed = house.gateway.turns().await[0]["lane"] == "through";
            // What passes in place is between the client and its provider.
            wrong.unless(passed || answer.status == 200, what);
            // There was no reasoning that could have been left out.
            let seen = house.last(0).await.body;
            wrong.unless(!seen.contains("reasoning omitted"), seen);
        }
    }
    wrong.end();
}
