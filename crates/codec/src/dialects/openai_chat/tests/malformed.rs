//! Bodies that are not requests, and requests with odd values in any member. Wrong members are in
//! `corpus/openai_chat/malformed`.

use serde_json::json;

use super::*;

#[test]
fn rejects_a_body_that_is_not_an_object() {
    for (bytes, message) in [
        ("[]", "expected a JSON object"),
        ("{", "the body is not JSON"),
        ("", "the body is not JSON"),
    ] {
        let found = read_bytes(bytes.as_bytes()).unwrap_err().message;
        assert!(found.starts_with(message), "{found}");
    }
}

/// Each value of a request is replaced in turn. If the result can be read, it is written for every
/// variant.
#[test]
fn odd_values_in_any_member_never_panic() {
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
