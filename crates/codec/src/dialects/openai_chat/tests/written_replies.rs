//! Replies, as clients get them.

use std::borrow::Cow;

use serde_json::json;
use throughline_canonical::{BlockStart, Delta, EndReason, Fault, FaultKind, Usage};

use super::*;

fn request(members: &Value) -> Request {
    let mut body =
        json!({"model": "asked \"for\"", "messages": [{"role": "user", "content": "hi"}]});
    for (name, value) in members.as_object().unwrap() {
        body[name] = value.clone();
    }
    read(&body).value
}

fn cow(text: &str) -> Cow<'_, str> {
    Cow::Borrowed(text)
}

fn start(index: u32, block: BlockStart<'_>) -> Event<'_> {
    Event::BlockStarted { index, block }
}

fn delta(index: u32, delta: Delta<'_>) -> Event<'_> {
    Event::BlockDelta { index, delta }
}

fn end(index: u32) -> Event<'static> {
    Event::BlockEnded { index }
}

fn ended(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

/// A reply with all there is.
fn full() -> Vec<Event<'static>> {
    vec![
        Event::MessageStarted { id: cow("up"), model: cow("other") },
        start(0, BlockStart::Thinking { text: cow(""), signature: cow("") }),
        delta(0, Delta::Thinking(cow("a\"\n"))),
        delta(0, Delta::Thinking(cow("b"))),
        delta(0, Delta::Signature(cow("sig"))),
        end(0),
        start(1, BlockStart::Redacted { data: cow("enc") }),
        end(1),
        start(2, BlockStart::Text { text: cow("") }),
        delta(2, Delta::Text(cow("é"))),
        end(2),
        start(3, BlockStart::ToolCall { id: cow("c1"), name: cow("f") }),
        delta(3, Delta::ToolArguments(cow("{\"x\":"))),
        start(4, BlockStart::ToolCall { id: cow("c2"), name: cow("g") }),
        delta(3, Delta::ToolArguments(cow("1}"))),
        delta(3, Delta::Signature(cow("thought"))),
        end(3),
        end(4),
        Event::Usage(Usage {
            input: Some(3),
            cache_read: Some(2),
            cache_write: None,
            output: Some(7),
            thinking: Some(4),
        }),
        ended(EndReason::Stop),
    ]
}

/// The chunks of a stream, which must be well formed.
fn chunks(stream: &str) -> Vec<Value> {
    let mut lines: Vec<&str> = stream.split("\n\n").collect();
    assert_eq!(lines.pop(), Some(""));
    assert_eq!(lines.pop(), Some("data: [DONE]"));
    lines
        .iter()
        .map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap())
        .collect()
}

fn said(chunk: &Value) -> Value {
    chunk["choices"][0]["delta"].clone()
}

/// Covers: S2-2, S2-3, S2-4, S2-5, S2-9, S2-10, S2-12, S2-41, S2-42, S2-45
#[test]
fn a_stream_has_every_part_in_its_place() {
    let stream = write_reply(
        &request(&json!({"stream": true, "stream_options": {"include_usage": true}})),
        &full(),
    );
    let chunks = chunks(&stream);
    for chunk in &chunks {
        assert_eq!(chunk["id"], "chatcmpl-1");
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["created"], 1);
        assert_eq!(chunk["model"], "asked \"for\"");
        assert!(chunk.get("usage").is_some());
    }
    let (last, rest) = chunks.split_last().unwrap();
    assert_eq!(last["choices"], json!([]));
    assert_eq!(
        last["usage"],
        json!({"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 4}})
    );
    let (finish, rest) = rest.split_last().unwrap();
    assert_eq!(finish["choices"][0]["finish_reason"], "tool_calls");
    assert_eq!(said(finish), json!({}));
    let notice = format!("\n\n{}", crate::dialects::shared::hidden_reasoning::NOTICE);
    let deltas: Vec<Value> = rest.iter().map(said).collect();
    assert_eq!(
        deltas,
        [
            json!({"role": "assistant", "reasoning": "a\"\n", "reasoning_content": "a\"\n", "reasoning_details": [{"type": "reasoning.text", "index": 0, "format": "unknown", "text": "a\"\n"}]}),
            json!({"reasoning": "b", "reasoning_content": "b", "reasoning_details": [{"type": "reasoning.text", "index": 0, "text": "b"}]}),
            json!({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "sig"}]}),
            json!({"reasoning": notice, "reasoning_content": notice, "reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "format": "unknown", "data": "enc"}]}),
            json!({"content": "é"}),
            json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "f", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"x\":"}}]}),
            json!({"tool_calls": [{"index": 1, "id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": "1}"}}]}),
            json!({"tool_calls": [{"index": 0, "function": {"arguments": ""}, "extra_content": {"google": {"thought_signature": "thought"}}}]}),
            json!({"tool_calls": [{"index": 1, "function": {"arguments": "{}"}}]}),
        ]
    );
    for chunk in rest {
        assert_eq!(chunk["choices"][0]["finish_reason"], Value::Null);
    }
}

#[test]
fn a_signature_is_told_once() {
    let thinking = BlockStart::Thinking { text: cow(""), signature: cow("first") };
    let events = [
        start(0, thinking),
        delta(0, Delta::Signature(cow("second"))),
        delta(0, Delta::Signature(cow("third"))),
        delta(0, Delta::Thinking(cow("a"))),
        end(0),
        ended(EndReason::Stop),
    ];
    let stream = write_reply(&request(&json!({})), &events);
    assert_eq!(stream.matches("signature").count(), 1);
    let reply = read_reply("openai", true, stream.as_bytes());
    assert_eq!(
        serde_json::to_value(&reply.content).unwrap(),
        json!([{"type": "thinking", "text": "a", "signature": "third"}])
    );
}

#[test]
fn counts_come_only_to_those_who_ask() {
    let stream = write_reply(&request(&json!({"stream": true})), &full());
    assert!(!stream.contains("usage"));
    assert!(chunks(&stream).iter().all(|chunk| chunk["choices"][0].is_object()));
}

#[test]
fn reasoning_stands_where_the_gateway_says() {
    let mut asked = request(&json!({}));
    let extra = asked.extra.entry("openai_chat".to_owned()).or_default();
    extra.insert("reasoning_fields".to_owned(), json!(["reasoning"]));
    let stream = write_reply(&asked, &full());
    assert!(
        !stream.contains("reasoning_content")
            && stream.contains("\"reasoning\":")
            && stream.contains("reasoning_details")
    );
    let whole = write_whole(&asked, &full());
    assert_eq!(whole["choices"][0]["message"].get("reasoning_content"), None);
}

#[test]
fn who_wants_no_reasoning_gets_none() {
    let asked = request(&json!({"reasoning": {"exclude": true}}));
    assert!(!write_reply(&asked, &full()).contains("reasoning"));
    let whole = write_whole(&asked, &full());
    assert_eq!(whole["choices"][0]["message"].get("reasoning"), None);
    assert_eq!(whole["extensions"]["reasoning_chunks"], json!([]));
}

/// Covers: S2-23, S2-24, S2-25, S2-28
#[test]
fn a_whole_reply_has_every_part_in_its_place() {
    let whole = write_whole(&request(&json!({})), &full());
    let notice = crate::dialects::shared::hidden_reasoning::NOTICE;
    let reasoning = format!("a\"\nb\n\n{notice}");
    assert_eq!(
        whole,
        json!({
            "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "asked \"for\"",
            "choices": [{"index": 0, "message": {
                "role": "assistant", "content": "é", "refusal": null, "reasoning": reasoning, "reasoning_content": reasoning,
                "reasoning_details": [
                    {"type": "reasoning.text", "index": 0, "format": "unknown", "text": "a\"\nb", "signature": "sig"},
                    {"type": "reasoning.encrypted", "index": 1, "format": "unknown", "data": "enc"},
                ],
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}, "extra_content": {"google": {"thought_signature": "thought"}}},
                    {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
                ],
            }, "logprobs": null, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12, "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 4}},
            "extensions": {
                "reasoning_chunks": ["a\"\nb"],
                "tool_call_chunks": [
                    {"type": "start", "tool_call_id": "c1", "tool_name": "f"},
                    {"type": "args", "tool_call_id": "c1", "delta": "{\"x\":1}"},
                    {"type": "end", "tool_call_id": "c1"},
                    {"type": "start", "tool_call_id": "c2", "tool_name": "g"},
                    {"type": "args", "tool_call_id": "c2", "delta": "{}"},
                    {"type": "end", "tool_call_id": "c2"},
                ],
            },
        })
    );
    let plain = write_whole(
        &request(&json!({})),
        &[start(0, BlockStart::Text { text: cow("x") }), ended(EndReason::Stop)],
    );
    assert_eq!(plain.get("extensions"), None);
    let nothing = write_whole(&request(&json!({})), &[ended(EndReason::Length)]);
    assert_eq!(nothing["choices"][0]["message"]["content"], "");
    assert_eq!(nothing["choices"][0]["finish_reason"], "length");
}

#[test]
fn old_clients_get_the_old_form() {
    let asked = request(&json!({"functions": [{"name": "f"}]}));
    let call = [
        start(0, BlockStart::ToolCall { id: cow("c"), name: cow("f") }),
        delta(0, Delta::ToolArguments(cow("{}"))),
        end(0),
        ended(EndReason::ToolCalls),
    ];
    let deltas: Vec<Value> = chunks(&write_reply(&asked, &call)).iter().map(said).collect();
    assert_eq!(
        deltas,
        [
            json!({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
            json!({"function_call": {"arguments": "{}"}}),
            json!({}),
        ]
    );
    let whole = write_whole(&asked, &call);
    assert_eq!(
        whole["choices"][0]["message"]["function_call"],
        json!({"name": "f", "arguments": "{}"})
    );
    assert_eq!(whole["choices"][0]["finish_reason"], "function_call");
}

/// Covers: S2-43
#[test]
fn every_end_has_its_word() {
    for (reason, word) in [
        (EndReason::Stop, "stop"),
        (EndReason::StopSequence, "stop"),
        (EndReason::Pause, "stop"),
        (EndReason::Other("x".to_owned()), "stop"),
        (EndReason::Length, "length"),
        (EndReason::Refusal, "content_filter"),
    ] {
        let stream = write_reply(
            &request(&json!({})),
            &[ended(reason.clone()), ended(reason), full().remove(2)],
        );
        let chunks = chunks(&stream);
        assert_eq!(chunks.len(), 1);
        assert_eq!(
            chunks[0]["choices"],
            json!([{"index": 0, "delta": {"role": "assistant"}, "logprobs": null, "finish_reason": word}])
        );
    }
}

/// Covers: S2-29
#[test]
fn a_call_that_cannot_be_read_ends_the_stream_with_an_error() {
    let fault = Fault::new(FaultKind::ToolCallUnreadable, "tool call parsing failed");
    let events = [
        start(0, BlockStart::Text { text: cow("x") }),
        Event::Fault(fault),
        ended(EndReason::Failed),
    ];
    let chunks = chunks(&write_reply(&request(&json!({})), &events));
    assert_eq!(chunks.len(), 2);
    assert_eq!(
        chunks[1]["choices"],
        json!([{"index": 0, "delta": {}, "logprobs": null, "finish_reason": "error"}])
    );
    assert_eq!(chunks[1]["error"]["type"], "tool_call_parse_error");
    assert_eq!(chunks[1]["error"]["message"], "tool call parsing failed");
}

#[test]
fn a_fault_or_a_cut_is_never_a_plain_end() {
    let text = || start(0, BlockStart::Text { text: cow("x") });
    let fault = Event::Fault(Fault::new(FaultKind::Overloaded, "busy"));
    for (events, message, code) in [
        (vec![text(), fault, ended(EndReason::Failed)], "busy", "overloaded"),
        (
            vec![text(), ended(EndReason::Cut)],
            "the provider's reply ended before it was complete",
            "upstream_unreachable",
        ),
        (
            vec![text(), ended(EndReason::Failed)],
            "the provider reported an error",
            "upstream_unreachable",
        ),
    ] {
        let chunks = chunks(&write_reply(&request(&json!({})), &events));
        assert_eq!(chunks.len(), 2);
        assert_eq!(
            chunks[1],
            json!({"error": {"message": message, "type": "server_error", "param": null, "code": code}})
        );
    }
}

#[test]
fn signs_of_life_are_comments() {
    let mut writer = OpenAiChat.reply_writer(&request(&json!({})), &identity());
    let mut out = Vec::new();
    writer.keep_alive(&mut out);
    assert!(out.starts_with(b":") && out.ends_with(b"\n\n"));
    out.clear();
    writer.push(&ended(EndReason::Stop), &mut out);
    let length = out.len();
    writer.keep_alive(&mut out);
    assert_eq!(out.len(), length);
}
