//! Parts of replies that are not text, thinking or function calls, and the notice for hidden thinking.

use serde_json::json;
use throughline_canonical::{Block, BlockStart, EndReason};

use super::*;
use crate::dialects::anthropic::Anthropic;
use crate::dialects::shared::hidden_reasoning::{NOTICE, without_notice};

/// The events of a stream of these deltas.
fn events(variant: &str, stream: &str) -> Vec<Event<'static>> {
    let lines = read_pieces(variant, true, &[stream.as_bytes()]).0;
    let event = |line: &String| serde_json::from_str(line).unwrap();
    lines.iter().map(event).collect()
}

fn losses(client: &dyn ClientDialect, events: &[Event<'_>]) -> Vec<String> {
    let losses = events.iter().filter_map(|event| client.loss_of(event));
    losses.map(|loss| loss.to_string()).collect()
}

#[test]
fn a_custom_tool_call_reaches_only_chat_clients() {
    let stream = deltas(
        &[
            r#"{"tool_calls":[{"index":0,"id":"c1","type":"custom","custom":{"name":"grep","input":""}}]}"#,
            r#"{"tool_calls":[{"index":0,"custom":{"input":"a \""}}]}"#,
            r#"{"tool_calls":[{"index":0,"custom":{"input":"b\"\n"}}]}"#,
        ],
        "tool_calls",
    );
    let call =
        json!({"id": "c1", "type": "custom", "custom": {"name": "grep", "input": "a \"b\"\n"}});
    let block = Block::Opaque { dialect: "openai_chat".to_owned(), value: call.clone() };
    let read = read_reply("openai", true, stream.as_bytes());
    assert_eq!(read.content, [block]);

    let events = events("openai", &stream);
    let request = Request::default();
    let whole = write_whole(&request, &events);
    assert_eq!(whole["choices"][0]["message"]["tool_calls"], json!([call]));
    assert_eq!(whole["choices"][0]["finish_reason"], "tool_calls");
    let again = read_reply("openai", false, whole.to_string().as_bytes());
    assert_eq!(again.content, read.content);
    let written = write_reply(&request, &events);
    let again = read_reply("openai", true, written.as_bytes());
    assert_eq!(again.content, read.content);

    assert!(losses(&OpenAiChat, &events).is_empty());
    assert_eq!(losses(&Anthropic, &events), ["part_omitted=custom;reason=foreign_dialect"]);
}

#[test]
fn reference_parts_are_reported_as_losses() {
    let stream = deltas(
        &[
            r#"{"content":[{"type":"text","text":"See"},{"type":"reference","reference_ids":[1]}]}"#,
            r#"{"content":" there."}"#,
        ],
        "stop",
    );
    let read = read_reply("mistral", true, stream.as_bytes());
    let reference = Block::Opaque {
        dialect: "openai_chat".to_owned(),
        value: json!({"type": "reference", "reference_ids": [1]}),
    };
    assert_eq!(read.content, [Block::text("See"), reference, Block::text(" there.")]);
    let events = events("mistral", &stream);
    let whole = write_whole(&Request::default(), &events);
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], "See there.");
    assert_eq!(message.get("tool_calls"), None);
    assert_eq!(losses(&OpenAiChat, &events), ["part_omitted=reference;reason=no_word"]);
}

#[test]
fn closed_thinking_parts_are_separate_blocks() {
    let thinking = |text: &str, closed: bool| json!({"type": "thinking", "thinking": [{"type": "text", "text": text}], "closed": closed});
    let delta = |parts: Value| json!({"content": parts}).to_string();
    let pieces = [
        delta(json!([thinking("one, ", false)])),
        delta(json!([thinking("two", true)])),
        delta(json!([thinking("three", true)])),
        delta(json!([thinking("four", true), {"type": "text", "text": "done"}])),
    ];
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    let streamed = read_reply("mistral", true, deltas(&pieces, "stop").as_bytes());
    let whole = json!({"id": "c1", "model": "x", "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": [
        thinking("one, two", true), thinking("three", true), thinking("four", true), {"type": "text", "text": "done"}]}}]});
    let whole = read_reply("mistral", false, whole.to_string().as_bytes());
    assert_eq!(streamed.content, whole.content);
    assert_eq!(streamed.content.len(), 4);
}

/// Covers: S0-68
#[test]
fn the_notice_is_a_separate_paragraph() {
    let thinking =
        |text: &str| BlockStart::Thinking { text: text.to_owned().into(), signature: "".into() };
    let redacted = || BlockStart::Redacted { data: "d".into() };
    let blocks =
        [redacted(), thinking("one"), thinking(", two"), redacted(), redacted(), thinking("three")];
    let mut events = Vec::new();
    for (index, block) in (0..).zip(blocks) {
        events.push(Event::BlockStarted { index, block });
        events.push(Event::BlockEnded { index });
    }
    events.push(Event::Ended { reason: EndReason::Stop });
    let shown = format!("{NOTICE}\n\none, two\n\n{NOTICE}\n\n{NOTICE}\n\nthree");
    let request = Request::default();
    let whole = write_whole(&request, &events);
    assert_eq!(whole["choices"][0]["message"]["reasoning"], shown);
    let streamed = write_reply(&request, &events);
    let chunks = streamed.lines().filter_map(|line| line.strip_prefix("data: {"));
    let plain: String = chunks
        .map(|chunk| serde_json::from_str::<Value>(&format!("{{{chunk}")).unwrap())
        .filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(plain, shown);
    // The notice is for people, so it is removed when a client sends it back.
    assert_eq!(without_notice(&shown), "one, twothree");
    for bytes in [whole.to_string(), streamed] {
        let read = read_reply("openai", bytes.starts_with("data"), bytes.as_bytes());
        let blocks = read.content.iter().filter_map(|block| match block {
            Block::Thinking { text, .. } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(blocks.collect::<Vec<_>>(), ["one", ", two", "three"]);
    }
}
