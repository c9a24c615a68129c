//! Refusals, and that none happen without `strict`.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::{LEVELS, PLAIN, THINKS, accept, asking, lookup, post, refuse, set};

#[tokio::test]
async fn think_is_rejected_for_models_that_cannot_think() {
    let server = Server::strict().await;
    for think in [json!(true), json!("low")] {
        let body = set(asking(PLAIN, "hi"), "think", think);
        refuse(&server, &body, "\"llama3.2:3b\" does not support thinking").await;
    }
    accept(&server, &set(asking(PLAIN, "hi"), "think", false)).await;
    for model in [THINKS, LEVELS] {
        for think in [json!(true), json!(false), json!("low"), json!("max"), Value::Null] {
            accept(&server, &set(asking(model, "hi"), "think", think)).await;
        }
    }
    let wrong = "invalid think value: \"extreme\" (must be \"high\", \"medium\", \"low\", \"max\", true, or false)";
    refuse(&server, &set(asking(THINKS, "hi"), "think", "extreme"), wrong).await;
    refuse(&server, &set(asking(THINKS, "hi"), "think", 3), "think must be").await;
}

#[tokio::test]
async fn request_of_the_wrong_shape_is_rejected() {
    let server = Server::strict().await;
    let said = |message: Value| set(asking(THINKS, ""), "messages", json!([message]));
    let call = |function: Value| {
        said(json!({"role": "assistant", "content": "", "tool_calls": [{"function": function}]}))
    };
    for (body, words) in [
        (set(asking(THINKS, "hi"), "model", ""), "model is required"),
        (set(asking(THINKS, "hi"), "stream", "no"), "ChatRequest.stream"),
        (set(asking(THINKS, "hi"), "format", "xml"), "invalid format: \"xml\""),
        (set(asking(THINKS, "hi"), "options", json!([])), "ChatRequest.options"),
        (
            set(asking(THINKS, "hi"), "options", json!({"num_predict": "all"})),
            "option \"num_predict\" must be of type integer",
        ),
        (said(json!({"role": "developer", "content": "x"})), "invalid role: developer"),
        (
            said(json!({"role": "user", "content": [{"type": "text", "text": "x"}]})),
            "cannot unmarshal array into Go struct field ChatRequest.messages.content of type string",
        ),
        (said(json!({"role": "user", "content": "x", "images": ["no base64!"]})), "illegal base64"),
        (said(json!({"role": "assistant", "content": "x", "thinking": {}})), "messages.thinking"),
        (
            call(json!({"name": "f", "arguments": "{}"})),
            "cannot unmarshal string into Go struct field ChatRequest.messages.tool_calls.function.arguments",
        ),
        (call(json!({"arguments": {}})), "without a function name"),
    ] {
        refuse(&server, &body, words).await;
    }
    let empty = server.send("POST", "/api/chat", &[], b"").await;
    assert_eq!(empty.json()["error"], "missing request body");
    let lenient = Server::start(Options { strict: false, ..Options::default() }).await;
    accept(&lenient, &set(asking(PLAIN, "hi"), "think", "extreme")).await;
}

#[tokio::test]
async fn every_call_needs_its_result_at_once_with_the_tool_name() {
    let server = Server::strict().await;
    let with = |entries: &[Value]| {
        let user = json!({"role": "user", "content": "use a tool"});
        let calls = json!({"role": "assistant", "content": "", "thinking": "Hm.", "tool_calls": [
            {"id": "c1", "function": {"index": 0, "name": "lookup", "arguments": {"k": "x"}}},
            {"function": {"name": "paint", "arguments": {}}},
        ]});
        let messages: Vec<Value> = [user, calls].iter().chain(entries).cloned().collect();
        set(set(asking(THINKS, ""), "messages", messages), "tools", json!([lookup()]))
    };
    let result = |tool: &str, id: &str| json!({"role": "tool", "tool_name": tool, "tool_call_id": id, "content": "x"});
    accept(&server, &with(&[result("paint", ""), result("lookup", "c1")])).await;
    accept(&server, &with(&[result("lookup", ""), result("paint", "own")])).await;
    for (entries, words) in [
        (vec![], "has no result"),
        (vec![result("lookup", "c1")], "the call of tool \"paint\""),
        (vec![result("lookup", "c2"), result("paint", "")], "answers no call"),
        (vec![result("", "c1"), result("paint", "")], "answers no call"),
        (
            vec![json!({"role": "user", "content": "well?"}), result("lookup", "c1")],
            "has no result",
        ),
    ] {
        refuse(&server, &with(&entries), words).await;
    }
}

#[tokio::test]
async fn ollama_rejects_a_missing_key() {
    let server = Server::start(Options { require_key: true, ..Options::default() }).await;
    let refused = post(&server, "/api/chat", &asking(THINKS, "hi")).await;
    assert_eq!((refused.status, refused.json()), (401, json!({"error": "unauthorized"})));
}

#[tokio::test]
async fn chat_variant_ollama_uses_the_same_model_rules() {
    let server = Server::strict().await;
    let ask = async |model: &str, effort: &str| {
        let body = json!({"model": model, "reasoning_effort": effort,
                          "messages": [{"role": "user", "content": "hi"}]});
        let headers = [("content-type", "application/json"), ("x-simulator-variant", "ollama")];
        let body = body.to_string();
        server.send("POST", "/v1/chat/completions", &headers, body.as_bytes()).await
    };
    let refused = ask(PLAIN, "low").await;
    assert_eq!(refused.status, 400);
    let body = refused.json();
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(message, "\"llama3.2:3b\" does not support thinking");
    assert_eq!(ask(PLAIN, "none").await.status, 200);
    assert_eq!(ask(THINKS, "ultra").await.status, 200);
    assert_eq!(ask(THINKS, "extreme").await.status, 400);
    let thinks = ask(THINKS, "low").await.json();
    assert!(thinks["choices"][0]["message"]["reasoning"].is_string());
    assert!(thinks["usage"].get("completion_tokens_details").is_none());
}
