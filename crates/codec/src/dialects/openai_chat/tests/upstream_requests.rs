//! Requests for each variant. The cases are in `corpus/openai_chat/upstream_request`.

use serde_json::json;
use throughline_canonical::{Amount, Block, Message, Role};

use super::*;
use crate::dialects::openai_chat::variants::VARIANTS;

fn request(role: Role, content: Vec<Block>) -> Request {
    Request {
        model: "m".to_owned(),
        messages: vec![Message::new(role, content)],
        ..Request::default()
    }
}

#[test]
fn each_server_gets_one_limit_and_only_known_members() {
    let mut request = request(Role::User, vec![Block::text("hi")]);
    request.max_tokens = Some(9);
    request.thinking.amount = Some(Amount::On);
    request.stream = true;
    for variant in VARIANTS {
        let (body, _) = write(&request, variant.name);
        let members = body.as_object().unwrap();
        assert!(
            members.contains_key("max_tokens") != members.contains_key("max_completion_tokens")
        );
        for member in members.keys() {
            assert!(variant.takes(member), "{}: {member}", variant.name);
        }
    }
}

#[test]
fn openrouter_gets_its_reasoning_details_back() {
    let details = json!([
        {"type": "reasoning.summary", "index": 0, "format": "openai-responses-v1", "id": "rs_1", "summary": "s"},
        {"type": "reasoning.encrypted", "index": 1, "format": "openai-responses-v1", "id": "rs_1", "data": "gAAA"},
        {"type": "reasoning.text", "index": 2, "format": "unknown", "text": "t"},
        {"type": "reasoning.text", "index": 3, "text": "u", "signature": "EqQB"},
    ]);
    let body = json!({"id": "c", "model": "x", "choices": [{"message": {"content": "a", "reasoning": "stu", "reasoning_details": details}, "finish_reason": "stop"}]});
    let reply = read_reply("openrouter", false, body.to_string().as_bytes());
    let (sent, losses) = write(&request(Role::Assistant, reply.content), "openrouter");
    assert_eq!(sent["messages"][0]["reasoning_details"], details);
    assert_eq!(losses, []);
}
