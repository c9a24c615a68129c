//! Replies, streamed and whole.

use serde_json::{Value, json};
use throughline_simulator::Options;

use super::common::Server;
use super::{PATH, accept, accept_with, lookup, post, shape, stateless, streamed};

/// Sends a request whole and streamed, and expects the same response.
async fn both(server: &Server, body: &Value, more: &[(&str, &str)]) -> Value {
    let whole = accept_with(server, body, more).await;
    let events = streamed(server, body, more).await;
    assert_eq!(whole, events);
    whole
}

#[tokio::test]
async fn plain_question_gets_reasoning_and_a_message() {
    let server = Server::strict().await;
    let response = both(&server, &stateless("gpt-5.5", "hello"), &[]).await;
    assert_eq!(shape(&response), ["reasoning", "message"]);
    assert_eq!(response["object"], "response");
    assert_eq!(response["status"], "completed");
    assert_eq!(response["error"], Value::Null);
    assert_eq!(response["incomplete_details"], Value::Null);
    assert_eq!(response["model"], "gpt-5.5");
    assert_eq!(response["instructions"], "You are terse.");
    assert_eq!(response["reasoning"]["effort"], "medium");
    assert_eq!(response["store"], false);
    let message = &response["output"][1];
    assert_eq!(message["role"], "assistant");
    assert_eq!(message["status"], "completed");
    assert_eq!(message["phase"], "final_answer");
    let text = message["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("hello"), "{text}");
    let usage = &response["usage"];
    let count = |pointer: &str| usage.pointer(pointer).unwrap().as_u64().unwrap();
    assert!(count("/output_tokens_details/reasoning_tokens") > 0);
    assert!(count("/output_tokens") > count("/output_tokens_details/reasoning_tokens"));
    assert_eq!(count("/total_tokens"), count("/input_tokens") + count("/output_tokens"));
    assert_eq!(count("/input_tokens_details/cached_tokens"), 0);
    assert_eq!(count("/input_tokens_details/cache_write_tokens"), 0);
}

#[tokio::test]
async fn trigger_words_select_the_output() {
    let server = Server::strict().await;
    for (text, expected) in [
        ("hello redacted", vec!["reasoning", "reasoning", "message"]),
        ("think twice", vec!["reasoning", "message", "reasoning", "message"]),
        ("only think", vec!["reasoning", "message"]),
        ("use a tool", vec!["reasoning", "message", "function_call"]),
        ("use a tool in parallel", vec!["reasoning", "message", "function_call", "function_call"]),
        ("bench 7", vec!["message"]),
    ] {
        let response = both(&server, &stateless("gpt-6.1-sol", text), &[]).await;
        assert_eq!(shape(&response), expected, "{text}");
    }
    let response = both(&server, &stateless("gpt-6.1-sol", "use a tool"), &[]).await;
    assert_eq!(response["output"][1]["phase"], "commentary");
    let call = &response["output"][2];
    assert_eq!(call["name"], "lookup");
    let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    assert!(arguments["k"].is_string());
}

#[tokio::test]
async fn string_input_is_accepted_and_a_header_sets_the_deltas() {
    let server = Server::strict().await;
    let body = json!({"model": "gpt-4.1", "input": "hello"});
    let response = both(&server, &body, &[]).await;
    assert_eq!(shape(&response), ["message"]);
    assert_eq!(response["reasoning"]["effort"], Value::Null);
    let mut body = body;
    body["stream"] = true.into();
    let answer = post(&server, PATH, &body, &[("x-simulator-deltas", "250")]).await;
    let deltas = answer.events();
    let deltas = deltas.iter().filter(|event| event["type"] == "response.output_text.delta");
    assert_eq!(deltas.count(), 250);
}

#[tokio::test]
async fn summary_is_sent_only_on_request() {
    let server = Server::strict().await;
    let mut body = stateless("gpt-5.5", "hello redacted");
    let reply = both(&server, &body, &[]).await;
    // Redacted reasoning never has a summary.
    assert_eq!(reply["output"][0]["summary"], json!([]));
    assert_eq!(reply["output"][1]["summary"][0]["type"], "summary_text");
    body["reasoning"] = json!({"effort": "high"});
    let untold = both(&server, &body, &[]).await;
    for item in [&untold["output"][0], &untold["output"][1]] {
        assert_eq!(item["summary"], json!([]));
        let encrypted = item["encrypted_content"].as_str().unwrap();
        assert!(encrypted.starts_with("gAAAAABp--__"), "{encrypted}");
    }
}

#[tokio::test]
async fn a_summary_may_have_several_parts() {
    let server = Server::strict().await;
    let mut parts = Vec::new();
    for number in 0..12 {
        let body = stateless("gpt-5.5", &format!("hello {number}"));
        let response = both(&server, &body, &[]).await;
        parts.push(response["output"][0]["summary"].as_array().unwrap().len());
    }
    assert!(parts.contains(&1) && parts.contains(&2), "{parts:?}");
}

#[tokio::test]
async fn encrypted_content_is_sent_on_request_or_without_store() {
    let server = Server::strict().await;
    for (store, include, encrypted) in [
        (true, json!([]), false),
        (true, json!(["reasoning.encrypted_content"]), true),
        (false, json!([]), true),
    ] {
        let body =
            json!({"model": "gpt-5.5", "input": "hello", "store": store, "include": include});
        let response = both(&server, &body, &[]).await;
        let content = &response["output"][0]["encrypted_content"];
        assert_eq!(content.is_string(), encrypted, "{store} {include}");
    }
}

#[tokio::test]
async fn only_a_finished_item_has_its_whole_encrypted_content() {
    let server = Server::strict().await;
    let mut body = stateless("gpt-5.5", "hello");
    body["stream"] = true.into();
    let encrypted = |events: &[Value], kind: &str| {
        let event = events.iter().find(|event| event["type"] == kind).unwrap();
        event["item"]["encrypted_content"].clone()
    };
    for (style, early) in [("delta", false), ("late", false), ("start", true)] {
        let headers = [("x-simulator-signature", style)];
        let events = post(&server, PATH, &body, &headers).await.events();
        let added = encrypted(&events, "response.output_item.added");
        let done = encrypted(&events, "response.output_item.done");
        assert_eq!(added == done, early, "{style}");
        assert!(done.as_str().unwrap().len() > 100);
    }
}

#[tokio::test]
async fn an_open_server_shows_its_reasoning_and_signs_nothing() {
    let server = Server::strict().await;
    let body = stateless("qwen", "use a tool");
    let response = both(&server, &body, &[("x-simulator-signature", "empty")]).await;
    let reasoning = &response["output"][0];
    assert_eq!(reasoning["summary"], json!([]));
    assert_eq!(reasoning["encrypted_content"], "");
    assert_eq!(reasoning["content"][0]["type"], "reasoning_text");
    assert!(!reasoning["content"][0]["text"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn effort_none_disables_reasoning() {
    let server = Server::strict().await;
    let mut body = stateless("gpt-6.1-sol", "use a tool");
    body["reasoning"] = json!({"effort": "none"});
    let response = both(&server, &body, &[]).await;
    assert_eq!(shape(&response), ["message", "function_call"]);
    assert_eq!(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
    // Some models do not reason by default.
    let quiet = json!({"model": "gpt-5.1", "input": "hello"});
    assert_eq!(shape(&accept(&server, &quiet).await), ["message"]);
}

#[tokio::test]
async fn tool_choice_decides_the_call() {
    let server = Server::strict().await;
    let other = json!({"type": "function", "name": "other", "strict": false,
                       "parameters": {"type": "object"}});
    let allowed = json!({"type": "allowed_tools", "mode": "required",
                         "tools": [{"type": "function", "name": "other"}]});
    for (choice, called) in [
        (json!("auto"), None),
        (json!("none"), None),
        (json!("required"), Some("lookup")),
        (json!({"type": "function", "name": "other"}), Some("other")),
        (allowed, Some("other")),
    ] {
        let mut body = stateless("gpt-5.5", "hello");
        body["tools"] = json!([lookup(), other]);
        body["tool_choice"] = choice;
        let response = both(&server, &body, &[]).await;
        let call = response["output"].as_array().unwrap().last().unwrap();
        assert_eq!(call["name"].as_str(), called);
    }
    let mut body = stateless("gpt-5.5", "use a tool in parallel");
    body["parallel_tool_calls"] = false.into();
    let response = both(&server, &body, &[]).await;
    assert_eq!(shape(&response), ["reasoning", "message", "function_call"]);
}

#[tokio::test]
async fn token_limit_makes_the_response_incomplete() {
    let server = Server::strict().await;
    for (most, expected) in [(3, vec!["reasoning"]), (50, vec!["reasoning", "message"])] {
        let mut body = stateless("gpt-5.5", "hello");
        body["max_output_tokens"] = most.into();
        let response = both(&server, &body, &[]).await;
        assert_eq!(response["status"], "incomplete");
        assert_eq!(response["incomplete_details"], json!({"reason": "max_output_tokens"}));
        assert_eq!(shape(&response), expected, "{most}");
        let last = response["output"].as_array().unwrap().last().unwrap();
        assert_eq!(last["status"], "incomplete");
        assert!(response["usage"]["output_tokens"].as_u64().unwrap() <= most);
    }
}

#[tokio::test]
async fn a_response_may_refuse_be_filtered_or_fail() {
    let server = Server::strict().await;
    let refused = both(&server, &stateless("gpt-5.5", "a refusal please"), &[]).await;
    assert_eq!(refused["status"], "completed");
    assert_eq!(refused["output"][1]["content"][0]["type"], "refusal");
    let filtered = both(&server, &stateless("gpt-5.5", "content filter"), &[]).await;
    assert_eq!(filtered["status"], "incomplete");
    assert_eq!(filtered["incomplete_details"], json!({"reason": "content_filter"}));
    assert_eq!(filtered["output"][1]["status"], "incomplete");
    let failed = both(&server, &stateless("gpt-5.5", "fail midway"), &[]).await;
    assert_eq!(failed["status"], "failed");
    assert_eq!(failed["error"]["code"], "server_error");
    assert_eq!(shape(&failed), ["reasoning"]);
}

#[tokio::test]
async fn faults_act_before_and_in_the_stream() {
    let server = Server::strict().await;
    let mut body = stateless("gpt-5.5", "hello");
    body["stream"] = true.into();
    let fault = |text| [("x-simulator-fault", text)];
    let answer = post(&server, PATH, &body, &fault("error:event=4")).await;
    let events = answer.events();
    assert_eq!(events.len(), 5);
    assert_eq!(events[4]["type"], "error");
    assert_eq!(events[4]["sequence_number"], 4);
    assert_eq!(events[4].get("error"), None);
    let answer = post(&server, PATH, &body, &fault("status:429,retry-after=2")).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), Some("2"));
    assert_eq!(answer.json()["error"]["code"], "rate_limit_exceeded");
    let answer = post(&server, PATH, &body, &fault("end:event=6")).await;
    assert!(answer.complete);
    assert_eq!(answer.events().len(), 6);
    body["stream"] = false.into();
    let answer = post(&server, PATH, &body, &fault("error:event=1")).await;
    assert_eq!(answer.status, 503);
}

#[tokio::test]
async fn responses_applies_scenarios() {
    let server = Server::scenario(
        r#"
        [[step]]
        when = { contains = "rain" }
        say = [{ thinking = "Hm." }, { tool = { name = "look", input = { where = "here" } } }]
        answer_model = "another"
        "#,
    )
    .await;
    let response = both(&server, &stateless("gpt-5.5", "is it rain?"), &[]).await;
    assert_eq!(shape(&response), ["reasoning", "function_call"]);
    assert_eq!(response["output"][1]["arguments"], r#"{"where":"here"}"#);
    assert_eq!(response["model"], "another");
}

#[tokio::test]
async fn websocket_upgrade_gets_426() {
    let server = Server::strict().await;
    let headers = [("connection", "upgrade"), ("upgrade", "websocket")];
    let answer = server.send("GET", PATH, &headers, b"").await;
    assert_eq!(answer.status, 426);
    assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    let answer = server.send("GET", PATH, &[], b"").await;
    assert_eq!(answer.status, 405);
}

#[tokio::test]
async fn input_tokens_counts_without_a_response() {
    let server = Server::strict().await;
    let body = json!({"model": "gpt-5.5", "input": "hello there"});
    let answer = post(&server, "/v1/responses/input_tokens", &body, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let counted = answer.json();
    assert_eq!(counted["object"], "response.input_tokens");
    let response = accept(&server, &body).await;
    assert_eq!(counted["input_tokens"], response["usage"]["input_tokens"]);
}

#[tokio::test]
async fn responses_rejects_a_missing_key() {
    let server = Server::start(Options { require_key: true, ..Options::default() }).await;
    let body = stateless("gpt-5.5", "hello");
    accept(&server, &body).await;
    let body = body.to_string();
    let answer = server.send("POST", PATH, &[], body.as_bytes()).await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
}
