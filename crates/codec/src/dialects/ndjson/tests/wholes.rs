//! Whole replies, and the same as events.

use serde_json::json;
use throughline_canonical::{Block, EndDetails, EndReason, Reply, Usage};

use super::*;

fn reply() -> Reply {
    Reply {
        id: "theirs".to_owned(),
        model: "their-model".to_owned(),
        content: vec![
            Block::Thinking { text: "hm, \"so\"\n".to_owned(), signature: Some("S".to_owned()) },
            Block::Redacted { data: "D".to_owned() },
            Block::text("I look."),
            Block::ToolCall {
                id: "c".to_owned(),
                name: "f".to_owned(),
                arguments: "{\"row\": 7}".to_owned(),
                signature: None,
            },
        ],
        usage: Usage { input: Some(3), output: Some(5), ..Usage::default() },
        fault: None,
        reason: Some(EndReason::ToolCalls),
        details: EndDetails::default(),
        losses: Vec::new(),
        summary: false,
    }
}

#[test]
fn a_whole_reply_has_text_blocks_and_chunks() {
    let request = Request { model: "asked-for".to_owned(), ..Request::default() };
    let body = NdJson.session().reply_writer(&request, &identity()).whole(&reply());
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        json!({
            "model": "asked-for",
            "reason": "completed",
            "stop_reason": "tool_calls",
            "content": "I look.",
            "contentBlocks": [
                {"type": "thinking", "thinking": "hm, \"so\"\n", "signature": "S"},
                {"type": "redacted_thinking", "data": "D"},
                {"type": "text", "text": "I look."},
                {"type": "tool_call", "id": "c", "name": "f", "arguments": {"row": 7}},
            ],
            "usage": {"input": 3, "output": 5},
            "extensions": {
                "reasoning_chunks": ["hm, \"so\"\n"],
                "tool_call_chunks": [
                    {"type": "start", "tool_call_id": "c", "tool_name": "f"},
                    {"type": "args", "tool_call_id": "c", "delta": "{\"row\": 7}"},
                    {"type": "end", "tool_call_id": "c"},
                ],
            },
        })
    );
    // Its blocks can be sent back as a message.
    let node = json!({"role": "assistant", "contentBlocks": body["contentBlocks"]});
    let back = read(&json!({"messages": [{"role": "user", "content": "q"}, node]}));
    let mut said = reply().content;
    if let Some(Block::ToolCall { arguments, .. }) = said.last_mut() {
        *arguments = "{\"row\":7}".to_owned();
    }
    assert_eq!(back.value.messages[1].content, said);
}

#[test]
fn the_events_dialect_writes_canonical_events() {
    use crate::dialects::events::Events;
    let mut writer = Events.session().reply_writer(&Request::default(), &identity());
    let mut out = Vec::new();
    reply().emit_events(&mut |event| writer.push(event, &mut out));
    let length = out.len();
    writer.push(&Event::BlockEnded { index: 0 }, &mut out);
    writer.keep_alive(&mut out);
    assert_eq!(out.len(), length, "behind the end");
    let text = String::from_utf8(out).unwrap();
    let mut events = Vec::new();
    for (number, event) in (1..).zip(text.split_terminator("\n\n")) {
        let lines: Vec<&str> = event.lines().collect();
        let data = lines[2].strip_prefix("data: ").unwrap();
        let value: Value = serde_json::from_str(data).unwrap();
        assert_eq!(lines[0], format!("event: {}", value["type"].as_str().unwrap()));
        assert_eq!(lines[1], format!("id: {number}"));
        assert_eq!(lines.len(), 3);
        let event: Event<'static> = serde_json::from_value(value).unwrap();
        assert_eq!(data, serde_json::to_string(&event).unwrap());
        events.push(event);
    }
    let mut fold = throughline_canonical::Fold::default();
    events.iter().for_each(|event| fold.push(event));
    // With the id of the turn, and the model name that the client used.
    let expected = Reply { id: "1".to_owned(), ..reply() };
    assert_eq!(fold.finish(), expected);
    let whole = Events.session().reply_writer(&Request::default(), &identity()).whole(&reply());
    assert_eq!(serde_json::from_slice::<Value>(&whole).unwrap(), json!(expected));
}
