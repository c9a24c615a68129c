//! Requests that are wrong, and the place each fault names.

use serde_json::{Value, json};

use super::read_bytes;

/// The message about a request with these members besides those every request needs.
fn refused(members: &Value) -> String {
    let mut body = json!({"model": "m", "input": "hi"});
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    read_bytes(body.to_string().as_bytes()).unwrap_err().message
}

#[test]
fn a_body_that_is_no_object_is_refused() {
    for (body, message) in [
        ("", "the body is not JSON"),
        ("{\"model\":", "the body is not JSON"),
        ("[]", "expected a JSON object as the body, found a list"),
        ("{}", "input: is required"),
        ("{\"input\":\"x\"}", "model: is required"),
        ("{\"input\":null,\"model\":\"m\"}", "input: is required"),
    ] {
        let found = read_bytes(body.as_bytes()).unwrap_err().message;
        assert!(found.starts_with(message), "{body}: {found}");
    }
}

#[test]
fn a_wrong_member_is_named_by_its_path() {
    let at = |item: Value| json!({"input": [{"role": "user", "content": "hi"}, item]});
    let part = |role: &str, part: Value| at(json!({"role": role, "content": [part]}));
    let call = |members: Value| {
        let mut call =
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
        for (key, value) in members.as_object().unwrap() {
            call[key] = value.clone();
        }
        at(call)
    };
    let table = [
        (
            json!({"model": 7}),
            "model: expected a string, found a number",
        ),
        (
            json!({"input": 7}),
            "input: expected a string or a list, found a number",
        ),
        (
            json!({"input": [7]}),
            "input[0]: expected an object, found a number",
        ),
        (at(json!({})), "input[1].type: is required"),
        (
            at(json!({"type": 1})),
            "input[1].type: expected a string, found a number",
        ),
        (
            at(json!({"type": "message", "content": "x"})),
            "input[1].role: is required",
        ),
        (
            at(json!({"role": "robot", "content": "x"})),
            "input[1].role: `robot` is no role",
        ),
        (at(json!({"role": "user"})), "input[1].content: is required"),
        (
            at(json!({"role": "user", "content": {}})),
            "input[1].content: expected a string or a list, found an object",
        ),
        (
            at(json!({"role": "user", "content": ["x"]})),
            "input[1].content[0]: expected an object, found a string",
        ),
        (
            part("user", json!({"text": "x"})),
            "input[1].content[0].type: is required",
        ),
        (
            part("user", json!({"type": "input_text", "text": 7})),
            "input[1].content[0].text: expected a string, found a number",
        ),
        (
            part("user", json!({"type": "input_smell"})),
            "input[1].content[0].type: `input_smell` is no kind of content",
        ),
        (
            part("user", json!({"type": "output_text", "text": "x"})),
            "input[1].content[0].type: `output_text` is no content of anybody but the assistant",
        ),
        (
            part("assistant", json!({"type": "input_text", "text": "x"})),
            "input[1].content[0].type: `input_text` is no content of the assistant",
        ),
        (
            part("user", json!({"type": "input_image"})),
            "input[1].content[0].image_url: is required",
        ),
        (
            part(
                "user",
                json!({"type": "input_image", "image_url": {"url": "x"}}),
            ),
            "input[1].content[0].image_url: expected a string, found an object",
        ),
        (
            part("user", json!({"type": "input_file", "filename": "x"})),
            "input[1].content[0].file_data: is required",
        ),
        (
            part(
                "user",
                json!({"type": "input_audio", "input_audio": {"data": "x", "format": "ogg"}}),
            ),
            "input[1].content[0].input_audio.format: `ogg` is no format of sound",
        ),
        (
            part("assistant", json!({"type": "refusal", "refusal": []})),
            "input[1].content[0].refusal: expected a string, found a list",
        ),
        (
            at(json!({"role": "assistant", "content": "x", "phase": 1})),
            "input[1].phase: expected a string, found a number",
        ),
        (
            at(json!({"type": "reasoning"})),
            "input[1].summary: is required",
        ),
        (
            at(json!({"type": "reasoning", "summary": "x"})),
            "input[1].summary: expected a list, found a string",
        ),
        (
            at(json!({"type": "reasoning", "summary": [{"type": "summary_text"}]})),
            "input[1].summary[0].text: is required",
        ),
        (
            at(json!({"type": "reasoning", "summary": [], "encrypted_content": 1})),
            "input[1].encrypted_content: expected a string, found a number",
        ),
        (
            call(json!({"call_id": null})),
            "input[1].call_id: is required",
        ),
        (
            call(json!({"name": 1})),
            "input[1].name: expected a string, found a number",
        ),
        (
            call(json!({"arguments": {}})),
            "input[1].arguments: expected a string, found an object",
        ),
        (
            at(json!({"type": "function_call_output", "output": "x"})),
            "input[1].call_id: is required",
        ),
        (
            at(json!({"type": "function_call_output", "call_id": "c"})),
            "input[1].output: is required",
        ),
        (
            at(json!({"type": "function_call_output", "call_id": "c", "output": 7})),
            "input[1].output: expected a string or a list, found a number",
        ),
        (
            at(json!({"type": "item_reference", "id": "rs_1"})),
            "input[1]: items are not stored here",
        ),
        (
            json!({"instructions": []}),
            "instructions: expected a string, found a list",
        ),
        (
            json!({"stream": "yes"}),
            "stream: expected true or false, found a string",
        ),
        (
            json!({"temperature": "hot"}),
            "temperature: expected a number, found a string",
        ),
        (
            json!({"max_output_tokens": 1.5}),
            "max_output_tokens: expected a whole number, found a number",
        ),
        (
            json!({"reasoning": "high"}),
            "reasoning: expected an object, found a string",
        ),
        (
            json!({"reasoning": {"effort": "heroic"}}),
            "reasoning.effort: `heroic` is no effort",
        ),
        (
            json!({"reasoning": {"summary": "long"}}),
            "reasoning.summary: `long` is no kind of summary",
        ),
        (
            json!({"text": {"format": {}}}),
            "text.format.type: is required",
        ),
        (
            json!({"text": {"format": {"type": "xml"}}}),
            "text.format.type: `xml` is no format of text",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "schema": {}}}}),
            "text.format.name: is required",
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "x"}}}),
            "text.format.schema: is required",
        ),
        (
            json!({"tools": {}}),
            "tools: expected a list, found an object",
        ),
        (
            json!({"tools": [{"name": "f"}]}),
            "tools[0].type: is required",
        ),
        (
            json!({"tools": [{"type": "function"}]}),
            "tools[0].name: is required",
        ),
        (
            json!({"tools": [{"type": "function", "name": "f", "parameters": []}]}),
            "tools[0].parameters: expected an object, found a list",
        ),
        (
            json!({"tools": [{"type": "function", "function": {"name": "f"}}]}),
            "tools[0].name: is required",
        ),
        (
            json!({"tool_choice": "maybe"}),
            "tool_choice: `maybe` is no choice of tools",
        ),
        (
            json!({"tool_choice": 1}),
            "tool_choice: expected a string or an object, found a number",
        ),
        (
            json!({"tool_choice": {"type": "function"}}),
            "tool_choice.name: is required",
        ),
        (
            json!({"metadata": "x"}),
            "metadata: expected an object, found a string",
        ),
        (
            json!({"include": "x"}),
            "include: expected a list, found a string",
        ),
        (
            json!({"include": [1]}),
            "include[0]: expected a string, found a number",
        ),
        (
            json!({"store": 1}),
            "store: expected true or false, found a number",
        ),
        (
            json!({"previous_response_id": 1}),
            "previous_response_id: expected a string, found a number",
        ),
        (
            json!({"background": true}),
            "background: is not served here",
        ),
        (
            json!({"conversation": "conv_1"}),
            "conversation: conversations are not kept here",
        ),
    ];
    assert!(table.len() >= 30);
    for (members, message) in table {
        let found = refused(&members);
        assert!(found.starts_with(message), "{members}: {found}");
    }
}
