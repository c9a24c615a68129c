//! Replies: streams, trigger words, token counts and models.

use std::collections::HashSet;

use serde_json::{Value, json};
use throughline_simulator::{Options, Variant};

use crate::common::Server;
use crate::support::{
    VARIANTS, accept, append, ask, asking, assemble, chunks, essence, lookup, message, plain,
    refuse, set, streamed,
};

const TEXTS: [&str; 9] = [
    "hello",
    "something redacted",
    "think twice",
    "only think",
    "use a tool",
    "LOOKUP row 7",
    "use a tool in parallel",
    "use a tool, think twice",
    "bench 25",
];

#[tokio::test]
async fn every_trigger_of_every_variant_streams_correctly_and_equals_its_json() {
    let server = Server::strict().await;
    for (variant, model) in VARIANTS {
        for text in TEXTS {
            let mut body = asking(model, text);
            if variant == "openai" && text.contains("tool") {
                body["reasoning_effort"] = "none".into();
            }
            let whole = accept(&server, variant, &body).await;
            assert_eq!(whole["object"], "chat.completion");
            let answer = ask(&server, variant, &streamed(&body)).await;
            assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
            assert!(answer.complete);
            if variant == "mistral" {
                continue;
            }
            let found = assemble(&chunks(&answer));
            assert_eq!(found, essence(&whole), "{variant} {text}");
        }
    }
}

#[tokio::test]
async fn every_variant_completes_two_tool_rounds_and_another_question() {
    let server = Server::strict().await;
    for (variant, model) in VARIANTS {
        let mut body = asking(model, "use a tool twice in parallel");
        let mut rounds = 0;
        loop {
            let mut said = message(&server, variant, &body).await;
            if variant == "deepseek-r1" {
                said.as_object_mut().unwrap().remove("reasoning_content");
            }
            if append(&mut body, &said) == 0 {
                let text = said["content"].to_string();
                assert!(text.contains("The tool says “21 degrees” and “21 degrees”"), "{text}");
                break;
            }
            rounds += 1;
        }
        assert_eq!(rounds, 2, "{variant}");
        crate::support::say(&mut body, "and now?");
        accept(&server, variant, &body).await;
        let messages = body["messages"].as_array().unwrap();
        let ids: Vec<&str> = messages
            .iter()
            .flat_map(|one| one["tool_calls"].as_array())
            .flatten()
            .map(|call| call["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids.len(), 4);
        let unique: HashSet<&str> = ids.into_iter().collect();
        assert_eq!(unique.len(), 4, "{variant}");
    }
}

#[tokio::test]
async fn stream_includes_usage_only_on_request() {
    let server = Server::strict().await;
    let body = set(plain("open-model", "hello"), "stream", true);
    let found = chunks(&ask(&server, "", &body).await);
    assert!(found.iter().all(|chunk| chunk.get("usage").is_none()));
    assert!(found.iter().all(|chunk| chunk["choices"] != json!([])));
    let last = found.last().unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "stop");
    let asked = chunks(&ask(&server, "", &streamed(&plain("open-model", "hello"))).await);
    assert_eq!(asked.len(), found.len() + 1);
    assert_eq!(asked.last().unwrap()["choices"], json!([]));
}

#[tokio::test]
async fn mistral_streams_thinking_chunks_and_always_sends_usage() {
    let server = Server::strict().await;
    let body = plain("magistral-medium", "think twice");
    let whole = accept(&server, "mistral", &body).await;
    let content = whole["choices"][0]["message"]["content"].as_array().unwrap();
    let kinds: Vec<&str> = content.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["thinking", "text", "thinking", "text"]);
    let mut found = chunks(&ask(&server, "mistral", &set(body, "stream", true)).await);
    let usage = found.last_mut().unwrap().as_object_mut().unwrap().remove("usage");
    for chunk in &mut found {
        chunk["usage"] = Value::Null;
    }
    let mut counted = found[0].clone();
    counted["choices"] = json!([]);
    counted["usage"] = usage.unwrap();
    found.push(counted);
    assert_eq!(assemble(&found), essence(&whole));
}

#[tokio::test]
async fn every_call_delta_has_an_index_except_at_google() {
    let server = Server::strict().await;
    for (variant, model, numbered) in
        [("vllm", "qwen3", true), ("google", "gemini-3.8-flash", false)]
    {
        let body = streamed(&asking(model, "use a tool in parallel"));
        let found = chunks(&ask(&server, variant, &body).await);
        let fragments: Vec<&Value> = found
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .collect();
        assert!(fragments.iter().all(|one| one["index"].is_u64() == numbered));
        let named: Vec<&&Value> = fragments.iter().filter(|one| one["id"].is_string()).collect();
        assert_eq!(named.len(), 2);
        for one in named {
            assert_eq!(one["type"], "function");
            assert_eq!(one["function"]["name"], "lookup");
            assert_eq!(one["function"]["arguments"] == "", numbered);
        }
    }
}

#[tokio::test]
async fn finish_reason_matches_the_end_of_the_reply() {
    let server = Server::strict().await;
    let reason = async |variant: &str, body: Value| {
        accept(&server, variant, &body).await["choices"][0]["finish_reason"].clone()
    };
    let hello = || plain("open-model", "hello");
    assert_eq!(reason("", hello()).await, "stop");
    assert_eq!(reason("", set(hello(), "max_tokens", 5)).await, "length");
    assert_eq!(reason("", set(hello(), "max_completion_tokens", 5)).await, "length");
    assert_eq!(reason("", set(hello(), "stop", "hello")).await, "stop");
    assert_eq!(reason("", asking("open-model", "use a tool")).await, "tool_calls");
    // Google sends `stop` for calls too.
    assert_eq!(reason("google", asking("gemini-3.8-flash", "use a tool")).await, "stop");
    let stopped = accept(&server, "", &set(hello(), "stop", json!(["hello"]))).await;
    let text = stopped["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty() && !text.contains("hello"));
    let cut = accept(&server, "", &set(hello(), "max_tokens", 5)).await;
    assert_eq!(cut["usage"]["completion_tokens"], 5);
    assert_eq!(cut["choices"][0]["message"]["content"], "");
}

#[tokio::test]
async fn completion_tokens_include_reasoning_by_variant() {
    let server = Server::strict().await;
    for (variant, model) in VARIANTS {
        let usage =
            accept(&server, variant, &set(plain(model, "hello"), "reasoning_effort", "high")).await
                ["usage"]
                .clone();
        let count = |key: &str| usage[key].as_u64().unwrap();
        let all = count("total_tokens") - count("prompt_tokens");
        let reasoning = usage["completion_tokens_details"]["reasoning_tokens"].as_u64();
        match variant {
            "think-tags" | "ollama" => assert_eq!(reasoning, None),
            "google" | "xai" => assert_eq!(count("completion_tokens") + reasoning.unwrap(), all),
            _ => {
                assert_eq!(count("completion_tokens"), all, "{variant}");
                assert!(reasoning.unwrap() > 0, "{variant}");
            }
        }
        let deepseek = variant.starts_with("deepseek");
        assert_eq!(usage["prompt_cache_miss_tokens"].is_u64(), deepseek);
    }
}

#[tokio::test]
async fn n_choices_are_n_different_answers() {
    let server = Server::strict().await;
    let body = set(plain("gpt-4o", "hello there"), "n", 3);
    let whole = accept(&server, "", &body).await;
    assert_eq!(whole["choices"].as_array().unwrap().len(), 3);
    let found = assemble(&chunks(&ask(&server, "", &streamed(&body)).await));
    assert_eq!(found, essence(&whole));
}

#[tokio::test]
async fn probabilities_of_a_stream_are_those_of_the_whole_reply() {
    let server = Server::strict().await;
    for (variant, model, members) in [
        ("openai", "gpt-4o", &["content"][..]),
        ("vllm", "qwen3", &["content"]),
        ("deepseek-v4", "deepseek-v4-pro", &["content", "reasoning_content"]),
    ] {
        let body = set(plain(model, "hello there"), "logprobs", true);
        let body = set(body, "top_logprobs", 2);
        let whole = accept(&server, variant, &body).await["choices"][0].clone();
        let streamed = chunks(&ask(&server, variant, &set(body, "stream", true)).await);
        for name in members {
            let entries = |choice: &Value| choice["logprobs"][name].as_array().cloned();
            let found: Vec<Value> =
                streamed.iter().flat_map(|one| entries(&one["choices"][0])).flatten().collect();
            assert_eq!(Some(&found), entries(&whole).as_ref(), "{variant} {name}");
            let tokens: String = found.iter().map(|one| one["token"].as_str().unwrap()).collect();
            assert_eq!(whole["message"][name], tokens, "{variant} {name}");
            for entry in &found {
                assert!(entry["logprob"].as_f64().is_some_and(|logprob| logprob < 0.0), "{entry}");
                let likeliest = &entry["top_logprobs"];
                assert_eq!(likeliest.as_array().map(Vec::len), Some(2), "{entry}");
                assert_eq!(likeliest[0]["token"], entry["token"]);
                let bytes = entry["token"].as_str().map(|token| json!(token.as_bytes()));
                assert_eq!(Some(&entry["bytes"]), bytes.as_ref());
            }
        }
    }
    let unasked = accept(&server, "openai", &plain("gpt-4o", "hello there")).await;
    assert_eq!(unasked["choices"][0].get("logprobs"), Some(&Value::Null));
    let alone = set(plain("gpt-4o", "hello there"), "top_logprobs", 2);
    refuse(&server, "openai", &alone, "only allowed when 'logprobs' is enabled").await;
}

#[tokio::test]
async fn legacy_functions_are_called_with_function_call() {
    let server = Server::strict().await;
    let mut body = plain("gpt-4o", "use a tool");
    body["functions"] = json!([lookup()["function"]]);
    let whole = accept(&server, "", &body).await;
    let choice = &whole["choices"][0];
    assert_eq!(choice["finish_reason"], "function_call");
    assert_eq!(choice["message"]["function_call"]["name"], "lookup");
    assert!(choice["message"].get("tool_calls").is_none());
    let found = assemble(&chunks(&ask(&server, "", &streamed(&body)).await));
    assert_eq!(found, essence(&whole));
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(choice["message"].clone());
    messages.push(json!({"role": "function", "name": "lookup", "content": "21 degrees"}));
    let said = message(&server, "", &body).await;
    assert!(said["content"].as_str().unwrap().contains("21 degrees"));
}

#[tokio::test]
async fn tool_choice_forces_and_forbids_calls() {
    let server = Server::strict().await;
    for (choice, called) in [
        (json!("required"), true),
        (json!({"type": "function", "function": {"name": "lookup"}}), true),
        (
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}}),
            true,
        ),
        (json!("auto"), false),
        (json!("none"), false),
        (Value::Null, false),
    ] {
        let body = set(asking("open-model", "hello"), "tool_choice", choice.clone());
        let said = message(&server, "", &body).await;
        assert_eq!(said["tool_calls"].is_array(), called, "{choice}");
    }
    let body = set(asking("open-model", "use a tool in parallel"), "parallel_tool_calls", false);
    assert_eq!(message(&server, "", &body).await["tool_calls"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn repeat_ids_model_names_every_call_call_0() {
    let server = Server::strict().await;
    let mut body = asking("open-model-repeat-ids", "use a tool twice");
    for _ in 0..2 {
        let said = message(&server, "", &body).await;
        assert_eq!(said["tool_calls"][0]["id"], "call_0");
        append(&mut body, &said);
    }
    let said = message(&server, "", &body).await;
    assert!(said.get("tool_calls").is_none());
    let both =
        message(&server, "", &asking("open-model-repeat-ids", "use a tool in parallel")).await;
    let mut body = asking("open-model-repeat-ids", "use a tool in parallel");
    assert_eq!(append(&mut body, &both), 2);
    accept(&server, "", &body).await;
}

#[tokio::test]
async fn variant_comes_from_the_header_then_options_then_model() {
    let server = Server::strict().await;
    let said = message(&server, "", &plain("deepseek-v4-pro", "hello")).await;
    assert!(said["reasoning_content"].is_string());
    let said = message(&server, "vllm", &plain("deepseek-v4-pro", "hello")).await;
    assert!(said["reasoning"].is_string());
    let server = Server::start(Options {
        variant: Some(Variant::named("vllm").unwrap()),
        ..Options::default()
    })
    .await;
    let said = message(&server, "", &plain("deepseek-v4-pro", "hello")).await;
    assert!(said["reasoning"].is_string());
    let said = message(&server, "sglang", &plain("deepseek-v4-pro", "hello")).await;
    assert!(said["reasoning_content"].is_string());
    crate::support::refuse(
        &server,
        "klingon",
        &plain("m", "x"),
        "unknown variant `klingon`; use one of openai, ",
    )
    .await;
}

#[tokio::test]
async fn models_are_listed_and_described() {
    let server = Server::strict().await;
    let key = [("authorization", "Bearer k")];
    for path in ["/v1/models", "/models", "/v1beta/openai/models"] {
        let list = server.send("GET", path, &key, b"").await.json();
        assert_eq!(list["object"], "list", "{path}");
        let data = list["data"].as_array().unwrap();
        assert!(data.iter().any(|model| model["id"] == "deepseek-v4-pro"));
        assert!(data.iter().all(|model| model["object"] == "model"));
    }
    let one = server.send("GET", "/v1/models/gpt-6-luna", &key, b"").await.json();
    assert_eq!((&one["id"], &one["owned_by"]), (&json!("gpt-6-luna"), &json!("openai")));
    // Without a key, the first dialect answers this path.
    assert!(server.get("/v1/models").await.json()["has_more"].is_boolean());
}

#[tokio::test]
async fn every_server_path_is_served() {
    let server = Server::strict().await;
    let body = plain("open-model", "hello").to_string();
    for path in [
        "/v1/chat/completions",
        "/chat/completions",
        "/v4/chat/completions",
        "/api/paas/v4/chat/completions",
        "/v1beta/openai/chat/completions",
        "/api/v1/chat/completions",
    ] {
        let answer = server.send("POST", path, &[], body.as_bytes()).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("x-request-id"), answer.header("request-id"));
    }
}

#[tokio::test]
async fn chat_applies_faults_and_scenarios() {
    let server = Server::scenario(
        "[[step]]\nwhen = { contains = \"rain\" }\nsay = [{ thinking = \"Hm.\" }, { text = \"Wet.\" }]\nanswer_model = \"renamed\"\n",
    )
    .await;
    let reply = accept(&server, "", &plain("deepseek-v4-pro", "rain?")).await;
    assert_eq!(reply["model"], "renamed");
    let said = &reply["choices"][0]["message"];
    assert_eq!((&said["reasoning_content"], &said["content"]), (&json!("Hm."), &json!("Wet.")));
    let post = async |fault: &str, variant: &str, body: &Value| {
        let headers = [("x-simulator-fault", fault), ("x-simulator-variant", variant)];
        server.send("POST", "/v1/chat/completions", &headers, body.to_string().as_bytes()).await
    };
    let body = streamed(&plain("m", "hello"));
    let limited = post("status:429,retry-after=2", "vllm", &body).await;
    assert_eq!((limited.status, limited.header("retry-after")), (429, Some("2")));
    assert_eq!(limited.json()["error"]["code"], "rate_limit_exceeded");
    let limited = post("status:429", "openrouter", &body).await;
    assert_eq!(limited.json()["error"]["code"], 429);
    for (variant, member, value) in
        [("vllm", "type", json!("server_error")), ("openrouter", "code", json!(503))]
    {
        let broken = post("error:event=3", variant, &body).await.text();
        let last = broken.trim_end().rsplit("\n\n").next().unwrap();
        let last: Value = serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(last["error"][member], value);
    }
    assert_eq!(post("error:event=3", "vllm", &plain("m", "hello")).await.status, 503);
    let ended = post("end:event=4", "vllm", &body).await;
    assert!(ended.complete && !ended.text().contains("[DONE]"));
}
