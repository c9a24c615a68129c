//! Regenerated answers, bodies that are not JSON, and paths. All other cases are in
//! `corpus/ui_stream/client_request`.

use serde_json::json;

use super::*;

#[test]
fn regenerating_drops_the_old_answer() {
    let messages = json!([
        {"id": "u1", "role": "user", "parts": [{"type": "text", "text": "one"}]},
        {"id": "a1", "role": "assistant", "parts": [{"type": "text", "text": "two"}]},
        {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "three"}]},
        {"id": "a2", "role": "assistant", "parts": [{"type": "text", "text": "four"}]},
    ]);
    for (trigger, id, left, continued) in [
        ("submit-message", "a2", 4, Some("a2")),
        ("regenerate-message", "a2", 3, None),
        ("regenerate-message", "a1", 1, None),
        ("regenerate-message", "u2", 3, None),
        // The front end has already removed the answer.
        ("regenerate-message", "a3", 4, Some("a2")),
        // No message is named.
        ("regenerate-message", "", 3, None),
    ] {
        let mut body = json!({"messages": messages, "trigger": trigger});
        if !id.is_empty() {
            body["messageId"] = id.into();
        }
        let accepted = read(&body);
        assert_eq!(accepted.request.messages.len(), left, "{trigger} {id}");
        let stream = stream_from(accepted.reply_writer(&identity()), &[]);
        assert_eq!(stream, "");
        let events = [Event::MessageStarted { id: "x".into(), model: "y".into() }];
        let first = stream_from(accepted.reply_writer(&identity()), &events);
        // A reply that continues a message keeps its id; any other reply gets a new one.
        let id = continued.unwrap_or("msg_1");
        let start = format!(
            "data: {{\"type\":\"start\",\"messageId\":\"{id}\",\"messageMetadata\":{{\"model\":\"y\"}}}}"
        );
        assert_eq!(first.lines().next(), Some(start.as_str()), "{trigger} {id}");
    }
}

#[test]
fn rejects_a_body_that_is_not_an_object() {
    for (bytes, message) in [
        ("[]", "expected a JSON object"),
        ("{", "the body is not JSON"),
        ("", "the body is not JSON"),
    ] {
        let found = read_bytes(bytes.as_bytes()).unwrap_err();
        assert!(found.message.starts_with(message), "{found}");
        let (status, body) = UiStream.write_fault(&found, "turn_1");
        // The body is plain text for people.
        assert_eq!((status, body), (400, found.message.into_bytes()));
    }
}
