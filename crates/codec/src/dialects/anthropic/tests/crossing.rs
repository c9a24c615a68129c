//! How a request crosses: small ones to begin with, and what is claimed of them.

use serde_json::{Value, json};
use throughline_canonical::{Block, Loss, Message, Request, Role};

use super::{read_value, written};

/// A body with these members besides the required ones.
pub(super) fn body(members: &Value) -> Value {
    let mut body = json!({
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "q"}],
    });
    for (key, value) in members.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

/// The same members as one request of ours.
pub(super) fn request(change: impl FnOnce(&mut Request)) -> Request {
    let mut request = Request {
        model: "claude-x".to_owned(),
        max_tokens: Some(9),
        messages: vec![message(Role::User, vec![Block::text("q")])],
        ..Request::default()
    };
    change(&mut request);
    request
}

pub(super) fn message(role: Role, content: Vec<Block>) -> Message {
    Message { role, content }
}

/// These members are read so, and written back as they were.
pub(super) fn both_ways(members: &Value, change: impl FnOnce(&mut Request)) {
    let body = body(members);
    let read = read_value(&body);
    assert_eq!(read.value, request(change), "{members}");
    assert_eq!(read.losses, [], "{members}");
    assert_eq!(written(&read.value), (body, String::new()), "{members}");
}

/// These members are read so, with these losses.
pub(super) fn reads(members: &Value, losses: &str, change: impl FnOnce(&mut Request)) {
    let read = read_value(&body(members));
    assert_eq!(read.value, request(change), "{members}");
    assert_eq!(Loss::header(&read.losses), losses, "{members}");
}

/// A request with this change is written with these members, and with these losses.
pub(super) fn writes(members: &Value, losses: &str, change: impl FnOnce(&mut Request)) {
    let (actual, lost) = written(&request(change));
    assert_eq!(actual, body(members), "{members}");
    assert_eq!(lost, losses, "{members}");
}

pub(super) fn anthropic_extra(request: &mut Request, value: &Value) {
    let members = value.as_object().unwrap().clone();
    request.extra.insert("anthropic".to_owned(), members);
}
