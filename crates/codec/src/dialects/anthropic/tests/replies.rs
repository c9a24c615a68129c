//! Replies for clients, and limits of the reply reader.

use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Delta, EndDetails, EndReason, Event, Fault, FaultKind, Reply, Usage,
};

use super::super::client_reply::PING;
use super::super::{Anthropic, upstream_reply};
use super::{identity, read_reply, streamed, target, whole};
use crate::dialects::{ClientDialect, ReplyReader, UpstreamDialect};
use crate::framing::MAX_REPLY_BYTES;
use crate::framing::sse::Framer;

fn started() -> Event<'static> {
    Event::MessageStarted { id: "theirs".into(), model: "their-model".into() }
}

fn start(index: u32, block: BlockStart<'static>) -> Event<'static> {
    Event::BlockStarted { index, block }
}

fn text() -> BlockStart<'static> {
    BlockStart::Text { text: "".into() }
}

fn thinking() -> BlockStart<'static> {
    BlockStart::Thinking { text: "".into(), signature: "".into() }
}

fn call(id: &'static str) -> BlockStart<'static> {
    BlockStart::ToolCall { id: id.into(), name: "f".into() }
}

fn delta(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::BlockDelta { index, delta }
}

fn stop(index: u32) -> Event<'static> {
    Event::BlockEnded { index }
}

fn ended(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

/// The data of each event. Its name must equal the type in its data.
fn events(stream: &str) -> Vec<Value> {
    let mut all = Vec::new();
    let mut framer = Framer::new(1 << 20);
    framer.push(stream.as_bytes(), |frame, _| {
        let data: Value = serde_json::from_slice(frame.data).unwrap();
        assert_eq!(data["type"].as_str().unwrap().as_bytes(), frame.event);
        all.push(data);
    });
    assert!(framer.between_events());
    all
}

/// One short line for each event between the first and the last two.
fn written_lines(sent: &[Event<'_>]) -> Vec<String> {
    let all = events(&streamed(sent));
    assert_eq!(all[0]["type"], "message_start");
    assert_eq!(all[all.len() - 2]["type"], "message_delta");
    assert_eq!(all[all.len() - 1], json!({"type": "message_stop"}));
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |event: &Value| {
        let (index, block, delta) = (&event["index"], &event["content_block"], &event["delta"]);
        match word(&event["type"]).as_str() {
            "content_block_start" => format!("{index}+{}", word(&block["type"])),
            "content_block_stop" => format!("{index}-"),
            _ => {
                let kinds = ["text", "thinking", "signature", "partial_json"];
                let said = kinds.iter().find_map(|kind| delta[kind].as_str());
                let kind = word(&delta["type"]);
                format!("{index} {}: {}", kind.trim_end_matches("_delta"), said.unwrap())
            }
        }
    };
    all[1..all.len() - 2].iter().map(line).collect()
}

#[test]
fn a_stream_has_the_exact_bytes_of_the_wire() {
    let usage = |usage| Event::Usage(usage);
    let stream = streamed(&[
        started(),
        usage(Usage { input: Some(20), cache_read: Some(5), ..Usage::default() }),
        start(0, thinking()),
        delta(0, Delta::Thinking("Row \"7\"\n".into())),
        delta(0, Delta::Signature("EqQB".into())),
        stop(0),
        start(1, text()),
        delta(1, Delta::Text("Blue 🧠".into())),
        stop(1),
        usage(Usage { output: Some(60), thinking: Some(44), ..Usage::default() }),
        ended(EndReason::Stop),
    ]);
    let expected = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_01abc","type":"message","role":"assistant","model":"asked-for","content":[],"stop_reason":null,"stop_sequence":null,"stop_details":null,"usage":{"input_tokens":20,"cache_read_input_tokens":5,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Row \"7\"\n"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Blue 🧠"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null,"stop_details":null},"usage":{"input_tokens":20,"cache_read_input_tokens":5,"output_tokens":60,"output_tokens_details":{"thinking_tokens":44}}}

event: message_stop
data: {"type":"message_stop"}

"#;
    assert_eq!(stream, expected);
}

#[test]
fn blocks_are_written_in_sequence_with_new_indexes() {
    let lines = written_lines(&[
        started(),
        start(3, call("a")),
        start(7, call("b")),
        delta(3, Delta::ToolArguments("{\"x\"".into())),
        delta(7, Delta::ToolArguments("{\"y\"".into())),
        start(9, text()),
        delta(9, Delta::Text("late".into())),
        stop(9),
        delta(3, Delta::ToolArguments(":1}".into())),
        stop(3),
        delta(7, Delta::ToolArguments(":2}".into())),
        stop(7),
        ended(EndReason::ToolCalls),
    ]);
    let expected = [
        "0+tool_use",
        "0 input_json: {\"x\"",
        "0 input_json: :1}",
        "0-",
        "1+tool_use",
        "1 input_json: {\"y\"",
        "1 input_json: :2}",
        "1-",
        "2+text",
        "2 text: late",
        "2-",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn a_signature_is_written_once_and_last() {
    let lines = written_lines(&[
        started(),
        start(0, BlockStart::Thinking { text: "a".into(), signature: "first".into() }),
        delta(0, Delta::Signature("second".into())),
        delta(0, Delta::Thinking("b".into())),
        delta(0, Delta::Text("c".into())),
        delta(0, Delta::Signature("third".into())),
        stop(0),
        start(1, thinking()),
        delta(1, Delta::Signature("of nothing".into())),
        stop(1),
        start(2, BlockStart::Redacted { data: "d".into() }),
        stop(2),
        start(3, thinking()),
        delta(3, Delta::Thinking("unsigned".into())),
        stop(3),
        ended(EndReason::Stop),
    ]);
    let expected = [
        "0+thinking",
        "0 thinking: a",
        "0 thinking: b",
        "0 thinking: c",
        "0 signature: third",
        "0-",
        "1+thinking",
        "1 signature: of nothing",
        "1-",
        "2+redacted_thinking",
        "2-",
        "3+thinking",
        "3 thinking: unsigned",
        "3-",
    ];
    assert_eq!(lines, expected);
}

#[test]
fn foreign_parts_leave_no_gap_in_the_indexes() {
    let lines = written_lines(&[
        started(),
        start(0, text()),
        stop(0),
        start(1, BlockStart::Opaque { dialect: "another".into(), name: "web_search".into() }),
        delta(1, Delta::ToolArguments("{}".into())),
        stop(1),
        start(2, call("a")),
        delta(2, Delta::Signature("on a call".into())),
        delta(2, Delta::Text("not of a call".into())),
        delta(2, Delta::ToolArguments("".into())),
        stop(2),
        // Blocks without a start, and one without an end.
        delta(5, Delta::Text("lost".into())),
        stop(5),
        start(6, text()),
        delta(6, Delta::Text("open".into())),
        ended(EndReason::Length),
    ]);
    assert_eq!(lines, ["0+tool_use", "0-", "1+text", "1 text: open", "1-"]);
}

#[test]
fn each_end_reason_has_a_stop_reason() {
    for (reason, called, word) in [
        (EndReason::Stop, false, "end_turn"),
        (EndReason::Stop, true, "tool_use"),
        (EndReason::ToolCalls, true, "tool_use"),
        (EndReason::ToolCalls, false, "end_turn"),
        (EndReason::Length, false, "max_tokens"),
        (EndReason::Length, true, "max_tokens"),
        (EndReason::StopSequence, false, "stop_sequence"),
        (EndReason::Pause, false, "pause_turn"),
        (EndReason::Refusal, false, "refusal"),
        (EndReason::Other("compaction".to_owned()), false, "compaction"),
        (EndReason::Other("LANGUAGE".to_owned()), false, "end_turn"),
    ] {
        let mut sent = vec![started()];
        let mut reply = Reply { reason: Some(reason.clone()), ..Reply::default() };
        if called {
            sent.extend([start(0, call("a")), stop(0)]);
            reply.content.push(Block::ToolCall {
                id: "a".to_owned(),
                name: "f".to_owned(),
                arguments: String::new(),
                signature: None,
            });
        }
        sent.push(ended(reason.clone()));
        let all = events(&streamed(&sent));
        let delta = &all[all.len() - 2];
        assert_eq!(delta["delta"]["stop_reason"], word, "{reason:?}");
        assert_eq!(delta["usage"], json!({"input_tokens": 0, "output_tokens": 0}));
        assert_eq!(whole(&reply)["stop_reason"], word, "{reason:?}");
    }
}

#[test]
fn a_fault_ends_the_stream_with_an_error() {
    let fault = Event::Fault(Fault::new(FaultKind::Overloaded, "busy"));
    let error = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
    let begun = [started(), start(0, text()), delta(0, Delta::Text("a".into()))];
    let cases: [(Vec<Event<'_>>, Value); 3] = [
        (
            vec![fault, ended(EndReason::Failed), ended(EndReason::Stop)],
            error("overloaded_error", "busy"),
        ),
        (
            vec![ended(EndReason::Cut), stop(0)],
            error("api_error", "the provider's reply was cut off"),
        ),
        (vec![ended(EndReason::Failed)], error("api_error", "the provider reported an error")),
    ];
    for (last, error) in cases {
        let all = events(&streamed(&[&begun[..], &last[..]].concat()));
        assert_eq!(all.len(), 4, "{last:?}");
        assert_eq!(all[3], error);
        // Before any content, the error is the whole stream.
        assert_eq!(events(&streamed(&last)), [error]);
    }
}

#[test]
fn keep_alive_is_written_until_the_end() {
    let mut writer = Anthropic.session().reply_writer(&Default::default(), &identity());
    let mut out = Vec::new();
    writer.keep_alive(&mut out);
    assert_eq!(out, PING);
    writer.push(&ended(EndReason::Stop), &mut out);
    let length = out.len();
    writer.keep_alive(&mut out);
    assert_eq!(out.len(), length);
    assert_eq!(events(&String::from_utf8(out).unwrap()).len(), 4);
}

#[test]
fn a_whole_reply_has_the_exact_form_of_the_wire() {
    let call = |arguments: &str| Block::ToolCall {
        id: "toolu_1".to_owned(),
        name: "f".to_owned(),
        arguments: arguments.to_owned(),
        signature: Some("elsewhere".to_owned()),
    };
    let reply = Reply {
        id: "theirs".to_owned(),
        model: "their-model".to_owned(),
        content: vec![
            Block::Thinking { text: String::new(), signature: Some("EqQB".to_owned()) },
            Block::Redacted { data: "d".to_owned() },
            Block::text(""),
            Block::text("Row 7."),
            call("{\"a\":1}"),
            call(""),
            call("{broken"),
        ],
        usage: Usage {
            input: Some(20),
            cache_read: Some(1),
            cache_write: Some(5),
            cache_write_1h: Some(3),
            output: Some(60),
            thinking: Some(44),
        },
        details: EndDetails::default(),
        fault: None,
        reason: Some(EndReason::ToolCalls),
        losses: Vec::new(),
        summary: false,
    };
    let tool =
        |input: Value| json!({"type": "tool_use", "id": "toolu_1", "name": "f", "input": input});
    assert_eq!(
        whole(&reply),
        json!({"id": "msg_01abc", "type": "message", "role": "assistant", "model": "asked-for",
            "content": [
                {"type": "thinking", "thinking": "", "signature": "EqQB"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "Row 7."},
                tool(json!({"a": 1})),
                tool(json!({})),
                tool(json!({"arguments": "{broken"})),
            ],
            "stop_reason": "tool_use", "stop_sequence": null, "stop_details": null,
            "usage": {"input_tokens": 20, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 1,
                "cache_creation": {"ephemeral_5m_input_tokens": 2, "ephemeral_1h_input_tokens": 3},
                "output_tokens": 60, "output_tokens_details": {"thinking_tokens": 44}}})
    );
}

#[test]
fn each_fault_has_a_status_and_a_type() {
    for (kind, status, word) in [
        (FaultKind::Invalid, 400, "invalid_request_error"),
        (FaultKind::Unauthenticated, 401, "authentication_error"),
        (FaultKind::Forbidden, 403, "permission_error"),
        (FaultKind::NotFound, 404, "not_found_error"),
        (FaultKind::Conflict, 409, "conflict_error"),
        (FaultKind::TooLarge, 413, "request_too_large"),
        (FaultKind::RateLimited, 429, "rate_limit_error"),
        (FaultKind::Internal, 500, "api_error"),
        (FaultKind::TimedOut, 504, "timeout_error"),
        (FaultKind::Overloaded, 529, "overloaded_error"),
    ] {
        let (written, body) = Anthropic.write_fault(&Fault::new(kind, "m\""), "");
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(written, status);
        let error = json!({"type": word, "message": "m\""});
        assert_eq!(value, json!({"type": "error", "error": error}));
        // The reader returns the same fault.
        assert_eq!(Anthropic.read_fault(status, &body), Fault::new(kind, "m\""));
    }
}

#[test]
fn an_unreadable_reply_is_a_fault() {
    let open = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\
                \"content_block\":{\"type\":\"text\",\"text\":\"a\"}}\n\n";
    let broken = format!("{open}event: content_block_delta\ndata: {{\"type\":\n\n{open}");
    let (reply, ends) = read_reply([broken.as_bytes()], true);
    assert_eq!((ends, reply.reason, reply.content.len()), (1, Some(EndReason::Failed), 1));
    assert_eq!(reply.fault.unwrap().kind, FaultKind::Unreachable);
    // Unknown lines of a stream are skipped.
    let odd = format!("data: [DONE]\n\n: comment\n\n{open}");
    let (reply, _) = read_reply([odd.as_bytes()], true);
    assert_eq!((reply.reason, reply.fault), (Some(EndReason::Cut), None));

    let mut reader = upstream_reply::ReplyReader::events(100).complete();
    let mut all = Vec::new();
    for piece in format!("data: {}\n\n{open}", "x".repeat(200)).as_bytes().chunks(30) {
        reader.push(piece, |event| all.push(format!("{event:?}")));
    }
    reader.finish(|event| all.push(format!("{event:?}")));
    assert!(matches!(&all[..], [fault, end] if fault.contains("longer") && end.contains("Failed")));

    let mut reader = Anthropic.reply_reader(&target(), false);
    let (mut faults, mut ends) = (0, 0);
    let mut count = |event: Event<'_>| {
        faults += usize::from(matches!(event, Event::Fault(_)));
        ends += usize::from(matches!(event, Event::Ended { .. }));
    };
    let megabyte = vec![b' '; 1 << 20];
    for _ in 0..=MAX_REPLY_BYTES >> 20 {
        ReplyReader::push(&mut *reader, &megabyte, &mut count);
    }
    reader.finish(&mut count);
    assert_eq!((faults, ends), (1, 1));
}
