//! What a client asks, in the words of the vocabulary and in shorter ones.

use serde_json::json;
use throughline_canonical::{
    Amount, Block, Effort, Loss, MediaKind, Message, Output, Role, Source, ToolChoice,
};

use super::*;

fn content(blocks: &Value) -> Vec<Block> {
    let body = json!({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": blocks}]});
    let Lossy { mut value, losses } = read(&body);
    assert_eq!(losses, []);
    value.messages.pop().unwrap().content
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

#[test]
fn the_shortest_request_streams() {
    let Lossy { value, losses } = read(&json!({"messages": [{"role": "user", "content": "hi"}]}));
    assert_eq!(losses, []);
    let expected = Request {
        stream: true,
        messages: vec![Message { role: Role::User, content: vec![Block::text("hi")] }],
        ..Request::default()
    };
    assert_eq!(value, expected);
    let blocking = read(&json!({"stream": false, "messages": [{"role": "user", "content": "hi"}]}));
    assert!(!blocking.value.stream);
}

#[test]
fn settings_are_read_in_short_and_in_full() {
    let short = json!({
        "model": "m", "system": "Be brief.", "thinking": "high", "temperature": 0.5, "max_tokens": 9,
        "tools": [{"name": "f", "parameters": {"type": "object"}}], "tool_choice": {"type": "named", "name": "f"},
        "output": "json", "stop": "x", "thread": "t", "backend": "b", "user": "u", "cache_key": "k",
        "parallel_calls": false, "stream": false,
        "messages": [{"role": "system", "content": "In French."}, {"role": "user", "content": "hi"}],
    });
    let read_short = read(&short).value;
    assert_eq!(read_short.system, ["Be brief.", "In French."]);
    let effort = Amount::Effort { effort: Effort::High };
    assert_eq!(read_short.thinking.amount, Some(effort));
    assert_eq!(read_short.sampling.temperature, Some(0.5));
    assert_eq!(read_short.output, Output::Json);
    let named = ToolChoice::Named { name: "f".to_owned() };
    assert_eq!(read_short.tool_choice, Some(named));
    // What the vocabulary writes reads as it was.
    let full = serde_json::to_value(&read_short).unwrap();
    assert_eq!(read(&full).value, read_short);
}

/// Covers: C-11, S4-8, S4-9
#[test]
fn a_signature_stands_on_its_block_or_behind_it() {
    let signed = [thinking("hm", Some("S")), Block::text("yes")];
    for kind in ["thinking_signature", "signature"] {
        for member in ["signature", "content"] {
            let mut own = json!({"type": kind});
            own[member] = "S".into();
            let blocks = json!([{"type": "thinking", "thinking": "hm"}, own, {"type": "text", "text": "yes"}]);
            assert_eq!(content(&blocks), signed);
        }
    }
    let on_it = json!([{"type": "thinking", "text": "hm", "signature": "S"}, "yes"]);
    assert_eq!(content(&on_it), signed);
    // Of reasoning that was hidden nothing else is told.
    let alone =
        json!([{"type": "thinking_signature", "signature": "S"}, {"type": "text", "text": "yes"}]);
    assert_eq!(content(&alone), [thinking("", Some("S")), Block::text("yes")]);
    let second = json!([{"type": "thinking", "text": "a", "signature": "S"}, {"type": "signature", "signature": "T"}]);
    assert_eq!(content(&second), [thinking("a", Some("S")), thinking("", Some("T"))]);
}

#[test]
fn every_kind_of_block_is_read() {
    let call = |arguments: &str, signature: Option<&str>| Block::ToolCall {
        id: "c".to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: signature.map(str::to_owned),
    };
    let result = |content: Vec<Block>, is_error| Block::ToolResult {
        id: "c".to_owned(),
        name: None,
        content,
        is_error,
    };
    let redacted = Block::Redacted { data: "D".to_owned() };
    let refusal = Block::Refusal { text: "no".to_owned() };
    let image = |source| Block::Media { kind: MediaKind::Image, source, name: None };
    let base64 = Source::Base64 { media_type: "image/png".to_owned(), data: "AA".to_owned() };
    let there = Source::Url { url: "https://example.com/x".to_owned(), media_type: None };
    for (block, expected) in [
        (json!("plain"), Block::text("plain")),
        (json!({"type": "text", "content": "x"}), Block::text("x")),
        (json!({"type": "redacted_thinking", "data": "D"}), redacted.clone()),
        (json!({"type": "redacted", "content": "D"}), redacted),
        (json!({"type": "refusal", "text": "no"}), refusal.clone()),
        (json!({"type": "text", "content": "no", "refusal": true}), refusal),
        (json!({"type": "tool_call", "id": "c", "name": "f"}), call("{}", None)),
        (
            json!({"type": "tool_call", "id": "c", "name": "f", "arguments": {"a": 1}, "signature": "S"}),
            call(r#"{"a":1}"#, Some("S")),
        ),
        (
            json!({"type": "tool_call", "id": "c", "name": "f", "arguments": "{\"a\""}),
            call("{\"a\"", None),
        ),
        (
            json!({"type": "tool_result", "id": "c", "content": "x"}),
            result(vec![Block::text("x")], false),
        ),
        (
            json!({"type": "tool_result", "tool_call_id": "c", "content": {"a": 1}, "is_error": true}),
            result(vec![Block::text(r#"{"a":1}"#)], true),
        ),
        (
            json!({"type": "tool_result", "id": "c", "content": [{"type": "text", "text": "x"}]}),
            result(vec![Block::text("x")], false),
        ),
        (json!({"type": "media", "url": "data:image/png;base64,AA"}), image(base64.clone())),
        (
            json!({"type": "media", "kind": "image", "source": {"kind": "base64", "media_type": "image/png", "data": "AA"}}),
            image(base64),
        ),
        (json!({"type": "media", "url": "https://example.com/x"}), image(there)),
        (
            json!({"type": "opaque", "dialect": "gemini", "value": {"x": 1}}),
            Block::Opaque { dialect: "gemini".to_owned(), value: json!({"x": 1}) },
        ),
    ] {
        assert_eq!(content(&json!([block])), [expected], "{block}");
    }
}

#[test]
fn a_message_as_it_is_kept_is_read_by_its_blocks() {
    let node = json!({"role": "assistant", "content": "yes", "id": "n1", "contentBlocks": [
        {"type": "thinking", "thinking": "hm", "signature": "S"}, {"type": "text", "text": "yes"},
    ]});
    let read = read(&json!({"messages": [{"role": "user", "content": "q"}, node]}));
    let expected = [thinking("hm", Some("S")), Block::text("yes")];
    assert_eq!(read.value.messages[1].content, expected);
}

#[test]
fn what_has_no_word_is_told_as_lost() {
    let read = read(&json!({"colour": "blue", "messages": [{"role": "user", "content": [
        {"type": "text", "text": "hi"}, {"type": "hologram"},
    ]}]}));
    assert_eq!(read.value.messages[0].content, [Block::text("hi")]);
    let lost =
        ["block", "member"].map(|part| Loss::PartOmitted { part: part.into(), reason: "no_word" });
    assert_eq!(read.losses, lost);
}
