//! Requests of the wrong shape, each with one that passes.

use serde_json::{Value, json};

use super::common::Server;
use super::{PATH, accept, lookup, post, refuse};

fn plain(model: &str) -> Value {
    json!({"model": model, "input": "hi"})
}

fn set(mut body: Value, key: &str, value: Value) -> Value {
    body[key] = value;
    body
}

fn talk(items: impl Into<Value>) -> Value {
    json!({"model": "gpt-5.5", "store": false, "input": items.into()})
}

#[tokio::test]
async fn every_known_member_is_accepted() {
    let server = Server::strict().await;
    let body = json!({
        "model": "gpt-5.5", "instructions": "Be terse.", "store": false, "stream": false,
        "background": false, "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "reasoning": {"effort": "high", "summary": "detailed", "context": "all_turns", "mode": "standard"},
        "text": {"format": {"type": "text"}, "verbosity": "low"}, "tools": [lookup()],
        "tool_choice": "auto", "parallel_tool_calls": true, "max_output_tokens": 1000,
        "max_tool_calls": 3, "temperature": 0.5, "top_p": 1, "top_logprobs": 0,
        "truncation": "disabled", "metadata": {"a": "b"}, "prompt_cache_key": "k",
        "prompt_cache_options": {"mode": "auto"}, "prompt_cache_retention": "24h",
        "service_tier": "auto", "safety_identifier": "s", "user": "u", "client_metadata": {},
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "previous_response_id": null, "conversation": null, "stream_options": null,
        "input": [{"role": "user", "content": "hi"}],
    });
    accept(&server, &body).await;
    let mut streamed = body;
    streamed["stream"] = true.into();
    streamed["stream_options"] = json!({"include_obfuscation": false});
    assert_eq!(post(&server, PATH, &streamed, &[]).await.status, 200);
}

#[tokio::test]
async fn missing_and_unknown_members_are_rejected() {
    let server = Server::strict().await;
    let error =
        refuse(&server, &json!({"input": "hi"}), "Missing required parameter: 'model'.").await;
    assert_eq!(error["code"], "missing_required_parameter");
    assert_eq!(error["param"], "model");
    refuse(&server, &json!({"model": "gpt-5.5"}), "One of \"input\" or \"previous_response_id\"")
        .await;
    let body = set(plain("gpt-5.5"), "messages", json!([]));
    let error = refuse(&server, &body, "Unknown parameter: 'messages'.").await;
    assert_eq!(error["code"], "unknown_parameter");
    assert_eq!(error["param"], "messages");
    for key in ["max_tokens", "max_completion_tokens", "reasoning_effort", "stop"] {
        let expected = format!("Unknown parameter: '{key}'.");
        refuse(&server, &set(plain("gpt-5.5"), key, json!(1)), &expected).await;
    }
    let count = set(plain("gpt-5.5"), "store", json!(true));
    let answer = post(&server, "/v1/responses/input_tokens", &count, &[]).await;
    assert_eq!(answer.json()["error"]["code"], "unknown_parameter");
    let broken = server.send("POST", PATH, &[], b"{").await;
    assert_eq!(broken.status, 400);
}

#[tokio::test]
async fn invalid_values_are_rejected_with_param_and_code() {
    let server = Server::strict().await;
    for (key, value, text) in [
        (
            "store",
            json!("no"),
            "Invalid type for 'store': expected a boolean, but got a string instead.",
        ),
        ("input", json!(7), "Invalid type for 'input'"),
        ("max_output_tokens", json!(1.5), "expected an integer, but got a decimal number instead."),
        ("max_output_tokens", json!(0), "Expected a value >= 1, but got 0 instead."),
        ("include", json!(["reasoning"]), "Invalid value: 'reasoning'. Supported values are:"),
        ("truncation", json!("never"), "Invalid value: 'never'."),
        ("reasoning", json!({"effort": "huge"}), "Invalid value: 'huge'."),
        ("reasoning", json!({"summary": "long"}), "'auto', 'concise', and 'detailed'."),
        ("reasoning", json!({"budget": 1}), "Unknown parameter: 'reasoning.budget'."),
        ("text", json!({"verbosity": "huge"}), "Invalid value: 'huge'."),
        (
            "text",
            json!({"format": {"type": "json_schema", "json_schema": {"name": "n"}}}),
            "Missing required parameter: 'text.format.name'.",
        ),
        (
            "text",
            json!({"format": {"type": "json_schema", "name": "n", "strict": true, "schema": {"type": "object"}}}),
            "Invalid schema for response_format 'n'",
        ),
        (
            "stream_options",
            json!({"include_usage": true}),
            "Unknown parameter: 'stream_options.include_usage'.",
        ),
        (
            "stream_options",
            json!({"include_obfuscation": true}),
            "only allowed when 'stream' is enabled",
        ),
        ("background", json!(true), "background"),
        ("conversation", json!("conv_1"), "conversations"),
    ] {
        refuse(&server, &set(plain("gpt-5.5"), key, value), text).await;
    }
    let mut both = set(plain("gpt-5.5"), "conversation", json!("conv_1"));
    both["previous_response_id"] = "resp_1".into();
    refuse(&server, &both, "Mutually exclusive").await;
    let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "n", "strict": true, "schema": schema});
    accept(&server, &set(plain("gpt-5.5"), "text", json!({"format": format}))).await;
}

#[tokio::test]
async fn model_decides_which_efforts_are_valid() {
    let server = Server::strict().await;
    let ask =
        |model: &str, effort: &str| set(plain(model), "reasoning", json!({ "effort": effort }));
    for (model, good, bad) in [
        ("gpt-6.1-sol", "max", "minimal"),
        ("gpt-5.6-luna", "max", "minimal"),
        ("gpt-5.5", "xhigh", "max"),
        ("gpt-5.1", "none", "xhigh"),
        ("gpt-5", "minimal", "none"),
        ("o3", "high", "xhigh"),
    ] {
        accept(&server, &ask(model, good)).await;
        let expected =
            format!("Unsupported value: '{bad}' is not supported with the '{model}' model.");
        let error = refuse(&server, &ask(model, bad), &expected).await;
        assert_eq!(error["code"], "unsupported_value");
        assert_eq!(error["param"], "reasoning.effort");
    }
    refuse(
        &server,
        &ask("gpt-4.1", "low"),
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
    )
    .await;
    for effort in ["none", "minimal", "low", "medium", "high", "xhigh", "max"] {
        accept(&server, &ask("glm-5", effort)).await;
    }
}

#[tokio::test]
async fn sampling_is_rejected_while_gpt_6_reasons() {
    let server = Server::strict().await;
    for (key, value) in
        [("temperature", json!(0.5)), ("top_p", json!(0.9)), ("top_logprobs", json!(2))]
    {
        let expected = format!("Unsupported parameter: '{key}' is not supported with this model.");
        let mut body = set(plain("gpt-6-luna"), key, value);
        let error = refuse(&server, &body, &expected).await;
        assert_eq!(error["param"], key);
        body["reasoning"] = json!({"effort": "low"});
        refuse(&server, &body, &expected).await;
        body["reasoning"] = json!({"effort": "none"});
        accept(&server, &body).await;
        body["reasoning"] = json!({"effort": "low"});
        body["model"] = "gpt-5.5".into();
        accept(&server, &body).await;
    }
}

#[tokio::test]
async fn tools_are_flat_and_strict_by_default() {
    let server = Server::strict().await;
    let with = |tool: Value| set(plain("gpt-5.5"), "tools", json!([tool]));
    let strict = json!({"type": "object", "properties": {"k": {"type": "string"}},
                        "required": ["k"], "additionalProperties": false});
    let silent = json!({"type": "function", "name": "f", "parameters": strict});
    let response = accept(&server, &with(silent.clone())).await;
    assert_eq!(response["tools"][0]["strict"], true);
    accept(&server, &with(lookup())).await;
    let loose = "In context=(), 'additionalProperties' is required to be supplied and to be false.";
    for mode in [Value::Null, json!(true)] {
        let error = refuse(&server, &with(set(lookup(), "strict", mode)), loose).await;
        assert_eq!(error["code"], "invalid_function_parameters");
        assert_eq!(error["param"], "tools[0].parameters");
    }
    for (tool, text) in [
        (
            json!({"type": "function", "function": {"name": "f", "parameters": {}}}),
            "Missing required parameter: 'tools[0].name'.",
        ),
        (json!({"name": "f", "input_schema": {}}), "Missing required parameter: 'tools[0].type'."),
        (
            set(silent.clone(), "input_schema", json!({})),
            "Unknown parameter: 'tools[0].input_schema'.",
        ),
        (set(silent.clone(), "name", json!("a b")), "string does not match pattern"),
        (json!(7), "Invalid type for 'tools[0]'"),
    ] {
        refuse(&server, &with(tool), text).await;
    }
    accept(&server, &with(json!({"type": "web_search"}))).await;
    accept(&server, &with(json!({"type": "custom", "name": "apply_patch", "format": {}}))).await;
}

#[tokio::test]
async fn tool_choice_must_name_one_of_the_tools() {
    let server = Server::strict().await;
    let with = |choice: Value| {
        let body = set(plain("gpt-5.5"), "tools", json!([lookup()]));
        set(body, "tool_choice", choice)
    };
    accept(&server, &with(json!({"type": "function", "name": "lookup"}))).await;
    for (choice, text) in [
        (json!("any"), "'none', 'auto', and 'required'"),
        (
            json!({"type": "function", "function": {"name": "lookup"}}),
            "Missing required parameter: 'tool_choice.name'.",
        ),
        (json!({"type": "function", "name": "other"}), "not found in 'tools' parameter"),
        (json!({"type": "allowed_tools"}), "'tool_choice.mode'"),
        (json!({}), "'tool_choice.type'"),
    ] {
        refuse(&server, &with(choice), text).await;
    }
}

#[tokio::test]
async fn items_of_the_wrong_shape_are_rejected() {
    let server = Server::strict().await;
    accept(
        &server,
        &talk(json!([
            {"role": "developer", "content": "Be terse."},
            {"type": "message", "id": "msg_of_a_client", "role": "user",
             "content": [{"type": "input_text", "text": "hi"},
                         {"type": "input_image", "image_url": "data:image/png;base64,", "detail": "auto"}]},
            {"type": "message", "role": "assistant", "phase": "commentary", "status": "completed",
             "content": [{"type": "output_text", "text": "Well.", "annotations": [], "logprobs": []}]},
            {"role": "assistant", "phase": "final_answer", "content": "Done."},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            {"type": "function_call", "id": "fc_of_a_client", "call_id": "c", "name": "lookup", "arguments": "{broken"},
            {"type": "function_call_output", "id": "fco_of_a_client", "call_id": "c",
             "output": [{"type": "input_text", "text": "blue"}]},
            {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}},
            {"role": "user", "content": "go on"},
        ])),
    )
    .await;
    for (item, text) in [
        (json!(7), "Invalid type for 'input[0]'"),
        (json!({"content": "hi"}), "Missing required parameter: 'input[0].type'."),
        (
            json!({"type": "thinking"}),
            "Invalid value: 'thinking'. Supported values are: 'message', 'reasoning',",
        ),
        (json!({"role": "tool", "content": "x"}), "Invalid value: 'tool'."),
        (json!({"role": "user"}), "Missing required parameter: 'input[0].content'."),
        (
            json!({"role": "user", "content": null}),
            "expected one of an array of objects or string, but got null instead.",
        ),
        (
            json!({"role": "user", "content": "x", "name": "n"}),
            "Unknown parameter: 'input[0].name'.",
        ),
        (
            json!({"role": "user", "content": "x", "phase": "commentary"}),
            "Unknown parameter: 'input[0].phase'.",
        ),
        (
            json!({"role": "assistant", "content": "x", "phase": "middle"}),
            "Invalid value: 'middle'.",
        ),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "x"}]}),
            "Invalid value: 'text'. Supported values are: 'input_text',",
        ),
        (
            json!({"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}),
            "Supported values are: 'output_text' and 'refusal'.",
        ),
        (
            json!({"role": "user", "content": [{"type": "input_text", "text": "x", "cache_control": {}}]}),
            "Unknown parameter: 'input[0].content[0].cache_control'.",
        ),
        (
            json!({"type": "function_call", "id": "call_1", "call_id": "call_1", "name": "f", "arguments": "{}"}),
            "Invalid 'input[0].id': 'call_1'. Expected an ID that begins with 'fc'.",
        ),
        (
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}),
            "Invalid type for 'input[0].arguments': expected a string, but got an object instead.",
        ),
        (
            json!({"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}"}),
            "Missing required parameter: 'input[0].call_id'.",
        ),
        (
            json!({"type": "function_call_output", "call_id": "c"}),
            "Missing required parameter: 'input[0].output'.",
        ),
        (
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "x"}),
            "Missing required parameter: 'input[0].summary'.",
        ),
        (
            json!({"type": "reasoning", "id": "msg_1", "summary": []}),
            "Expected an ID that begins with 'rs'.",
        ),
        (
            json!({"type": "reasoning", "summary": [], "signature": "x"}),
            "Unknown parameter: 'input[0].signature'.",
        ),
        (
            json!({"type": "reasoning", "summary": [{"type": "text", "text": "x"}]}),
            "Invalid value: 'text'. Supported values are: 'summary_text'.",
        ),
    ] {
        refuse(&server, &talk(json!([item])), text).await;
    }
}

#[tokio::test]
async fn every_call_needs_its_output_and_every_output_its_call() {
    let server = Server::strict().await;
    let call =
        |id: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "x"});
    let patch = json!({"type": "custom_tool_call", "call_id": "p", "name": "patch", "input": "x"});
    let patched = json!({"type": "custom_tool_call_output", "call_id": "p", "output": "x"});
    for good in [
        json!([call("a"), output("a")]),
        json!([call("a"), call("b"), output("b"), output("a")]),
        json!([call("a"), output("a"), call("b"), output("b")]),
        json!([patch, patched]),
    ] {
        accept(&server, &talk(good)).await;
    }
    for (bad, text) in [
        (json!([call("a")]), "No tool output found for function call a."),
        (
            json!([call("a"), {"role": "user", "content": "x"}]),
            "No tool output found for function call a.",
        ),
        (json!([output("a")]), "No tool call found for function call output with call_id a."),
        (
            json!([output("a"), call("a")]),
            "No tool call found for function call output with call_id a.",
        ),
        (
            json!([call("a"), output("a"), output("a")]),
            "No tool call found for function call output with call_id a.",
        ),
        (json!([patch]), "No tool output found for custom tool call p."),
    ] {
        let error = refuse(&server, &talk(bad), text).await;
        assert_eq!(error["param"], "input");
    }
}
