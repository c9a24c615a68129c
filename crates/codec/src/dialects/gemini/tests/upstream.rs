//! Requests for providers, with the spelling of numbers. All other cases are in
//! `corpus/gemini/upstream_request`.

use serde_json::json;
use throughline_canonical::{Block, Loss, Message, Role};

use super::*;

fn message(role: Role, content: Vec<Block>) -> Message {
    Message::new(role, content)
}

fn asking(messages: Vec<Message>) -> Request {
    Request { model: "gemini-3-pro".to_owned(), messages, ..Request::default() }
}

fn check(messages: Vec<Message>, contents: impl Into<Value>, losses: &[(&str, &str)]) {
    let (written, body) = write(&asking(messages), "");
    assert_eq!(body["contents"], contents.into());
    let found: Vec<_> = written
        .losses
        .iter()
        .map(|loss| match loss {
            Loss::PartOmitted { part, reason } => (part.as_str(), reason.as_str()),
            Loss::SettingAdapted { setting, reason } => (setting.as_str(), reason.as_str()),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(found, losses);
}

fn call(id: &str, arguments: &str, signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: signature.map(str::to_owned),
    }
}

fn result(id: &str, content: Vec<Block>, is_error: bool) -> Block {
    Block::ToolResult { id: id.to_owned(), name: None, content, is_error }
}

fn user(text: &str) -> Message {
    message(Role::User, vec![Block::text(text)])
}

#[test]
fn a_turn_with_tools_keeps_its_signatures_on_their_parts() {
    let thought = Block::Thinking { text: "hm".to_owned(), signature: Some("t-_".to_owned()) };
    let signed =
        Block::Text { text: String::new(), signature: Some("e".to_owned()), citations: Vec::new() };
    check(
        vec![
            user("go"),
            message(
                Role::Assistant,
                vec![
                    thought,
                    Block::text("ok"),
                    signed,
                    call("1", "{\"a\": 1.50}", Some("s+/")),
                    call("2", "", None),
                ],
            ),
            message(
                Role::User,
                vec![result("2", vec![Block::text("x")], true), result("1", vec![], false)],
            ),
        ],
        json!([
            {"role": "user", "parts": [{"text": "go"}]},
            {"role": "model", "parts": [
                {"text": "hm", "thought": true, "thoughtSignature": "t-_"}, {"text": "ok"}, {"text": "", "thoughtSignature": "e"},
                {"functionCall": {"id": "1", "name": "f", "args": {"a": 1.50}}, "thoughtSignature": "s+/"},
                {"functionCall": {"id": "2", "name": "f", "args": {}}}]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "2", "name": "f", "response": {"error": "x"}}},
                {"functionResponse": {"id": "1", "name": "f", "response": {}}}]},
        ]),
        &[],
    );
    // Numbers keep the spelling of the model.
    let (written, _) =
        write(&asking(vec![message(Role::Assistant, vec![call("1", "{\"a\":1.50e3}", None)])]), "");
    assert!(String::from_utf8(written.value.body).unwrap().contains("\"args\":{\"a\":1.50e3}"));
}
