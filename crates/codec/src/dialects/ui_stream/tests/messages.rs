//! The messages of a front end, as turns of a conversation.

use serde_json::json;
use throughline_canonical::{Block, Loss, MediaKind, Message, Role, Source};

use super::*;

fn conversation(messages: &Value) -> Lossy<Request> {
    read(&json!({"messages": messages}))
}

fn said(role: Role, content: Vec<Block>) -> Message {
    Message { role, content }
}

fn call(id: &str, arguments: &str, signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "lookup".to_owned(),
        arguments: arguments.to_owned(),
        signature: signature.map(str::to_owned),
    }
}

fn result(id: &str, text: &str, is_error: bool) -> Block {
    Block::ToolResult {
        id: id.to_owned(),
        name: Some("lookup".to_owned()),
        content: vec![Block::text(text)],
        is_error,
    }
}

fn omitted(part: &'static str, reason: &'static str) -> Loss {
    Loss::of_part(part, reason)
}

/// A run of two steps with its tool's output, as `useChat` keeps and sends it.
#[test]
fn steps_of_one_message_are_turns_with_their_results_between_them() {
    let read = conversation(&json!([
        {"id": "s", "role": "system", "parts": [{"type": "text", "text": "Be brief."}]},
        {"id": "u", "role": "user", "parts": [{"type": "text", "text": "Row 7?"}]},
        {"id": "a", "role": "assistant", "metadata": {"model": "m"}, "parts": [
            {"type": "step-start"},
            {"type": "reasoning", "text": "A row.", "state": "done",
                "providerMetadata": {"throughline": {"signature": "S1"}}},
            {"type": "text", "text": "I look.", "state": "done",
                "providerMetadata": {"throughline": {"signature": "S2"}}},
            {"type": "tool-lookup", "toolCallId": "c1", "state": "output-available", "input": {"row": 7},
                "output": {"colour": "blue"}, "callProviderMetadata": {"throughline": {"signature": "S3"}}},
            {"type": "dynamic-tool", "toolName": "lookup", "toolCallId": "c2", "state": "output-available",
                "input": {}, "output": "green"},
            {"type": "step-start"},
            {"type": "reasoning", "text": "", "providerMetadata": {"throughline": {"redacted": "R"}}},
            {"type": "source-url", "sourceId": "1", "url": "https://example.com"},
            {"type": "data-weather", "data": {"x": 1}},
            {"type": "text", "text": "Blue."},
        ]},
        {"id": "v", "role": "user", "parts": [{"type": "text", "text": "Thanks."}]},
        {"id": "t", "role": "system", "parts": [{"type": "text", "text": "Now in French."}]},
    ]));
    assert_eq!(read.losses, []);
    assert_eq!(read.value.system, ["Be brief."]);
    let signed = |text: &str, mark: &str| Block::Text {
        text: text.to_owned(),
        signature: Some(mark.to_owned()),
        citations: Vec::new(),
    };
    assert_eq!(
        read.value.messages,
        [
            said(Role::User, vec![Block::text("Row 7?")]),
            said(
                Role::Assistant,
                vec![
                    Block::Thinking { text: "A row.".to_owned(), signature: Some("S1".to_owned()) },
                    signed("I look.", "S2"),
                    call("c1", r#"{"row":7}"#, Some("S3")),
                    call("c2", "{}", None),
                ],
            ),
            said(
                Role::User,
                vec![result("c1", r#"{"colour":"blue"}"#, false), result("c2", "green", false),],
            ),
            said(
                Role::Assistant,
                vec![Block::Redacted { data: "R".to_owned() }, Block::text("Blue."),],
            ),
            said(Role::User, vec![Block::text("Thanks.")]),
            said(Role::System, vec![Block::text("Now in French.")]),
        ]
    );
}

#[test]
fn a_call_is_answered_in_every_state_it_may_be_in() {
    let (none, unanswered) = (Vec::new(), vec![omitted("tool_result", "missing")]);
    for (state, more, answer, losses) in [
        ("output-available", json!({"output": "x"}), Some(("x", false)), &none),
        ("output-available", json!({"output": [1]}), Some(("[1]", false)), &none),
        ("output-available", json!({}), Some(("", false)), &none),
        ("output-error", json!({"errorText": "no row"}), Some(("no row", true)), &none),
        (
            "output-denied",
            json!({"approval": {"id": "1", "approved": false}}),
            Some(("The call was denied.", true)),
            &none,
        ),
        (
            "approval-responded",
            json!({"approval": {"id": "1", "approved": false, "reason": "Not now."}}),
            Some(("The call was denied. Not now.", true)),
            &none,
        ),
        (
            "approval-responded",
            json!({"approval": {"id": "1", "approved": true}}),
            Some(("The tool was not run.", true)),
            &unanswered,
        ),
        (
            "approval-requested",
            json!({"approval": {"id": "1"}}),
            Some(("The tool was not run.", true)),
            &unanswered,
        ),
        ("input-available", json!({}), Some(("The tool was not run.", true)), &unanswered),
        ("input-streaming", json!({}), None, &vec![omitted("tool_call", "unfinished")]),
    ] {
        let mut part =
            json!({"type": "tool-lookup", "toolCallId": "c", "state": state, "input": {"row": 7}});
        for (name, value) in more.as_object().unwrap() {
            part[name] = value.clone();
        }
        let read = conversation(&json!([
            {"role": "user", "parts": [{"type": "text", "text": "Row 7?"}]},
            {"role": "assistant", "parts": [part]},
            {"role": "user", "parts": [{"type": "text", "text": "And?"}]},
        ]));
        let mut expected = vec![said(Role::User, vec![Block::text("Row 7?")])];
        if let Some((text, is_error)) = answer {
            expected.push(said(Role::Assistant, vec![call("c", r#"{"row":7}"#, None)]));
            expected.push(said(Role::User, vec![result("c", text, is_error)]));
        }
        expected.push(said(Role::User, vec![Block::text("And?")]));
        assert_eq!(read.value.messages, expected, "{state} {more}");
        assert_eq!(read.losses, *losses, "{state} {more}");
    }
}

/// Majors keep what was no JSON in different members.
#[test]
fn arguments_that_were_no_json_come_back_as_the_model_wrote_them() {
    for member in ["input", "rawInput"] {
        let mut part = json!({"type": "tool-lookup", "toolCallId": "c", "state": "output-error", "errorText": "no JSON"});
        part[member] = "{\"row\":".into();
        let read = conversation(&json!([{"role": "assistant", "parts": [part]}]));
        let messages = [
            said(Role::Assistant, vec![call("c", "{\"row\":", None)]),
            said(Role::User, vec![result("c", "no JSON", true)]),
        ];
        assert_eq!(read.value.messages, messages);
    }
}

#[test]
fn files_are_media_by_their_type() {
    let media = |kind, source, name: Option<&str>| Block::Media {
        kind,
        source,
        name: name.map(str::to_owned),
    };
    let read = conversation(&json!([{"role": "user", "parts": [
        {"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,AAAA", "filename": "row.png"},
        {"type": "file", "mediaType": "application/pdf", "url": "https://example.com/a.pdf"},
        {"type": "file", "mediaType": "audio/wav", "url": "data:;base64,BBBB"},
    ]}]));
    let base64 =
        |of: &str, data: &str| Source::Base64 { media_type: of.to_owned(), data: data.to_owned() };
    let there = Source::Url {
        url: "https://example.com/a.pdf".to_owned(),
        media_type: Some("application/pdf".to_owned()),
    };
    let content = vec![
        media(MediaKind::Image, base64("image/png", "AAAA"), Some("row.png")),
        media(MediaKind::Document, there, None),
        media(MediaKind::Audio, base64("audio/wav", "BBBB"), None),
    ];
    assert_eq!(read.value.messages, [said(Role::User, content)]);
}

/// A conversation may have begun before it came to us.
#[test]
fn signatures_under_keys_of_other_providers_are_signatures() {
    let thinking =
        |mark: &str| Block::Thinking { text: "hm".to_owned(), signature: Some(mark.to_owned()) };
    for (metadata, expected) in [
        (json!({"anthropic": {"signature": "A"}}), thinking("A")),
        (json!({"anthropic": {"redactedData": "D"}}), Block::Redacted { data: "D".to_owned() }),
        (json!({"google": {"thoughtSignature": "G"}}), thinking("G")),
        (
            json!({"anthropic": {"signature": "A"}, "throughline": {"signature": "T"}}),
            thinking("T"),
        ),
        (
            json!({"openrouter": {"reasoning_details": []}}),
            Block::Thinking { text: "hm".to_owned(), signature: None },
        ),
        (json!("odd"), Block::Thinking { text: "hm".to_owned(), signature: None }),
    ] {
        let part = json!({"type": "reasoning", "text": "hm", "providerMetadata": metadata});
        let read = conversation(&json!([{"role": "assistant", "parts": [part]}]));
        assert_eq!(read.value.messages[0].content, [expected], "{metadata}");
    }
}

#[test]
fn parts_without_a_word_are_told_as_lost_and_empty_ones_say_nothing() {
    let read = conversation(&json!([
        {"role": "user", "parts": [{"type": "text", "text": "hi"}, {"type": "hologram"}]},
        {"role": "assistant", "parts": []},
        {"role": "assistant", "parts": [
            {"type": "custom", "kind": "x.y"}, {"type": "reasoning-file", "mediaType": "image/png", "url": "https://x/y"},
            {"type": "text", "text": ""}, {"type": "reasoning", "text": ""},
        ]},
    ]));
    assert_eq!(read.value.messages, [said(Role::User, vec![Block::text("hi")])]);
    let lost = ["unknown_part", "custom", "reasoning_file"].map(|part| omitted(part, "no_word"));
    assert_eq!(read.losses, lost);
}

#[test]
fn what_is_made_again_starts_from_what_stands_before_it() {
    let messages = json!([
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "one"}]},
        {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "two"}]},
        {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "three"}]},
        {"id": "a2", "role": "assistant", "parts": [{"type": "text", "text": "four"}]},
    ]);
    for (trigger, id, left, goes_on) in [
        ("submit-message", "a2", 4, Some("a2")),
        ("regenerate-message", "a2", 3, None),
        ("regenerate-message", "a1", 1, None),
        ("regenerate-message", "u2", 3, None),
        // The front end has taken it out by itself.
        ("regenerate-message", "a3", 4, Some("a2")),
        // Nobody says which.
        ("regenerate-message", "", 3, None),
    ] {
        let mut body = json!({"messages": messages, "trigger": trigger});
        if !id.is_empty() {
            body["messageId"] = id.into();
        }
        let read = read(&body).value;
        assert_eq!(read.messages.len(), left, "{trigger} {id}");
        let stream = write(&read, &[]);
        assert_eq!(stream, "");
        let events = [Event::MessageStarted { id: "x".into(), model: "y".into() }];
        let first = write(&read, &events);
        // A reply that goes on with a message keeps its id; any other gets one of its own.
        let id = goes_on.unwrap_or("msg_1");
        let start = format!(
            "data: {{\"type\":\"start\",\"messageId\":\"{id}\",\"messageMetadata\":{{\"model\":\"y\"}}}}"
        );
        assert_eq!(first.lines().next(), Some(start.as_str()), "{trigger} {id}");
    }
}
