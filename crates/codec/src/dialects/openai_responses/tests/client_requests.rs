//! What is read of clients' requests.

use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, Effort, MediaKind, Message, Output, Request, Role, Show, Source,
    ThinkingSetting, Tool, ToolChoice,
};

use super::super::NAME;
use super::{omitted, read};

/// The request with these members besides those every request needs.
fn with(members: &Value) -> Request {
    let mut body = json!({"model": "m", "input": "hi"});
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    let found = read(&body);
    assert_eq!(found.losses, [], "{members}");
    found.value
}

fn plain() -> Request {
    Request { model: "m".to_owned(), messages: vec![user("hi")], ..Request::default() }
}

fn user(text: &str) -> Message {
    Message { role: Role::User, content: vec![Block::text(text)] }
}

fn messages(items: &Value) -> Vec<Message> {
    read(&json!({"model": "m", "input": items})).value.messages
}

#[test]
fn settings_are_read_each_into_its_word() {
    let thinking = |amount, show| Request { thinking: ThinkingSetting { amount, show }, ..plain() };
    let effort = |effort| Some(Amount::Effort { effort });
    let table: Vec<(Value, Request)> = vec![
        (json!({}), plain()),
        (json!({"temperature": null, "tools": null, "text": null, "metadata": null}), plain()),
        (json!({"stream": true}), Request { stream: true, ..plain() }),
        (
            json!({"instructions": "be brief"}),
            Request { system: vec!["be brief".to_owned()], ..plain() },
        ),
        (json!({"instructions": ""}), plain()),
        (json!({"max_output_tokens": 100}), Request { max_tokens: Some(100), ..plain() }),
        (json!({"parallel_tool_calls": false}), Request { parallel_calls: Some(false), ..plain() }),
        (json!({"user": "u"}), Request { user: Some("u".to_owned()), ..plain() }),
        (json!({"safety_identifier": "u"}), Request { user: Some("u".to_owned()), ..plain() }),
        (json!({"prompt_cache_key": "k"}), Request { cache_key: Some("k".to_owned()), ..plain() }),
        (json!({"reasoning": {"effort": "none"}}), thinking(Some(Amount::Off), None)),
        (json!({"reasoning": {"effort": "minimal"}}), thinking(effort(Effort::Minimal), None)),
        (
            json!({"reasoning": {"effort": "max", "summary": "auto"}}),
            thinking(effort(Effort::Max), Some(Show::Summary)),
        ),
        (json!({"reasoning": {"summary": "detailed"}}), thinking(None, Some(Show::Full))),
        (json!({"reasoning": {"generate_summary": "auto"}}), thinking(None, Some(Show::Summary))),
        (json!({"reasoning": {"effort": null, "summary": null}}), plain()),
        (json!({"text": {"format": {"type": "text"}}}), plain()),
        (
            json!({"text": {"format": {"type": "json_object"}}}),
            Request { output: Output::Json, ..plain() },
        ),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true}}}),
            Request {
                output: Output::Schema {
                    name: Some("n".to_owned()),
                    schema: json!({"type": "object"}),
                    strict: Some(true),
                },
                ..plain()
            },
        ),
        (
            json!({"tool_choice": "auto"}),
            Request { tool_choice: Some(ToolChoice::Auto), ..plain() },
        ),
        (
            json!({"tool_choice": "none"}),
            Request { tool_choice: Some(ToolChoice::None), ..plain() },
        ),
        (
            json!({"tool_choice": "required"}),
            Request { tool_choice: Some(ToolChoice::Required), ..plain() },
        ),
        (
            json!({"tool_choice": {"type": "function", "name": "f"}}),
            Request { tool_choice: Some(ToolChoice::Named { name: "f".to_owned() }), ..plain() },
        ),
        (
            json!({"tools": [
                {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": false},
                {"type": "function", "name": "g", "parameters": null, "strict": null},
                {"type": "web_search", "external_web_access": true},
            ]}),
            Request {
                tools: vec![
                    Tool::Function {
                        name: "f".to_owned(),
                        description: Some("d".to_owned()),
                        parameters: json!({"type": "object"}),
                        strict: Some(false),
                    },
                    Tool::Function {
                        name: "g".to_owned(),
                        description: None,
                        parameters: Value::Null,
                        strict: None,
                    },
                    Tool::Opaque {
                        dialect: NAME.to_owned(),
                        value: json!({"type": "web_search", "external_web_access": true}),
                    },
                ],
                ..plain()
            },
        ),
    ];
    for (members, expected) in table {
        assert_eq!(with(&members), expected, "{members}");
    }
    let sampled = with(&json!({"temperature": 0.5, "top_p": 1})).sampling;
    assert_eq!((sampled.temperature, sampled.top_p), (Some(0.5), Some(1.0)));
}

#[test]
fn what_has_no_word_rides_along() {
    for (members, extra) in [
        (
            json!({"metadata": {"a": "b"}, "top_logprobs": 3}),
            json!({"metadata": {"a": "b"}, "top_logprobs": 3}),
        ),
        (json!({"previous_response_id": "resp_1"}), json!({"previous_response_id": "resp_1"})),
        (
            json!({"store": true, "truncation": "auto"}),
            json!({"store": true, "truncation": "auto"}),
        ),
        (
            json!({"reasoning": {"context": "all_turns", "mode": "pro"}}),
            json!({"reasoning": {"context": "all_turns", "mode": "pro"}}),
        ),
        (
            json!({"reasoning": {"summary": "concise"}}),
            json!({"reasoning": {"summary": "concise"}}),
        ),
        (json!({"text": {"verbosity": "low"}}), json!({"text": {"verbosity": "low"}})),
        (
            json!({"text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "description": "d"}}}),
            json!({"text": {"format": {"description": "d"}}}),
        ),
        (
            json!({"tool_choice": {"type": "custom", "name": "x"}}),
            json!({"tool_choice": {"type": "custom", "name": "x"}}),
        ),
        (json!({"user": "u", "safety_identifier": "s"}), json!({"safety_identifier": "s"})),
        (json!({"background": false}), json!({"background": false})),
        (json!({"client_metadata": {"turn": 1}}), json!({"client_metadata": {"turn": 1}})),
    ] {
        let request = with(&members);
        assert_eq!(Value::from(request.extra[NAME].clone()), extra, "{members}");
    }
    let allowed = json!({"type": "allowed_tools", "mode": "required", "tools": []});
    let request = with(&json!({"tool_choice": allowed.clone()}));
    assert_eq!(request.tool_choice, Some(ToolChoice::Required));
    assert_eq!(request.extra[NAME]["tool_choice"], allowed);
}

#[test]
fn the_input_may_be_missing_where_something_else_stands_for_it() {
    let body = json!({"model": "m", "previous_response_id": "resp_1"});
    assert_eq!(read(&body).value.messages, []);
}

#[test]
fn the_items_of_one_turn_are_one_message() {
    let said = |text: &str, phase: Option<&str>| Block::Text {
        text: text.to_owned(),
        signature: phase.map(|phase| format!("phase={phase}")),
        citations: Vec::new(),
    };
    let thought = |text: &str, signature: Option<&str>| Block::Thinking {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
    };
    let call = |id: &str| Block::ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: "{\"k\": 7".to_owned(),
        signature: None,
    };
    let result = |id: &str, content: Vec<Block>| Block::ToolResult {
        id: id.to_owned(),
        name: None,
        content,
        is_error: false,
    };
    let found = messages(&json!([
        {"role": "user", "content": "Find row 7"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}], "content": null, "encrypted_content": "gAA="},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "commentary", "content": [
            {"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []},
            {"type": "refusal", "refusal": "no"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "only"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}], "encrypted_content": ""},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{\"k\": 7", "status": "completed"},
        {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": "{\"k\": 7"},
        {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "red"}, {"type": "input_image", "image_url": "https://x/y.png"}]},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on"}]},
        {"role": "assistant", "content": "Done", "phase": "final_answer"},
    ]));
    let image = Block::Media {
        kind: MediaKind::Image,
        source: Source::Url { url: "https://x/y.png".to_owned(), media_type: None },
        name: None,
    };
    assert_eq!(
        found,
        [
            user("Find row 7"),
            Message {
                role: Role::Assistant,
                content: vec![
                    thought("a\n\nb", Some("gAA=")),
                    said("Let me see.", Some("commentary")),
                    Block::Refusal { text: "no".to_owned() },
                    thought("", Some("only")),
                    thought("raw", None),
                    call("call_1"),
                    call("call_2"),
                ],
            },
            Message {
                role: Role::User,
                content: vec![
                    result("call_1", vec![Block::text("blue")]),
                    result("call_2", vec![Block::text("red"), image]),
                ],
            },
            user("Go on"),
            Message { role: Role::Assistant, content: vec![said("Done", Some("final_answer"))] },
        ]
    );
}

#[test]
fn what_comes_first_from_the_developer_stands_above_the_conversation() {
    let request = read(&json!({"model": "m", "instructions": "one", "input": [
        {"role": "developer", "content": [{"type": "input_text", "text": "two"}, {"type": "input_text", "text": "three"}]},
        {"role": "system", "content": "four"},
        {"role": "user", "content": "hi"},
        {"role": "developer", "content": "five"},
    ]}))
    .value;
    assert_eq!(request.system, ["one", "two", "three", "four"]);
    let later = Message { role: Role::System, content: vec![Block::text("five")] };
    assert_eq!(request.messages, [user("hi"), later]);
}

#[test]
fn media_are_read_wherever_they_are() {
    let inline = |media_type: &str, data: &str| Source::Base64 {
        media_type: media_type.to_owned(),
        data: data.to_owned(),
    };
    let url = |url: &str| Source::Url { url: url.to_owned(), media_type: None };
    let file = Source::File { dialect: NAME.to_owned(), id: "file-1".to_owned() };
    let media = |kind, source, name: Option<&str>| Block::Media {
        kind,
        source,
        name: name.map(str::to_owned),
    };
    use MediaKind::{Audio, Document, Image};
    for (part, expected) in [
        (
            json!({"type": "input_image", "image_url": "data:image/png;base64,AA=="}),
            media(Image, inline("image/png", "AA=="), None),
        ),
        (
            json!({"type": "input_image", "image_url": "https://x/y", "detail": "auto"}),
            media(Image, url("https://x/y"), None),
        ),
        (json!({"type": "input_image", "file_id": "file-1"}), media(Image, file.clone(), None)),
        (
            json!({"type": "input_file", "file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}),
            media(Document, inline("application/pdf", "AA=="), Some("a.pdf")),
        ),
        (
            json!({"type": "input_file", "file_data": "AA==", "filename": "a.PDF"}),
            media(Document, inline("application/pdf", "AA=="), Some("a.PDF")),
        ),
        (
            json!({"type": "input_file", "file_url": "https://x/y"}),
            media(Document, url("https://x/y"), None),
        ),
        (json!({"type": "input_file", "file_id": "file-1"}), media(Document, file, None)),
        (
            json!({"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}),
            media(Audio, inline("audio/mpeg", "AA=="), None),
        ),
    ] {
        let found = messages(&json!([{"role": "user", "content": [part.clone()]}]));
        assert_eq!(found[0].content, [expected], "{part}");
    }
}

#[test]
fn items_without_a_word_keep_their_place() {
    let search = json!({"type": "web_search_call", "id": "ws_1", "status": "completed"});
    let patch = json!({"type": "apply_patch_call_output", "call_id": "c", "output": "ok"});
    let update = json!({"type": "configuration_update", "tools": []});
    let opaque = |value: &Value| Block::Opaque { dialect: NAME.to_owned(), value: value.clone() };
    let found = messages(&json!([search, patch, update]));
    let roles: Vec<Role> = found.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::Assistant, Role::User, Role::System]);
    let blocks: Vec<&Block> = found.iter().flat_map(|message| &message.content).collect();
    assert_eq!(blocks, [&opaque(&search), &opaque(&patch), &opaque(&update)]);
}

#[test]
fn what_is_left_out_of_an_item_is_told() {
    for (item, loss) in [
        (json!({"type": "reasoning", "summary": []}), omitted("thinking", "empty")),
        (json!({"role": "user", "content": []}), omitted("message", "empty")),
        (
            json!({"type": "reasoning", "summary": [{"text": "a"}], "content": [{"text": "b"}]}),
            omitted("thinking.content", "summaries"),
        ),
        (
            json!({"role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": [{"type": "url_citation"}]}]}),
            omitted("citations", "no_word"),
        ),
        (
            json!({"role": "user", "content": [{"type": "input_image", "image_url": "https://x", "detail": "high"}]}),
            omitted("media.settings", "no_word"),
        ),
        (
            json!({"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "namespace": "n"}),
            omitted("tool_call.settings", "no_word"),
        ),
    ] {
        let found = read(&json!({"model": "m", "input": [item.clone()]}));
        assert_eq!(found.losses, [loss], "{item}");
    }
    let tool = json!({"type": "function", "name": "f", "defer_loading": true});
    let found = read(&json!({"model": "m", "input": "x", "tools": [tool]}));
    assert_eq!(found.losses, [omitted("tool.settings", "no_word")]);
}
