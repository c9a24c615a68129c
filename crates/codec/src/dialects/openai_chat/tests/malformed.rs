//! Requests that are wrong, and where they are said to be.

use serde_json::json;

use super::*;

fn refused(body: &Value) -> String {
    let fault = read_bytes(body.to_string().as_bytes()).expect_err(&body.to_string());
    fault.message
}

#[test]
fn faults_name_the_wrong_member() {
    let messages = json!([{"role": "user", "content": "hi"}]);
    // Members beside a model and messages that are right.
    let beside = |members: Value| {
        let mut body = json!({"model": "m", "messages": messages});
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    };
    // Messages beside a model that is right.
    let said = |messages: Value| json!({"model": "m", "messages": messages});
    let assistant = |members: Value| {
        let mut message = json!({"role": "assistant"});
        for (name, value) in members.as_object().unwrap() {
            message[name] = value.clone();
        }
        json!({"model": "m", "messages": [{"role": "user", "content": "x"}, message]})
    };
    let table = [
        (json!({"messages": messages}), "model: is required"),
        (
            json!({"model": 7, "messages": messages}),
            "model: expected a string, found a number",
        ),
        (
            json!({"model": "", "messages": messages}),
            "model: is empty",
        ),
        (json!({"model": "m"}), "messages: is required"),
        (
            said(json!("hi")),
            "messages: expected a list, found a string",
        ),
        (said(json!([])), "messages: is empty"),
        (
            said(json!(["hi"])),
            "messages[0]: expected an object, found a string",
        ),
        (
            said(json!([{"content": "x"}])),
            "messages[0].role: is required",
        ),
        (
            said(json!([{"role": "robot", "content": "x"}])),
            "messages[0].role: expected `developer`",
        ),
        (
            said(json!([{"role": "user"}])),
            "messages[0].content: is required",
        ),
        (
            said(json!([{"role": "user", "content": 7}])),
            "messages[0].content: expected a string or a list, found a number",
        ),
        (
            said(json!([{"role": "user", "content": [7]}])),
            "messages[0].content[0]: expected an object, found a number",
        ),
        (
            said(json!([{"role": "user", "content": [{"text": "x"}]}])),
            "messages[0].content[0].type: is required",
        ),
        (
            said(json!([{"role": "user", "content": [{"type": "text", "text": 7}]}])),
            "messages[0].content[0].text: expected a string, found a number",
        ),
        (
            said(json!([{"role": "user", "content": [{"type": "image_url"}]}])),
            "messages[0].content[0].image_url: is required",
        ),
        (
            said(
                json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:oops"}}]}]),
            ),
            "messages[0].content[0].image_url: expected `data:<type>;base64,<data>`",
        ),
        (
            said(
                json!([{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "x"}}]}]),
            ),
            "messages[0].content[0].input_audio.format: is required",
        ),
        (
            said(json!([{"role": "user", "content": [{"type": "file", "file": {}}]}])),
            "messages[0].content[0].file: expected `file_id` or `file_data`",
        ),
        (
            said(
                json!([{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
            ),
            "messages[0].content[0].type: expected `text`",
        ),
        (
            said(json!([{"role": "tool", "content": "x"}])),
            "messages[0].tool_call_id: is required",
        ),
        (
            said(json!([{"role": "tool", "tool_call_id": "a"}])),
            "messages[0].content: is required",
        ),
        (assistant(json!({})), "messages[1].content: is required"),
        (
            assistant(json!({"tool_calls": "x"})),
            "messages[1].tool_calls: expected a list, found a string",
        ),
        (
            assistant(
                json!({"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
            ),
            "messages[1].tool_calls[0].id: is required",
        ),
        (
            assistant(json!({"tool_calls": [{"id": "a", "type": "function"}]})),
            "messages[1].tool_calls[0].function: is required",
        ),
        (
            assistant(
                json!({"tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": 7}}]}),
            ),
            "messages[1].tool_calls[0].function.arguments: expected a string, found a number",
        ),
        (
            assistant(json!({"reasoning_content": ["x"]})),
            "messages[1].reasoning_content: expected a string, found a list",
        ),
        (
            assistant(json!({"reasoning_details": [{"text": "x"}]})),
            "messages[1].reasoning_details[0].type: is required",
        ),
        (
            assistant(json!({"reasoning_details": [{"type": "reasoning.encrypted"}]})),
            "messages[1].reasoning_details[0].data: is required",
        ),
        (
            beside(json!({"stream": "yes"})),
            "stream: expected true or false, found a string",
        ),
        (
            beside(json!({"temperature": "hot"})),
            "temperature: expected a number, found a string",
        ),
        (
            beside(json!({"max_tokens": -1})),
            "max_tokens: expected a whole number, found a number",
        ),
        (
            beside(json!({"seed": 1.5})),
            "seed: expected a whole number, found a number",
        ),
        (
            beside(json!({"stop": [1]})),
            "stop[0]: expected a string, found a number",
        ),
        (beside(json!({"n": 0})), "n: must be at least 1"),
        (
            beside(json!({"tools": {}})),
            "tools: expected a list, found an object",
        ),
        (
            beside(json!({"tools": [{"function": {"name": "f"}}]})),
            "tools[0].type: is required",
        ),
        (
            beside(json!({"tools": [{"type": "function", "function": {}}]})),
            "tools[0].function.name: is required",
        ),
        (
            beside(
                json!({"tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}]}),
            ),
            "tools[0].function.parameters: expected an object, found a string",
        ),
        (
            beside(json!({"tool_choice": "maybe"})),
            "tool_choice: expected `none`",
        ),
        (
            beside(json!({"tool_choice": {"type": "function"}})),
            "tool_choice.function: is required",
        ),
        (
            beside(json!({"response_format": {"type": "xml"}})),
            "response_format.type: expected `text`",
        ),
        (
            beside(json!({"response_format": {"type": "json_schema"}})),
            "response_format.json_schema: is required",
        ),
        (
            beside(json!({"reasoning_effort": "huge"})),
            "reasoning_effort: expected `none`",
        ),
        (
            beside(json!({"reasoning": {"effort": 7}})),
            "reasoning.effort: expected a string, found a number",
        ),
        (
            beside(json!({"thinking": "yes"})),
            "thinking: expected true, false or an object, found a string",
        ),
        (
            beside(json!({"thinking": {"type": "maybe"}})),
            "thinking.type: expected `enabled`",
        ),
        (
            beside(json!({"enable_thinking": 1})),
            "enable_thinking: expected true or false, found a number",
        ),
        (
            beside(json!({"stream_options": true})),
            "stream_options: expected an object, found a boolean",
        ),
    ];
    for (body, message) in table {
        let found = refused(&body);
        assert!(found.starts_with(message), "{body}\n{found}\n{message}");
    }
    for (bytes, message) in [
        ("[]", "expected a JSON object"),
        ("{", "the body is not JSON"),
        ("", "the body is not JSON"),
    ] {
        let found = read_bytes(bytes.as_bytes()).unwrap_err().message;
        assert!(found.starts_with(message), "{found}");
    }
}

/// Every place of a request in turn holds something else. Whatever is read of that is written for
/// every server.
#[test]
fn anything_anywhere_does_no_harm() {
    let request = json!({
        "model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 5, "temperature": 1, "stop": ["a"],
        "reasoning": {"effort": "high", "max_tokens": 7, "exclude": true}, "thinking": {"type": "enabled", "budget_tokens": 7}, "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": true, "x": 1}, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {}}},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}, {"type": "custom", "custom": {}}], "functions": [{"name": "f"}],
        "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}, "function_call": {"name": "f"}, "verbosity": "low",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "s"}]},
            {"role": "user", "name": "n", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
                {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}, {"type": "file", "file": {"file_id": "x"}}, {"type": "odd", "id": 1}]},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "t"}]}, {"type": "text", "text": "x"}], "refusal": "r", "audio": {"id": "a"},
                "reasoning": "r", "reasoning_details": [{"type": "reasoning.text", "text": "t", "index": 0}, {"type": "reasoning.encrypted", "data": "d"}, {"type": "reasoning.odd"}],
                "thinking_blocks": [{"type": "thinking", "thinking": "t", "signature": "s"}], "function_call": {"name": "f", "arguments": "{}"},
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{"}, "extra_content": {"google": {"thought_signature": "s"}}}, {"id": "d", "type": "custom"}]},
            {"role": "tool", "tool_call_id": "c", "name": "f", "content": "1"},
            {"role": "function", "name": "f", "content": null},
            {"role": "developer", "content": "b"},
        ],
    });
    let mut places = Vec::new();
    find_places(&request, String::new(), &mut places);
    assert!(places.len() > 100);
    let mut read = 0;
    for place in places {
        for other in [
            json!(null),
            json!(7),
            json!(""),
            json!("x"),
            json!([]),
            json!({}),
            json!(true),
            json!([{}]),
            json!({"a": 1}),
        ] {
            let mut request = request.clone();
            *request.pointer_mut(&place).unwrap() = other;
            let Ok(lossy) = read_bytes(request.to_string().as_bytes()) else {
                continue;
            };
            read += 1;
            for variant in crate::dialects::openai_chat::variants::VARIANTS {
                write(&lossy.value, variant.name);
            }
        }
    }
    assert!(read > 100);
}

fn find_places(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                find_places(value, format!("{place}/{name}"), places);
            }
        }
        Value::Array(list) => {
            for (number, value) in list.iter().enumerate() {
                find_places(value, format!("{place}/{number}"), places);
            }
        }
        _ => {}
    }
    places.push(place);
}
