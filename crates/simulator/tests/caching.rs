//! The prompt cache over HTTP: usage in each dialect, marks, expiry and accounts.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod common;

use common::Server;
use serde_json::{Value, json};

/// A text of about `count` tokens.
fn words(count: usize) -> String {
    "word".repeat(count)
}

const HOUR: &str = "1h";

fn mark(ttl: Option<&str>) -> Value {
    match ttl {
        Some(ttl) => json!({"type": "ephemeral", "ttl": ttl}),
        None => json!({"type": "ephemeral"}),
    }
}

/// A marked system text of 2000 tokens and one user message.
fn anthropic(ttl: Option<&str>, text: &str) -> Value {
    json!({"model": "claude-sonnet-4-5", "max_tokens": 100,
        "system": [{"type": "text", "text": words(2000), "cache_control": mark(ttl)}],
        "messages": [{"role": "user", "content": text}]})
}

/// Tokens written for minutes and for an hour, and tokens read.
async fn served(server: &Server, body: &Value, key: &str) -> [u64; 3] {
    let usage = server.accept_with(body, &[("x-api-key", key)]).await["usage"].clone();
    let count = |pointer: &str| usage.pointer(pointer).and_then(Value::as_u64).unwrap();
    let (minutes, hour) = (
        count("/cache_creation/ephemeral_5m_input_tokens"),
        count("/cache_creation/ephemeral_1h_input_tokens"),
    );
    assert_eq!(count("/cache_creation_input_tokens"), minutes + hour);
    [minutes, hour, count("/cache_read_input_tokens")]
}

async fn advance(server: &Server, seconds: u64) {
    let body = json!({ "advance_seconds": seconds });
    let answer = server.post_to("/simulator/clock", &body, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn marked_prefix_is_read_by_the_same_account_until_it_expires() {
    let server = Server::strict().await;
    let first = served(&server, &anthropic(None, "hello"), "a").await;
    assert!(first[0] > 2000 && first[1..] == [0, 0], "{first:?}");
    let read = [0, 0, first[0]];
    assert_eq!(served(&server, &anthropic(None, "other words"), "a").await, read);
    assert_eq!(served(&server, &anthropic(None, "hello"), "b").await, first);
    advance(&server, 301).await;
    assert_eq!(served(&server, &anthropic(None, "hello"), "a").await, first);
    let hour = served(&server, &anthropic(Some(HOUR), "hello"), "c").await;
    assert_eq!(hour, [0, first[0], 0]);
    advance(&server, 3500).await;
    assert_eq!(served(&server, &anthropic(Some(HOUR), "hello"), "c").await, read);
}

#[tokio::test]
async fn mark_does_not_change_the_prefix_and_its_position_decides_what_is_written() {
    let server = Server::strict().await;
    let mut body = json!({"model": "claude-sonnet-4-5", "max_tokens": 100,
        "tools": [{"name": "t", "description": words(1500), "input_schema": {"type": "object"}}],
        "system": words(1500),
        "messages": [{"role": "user", "content": words(500)}]});
    assert_eq!(served(&server, &body, "a").await, [0, 0, 0]);
    body["cache_control"] = mark(None);
    let [whole, ..] = served(&server, &body, "a").await;
    assert!(whole > 3500, "{whole}");
    body.as_object_mut().unwrap().remove("cache_control");
    body["tools"][0]["cache_control"] = mark(None);
    let [tools, ..] = served(&server, &body, "b").await;
    assert!((1500..1600).contains(&tools), "{tools}");
    body["messages"][0]["content"] =
        json!([{"type": "text", "text": words(500), "cache_control": mark(None)}]);
    assert_eq!(served(&server, &body, "a").await, [0, 0, whole]);
    // Some settings change how messages are read.
    body["tool_choice"] = json!({"type": "none"});
    assert_eq!(served(&server, &body, "b").await, [whole - tools, 0, tools]);
}

#[tokio::test]
async fn marks_that_the_provider_refuses_are_refused() {
    let server = Server::strict().await;
    let text = |ttl| json!({"type": "text", "text": "a", "cache_control": mark(ttl)});
    for (blocks, expected) in [
        (
            json!([text(None), text(None), text(None), text(None), text(None)]),
            "A maximum of 4 blocks with cache_control may be provided. Found 5.",
        ),
        (
            json!([text(None), text(Some(HOUR))]),
            "messages.0.content.1.cache_control.ttl: a ttl='1h' cache_control block must not come after",
        ),
        (json!([text(Some("2h"))]), "messages.0.content.0.cache_control.ttl: Input should be"),
        (
            json!([{"type": "text", "text": "a", "cache_control": {"type": "forever"}}]),
            "messages.0.content.0.cache_control.type: Input should be 'ephemeral'",
        ),
    ] {
        let mut body = anthropic(None, "");
        body.as_object_mut().unwrap().remove("system");
        body["messages"][0]["content"] = blocks;
        server.refuse(&body, expected).await;
    }
}

/// Posts a body twice and returns one count of both replies.
async fn twice(server: &Server, path: &str, body: &Value, pointer: &str) -> [u64; 2] {
    let mut found = [0; 2];
    for found in &mut found {
        let answer = server.post_to(path, body, &[("authorization", "Bearer k")]).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        *found = answer.json().pointer(pointer).and_then(Value::as_u64).unwrap_or_default();
    }
    found
}

#[tokio::test]
async fn other_dialects_cache_by_themselves_and_report_what_they_read() {
    let server = Server::strict().await;
    let chat = |model: &str| json!({"model": model, "messages": [{"role": "user", "content": words(5000)}]});
    let responses = json!({"model": "gpt-5.6-luna", "input": words(5000), "store": false});
    let gemini = json!({"contents": [{"role": "user", "parts": [{"text": words(5000)}]}]});
    let cached = "/usage/prompt_tokens_details/cached_tokens";
    for (path, body, pointer, expected) in [
        ("/v1/chat/completions", chat("gpt-5"), cached, [0, 4992]),
        ("/v1/chat/completions", chat("open-model"), cached, [0, 4992]),
        ("/v1/chat/completions", chat("deepseek-v4"), "/usage/prompt_cache_hit_tokens", [0, 4992]),
        (
            "/v1/responses",
            responses.clone(),
            "/usage/input_tokens_details/cached_tokens",
            [0, 4992],
        ),
        (
            "/v1beta/models/gemini-3-pro:generateContent",
            gemini,
            "/usageMetadata/cachedContentTokenCount",
            [0, 4992],
        ),
    ] {
        assert_eq!(twice(&server, path, &body, pointer).await, expected, "{path} {body:.40}");
    }
    let mut keyed = responses;
    keyed["prompt_cache_key"] = "another".into();
    let writes = "/usage/input_tokens_details/cache_write_tokens";
    assert_eq!(twice(&server, "/v1/responses", &keyed, writes).await, [4992, 0]);
    let short = json!({"model": "gpt-5", "messages": [{"role": "user", "content": words(900)}]});
    assert_eq!(twice(&server, "/v1/chat/completions", &short, cached).await, [0, 0]);
}

#[tokio::test]
async fn server_in_front_of_claude_caches_up_to_the_marks() {
    let server = Server::strict().await;
    let path = "/v1/chat/completions";
    let mut body = json!({"model": "anthropic/claude-sonnet-4.5", "messages": [
        {"role": "system", "content": words(2000)}, {"role": "user", "content": "hello"}]});
    let send = async |body: &Value| {
        let headers = [("x-simulator-variant", "openrouter")];
        server.post_to(path, body, &headers).await.json()["usage"]["prompt_tokens_details"].clone()
    };
    assert_eq!(send(&body).await, json!({"cached_tokens": 0, "cache_write_tokens": 0}));
    body["messages"][0]["content"] =
        json!([{"type": "text", "text": words(2000), "cache_control": mark(None)}]);
    let first = send(&body).await["cache_write_tokens"].as_u64().unwrap();
    assert!(first > 2000, "{first}");
    assert_eq!(send(&body).await, json!({"cached_tokens": first, "cache_write_tokens": 0}));
}

#[tokio::test]
async fn recording_says_what_came_from_the_cache() {
    let server = Server::strict().await;
    let [written, ..] = served(&server, &anthropic(None, "hello"), "a").await;
    let log = server.get("/simulator/requests").await.json();
    let cache = &log["requests"][0]["cache"];
    assert_eq!(cache["write"], written);
    assert_eq!((&cache["read"], &cache["write_1h"]), (&json!(0), &json!(0)));
    assert!(cache["prompt"].as_u64() > Some(written));
}
