//! Empty answers in the history: no upstream refuses them, in whatever form the client sends them.

use http::Method;
use serde_json::{Value, json};

use crate::support::{Mismatches, TestBed};

/// Returns requests whose history contains an empty answer, with dialect and path.
fn empty_answer_requests() -> Vec<(&'static str, &'static str, Value)> {
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
    // There are only system messages.
    all.push((
        "openai_chat",
        "/v1/chat/completions",
        json!({"model": "m", "messages": [
            {"role": "system", "content": "Be plain."}, {"role": "developer", "content": "Say hello, plain."},
        ]}),
    ));
    // A tool returned an empty result.
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
async fn every_upstream_accepts_an_empty_answer_in_the_history() {
    let mut mismatches = Mismatches::default();
    for upstream in ["anthropic, budget", "gemini 3", "openai_responses", "vllm", "deepseek-v4"] {
        let bed = TestBed::over(&[upstream]).await;
        for (dialect, path, body) in empty_answer_requests() {
            let headers = [("content-type", "application/json")];
            let client = &bed.gateway.client;
            let sent = client.send(Method::POST, path, &headers, body.to_string());
            let answer = sent.await;
            let case = format!("{dialect} over {upstream}: {body}: {}", answer.text());
            let passed = bed.gateway.turns().await[0]["lane"] == "through";
            // In the passthrough lane the request is not edited.
            mismatches.check(passed || answer.status == 200, case);
            // There was no reasoning that could be left out.
            let seen = bed.last_received(0).await.body;
            mismatches.check(!seen.contains("reasoning omitted"), seen);
        }
    }
    mismatches.assert_none();
}
