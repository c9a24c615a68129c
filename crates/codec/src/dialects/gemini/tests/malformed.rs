//! Requests that are wrong: each is refused with the place of what is wrong.

use serde_json::json;
use throughline_canonical::FaultKind;

use super::*;

#[test]
fn a_fault_names_the_member_that_is_wrong() {
    let part = |part: Value| json!({"contents": [{"parts": [{"text": "ok"}, part]}]});
    let with = |name: &str, value: Value| {
        let mut body = json!({"contents": [{"parts": [{"text": "ok"}]}]});
        body[name] = value;
        body
    };
    let config = |value: Value| with("generationConfig", value);
    let at = "contents[0].parts[1]";
    for (body, message) in [
        (json!([]), "expected a JSON object as the body, found a list".to_owned()),
        (json!({}), "contents: is required".to_owned()),
        (json!({"contents": null}), "contents: is required".to_owned()),
        (json!({"contents": []}), "contents: must not be empty".to_owned()),
        (json!({"contents": "hi"}), "contents: expected a list, found a string".to_owned()),
        (json!({"contents": ["hi"]}), "contents[0]: expected an object, found a string".to_owned()),
        (json!({"contents": [{}]}), "contents[0].parts: is required".to_owned()),
        (json!({"contents": [{"parts": []}]}), "contents[0].parts: must not be empty".to_owned()),
        (json!({"contents": [{"parts": 7}]}), "contents[0].parts: expected a list, found a number".to_owned()),
        (json!({"contents": [{"role": "assistant", "parts": [{"text": "x"}]}]}), "contents[0].role: expected `user` or `model`".to_owned()),
        (json!({"contents": [{"role": "system", "parts": [{"text": "x"}]}]}), "contents[0].role: expected `user` or `model`".to_owned()),
        (json!({"contents": [{"role": 1, "parts": [{"text": "x"}]}]}), "contents[0].role: expected a string, found a number".to_owned()),
        (part(json!("x")), format!("{at}: expected an object, found a string")),
        (part(json!({})), format!("{at}: holds no data")),
        (part(json!({"thought": true})), format!("{at}: holds no data")),
        (part(json!({"text": 7})), format!("{at}.text: expected a string, found a number")),
        (part(json!({"text": "a", "functionCall": {"name": "f"}})), format!("{at}: holds more than one kind of data")),
        (part(json!({"text": "a", "thought": "yes"})), format!("{at}.thought: expected true or false, found a string")),
        (part(json!({"text": "a", "thought_signature": 7})), format!("{at}.thought_signature: expected a string, found a number")),
        (part(json!({"inlineData": {"data": "aGk="}})), format!("{at}.inlineData.mimeType: is required")),
        (part(json!({"inline_data": {"mime_type": "a/b", "data": []}})), format!("{at}.inline_data.data: expected a string, found a list")),
        (part(json!({"fileData": {"mimeType": "a/b"}})), format!("{at}.fileData.fileUri: is required")),
        (part(json!({"functionCall": {}})), format!("{at}.functionCall.name: is required")),
        (part(json!({"functionCall": {"name": "f", "args": "{}"}})), format!("{at}.functionCall.args: expected an object, found a string")),
        (part(json!({"functionResponse": {"response": {}}})), format!("{at}.functionResponse.name: is required")),
        (part(json!({"functionResponse": {"name": "f", "response": "x"}})), format!("{at}.functionResponse.response: expected an object, found a string")),
        (part(json!({"functionResponse": {"name": "f", "parts": [{"text": "x"}]}})), format!("{at}.functionResponse.parts[0].fileData: is required")),
        (part(json!({"executableCode": "x"})), format!("{at}.executableCode: expected an object, found a string")),
        (with("systemInstruction", json!({"parts": [{"inlineData": {}}]})), "systemInstruction.parts[0].text: is required".to_owned()),
        (with("tools", json!("x")), "tools: expected a list, found a string".to_owned()),
        (with("tools", json!([{"functionDeclarations": [{"description": "d"}]}])), "tools[0].functionDeclarations[0].name: is required".to_owned()),
        (with("tools", json!([{"functionDeclarations": [{"name": "f", "parameters": []}]}])), "tools[0].functionDeclarations[0].parameters: expected an object, found a list".to_owned()),
        (with("tools", json!([{"googleSearch": true}])), "tools[0].googleSearch: expected an object, found a boolean".to_owned()),
        (with("toolConfig", json!({"functionCallingConfig": {"mode": "SOMETIMES"}})), "toolConfig.functionCallingConfig.mode: expected `AUTO`, `ANY`, `NONE` or `VALIDATED`".to_owned()),
        (config(json!({"temperature": "hot"})), "generationConfig.temperature: expected a number, found a string".to_owned()),
        (config(json!({"maxOutputTokens": -1})), "generationConfig.maxOutputTokens: expected a whole number, found a number".to_owned()),
        (config(json!({"stopSequences": "x"})), "generationConfig.stopSequences: expected a list, found a string".to_owned()),
        (config(json!({"seed": 1.5})), "generationConfig.seed: expected a whole number, found a number".to_owned()),
        (config(json!({"thinkingConfig": {"thinking_level": "MAX"}})), "generationConfig.thinkingConfig.thinking_level: expected `MINIMAL`, `LOW`, `MEDIUM` or `HIGH`".to_owned()),
        (config(json!({"thinkingConfig": {"thinkingBudget": -2}})), "generationConfig.thinkingConfig.thinkingBudget: expected -1 or a number of tokens".to_owned()),
        (config(json!({"thinkingConfig": {"includeThoughts": 1}})), "generationConfig.thinkingConfig.includeThoughts: expected true or false, found a number".to_owned()),
        (config(json!({"responseSchema": {}, "responseJsonSchema": {}})), "generationConfig.responseSchema: excludes responseJsonSchema".to_owned()),
        (with("alt", json!("sse")), "alt: is no member of a request".to_owned()),
    ] {
        let fault = read_at(PATH, "", &body).unwrap_err();
        assert_eq!((fault.kind, fault.message), (FaultKind::Invalid, message), "{body}");
    }
}

#[test]
fn a_fault_before_a_reply_is_the_providers_error() {
    let (status, body) = Gemini.write_fault(&Fault::invalid("contents: is required"), "");
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(status, 400);
    assert_eq!(
        body,
        json!({"error": {"code": 400, "message": "contents: is required", "status": "INVALID_ARGUMENT"}})
    );
}
