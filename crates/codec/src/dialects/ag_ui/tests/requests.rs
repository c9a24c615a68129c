//! What a run is given, read.

use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, Effort, Loss, MediaKind, Message, Role, Show, Source, Tool, ToolChoice,
};

use super::{asked, body, read, read_at};

fn conversation(messages: &Value) -> Vec<Message> {
    let read = read(&body(messages));
    assert!(read.losses.is_empty(), "{:?}", read.losses);
    read.value.messages
}

fn message(role: Role, content: Vec<Block>) -> Message {
    Message { role, content }
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

fn signed(text: &str, signature: &str) -> Block {
    Block::Text {
        text: text.to_owned(),
        signature: Some(signature.to_owned()),
        citations: Vec::new(),
    }
}

fn call(id: &str, signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: "{\"a\":1}".to_owned(),
        signature: signature.map(str::to_owned),
    }
}

fn result(id: &str, content: &[&str], is_error: bool) -> Block {
    Block::ToolResult {
        id: id.to_owned(),
        name: None,
        content: content.iter().map(|text| Block::text(*text)).collect(),
        is_error,
    }
}

#[test]
fn a_run_names_its_thread_and_is_always_streamed() {
    let read = read(&asked(&json!({"parentRunId": "r0"})));
    assert!(read.losses.is_empty());
    assert_eq!(read.value.thread.as_deref(), Some("t1"));
    assert!(read.value.stream);
    assert_eq!(read.value.model, "");
    assert_eq!(read.value.backend, None);
}

#[test]
fn reasoning_text_and_calls_of_one_turn_are_one_message_in_their_order() {
    let written = |id: &str, signature: Option<&str>| {
        let mut call = json!({"id": id, "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        if let Some(signature) = signature {
            call["encryptedValue"] = signature.into();
        }
        call
    };
    let messages = json!([
        {"id": "u1", "role": "user", "content": "Hi."},
        {"id": "r1", "role": "reasoning", "content": "One.", "encryptedValue": "s1"},
        {"id": "redacted_x_2", "role": "reasoning", "content": "", "encryptedValue": "d"},
        {"id": "w", "role": "activity", "activityType": "WAITING", "content": {"status": "done"}},
        {"id": "a1", "role": "assistant", "content": "I look.", "encryptedValue": "s2", "toolCalls": [written("c1", None)]},
        {"id": "r2", "role": "reasoning", "content": "Two."},
        {"id": "r3", "role": "reasoning", "content": "", "encryptedValue": "s3"},
        {"id": "r4", "role": "reasoning", "content": ""},
        {"id": "a2", "role": "assistant", "toolCalls": [written("c2", Some("s4"))]},
        {"id": "t1", "role": "tool", "toolCallId": "c1", "content": "ok"},
        {"id": "t2", "role": "tool", "toolCallId": "c2", "content": "", "error": "no such row"},
        {"id": "a3", "role": "assistant", "content": "Done."},
        {"id": "a4", "role": "assistant", "content": "No.", "metadata": {"throughline": {"refusal": true}}},
    ]);
    let expected = [
        message(Role::User, vec![Block::text("Hi.")]),
        message(
            Role::Assistant,
            vec![
                thinking("One.", Some("s1")),
                Block::Redacted { data: "d".to_owned() },
                signed("I look.", "s2"),
                call("c1", None),
                thinking("Two.", None),
                thinking("", Some("s3")),
                call("c2", Some("s4")),
            ],
        ),
        message(
            Role::User,
            vec![result("c1", &["ok"], false), result("c2", &["no such row"], true)],
        ),
        message(
            Role::Assistant,
            vec![Block::text("Done."), Block::Refusal { text: "No.".to_owned() }],
        ),
    ];
    assert_eq!(conversation(&messages), expected);
}

#[test]
fn a_tool_that_failed_says_what_it_gave_and_why() {
    let told = |content: Value, error: &str| {
        conversation(&json!([
            {"id": "t", "role": "tool", "toolCallId": "c", "content": content, "error": error},
        ]))
    };
    for (content, error, expected) in [
        (json!("half"), "broke", vec!["half", "broke"]),
        (json!("broke"), "broke", vec!["broke"]),
        (json!([{"type": "text", "text": "half"}]), "", vec!["half"]),
        (Value::Null, "broke", vec!["broke"]),
    ] {
        let expected = vec![message(Role::User, vec![result("c", &expected, true)])];
        assert_eq!(told(content, error), expected);
    }
}

#[test]
fn what_runs_the_program_stands_above_the_conversation_or_where_it_was_said() {
    let mut body = body(&json!([
        {"id": "s", "role": "system", "content": "Be brief."},
        {"id": "d", "role": "developer", "content": "Be kind."},
        {"id": "u", "role": "user", "content": "Hi."},
        {"id": "d2", "role": "developer", "content": "Be quick."},
    ]));
    body["context"] = json!([
        {"description": "The page", "value": "/rows/7"},
        {"description": "Choice", "value": {"row": 7}},
    ]);
    let read = read(&body);
    assert_eq!(
        read.value.system,
        ["Be brief.", "Be kind.", "The page: /rows/7", "Choice: {\"row\":7}"]
    );
    let system = message(Role::System, vec![Block::text("Be quick.")]);
    assert_eq!(read.value.messages[1], system);
}

#[test]
fn a_user_may_send_media() {
    let media = |kind, source, name: Option<&str>| Block::Media {
        kind,
        source,
        name: name.map(str::to_owned),
    };
    let file = |dialect: &str| Source::File { dialect: dialect.to_owned(), id: "f1".to_owned() };
    let data = |media_type: &str| Source::Base64 {
        media_type: media_type.to_owned(),
        data: "AA==".to_owned(),
    };
    let url = |media_type: Option<&str>| Source::Url {
        url: "https://a/b".to_owned(),
        media_type: media_type.map(str::to_owned),
    };
    let at = |provider: &str| json!({"type": "document", "source": {"type": "file", "value": "f1", "provider": provider}});
    for (part, expected) in [
        (json!({"type": "text", "text": "Hi."}), Block::text("Hi.")),
        (
            json!({"type": "image", "source": {"type": "data", "value": "AA==", "mimeType": "image/png"}}),
            media(MediaKind::Image, data("image/png"), None),
        ),
        (
            json!({"type": "audio", "source": {"type": "url", "value": "https://a/b"}}),
            media(MediaKind::Audio, url(None), None),
        ),
        (
            json!({"type": "video", "source": {"type": "url", "value": "https://a/b", "mimeType": "video/mp4"}}),
            media(MediaKind::Video, url(Some("video/mp4")), None),
        ),
        (
            json!({"type": "image", "source": {"type": "url", "value": "data:image/gif;base64,AA=="}}),
            media(MediaKind::Image, data("image/gif"), None),
        ),
        (at("anthropic"), media(MediaKind::Document, file("anthropic"), None)),
        (at("google"), media(MediaKind::Document, file("gemini"), None)),
        (at("openai"), media(MediaKind::Document, file("openai_responses"), None)),
        (
            json!({"type": "binary", "mimeType": "application/pdf", "data": "AA==", "filename": "a.pdf"}),
            media(MediaKind::Document, data("application/pdf"), Some("a.pdf")),
        ),
        (
            json!({"type": "binary", "mimeType": "image/png", "url": "https://a/b"}),
            media(MediaKind::Image, url(Some("image/png")), None),
        ),
        (
            json!({"type": "binary", "mimeType": "audio/wav", "id": "f1"}),
            media(MediaKind::Audio, file(""), None),
        ),
    ] {
        let messages = json!([{"id": "u", "role": "user", "content": [part]}]);
        assert_eq!(conversation(&messages)[0].content, [expected]);
    }
}

#[test]
fn tools_are_those_the_client_runs() {
    let parameters = json!({"type": "object"});
    let read = read(&asked(&json!({"tools": [
        {"name": "f", "description": "d", "parameters": parameters},
        {"name": "g"},
    ]})));
    let tool = |name: &str, description: Option<&str>, parameters: &Value| Tool::Function {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        parameters: parameters.clone(),
        strict: None,
    };
    let expected = [tool("f", Some("d"), &parameters), tool("g", None, &Value::Null)];
    assert_eq!(read.value.tools, expected);
}

#[test]
fn what_is_forwarded_comes_before_what_stands_beside() {
    let read = read(&asked(&json!({
        "forwardedProps": {"model": "m1", "reasoning_effort": "high", "temperature": 0.5},
        "model": "m2", "backend": "b", "thinking": false, "max_tokens": 7, "temperature": 1,
    })));
    assert!(read.losses.is_empty());
    let request = read.value;
    assert_eq!(request.model, "m1");
    assert_eq!(request.backend.as_deref(), Some("b"));
    assert_eq!(request.max_tokens, Some(7));
    assert_eq!(request.sampling.temperature, Some(0.5));
    let high = Amount::Effort { effort: Effort::High };
    assert_eq!(request.thinking.amount, Some(high));
}

#[test]
fn thinking_is_asked_for_in_any_of_the_usual_words() {
    let high = Amount::Effort { effort: Effort::High };
    for (props, amount, show) in [
        (json!({"thinking": true}), Some(Amount::On), None),
        (json!({"thinking": {"type": "disabled"}}), Some(Amount::Off), None),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}}),
            Some(Amount::Budget { tokens: 2048 }),
            Some(Show::Hidden),
        ),
        (json!({"reasoning_effort": "none"}), Some(Amount::Off), None),
        (json!({"thinking": "off"}), Some(Amount::Off), None),
        (json!({"thinking": "high"}), Some(high), None),
        (json!({"thinking": {"effort": "high"}}), Some(high), None),
        (json!({"thinking": 2048}), Some(Amount::Budget { tokens: 2048 }), None),
        (
            json!({"thinking": {"budget": 2048, "show": "hidden"}}),
            Some(Amount::Budget { tokens: 2048 }),
            Some(Show::Hidden),
        ),
        // As servers of the chat dialect call it.
        (json!({"enable_thinking": false}), Some(Amount::Off), None),
        (
            json!({"thinking_budget": 2048, "include_reasoning": false}),
            Some(Amount::Budget { tokens: 2048 }),
            Some(Show::Hidden),
        ),
        (json!({}), None, None),
    ] {
        for body in [asked(&json!({"forwardedProps": props})), asked(&props)] {
            let thinking = read(&body).value.thinking;
            assert_eq!((thinking.amount, thinking.show), (amount, show), "{body}");
        }
    }
}

/// The words are those of every other front door.
#[test]
fn a_run_says_how_it_is_to_be_answered() {
    let props = json!({
        "tool_choice": {"type": "named", "name": "f"}, "parallel_calls": false, "stop": ["END"],
        "top_p": 0.5, "top_k": 4, "seed": 7, "presence_penalty": 0.25, "frequency_penalty": 0.75,
    });
    for body in [asked(&json!({"forwardedProps": props})), asked(&props)] {
        let read = read(&body);
        assert_eq!(read.losses, [], "{body}");
        let request = read.value;
        let name = "f".to_owned();
        assert_eq!(request.tool_choice, Some(ToolChoice::Named { name }));
        assert_eq!(request.parallel_calls, Some(false));
        assert_eq!(request.stop, ["END"]);
        let sampling = request.sampling;
        assert_eq!((sampling.top_p, sampling.top_k), (Some(0.5), Some(4)));
        assert_eq!(sampling.seed, Some(7));
        let penalties = (sampling.presence_penalty, sampling.frequency_penalty);
        assert_eq!(penalties, (Some(0.25), Some(0.75)));
    }
}

#[test]
fn the_path_names_a_backend_and_wins() {
    let body = asked(&json!({"backend": "body"}));
    for (path, backend) in [("/ag-ui", "body"), ("/ag-ui/", "body"), ("/ag-ui/glm", "glm")] {
        let read = read_at(path, "", &body).unwrap();
        assert_eq!(read.value.backend.as_deref(), Some(backend));
    }
}

#[test]
fn only_the_dialects_own_paths_are_its() {
    use crate::dialects::{ClientDialect, Operation};
    for (path, wanted) in [
        ("/ag-ui", Some(Operation::Generate)),
        ("/ag-ui/", Some(Operation::Generate)),
        ("/ag-ui/glm", Some(Operation::Generate)),
        ("/ag-ui/glm/more", None),
        ("/ag-uii", None),
        ("/v1/ag-ui", None),
    ] {
        assert_eq!(super::AgUi.operation(path), wanted, "{path}");
    }
}

#[test]
fn what_has_no_word_is_told_as_lost() {
    let lost = |part| Loss::PartOmitted { part, reason: "no_word" };
    let user = |more: Value| {
        let mut message = json!({"id": "u", "role": "user", "content": "Hi."});
        for (name, value) in more.as_object().unwrap() {
            message[name] = value.clone();
        }
        body(&json!([message]))
    };
    for (body, part) in [
        (asked(&json!({"state": {"row": 7}})), "state"),
        (asked(&json!({"forwardedProps": {"mood": 1}})), "forwardedProps"),
        (asked(&json!({"mood": 1})), "member"),
        (user(json!({"name": "Ada"})), "message.name"),
        (user(json!({"encryptedValue": "v"})), "message.encryptedValue"),
        (user(json!({"mood": 1})), "member"),
    ] {
        assert_eq!(read(&body).losses, [lost(part.into())], "{body}");
    }
    let notes = user(json!({"metadata": {"a": 1}, "subagentRunId": "s", "name": null}));
    assert!(read(&notes).losses.is_empty());
    assert!(read(&asked(&json!({"state": {}}))).losses.is_empty());
}

#[test]
fn an_unknown_form_of_reasoning_is_refused() {
    let fault = read_at("/ag-ui", "reasoning=loud", &asked(&json!({}))).unwrap_err();
    assert!(fault.message.contains("`reasoning`, `thinking` or `none`"), "{fault}");
}

#[test]
fn nothing_of_ours_goes_to_a_provider() {
    use crate::dialects::ClientDialect;
    let mut request = read(&asked(&json!({"state": {"row": 7}}))).value;
    assert!(!request.extra.is_empty());
    super::AgUi.forget_own_members(&mut request);
    assert!(request.extra.is_empty());
}
