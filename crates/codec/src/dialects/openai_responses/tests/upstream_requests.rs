//! What is written to providers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, Effort, MediaKind, Message, Output, Request, Role, Sampling, Show, Source,
    ThinkingSetting, Tool, ToolChoice,
};

use super::super::NAME;
use super::{adapted, omitted, write};

fn message(role: Role, content: Vec<Block>) -> Message {
    Message { role, content }
}

fn asked(role: Role, block: Block) -> Request {
    Request { messages: vec![message(role, vec![block])], ..Request::default() }
}

#[test]
fn a_second_turn_is_written_as_the_provider_wants_it() {
    let request = Request {
        model: "what the client calls it".to_owned(),
        system: vec!["one".to_owned(), "two".to_owned()],
        messages: vec![
            message(Role::User, vec![Block::text("Find row 7")]),
            message(
                Role::Assistant,
                vec![
                    Block::Thinking {
                        text: "Look it up.".to_owned(),
                        signature: Some("gAA=".to_owned()),
                    },
                    Block::Text {
                        text: "a".to_owned(),
                        signature: Some("phase=commentary".to_owned()),
                        citations: Vec::new(),
                    },
                    Block::Text {
                        text: "b".to_owned(),
                        signature: Some("phase=commentary".to_owned()),
                        citations: Vec::new(),
                    },
                    Block::Text { text: "c".to_owned(), signature: None, citations: Vec::new() },
                    Block::Redacted { data: "sealed".to_owned() },
                    Block::Thinking { text: "raw".to_owned(), signature: None },
                    Block::ToolCall {
                        id: "call_1".to_owned(),
                        name: "lookup".to_owned(),
                        arguments: "{\"k\":".to_owned(),
                        signature: None,
                    },
                ],
            ),
            message(
                Role::User,
                vec![
                    Block::ToolResult {
                        id: "call_1".to_owned(),
                        name: None,
                        content: vec![Block::text("blue")],
                        is_error: false,
                    },
                    Block::text("and?"),
                ],
            ),
            message(Role::System, vec![Block::text("be brief")]),
        ],
        tools: vec![Tool::Function {
            name: "lookup".to_owned(),
            description: None,
            parameters: Value::Null,
            strict: None,
        }],
        tool_choice: Some(ToolChoice::Named { name: "lookup".to_owned() }),
        parallel_calls: Some(true),
        thinking: ThinkingSetting {
            amount: Some(Amount::Effort { effort: Effort::Medium }),
            show: Some(Show::Summary),
        },
        max_tokens: Some(1000),
        stream: true,
        user: Some("u".to_owned()),
        cache_key: Some("k".to_owned()),
        ..Request::default()
    };
    let output = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
    let input = |role: &str, text: &str| json!({"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]});
    assert_eq!(
        write(&request),
        (
            json!({
                "model": "gpt-6.1-sol",
                "instructions": "one",
                "input": [
                    input("developer", "two"),
                    input("user", "Find row 7"),
                    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look it up."}], "encrypted_content": "gAA="},
                    {"type": "message", "role": "assistant", "content": [output("a"), output("b")], "phase": "commentary"},
                    {"type": "message", "role": "assistant", "content": [output("c")]},
                    {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
                    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]},
                    {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{\"k\":"},
                    {"type": "function_call_output", "call_id": "call_1", "output": "blue"},
                    input("user", "and?"),
                    input("developer", "be brief"),
                ],
                "stream": true,
                "store": false,
                "include": ["reasoning.encrypted_content"],
                "reasoning": {"effort": "medium", "summary": "auto"},
                "tools": [{"type": "function", "name": "lookup", "parameters": {"type": "object", "properties": {}}, "strict": false}],
                "tool_choice": {"type": "function", "name": "lookup"},
                "parallel_tool_calls": true,
                "max_output_tokens": 1000,
                "user": "u",
                "prompt_cache_key": "k",
            }),
            vec![]
        )
    );
}

#[test]
fn the_thinking_setting_is_an_effort_and_a_summary() {
    use Amount::{Adaptive, Budget, Off, On};
    let short = vec![adapted("thinking", "effort")];
    for (amount, show, expected, losses) in [
        (None, None, Value::Null, vec![]),
        (Some(Off), None, json!({"effort": "none"}), vec![]),
        (
            Some(Amount::Effort { effort: Effort::XHigh }),
            Some(Show::Hidden),
            json!({"effort": "xhigh"}),
            vec![],
        ),
        (None, Some(Show::Full), json!({"summary": "detailed"}), vec![]),
        (
            Some(On),
            Some(Show::Summary),
            json!({"effort": "medium", "summary": "auto"}),
            short.clone(),
        ),
        (Some(Budget { tokens: 2000 }), None, json!({"effort": "low"}), short.clone()),
        (Some(Budget { tokens: 20_000 }), None, json!({"effort": "high"}), short.clone()),
        (Some(Adaptive { effort: None }), None, json!({"effort": "medium"}), short.clone()),
        (
            Some(Adaptive { effort: Some(Effort::Max) }),
            None,
            json!({"effort": "max"}),
            short.clone(),
        ),
    ] {
        let thinking = ThinkingSetting { amount, show };
        let (body, found) = write(&Request { thinking, ..Request::default() });
        assert_eq!((&body["reasoning"], found), (&expected, losses), "{thinking:?}");
    }
}

#[test]
fn the_shape_of_the_answer_is_flat() {
    let schema =
        Output::Schema { name: None, schema: json!({"type": "object"}), strict: Some(true) };
    for (output, expected) in [
        (Output::Text, Value::Null),
        (Output::Json, json!({"format": {"type": "json_object"}})),
        (
            schema,
            json!({"format": {"type": "json_schema", "name": "output", "schema": {"type": "object"}, "strict": true}}),
        ),
    ] {
        let (body, losses) = write(&Request { output, ..Request::default() });
        assert_eq!((&body["text"], losses), (&expected, vec![]));
    }
}

#[test]
fn own_members_go_back_and_those_about_storage_do_not() {
    let own = json!({
        "include": ["web_search_call.results"], "metadata": {"a": "b"}, "store": true, "background": false,
        "reasoning": {"context": "all_turns", "summary": "concise"}, "text": {"verbosity": "low"},
        "tool_choice": {"type": "custom", "name": "x"}, "stream_options": {"include_obfuscation": false},
        "model": "not this",
    });
    let request = Request {
        extra: BTreeMap::from([(NAME.to_owned(), own.as_object().unwrap().clone())]),
        thinking: ThinkingSetting { amount: None, show: Some(Show::Summary) },
        tool_choice: Some(ToolChoice::Auto),
        ..Request::default()
    };
    let expected = json!({
        "model": "gpt-6.1-sol", "input": [], "store": false,
        "include": ["web_search_call.results", "reasoning.encrypted_content"],
        "reasoning": {"summary": "concise", "context": "all_turns"},
        "text": {"verbosity": "low"}, "tool_choice": {"type": "custom", "name": "x"}, "metadata": {"a": "b"},
    });
    assert_eq!(write(&request), (expected, vec![]));
    let streamed = write(&Request { stream: true, ..request }).0;
    assert_eq!(streamed["stream_options"], json!({"include_obfuscation": false}));
}

#[test]
fn media_go_to_their_native_places() {
    use MediaKind::{Audio, Document, Image};
    let inline = |media_type: &str| Source::Base64 {
        media_type: media_type.to_owned(),
        data: "AA==".to_owned(),
    };
    let url = Source::Url { url: "https://x".to_owned(), media_type: None };
    let file = |dialect: &str| Source::File { dialect: dialect.to_owned(), id: "f".to_owned() };
    for (kind, source, expected) in [
        (
            Image,
            inline("image/png"),
            json!({"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}),
        ),
        (
            Image,
            url.clone(),
            json!({"type": "input_image", "image_url": "https://x", "detail": "auto"}),
        ),
        (Image, file(NAME), json!({"type": "input_image", "file_id": "f", "detail": "auto"})),
        (
            Document,
            inline("application/pdf"),
            json!({"type": "input_file", "filename": "document", "file_data": "data:application/pdf;base64,AA=="}),
        ),
        (Document, url, json!({"type": "input_file", "file_url": "https://x"})),
        (Document, file("openai_chat"), json!({"type": "input_file", "file_id": "f"})),
        (
            Audio,
            inline("audio/mpeg"),
            json!({"type": "input_audio", "input_audio": {"data": "AA==", "format": "mp3"}}),
        ),
    ] {
        let (body, losses) = write(&asked(Role::User, Block::Media { kind, source, name: None }));
        assert_eq!((&body["input"][0]["content"][0], losses), (&expected, vec![]));
    }
}

#[test]
fn what_has_no_place_is_a_loss() {
    let media = |kind, source| Block::Media { kind, source, name: None };
    let url = Source::Url { url: "https://x".to_owned(), media_type: None };
    let inline = Source::Base64 { media_type: "audio/ogg".to_owned(), data: "AA==".to_owned() };
    let text = Source::Text { text: "x".to_owned() };
    let foreign = Source::File { dialect: "gemini".to_owned(), id: "f".to_owned() };
    let own = |key: &str| {
        BTreeMap::from([(NAME.to_owned(), json!({key: "x"}).as_object().unwrap().clone())])
    };
    let signed = |signature: &str| Block::Text {
        text: "x".to_owned(),
        signature: Some(signature.to_owned()),
        citations: Vec::new(),
    };
    let sampling = |sampling| Request { sampling, ..Request::default() };
    let call = Block::ToolCall {
        id: "c".to_owned(),
        name: "f".to_owned(),
        arguments: String::new(),
        signature: Some("s".to_owned()),
    };
    let result =
        |content, is_error| Block::ToolResult { id: "c".to_owned(), name: None, content, is_error };
    for (request, loss) in [
        (Request { stop: vec!["x".to_owned()], ..Request::default() }, omitted("stop", "no_place")),
        (
            sampling(Sampling { top_k: Some(1), ..Sampling::default() }),
            omitted("top_k", "no_place"),
        ),
        (sampling(Sampling { seed: Some(1), ..Sampling::default() }), omitted("seed", "no_place")),
        (
            sampling(Sampling { presence_penalty: Some(1.0), ..Sampling::default() }),
            omitted("presence_penalty", "no_place"),
        ),
        (
            sampling(Sampling { frequency_penalty: Some(1.0), ..Sampling::default() }),
            omitted("frequency_penalty", "no_place"),
        ),
        (Request { max_tokens: Some(1), ..Request::default() }, adapted("max_tokens", "range")),
        (
            Request { extra: own("previous_response_id"), ..Request::default() },
            omitted("stored_response", "stateless"),
        ),
        (
            Request { extra: own("conversation"), ..Request::default() },
            omitted("stored_response", "stateless"),
        ),
        (
            Request {
                extra: BTreeMap::from([(
                    "gemini".to_owned(),
                    json!({"x": 1}).as_object().unwrap().clone(),
                )]),
                ..Request::default()
            },
            omitted("extra", "foreign_dialect"),
        ),
        (
            Request {
                tools: vec![Tool::Opaque { dialect: "gemini".to_owned(), value: json!({}) }],
                ..Request::default()
            },
            omitted("tool", "foreign_dialect"),
        ),
        (
            asked(Role::User, Block::Opaque { dialect: "gemini".to_owned(), value: json!({}) }),
            omitted("block", "foreign_dialect"),
        ),
        (asked(Role::User, media(MediaKind::Video, url.clone())), omitted("media", "no_place")),
        (asked(Role::User, media(MediaKind::Audio, url.clone())), omitted("media", "not_inline")),
        (asked(Role::User, media(MediaKind::Audio, inline)), omitted("media", "media_type")),
        (asked(Role::User, media(MediaKind::Document, text)), adapted("document", "as_text")),
        (asked(Role::User, media(MediaKind::Image, foreign)), omitted("media", "foreign_file")),
        (asked(Role::Assistant, media(MediaKind::Image, url.clone())), omitted("media", "role")),
        (
            asked(
                Role::User,
                Block::Media { kind: MediaKind::Image, source: url, name: Some("n".to_owned()) },
            ),
            omitted("media.name", "no_place"),
        ),
        (asked(Role::Assistant, signed("gemini's")), omitted("text.signature", "foreign_dialect")),
        (asked(Role::User, signed("phase=x")), omitted("text.signature", "no_place")),
        (asked(Role::Assistant, call), omitted("tool_call.signature", "no_place")),
        (
            asked(Role::User, result(vec![Block::text("x")], true)),
            omitted("tool_result.is_error", "no_place"),
        ),
        (
            asked(Role::User, result(vec![Block::Redacted { data: "x".to_owned() }], false)),
            omitted("tool_result.part", "no_place"),
        ),
    ] {
        assert_eq!(write(&request).1, [loss], "{request:?}");
    }
}
