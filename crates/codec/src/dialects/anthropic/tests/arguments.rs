//! The spelling of arguments, which a golden of JSON values cannot show. All other cases of requests
//! are in `corpus/anthropic`.

use throughline_canonical::{Block, Message, Request, Role};

use super::{read_request, write_request};

#[test]
fn arguments_keep_their_spelling() {
    let spelled = r#"{ "n": 1.50e+3, "big": 123456789012345678901234567890, "n": "\u00e9" }"#;
    let call = Block::ToolCall {
        id: "a".to_owned(),
        name: "f".to_owned(),
        arguments: spelled.to_owned(),
        signature: None,
    };
    let request = Request {
        model: "claude-x".to_owned(),
        max_tokens: Some(9),
        messages: vec![Message::new(Role::Assistant, vec![call])],
        ..Request::default()
    };
    let body = String::from_utf8(write_request(&request).value.body).unwrap();
    assert!(body.contains(&format!(r#""input":{spelled}"#)), "{body}");
    let read = read_request(body.as_bytes()).unwrap().value;
    assert_eq!(read.messages, request.messages);
}
