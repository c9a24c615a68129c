//! Breakpoints for the upstream's prompt cache: a client's own arrive at the same place, other clients
//! get automatic ones where the upstream needs them, and the backend's `cache` decides.

use serde_json::{Value, json};
use throughline_testkit::Answer;

use crate::support::{BedOptions, TestBed};
use crate::test_client::parameters;

const SCENARIO: &str = "[[step]]\nwhen = { contains = \"o\" }\nsay = [{ text = \"Well.\" }]\n";

/// Returns where a body has breakpoints: the JSON pointer of each part, and its time if it has one.
fn breakpoints(body: &Value) -> Vec<String> {
    fn visit(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    match name.as_str() {
                        "cache_control" | "prompt_cache_breakpoint" => {
                            let time = value["ttl"].as_str().map(|time| format!(" {time}"));
                            found.push(format!("{path}{}", time.unwrap_or_default()));
                        }
                        _ => visit(value, &format!("{path}/{name}"), found),
                    }
                }
            }
            Value::Array(list) => {
                for (at, value) in list.iter().enumerate() {
                    visit(value, &format!("{path}/{at}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    visit(body, "", &mut found);
    found.sort();
    found
}

/// A gateway over one upstream, with more lines in its backend.
async fn bed(row: &str, backend: &str) -> TestBed {
    let options =
        BedOptions { upstreams: &[row], scenario: SCENARIO, backend, ..BedOptions::default() };
    TestBed::build(&options).await
}

/// Sends a body and returns the answer and what the upstream received.
async fn send(bed: &TestBed, path: &str, body: &Value) -> (Answer, Value) {
    let headers = [("anthropic-version", "2023-06-01"), ("x-api-key", "k")];
    let answer = bed.gateway.client.post(path, &headers, body).await.expect_ok();
    let received = bed.last_received(0).await;
    assert_eq!(received.refusal, "", "{}", received.body);
    (answer, received.json())
}

fn minutes() -> Value {
    json!({"type": "ephemeral"})
}

fn hour() -> Value {
    json!({"type": "ephemeral", "ttl": "1h"})
}

/// A client that marks its tool and its system text for an hour, and two messages.
fn anthropic() -> Value {
    json!({
        "model": "m", "max_tokens": 2000,
        "tools": [{"name": "lookup", "input_schema": parameters(), "cache_control": hour()}],
        "system": [{"type": "text", "text": "Be brief."},
            {"type": "text", "text": "Be kind.", "cache_control": hour()}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "one", "cache_control": minutes()}]},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "toolu_1", "name": "lookup", "input": {"key": "7"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "row one", "cache_control": minutes()}]},
        ],
    })
}

fn chat() -> Value {
    json!({
        "model": "m",
        "tools": [{"type": "function", "cache_control": minutes(),
            "function": {"name": "lookup", "parameters": parameters()}}],
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": minutes()}]},
            {"role": "user", "content": "one", "cache_control": minutes()},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function",
                "function": {"name": "lookup", "arguments": "{\"key\":\"7\"}"}}]},
            {"role": "tool", "tool_call_id": "call_1", "content": [
                {"type": "text", "text": "row one", "cache_control": minutes()}]},
        ],
    })
}

fn responses() -> Value {
    let marked = |kind: &str, text: &str| json!({"type": kind, "text": text, "prompt_cache_breakpoint": {"mode": "explicit"}});
    json!({
        "model": "m", "store": false, "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [marked("input_text", "one")]},
            {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{\"key\":\"7\"}"},
            {"type": "function_call_output", "call_id": "call_1", "output": [marked("input_text", "row one")]},
        ],
        "tools": [{"type": "function", "name": "lookup", "parameters": parameters(), "strict": false}],
    })
}

fn ui_stream() -> Value {
    let marked = json!({"anthropic": {"cacheControl": hour()}});
    json!({"id": "c", "model": "m", "messages": [
        {"id": "a", "role": "system", "parts": [
            {"type": "text", "text": "Be brief.", "providerMetadata": marked}]},
        {"id": "b", "role": "user", "parts": [{"type": "text", "text": "one"}]},
    ]})
}

fn events() -> Value {
    json!({"model": "m", "system": "Be brief.",
        "messages": [{"role": "user", "content": "one"}],
        "cache_breakpoints": [{"place": "system", "index": 0, "keep": "1h"},
            {"place": "block", "message": 0, "block": 0}]})
}

#[tokio::test]
async fn breakpoints_of_a_client_arrive_at_the_same_place() {
    let messages = "/v1/messages";
    let chat_path = "/v1/chat/completions";
    let rows: &[(&str, &str, Value, &[&str])] = &[
        (
            "anthropic, budget",
            chat_path,
            chat(),
            &["/messages/0/content/0", "/messages/2/content/0", "/system/0", "/tools/0"],
        ),
        (
            "anthropic, budget",
            "/v1/responses",
            responses(),
            &["/messages/0/content/0", "/messages/2/content/0"],
        ),
        ("anthropic, budget", "/ui/chat", ui_stream(), &["/system/0 1h"]),
        ("anthropic, budget", "/v1/stream", events(), &["/messages/0/content/0", "/system/0 1h"]),
        (
            "litellm",
            messages,
            anthropic(),
            &[
                "/messages/1/content/0 1h",
                "/messages/2/content/0",
                "/messages/4/content/0",
                "/tools/0 1h",
            ],
        ),
        // Tools have no place there.
        (
            "openrouter",
            messages,
            anthropic(),
            &["/messages/1/content/0 1h", "/messages/2/content/0", "/messages/4/content/0"],
        ),
        (
            "openai_responses",
            messages,
            anthropic(),
            &["/input/0/content/0", "/input/1/content/0", "/input/3/output/0"],
        ),
    ];
    for (row, path, body, expected) in rows {
        let bed = bed(row, "").await;
        let (_, received) = send(&bed, path, body).await;
        assert_eq!(breakpoints(&received), *expected, "{path} > {row}: {received:#}");
    }
}

#[tokio::test]
async fn breakpoint_on_the_whole_request_is_set_at_its_last_block() {
    let bed = bed("litellm", "").await;
    let mut body = anthropic();
    for part in ["/tools/0", "/system/1", "/messages/0/content/0", "/messages/2/content/0"] {
        let part = body.pointer_mut(part).and_then(Value::as_object_mut).expect("a part");
        part.remove("cache_control");
    }
    body["cache_control"] = hour();
    let (_, received) = send(&bed, "/v1/messages", &body).await;
    assert_eq!(breakpoints(&received), ["/messages/4/content/0 1h"], "{received:#}");
}

/// The same conversation of clients that set no breakpoints, or cannot.
fn unmarked() -> Vec<(&'static str, Value)> {
    let without = |mut body: Value| {
        fn visit(value: &mut Value) {
            match value {
                Value::Object(members) => {
                    for name in ["cache_control", "prompt_cache_breakpoint"] {
                        members.shift_remove(name);
                    }
                    members.values_mut().for_each(visit);
                }
                Value::Array(list) => list.iter_mut().for_each(visit),
                _ => {}
            }
        }
        visit(&mut body);
        body
    };
    let gemini = json!({
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "tools": [{"functionDeclarations": [{"name": "lookup", "parametersJsonSchema": parameters()}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "one"}]},
            {"role": "model", "parts": [{"functionCall": {"id": "f1", "name": "lookup", "args": {"key": "7"}}}]},
            {"role": "user", "parts": [{"functionResponse": {"id": "f1", "name": "lookup", "response": {"output": "row one"}}}]},
        ],
    });
    vec![
        ("/v1/chat/completions", without(chat())),
        ("/v1/responses", without(responses())),
        ("/v1beta/models/m:generateContent", gemini),
    ]
}

#[tokio::test]
async fn client_without_breakpoints_gets_them_where_the_upstream_needs_them() {
    let over_anthropic =
        ["/messages/0/content/0", "/messages/2/content/0", "/system/0", "/tools/0"];
    for (path, body) in unmarked() {
        for (row, expected) in [
            ("anthropic, budget", &over_anthropic[..]),
            ("gemini 3", &[]),
            ("openai_responses", &[]),
            ("vllm", &[]),
        ] {
            let bed = bed(row, "").await;
            let (answer, received) = send(&bed, path, &body).await;
            assert_eq!(breakpoints(&received), expected, "{path} > {row}: {received:#}");
            assert!(!answer.header("x-throughline-loss").contains("cache_control"));
        }
    }
}

#[tokio::test]
async fn cache_setting_decides_about_breakpoints() {
    let off = "part_omitted=cache_control;reason=off";
    let (path, unmarked) = unmarked().remove(0);
    for (cache, of_client, automatic, loss) in
        [("auto", 4, 4, ""), ("client", 4, 0, ""), ("off", 0, 0, off)]
    {
        let bed = bed("anthropic, budget", &format!("cache = \"{cache}\"")).await;
        let (answer, received) = send(&bed, path, &chat()).await;
        assert_eq!(breakpoints(&received).len(), of_client, "{cache}: {received:#}");
        assert_eq!(answer.header("x-throughline-loss").contains(off), !loss.is_empty(), "{cache}");
        let (answer, received) = send(&bed, path, &unmarked).await;
        assert_eq!(breakpoints(&received).len(), automatic, "{cache}: {received:#}");
        assert!(!answer.header("x-throughline-loss").contains("cache_control"), "{cache}");
        // The same dialect: what the client sent passes, without its breakpoints if they are off.
        let body = anthropic();
        let (answer, received) = send(&bed, "/v1/messages", &body).await;
        assert_eq!(breakpoints(&received).len(), of_client, "{cache}: {received:#}");
        assert_eq!(answer.header("x-throughline-loss"), loss, "{cache}");
    }
}

#[tokio::test]
async fn breakpoints_that_are_off_leave_the_rest_of_a_body_as_it_is() {
    let bed = bed("anthropic, budget", "cache = \"off\"").await;
    let sent = r#"{"model": "claude-sonnet-4-5","cache_control":{"type":"ephemeral"},"max_tokens":2000,
        "messages": [{"role":"user","content":[ {"type":"text","text":"one","cache_control":{"type":"ephemeral"}} ]}]}"#;
    let expected = r#"{"model": "claude-sonnet-4-5","max_tokens":2000,
        "messages": [{"role":"user","content":[ {"type":"text","text":"one"} ]}]}"#;
    let headers = [("content-type", "application/json"), ("anthropic-version", "2023-06-01")];
    let client = &bed.gateway.client;
    client.post_bytes("/v1/messages", &headers, sent).await.expect_ok();
    assert_eq!(bed.last_received(0).await.body, expected);
}

/// Covers the count of tokens that a client sees, not only what the upstream received.
#[tokio::test]
async fn client_of_another_dialect_sees_what_was_cached() {
    let bed = bed("anthropic, budget", "").await;
    let mut body = chat();
    body["messages"][0]["content"][0]["text"] = "Be brief. ".repeat(1000).into();
    let usage = async |body: &Value| {
        let (answer, _) = send(&bed, "/v1/chat/completions", body).await;
        answer.json()["usage"]["prompt_tokens_details"].clone()
    };
    let first = usage(&body).await;
    let second = usage(&body).await;
    let written = first["cache_write_tokens"].as_u64().expect("a count");
    assert!(written > 2000, "{first}");
    assert_eq!((&first["cached_tokens"], &second["cached_tokens"]), (&json!(0), &json!(written)));
}
