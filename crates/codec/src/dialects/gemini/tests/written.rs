//! Replies for clients.

use std::borrow::Cow;

use serde_json::json;
use throughline_canonical::{Block, BlockStart, Delta, EndReason, FaultKind, Usage};

use super::*;

fn start(index: u32, block: BlockStart<'static>) -> Event<'static> {
    Event::BlockStarted { index, block }
}

fn delta(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::BlockDelta { index, delta }
}

fn end(index: u32) -> Event<'static> {
    Event::BlockEnded { index }
}

fn ended(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

fn of(text: &'static str) -> Cow<'static, str> {
    text.into()
}

fn events() -> Vec<Event<'static>> {
    vec![
        Event::MessageStarted { id: of("m"), model: of("other") },
        start(0, BlockStart::Thinking { text: of(""), signature: of("") }),
        delta(0, Delta::Thinking(of("hm \"\n"))),
        delta(0, Delta::Signature(of("s0"))),
        delta(0, Delta::Signature(of("s1"))),
        end(0),
        start(1, BlockStart::Text { text: of("Hel") }),
        delta(1, Delta::Text(of("lo"))),
        delta(1, Delta::Text(of(""))),
        end(1),
        start(2, BlockStart::ToolCall { id: of("c1"), name: of("f") }),
        start(3, BlockStart::ToolCall { id: of("c2"), name: of("g") }),
        delta(2, Delta::ToolArguments(of("{\"a\":\n"))),
        delta(3, Delta::ToolArguments(of("{broken"))),
        delta(2, Delta::ToolArguments(of("1.50}"))),
        delta(2, Delta::Signature(of("s2"))),
        end(2),
        end(3),
        start(4, BlockStart::Opaque { dialect: of("gemini"), name: of("executableCode") }),
        delta(4, Delta::Opaque(of("{\"executableCode\": {}}"))),
        end(4),
        start(5, BlockStart::Opaque { dialect: of("anthropic"), name: of("server_tool_use") }),
        end(5),
        start(6, BlockStart::Redacted { data: of("d") }),
        end(6),
        Event::Usage(Usage {
            input: Some(10),
            cache_read: Some(4),
            cache_write: Some(1),
            output: Some(9),
            thinking: Some(2),
            ..Usage::default()
        }),
        ended(EndReason::ToolCalls),
        ended(EndReason::Stop),
    ]
}

fn expected() -> Vec<Value> {
    let piece = |part: Value| json!({"candidates": [{"content": {"parts": [part], "role": "model"}, "index": 0}], "modelVersion": "my-model", "responseId": "r1"});
    let hidden = "\n\n[Some reasoning was hidden for safety reasons]\n\n";
    vec![
        piece(json!({"text": "hm \"\n", "thought": true})),
        piece(json!({"text": "", "thought": true, "thoughtSignature": "s1"})),
        piece(json!({"text": "Hel"})),
        piece(json!({"text": "lo"})),
        piece(
            json!({"functionCall": {"id": "c1", "name": "f", "args": {"a": 1.5}}, "thoughtSignature": "s2"}),
        ),
        piece(json!({"functionCall": {"id": "c2", "name": "g", "args": {"arguments": "{broken"}}})),
        piece(json!({"executableCode": {}})),
        piece(json!({"text": hidden, "thought": true, "thoughtSignature": "d"})),
        json!({"candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 15, "cachedContentTokenCount": 4, "candidatesTokenCount": 7,
                "thoughtsTokenCount": 2, "totalTokenCount": 24},
            "modelVersion": "my-model", "responseId": "r1"}),
    ]
}

#[test]
fn chunks_have_the_exact_bytes_of_the_wire() {
    let stream = String::from_utf8(streamed(Framing::Events, &events())).unwrap();
    let mut pieces = Vec::new();
    let mut blocks = stream.split("\n\n");
    for block in blocks.by_ref() {
        if block.is_empty() {
            break;
        }
        let data = block.strip_prefix("data: ").unwrap();
        assert!(!data.contains(['\n', '\r']), "{data}");
        pieces.push(serde_json::from_str::<Value>(data).unwrap());
    }
    assert_eq!(blocks.next(), None);
    assert_eq!(pieces, expected());
}

#[test]
fn a_stream_without_sse_is_one_json_list() {
    let list = streamed(LIST, &events());
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&list).unwrap(), expected());
    // Each chunk can be read as soon as it arrives.
    let begun = streamed(LIST, &events()[..8]);
    let text = String::from_utf8(begun).unwrap() + "]";
    assert_eq!(serde_json::from_str::<Vec<Value>>(&text).unwrap(), expected()[..4]);
    let nothing = streamed(LIST, &[ended(EndReason::Stop)]);
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&nothing).unwrap().len(), 1);
}

#[test]
fn a_fault_ends_the_stream_with_an_error() {
    let fault = Fault::new(FaultKind::Overloaded, "busy");
    let begun = start(0, BlockStart::Text { text: of("a") });
    let failed = [begun.clone(), Event::Fault(fault), ended(EndReason::Failed)];
    let error = json!({"error": {"code": 503, "message": "busy", "status": "UNAVAILABLE"}});
    let stream = String::from_utf8(streamed(Framing::Events, &failed)).unwrap();
    assert!(stream.ends_with(&format!("\n\ndata: {error}\n\n")), "{stream}");
    let list: Vec<Value> = serde_json::from_slice(&streamed(LIST, &failed)).unwrap();
    assert_eq!((list.len(), &list[1]), (2, &error));
    for reason in [EndReason::Cut, EndReason::Failed] {
        let stream = streamed(Framing::Events, &[begun.clone(), ended(reason)]);
        assert!(String::from_utf8(stream).unwrap().contains("\"error\":{\"code\":502"));
    }
    // A cut call is not written.
    let cut = [
        start(0, BlockStart::ToolCall { id: of("c"), name: of("f") }),
        delta(0, Delta::ToolArguments(of("{}"))),
        ended(EndReason::Cut),
    ];
    let stream = String::from_utf8(streamed(Framing::Events, &cut)).unwrap();
    assert!(!stream.contains("functionCall"));
}

#[test]
fn each_end_reason_has_a_finish_reason() {
    for (reason, word, message) in [
        (EndReason::Stop, "STOP", None),
        (EndReason::StopSequence, "STOP", None),
        (EndReason::ToolCalls, "STOP", None),
        (EndReason::Length, "MAX_TOKENS", None),
        (EndReason::Refusal, "SAFETY", None),
        (EndReason::Other("LANGUAGE".to_owned()), "LANGUAGE", None),
        (EndReason::Other("odd".to_owned()), "OTHER", Some("odd")),
        (
            EndReason::Pause,
            "OTHER",
            Some("the model paused; send the conversation back to let it go on"),
        ),
    ] {
        let stream = streamed(Framing::Events, &[ended(reason.clone())]);
        let stream = String::from_utf8(stream).unwrap();
        let piece: Value =
            serde_json::from_str(stream.trim().strip_prefix("data: ").unwrap()).unwrap();
        let reply = Reply { reason: Some(reason), ..Reply::default() };
        let whole = writer(Framing::Events).whole(&reply);
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        for written in [piece, whole] {
            let candidate = &written["candidates"][0];
            assert_eq!(candidate["finishReason"], word);
            assert_eq!(candidate["finishMessage"].as_str(), message);
            assert_eq!(written.get("usageMetadata"), None);
        }
    }
}

#[test]
fn keep_alive_has_no_content() {
    let mut writer = writer(Framing::Events);
    let mut bytes = Vec::new();
    writer.push(&start(0, BlockStart::Text { text: of("a") }), &mut bytes);
    writer.keep_alive(&mut bytes);
    writer.push(&delta(0, Delta::Text(of("b"))), &mut bytes);
    writer.push(&ended(EndReason::Stop), &mut bytes);
    let length = bytes.len();
    writer.keep_alive(&mut bytes);
    assert_eq!(bytes.len(), length);
    // Neither a comment nor a chunk.
    let text = String::from_utf8_lossy(&bytes);
    assert_eq!(text.matches("data: ").count(), 3);
    assert!(text.lines().all(|line| line.is_empty() || line.starts_with("data: ")));
    let (_, reply) = super::events(true, "", &[&bytes]);
    assert_eq!(reply.content, [Block::text("ab")]);
    let mut list = Vec::new();
    let mut writer = super::writer(LIST);
    writer.keep_alive(&mut list);
    writer.push(&start(0, BlockStart::Text { text: of("a") }), &mut list);
    writer.keep_alive(&mut list);
    writer.push(&ended(EndReason::Stop), &mut list);
    assert_eq!(serde_json::from_slice::<Vec<Value>>(&list).unwrap().len(), 2);
}

#[test]
fn a_whole_reply_holds_every_block() {
    let reply = Reply {
        content: vec![
            Block::Thinking { text: "t".to_owned(), signature: Some("s".to_owned()) },
            Block::text("a"),
            Block::text(""),
            Block::Refusal { text: "no".to_owned() },
            Block::Opaque { dialect: "gemini".to_owned(), value: json!({"toolCall": {}}) },
            Block::Opaque { dialect: "anthropic".to_owned(), value: json!({"type": "x"}) },
        ],
        reason: Some(EndReason::Stop),
        ..Reply::default()
    };
    let whole = writer(Framing::Events).whole(&reply);
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(
        whole["candidates"][0]["content"],
        json!({"parts": [{"text": "t", "thought": true, "thoughtSignature": "s"}, {"text": "a"}, {"text": "no"}, {"toolCall": {}}], "role": "model"})
    );
}
