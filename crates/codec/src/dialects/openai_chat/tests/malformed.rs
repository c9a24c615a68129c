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
