//! Requests of the wrong shape, each with one that passes.

use serde_json::{Value, json};
use throughline_simulator::Options;

use crate::common::Server;
use crate::support::{accept, append, asking, message, plain, refuse, say, set};

#[tokio::test]
async fn missing_and_mistyped_members_are_rejected() {
    let server = Server::strict().await;
    accept(&server, "", &plain("gpt-4o", "hi")).await;
    for (key, value, words, parameter, code) in [
        ("model", Value::Null, "you must provide a model parameter", Value::Null, Value::Null),
        (
            "model",
            json!(7),
            "Invalid type for 'model': expected a string, but got an integer instead.",
            json!("model"),
            json!("invalid_type"),
        ),
        (
            "messages",
            Value::Null,
            "Missing required parameter: 'messages'.",
            json!("messages"),
            json!("missing_required_parameter"),
        ),
        (
            "messages",
            json!([]),
            "Invalid 'messages': empty array.",
            json!("messages"),
            json!("empty_array"),
        ),
        (
            "messages",
            json!("hi"),
            "Invalid type for 'messages': expected an array of objects, but got a string instead.",
            json!("messages"),
            json!("invalid_type"),
        ),
    ] {
        let error = refuse(&server, "openai", &set(plain("gpt-4o", "hi"), key, value), words).await;
        assert_eq!((&error["param"], &error["code"]), (&parameter, &code));
    }
    let answer = server.send("POST", "/v1/chat/completions", &[], b"{").await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.header("x-request-id"), answer.header("request-id"));
}

#[tokio::test]
async fn chat_rejects_a_missing_key() {
    let server = Server::start(Options { require_key: true, ..Options::default() }).await;
    accept(&server, "", &plain("gpt-4o", "hi")).await;
    let body = plain("gpt-4o", "hi").to_string();
    let answer = server.send("POST", "/v1/chat/completions", &[], body.as_bytes()).await;
    assert_eq!(answer.status, 401);
    assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
}

/// The expected texts are the provider's.
#[tokio::test]
async fn invalid_values_are_rejected_with_the_providers_message() {
    let server = Server::strict().await;
    for (key, value, words) in [
        (
            "stream",
            json!("yes"),
            "Invalid type for 'stream': expected a boolean, but got a string instead.",
        ),
        ("stream_options", json!({"include_usage": true}), "only allowed when 'stream' is enabled"),
        (
            "max_completion_tokens",
            json!(0),
            "Invalid 'max_completion_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
        ),
        ("max_completion_tokens", json!(1.5), "expected an integer, but got a decimal"),
        (
            "temperature",
            json!(3),
            "Invalid 'temperature': decimal above maximum value. Expected a value <= 2, but got 3 instead.",
        ),
        ("temperature", json!("hot"), "Invalid type for 'temperature'"),
        ("top_p", json!(-1), "decimal below minimum value"),
        ("n", json!(0), "Invalid 'n'"),
        ("n", json!(129), "Invalid 'n': integer above maximum value"),
        ("stop", json!(["a", "b", "c", "d", "e"]), "Invalid 'stop': array too long."),
        ("stop", json!([1]), "Invalid type for 'stop[0]'"),
        ("stop", json!(1), "Invalid type for 'stop'"),
        (
            "reasoning_effort",
            json!("huge"),
            "Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'.",
        ),
        (
            "verbosity",
            json!("loud"),
            "Invalid value: 'loud'. Supported values are: 'low', 'medium', and 'high'.",
        ),
        ("service_tier", json!("gold"), "Invalid value: 'gold'"),
        ("tools", json!([]), "Invalid 'tools': empty array."),
        ("tools", json!({}), "Invalid type for 'tools'"),
        (
            "tools",
            json!([{"function": {"name": "f"}}]),
            "Missing required parameter: 'tools[0].type'.",
        ),
        (
            "tools",
            json!([{"type": "function"}]),
            "Missing required parameter: 'tools[0].function.name'.",
        ),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "a b"}}]),
            "string does not match pattern",
        ),
        (
            "tools",
            json!([{"type": "function", "function": {"name": "f", "parameters": "x"}}]),
            "Invalid type for 'tools[0].function.parameters'",
        ),
        (
            "tools",
            json!([{"type": "web_search"}]),
            "Invalid value: 'web_search'. Supported values are: 'function' and 'custom'.",
        ),
        ("tool_choice", json!("auto"), "'tool_choice' is only allowed when 'tools' are specified."),
        (
            "parallel_tool_calls",
            json!(true),
            "'parallel_tool_calls' is only allowed when 'tools' are specified.",
        ),
    ] {
        refuse(&server, "", &set(plain("gpt-5", "hi"), key, value), words).await;
    }
    for (choice, words) in [
        (json!("any"), "Invalid value: 'any'"),
        (json!({"type": "function"}), "Missing required parameter: 'tool_choice.function.name'."),
        (
            json!({"type": "function", "function": {"name": "other"}}),
            "function 'other' is not among the 'tools'",
        ),
        (json!({"type": "any"}), "Invalid value: 'any'"),
        (json!({}), "Missing required parameter: 'tool_choice.type'."),
        (json!(1), "Invalid type for 'tool_choice'"),
    ] {
        refuse(&server, "", &set(asking("gpt-5", "hi"), "tool_choice", choice), words).await;
    }
    accept(&server, "mistral", &set(asking("m", "hi"), "tool_choice", "any")).await;
    accept(&server, "glm", &set(plain("m", "hi"), "tools", json!([{"type": "web_search"}]))).await;
    let custom = json!([{"type": "custom", "custom": {"name": "shell"}}]);
    accept(&server, "", &set(plain("gpt-5", "hi"), "tools", custom)).await;
}

#[tokio::test]
async fn invalid_messages_are_rejected_with_the_providers_message() {
    let server = Server::strict().await;
    let talk = |message: Value| json!({"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}, message, {"role": "user", "content": "hi"}]});
    for (message, words) in [
        (json!("hi"), "Invalid type for 'messages[1]'"),
        (json!({"content": "x"}), "Missing required parameter: 'messages[1].role'."),
        (
            json!({"role": "bot", "content": "x"}),
            "Invalid value: 'bot'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and 'developer'.",
        ),
        (json!({"role": "user"}), "Invalid value for 'content': expected a string, got null."),
        (json!({"role": "assistant", "content": null}), "expected a string, got null"),
        (json!({"role": "user", "content": 3}), "Invalid type for 'messages[1].content'"),
        (json!({"role": "user", "content": []}), "Invalid 'messages[1].content': empty array."),
        (
            json!({"role": "user", "content": [{"text": "x"}]}),
            "Missing required parameter: 'messages[1].content[0].type'.",
        ),
        (
            json!({"role": "user", "content": [{"type": "text"}]}),
            "Missing required parameter: 'messages[1].content[0].text'.",
        ),
        (json!({"role": "user", "content": [{"type": "video_url"}]}), "Invalid value: 'video_url'"),
        (
            json!({"role": "system", "content": [{"type": "image_url"}]}),
            "Invalid value: 'image_url'. Supported values are: 'text'.",
        ),
        (
            json!({"role": "user", "content": "x", "cache_control": {}}),
            "Unknown parameter: 'messages[1].cache_control'.",
        ),
        (
            json!({"role": "tool", "content": "x"}),
            "Missing required parameter: 'messages[1].tool_call_id'.",
        ),
        (
            json!({"role": "assistant", "tool_calls": []}),
            "Invalid 'messages[1].tool_calls': empty array.",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"type": "function"}]}),
            "Missing required parameter: 'messages[1].tool_calls[0].id'.",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}),
            "Missing required parameter: 'messages[1].tool_calls[0].type'.",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f"}}]}),
            "Missing required parameter: 'messages[1].tool_calls[0].function.arguments'.",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}]}),
            "Invalid type for 'messages[1].tool_calls[0].function.arguments'",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "c", "index": 0, "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
            "Unknown parameter: 'messages[1].tool_calls[0].index'.",
        ),
    ] {
        refuse(&server, "", &talk(message), words).await;
    }
    for message in [
        json!({"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:"}}]}),
        json!({"role": "assistant", "content": [{"type": "text", "text": "x"}]}),
        json!({"role": "assistant", "content": null, "refusal": "No."}),
        json!({"role": "assistant", "content": ""}),
        json!({"role": "developer", "content": "x", "name": "n"}),
    ] {
        accept(&server, "", &talk(message)).await;
    }
    let film = talk(
        json!({"role": "user", "content": [{"type": "video_url", "video_url": {"url": "x"}}]}),
    );
    accept(&server, "qwen", &film).await;
}

#[tokio::test]
async fn arguments_must_be_json_except_at_openai() {
    let server = Server::strict().await;
    for arguments in ["", "not json", "[1]"] {
        let call = json!({"id": "c", "type": "function", "function": {"name": "lookup", "arguments": arguments}});
        let body = json!({"model": "m", "messages": [{"role": "user", "content": "hi"},
            {"role": "assistant", "content": null, "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]});
        refuse(&server, "vllm", &body, "expected a JSON object as text").await;
        accept(&server, "openai", &body).await;
    }
}

#[tokio::test]
async fn every_call_needs_its_result_at_once() {
    let server = Server::strict().await;
    for (variant, model) in [("openai", "gpt-5"), ("vllm", "qwen3")] {
        let mut body = asking(model, "use a tool in parallel");
        let said = message(&server, variant, &body).await;
        assert_eq!(append(&mut body, &said), 2);
        accept(&server, variant, &body).await;
        let change = |change: &dyn Fn(&mut Vec<Value>)| {
            let mut body = body.clone();
            change(body["messages"].as_array_mut().unwrap());
            body
        };
        let unanswered = "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: call_";
        refuse(
            &server,
            variant,
            &change(&|all| {
                all.pop();
            }),
            unanswered,
        )
        .await;
        refuse(
            &server,
            variant,
            &change(&|all| all.insert(3, json!({"role": "user", "content": "wait"}))),
            unanswered,
        )
        .await;
        let unasked = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.";
        refuse(
            &server,
            variant,
            &change(&|all| {
                all.remove(2);
            }),
            unasked,
        )
        .await;
        let unknown = "not found in 'tool_calls' of previous message";
        refuse(&server, variant, &change(&|all| all[3]["tool_call_id"] = "call_x".into()), unknown)
            .await;
        refuse(
            &server,
            variant,
            &change(&|all| {
                let again = all[3].clone();
                all.push(again);
            }),
            unknown,
        )
        .await;
        refuse(
            &server,
            variant,
            &change(&|all| {
                let first = all[2]["tool_calls"][0]["id"].clone();
                all[2]["tool_calls"][1]["id"] = first;
            }),
            "Duplicate value",
        )
        .await;
        // The results may come in any order, and another question may follow.
        let mut swapped = change(&|all| all.swap(3, 4));
        say(&mut swapped, "and now?");
        accept(&server, variant, &swapped).await;
    }
}
