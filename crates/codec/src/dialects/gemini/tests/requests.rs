//! What clients send, as canonical words.

use serde_json::json;
use throughline_canonical::{Block, Loss, MediaKind, Message, Role, Source, Tool, ToolChoice};

use super::*;

fn blocks(role: &str, parts: &Value) -> Vec<Block> {
    let read = read(&json!({"contents": [{"role": role, "parts": parts}]}));
    assert_eq!(read.losses, [], "{parts}");
    read.value.messages[0].content.clone()
}

fn text(text: &str, signature: Option<&str>) -> Block {
    Block::Text {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        citations: Vec::new(),
    }
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

fn call(id: &str, name: &str, arguments: &str, signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        signature: signature.map(str::to_owned),
    }
}

fn result(id: &str, name: &str, content: Vec<Block>, is_error: bool) -> Block {
    Block::ToolResult { id: id.to_owned(), name: Some(name.to_owned()), content, is_error }
}

fn opaque(value: Value) -> Block {
    Block::Opaque { dialect: "gemini".to_owned(), value }
}

#[test]
fn every_kind_of_part_is_read() {
    let image = Block::Media {
        kind: MediaKind::Image,
        source: Source::Base64 { media_type: "image/png".to_owned(), data: "aGk=".to_owned() },
        name: None,
    };
    let film = Block::Media {
        kind: MediaKind::Video,
        source: Source::Url {
            url: "https://youtu.be/x".to_owned(),
            media_type: Some("video/mp4".to_owned()),
        },
        name: None,
    };
    let file = "https://generativelanguage.googleapis.com/v1beta/files/x";
    let stored = Block::Media {
        kind: MediaKind::Document,
        source: Source::File { dialect: "gemini".to_owned(), id: file.to_owned() },
        name: None,
    };
    let code =
        json!({"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"});
    let signed_image =
        json!({"inlineData": {"mimeType": "image/png", "data": "aGk="}, "thoughtSignature": "s"});
    for (role, parts, expected) in [
        ("user", json!([{"text": "a"}, {"text": "b"}]), vec![text("a", None), text("b", None)]),
        ("user", json!({"text": "a"}), vec![text("a", None)]),
        (
            "user",
            json!([{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]),
            vec![image.clone()],
        ),
        ("user", json!([{"inline_data": {"mime_type": "image/png", "data": "aGk="}}]), vec![image]),
        (
            "user",
            json!([{"fileData": {"mimeType": "video/mp4", "fileUri": "https://youtu.be/x"}}]),
            vec![film],
        ),
        (
            "user",
            json!([{"file_data": {"mime_type": "application/pdf", "file_uri": file}}]),
            vec![stored],
        ),
        // Pieces of an answer come back as they went.
        ("model", json!([{"text": "He"}, {"text": ""}, {"text": "y"}]), vec![text("Hey", None)]),
        (
            "model",
            json!([{"text": "Hey"}, {"text": "", "thoughtSignature": "s"}]),
            vec![text("Hey", None), text("", Some("s"))],
        ),
        (
            "model",
            json!([{"text": "a", "thoughtSignature": "s"}, {"text": "b"}, {"text": "c", "thought_signature": "t"}]),
            vec![text("a", Some("s")), text("b", None), text("c", Some("t"))],
        ),
        (
            "model",
            json!([{"text": "a", "thought": true}, {"text": "b", "thought": true}, {"text": "c"}]),
            vec![thinking("ab", None), text("c", None)],
        ),
        (
            "model",
            json!([{"text": "a", "thought": true}, {"text": "", "thought": true, "thoughtSignature": "s"},
                {"text": "b", "thought": true}]),
            vec![thinking("a", Some("s")), thinking("b", None)],
        ),
        ("model", json!([{"thoughtSignature": "s"}]), vec![text("", Some("s"))]),
        (
            "model",
            json!([{"thought": true, "thoughtSignature": "s"}]),
            vec![thinking("", Some("s"))],
        ),
        (
            "model",
            json!([{"functionCall": {"id": "c", "name": "f", "args": {"b": 1, "a": [null]}}, "thoughtSignature": "-_"},
                {"function_call": {"id": "d", "name": "g"}}]),
            vec![call("c", "f", r#"{"b":1,"a":[null]}"#, Some("-_")), call("d", "g", "{}", None)],
        ),
        ("model", json!([code]), vec![opaque(code.clone())]),
        ("model", json!([signed_image]), vec![opaque(signed_image.clone())]),
        (
            "model",
            json!([{"toolCall": {"id": "1"}}, {"toolResponse": {"id": "1"}}, {"codeExecutionResult": {}}, {"newThing": 1}]),
            vec![
                opaque(json!({"toolCall": {"id": "1"}})),
                opaque(json!({"toolResponse": {"id": "1"}})),
                opaque(json!({"codeExecutionResult": {}})),
                opaque(json!({"newThing": 1})),
            ],
        ),
    ] {
        assert_eq!(blocks(role, &parts), expected, "{parts}");
    }
}

#[test]
fn what_a_tool_answered_is_read() {
    for (response, content, is_error) in [
        (json!({"output": "21"}), vec![Block::text("21")], false),
        (json!({"output": {"a": 1}}), vec![Block::text(r#"{"a":1}"#)], false),
        (json!({"error": "no"}), vec![Block::text("no")], true),
        (json!({"result": "21"}), vec![Block::text(r#"{"result":"21"}"#)], false),
        (
            json!({"output": "1", "error": "2"}),
            vec![Block::text(r#"{"output":"1","error":"2"}"#)],
            false,
        ),
        (json!({}), vec![], false),
        (Value::Null, vec![], false),
    ] {
        let parts = json!([{"functionResponse": {"id": "c", "name": "f", "response": response}}]);
        assert_eq!(blocks("user", &parts), [result("c", "f", content, is_error)]);
    }
    let parts = json!([{"functionResponse": {"id": "c", "name": "f", "response": {"output": "see"}, "willContinue": false,
        "parts": [{"inlineData": {"mimeType": "audio/wav", "data": "aGk="}}]}}]);
    let sound = Block::Media {
        kind: MediaKind::Audio,
        source: Source::Base64 { media_type: "audio/wav".to_owned(), data: "aGk=".to_owned() },
        name: None,
    };
    assert_eq!(blocks("user", &parts), [result("c", "f", vec![Block::text("see"), sound], false)]);
}

/// The ids of calls and of results, in their order.
fn ids(contents: &[Value]) -> Vec<String> {
    let read = read(&json!({"contents": contents}));
    let blocks = read.value.messages.iter().flat_map(|message| &message.content);
    blocks
        .filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id.clone()),
            Block::ToolResult { id, .. } => Some(format!("->{id}")),
            _ => None,
        })
        .collect()
}

#[test]
fn results_find_their_calls_by_id_or_by_name_and_order() {
    let calls = |calls: &[(&str, Option<&str>)]| {
        let parts: Vec<_> = calls
            .iter()
            .map(|(name, id)| json!({"functionCall": {"name": name, "id": id}}))
            .collect();
        json!({"role": "model", "parts": parts})
    };
    let results = |results: &[(&str, Option<&str>)]| {
        let parts: Vec<_> = results
            .iter()
            .map(|(name, id)| json!({"functionResponse": {"name": name, "id": id, "response": {}}}))
            .collect();
        json!({"role": "function", "parts": parts})
    };
    let (f, g) = (("f", None), ("g", None));
    assert_eq!(
        ids(&[calls(&[f, g, f]), results(&[g, f, f]), calls(&[f]), results(&[f, g])]),
        [
            "call_0", "call_1", "call_2", "->call_1", "->call_0", "->call_2", "call_3", "->call_3",
            "->call_4"
        ]
    );
    // Ids on one side only.
    assert_eq!(
        ids(&[calls(&[("f", Some("x")), ("f", Some("y"))]), results(&[("f", Some("y")), f])]),
        ["x", "y", "->y", "->x"]
    );
    assert_eq!(ids(&[calls(&[f]), results(&[("f", Some("z"))])]), ["call_0", "->call_0"]);
    // A made id is nobody else's; an answer that comes twice stays where it is.
    assert_eq!(
        ids(&[
            calls(&[f, ("f", Some("call_0"))]),
            results(&[("f", Some("call_0")), ("f", Some("call_0")), f])
        ]),
        ["call_1", "call_0", "->call_0", "->call_0", "->call_1"]
    );
}

#[test]
fn what_has_no_word_is_kept_or_told() {
    let read = read(&json!({
        "contents": {"parts": {"text": "hi", "mediaResolution": {"level": "LOW"}, "partMetadata": {"a": 1}}},
        "safetySettings": [], "cached_content": "c", "labels": null, "store": false, "continuationToken": "t",
        "generationConfig": {"topK": 64.0, "candidateCount": 1, "speechConfig": {}, "thinkingConfig": {"new": 1}},
        "toolConfig": {"includeServerSideToolInvocations": true,
            "functionCallingConfig": {"mode": "VALIDATED", "streamFunctionCallArguments": true}},
    }));
    assert_eq!(
        Value::Object(read.value.extra["gemini"].clone()),
        json!({
            "safetySettings": [], "cached_content": "c", "store": false, "continuationToken": "t",
            "toolConfig": {"includeServerSideToolInvocations": true,
                "functionCallingConfig": {"streamFunctionCallArguments": true, "mode": "VALIDATED"}},
            "generationConfig": {"candidateCount": 1, "speechConfig": {}, "thinkingConfig": {"new": 1}},
        })
    );
    let omitted = |part: &'static str| Loss::PartOmitted { part: part.into(), reason: "no_word" };
    assert_eq!(read.losses, [omitted("member"), omitted("media.settings")]);
    assert_eq!(read.value.sampling.top_k, Some(64));
    assert_eq!(read.value.tool_choice, None);
}

#[test]
fn the_model_the_method_and_the_framing_come_from_the_address() {
    let body = json!({"contents": [{"parts": [{"text": "hi"}]}]});
    let read = |path: &str, query: &str| read_at(path, query, &body).unwrap().value;
    let events = read("/v1/models/m:streamGenerateContent", "alt=sse");
    assert!(events.stream && events.extra.is_empty() && events.model == "m");
    let list = read("/models/m:streamGenerateContent", "key=K");
    assert!(list.stream);
    assert_eq!(list.extra["gemini"]["alt"], "json");
    let whole = read("/v1beta/models/m:generateContent", "alt=sse");
    assert!(!whole.stream && whole.extra.is_empty());
    let count = read("/v1beta/models/m:countTokens", "");
    assert_eq!(count.extra["gemini"]["method"], "countTokens");
    let inner = json!({"generateContentRequest": {"model": "models/m", "systemInstruction": "s", "contents": [{"parts": [{"text": "hi"}]}]}});
    let count = read_at("/v1beta/models/m:countTokens", "", &inner).unwrap().value;
    assert_eq!((count.system.len(), count.messages.len()), (1, 1));
}

#[test]
fn system_words_and_tools_are_read() {
    for system in [
        json!("Be terse."),
        json!({"parts": [{"text": "Be terse."}]}),
        json!({"role": "user", "parts": {"text": "Be terse."}}),
    ] {
        let body = json!({"contents": [{"parts": [{"text": "x"}]}], "system_instruction": system});
        assert_eq!(read(&body).value.system, ["Be terse."]);
    }
    let body = json!({"contents": [{"parts": [{"text": "x"}]}], "tools": [
        {"functionDeclarations": [
            {"name": "a", "description": "d", "parameters": {"type": "OBJECT", "properties": {"x": {"type": "STRING"}}}},
            {"name": "b", "parameters_json_schema": {"type": "object"}, "behavior": "BLOCKING"}],
         "googleSearch": {}},
        {"function_declarations": [{"name": "c"}]},
        {"codeExecution": {}, "urlContext": null}]});
    let read = read(&body);
    let function = |name: &str, description: Option<&str>, parameters: Value| Tool::Function {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        parameters,
        strict: None,
    };
    let opaque = |value| Tool::Opaque { dialect: "gemini".to_owned(), value };
    assert_eq!(
        read.value.tools,
        [
            function(
                "a",
                Some("d"),
                json!({"type": "object", "properties": {"x": {"type": "string"}}})
            ),
            function("b", None, json!({"type": "object"})),
            opaque(json!({"googleSearch": {}})),
            function("c", None, Value::Null),
            opaque(json!({"codeExecution": {}})),
        ]
    );
    assert_eq!(
        read.losses,
        [Loss::PartOmitted { part: "tool.settings".into(), reason: "no_word" }]
    );
}

#[test]
fn what_the_python_sdk_sends_is_read() {
    let read = read_at("/v1/models/gemini-3-pro-preview:streamGenerateContent", "alt=sse", &json!({
        "contents": [
            {"parts": [{"text": "Weather in Paris?"}], "role": "user"},
            {"parts": [{"text": "The user wants ", "thought": true}, {"text": "a tool.", "thought": true},
                {"functionCall": {"id": "f1", "args": {"city": "Paris"}, "name": "get_weather"}, "thoughtSignature": "--__BUq-"}], "role": "model"},
            {"parts": [{"functionResponse": {"id": "f1", "name": "get_weather", "response": {"result": "21"}}}], "role": "user"}],
        "tools": [{"functionDeclarations": [{"name": "get_weather", "parameters_json_schema": {"type": "object"}}]}],
        "generationConfig": {"thinkingConfig": {"include_thoughts": true, "thinking_budget": 2048}}})).unwrap();
    assert_eq!(read.losses, []);
    assert_eq!(
        read.value.messages[1],
        Message {
            role: Role::Assistant,
            content: vec![
                thinking("The user wants a tool.", None),
                call("f1", "get_weather", r#"{"city":"Paris"}"#, Some("--__BUq-")),
            ],
        }
    );
    assert_eq!(read.value.tool_choice, None::<ToolChoice>);
}
