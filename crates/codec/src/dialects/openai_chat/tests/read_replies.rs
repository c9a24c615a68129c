//! Replies of many servers, as they are read.

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::{EndReason, FaultKind, Usage};

use super::*;

/// Streams with what is folded out of them: the blocks, and why they end.
fn streams() -> Vec<(&'static str, String, Value, EndReason)> {
    let text = |text: &str| json!({"type": "text", "text": text});
    let thinking = |text: &str| json!({"type": "thinking", "text": text});
    let signed =
        |text: &str, mark: &str| json!({"type": "thinking", "text": text, "signature": mark});
    let call = |id: &str, name: &str, arguments: &str| json!({"type": "tool_call", "id": id, "name": name, "arguments": arguments});
    vec![
        (
            "openai",
            deltas(
                &[
                    r#"{"role":"assistant","content":"","refusal":null}"#,
                    r#"{"content":"Hel\u006co"}"#,
                    r#"{"content":" \"é🧠\n"}"#,
                ],
                "stop",
            ),
            json!([text("Hello \"é🧠\n")]),
            EndReason::Stop,
        ),
        (
            "deepseek-v4",
            deltas(
                &[
                    r#"{"role":"assistant","content":null,"reasoning_content":"Let"}"#,
                    r#"{"reasoning_content":" me","content":null,"tool_calls":[]}"#,
                    r#"{"reasoning_content":null,"content":"42"}"#,
                ],
                "stop",
            ),
            json!([thinking("Let me"), text("42")]),
            EndReason::Stop,
        ),
        (
            "vllm",
            deltas(
                &[
                    r#"{"reasoning":"a","content":""}"#,
                    r#"{"reasoning":"b"}"#,
                    r#"{"content":"c"}"#,
                    r#"{"reasoning":"d"}"#,
                ],
                "length",
            ),
            json!([thinking("ab"), text("c"), thinking("d")]),
            EndReason::Length,
        ),
        (
            "vllm",
            deltas(&[r#"{"reasoning":"a","reasoning_content":"a"}"#, r#"{"content":"c"}"#], "stop"),
            json!([thinking("a"), text("c")]),
            EndReason::Stop,
        ),
        // Parallel calls, in turns; ids and names come once.
        (
            "openai",
            deltas(
                &[
                    r#"{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"f","arguments":""}}]}"#,
                    r#"{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}"#,
                    r#"{"tool_calls":[{"index":1,"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]}"#,
                    r#"{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}"#,
                ],
                "tool_calls",
            ),
            json!([call("c1", "f", "{\"a\":1}"), call("c2", "g", "{}")]),
            EndReason::ToolCalls,
        ),
        // No index, and `stop` behind calls; signatures on the calls.
        (
            "google",
            deltas(
                &[
                    r#"{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"sig="}}}]}"#,
                    r#"{"tool_calls":[{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}}]}"#,
                ],
                "stop",
            ),
            json!([
                {"type": "tool_call", "id": "a", "name": "f", "arguments": "{}", "signature": "sig="},
                call("b", "f", "{}")
            ]),
            EndReason::ToolCalls,
        ),
        // Every call has the number 0; arguments as an object; no id at all.
        (
            "llamacpp",
            deltas(
                &[
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":{"x":1}}}]}"#,
                    r#"{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}]}"#,
                ],
                "tool_calls",
            ),
            json!([call("a", "f", "{\"x\":1}"), call("b", "g", "{}")]),
            EndReason::ToolCalls,
        ),
        (
            "sglang",
            deltas(
                &[
                    r#"{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{}"}},{"index":1,"function":{"name":"f"}}]}"#,
                ],
                "stop",
            ),
            json!([call("call_1", "f", "{}"), call("call_2", "f", "")]),
            EndReason::ToolCalls,
        ),
        // The name comes late; the id comes again.
        (
            "vllm",
            deltas(
                &[
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":null,"arguments":"{"}}]}"#,
                    r#"{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"}"}}]}"#,
                ],
                "tool_calls",
            ),
            json!([call("a", "f", "{}")]),
            EndReason::ToolCalls,
        ),
        (
            "openai",
            deltas(
                &[
                    r#"{"function_call":{"name":"f","arguments":""}}"#,
                    r#"{"function_call":{"arguments":"{}"}}"#,
                ],
                "function_call",
            ),
            json!([call("call_1", "f", "{}")]),
            EndReason::ToolCalls,
        ),
        // Mistral: content in chunks.
        (
            "mistral",
            deltas(
                &[
                    r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"closed":false}]}"#,
                    r#"{"content":[{"type":"thinking","thinking":[{"type":"text","text":"c"}],"signature":"s","closed":true},{"type":"text","text":"x"}]}"#,
                    r#"{"content":"y"}"#,
                ],
                "stop",
            ),
            json!([signed("abc", "s"), text("xy")]),
            EndReason::Stop,
        ),
        // OpenRouter: pieces with numbers, signatures, data.
        (
            "openrouter",
            deltas(
                &[
                    r#"{"content":"","reasoning":"Che","reasoning_details":[{"type":"reasoning.text","text":"Che","format":"anthropic-claude-v1","index":0}]}"#,
                    r#"{"reasoning":"ck","reasoning_details":[{"type":"reasoning.text","text":"ck","format":"anthropic-claude-v1","index":0}]}"#,
                    r#"{"reasoning_details":[{"type":"reasoning.text","signature":"EqQB","format":"anthropic-claude-v1","index":0}]}"#,
                    r#"{"reasoning_details":[{"type":"reasoning.encrypted","data":"gAAA","id":"rs_1","format":"openai-responses-v1","index":1}]}"#,
                    r#"{"content":"done"}"#,
                ],
                "stop",
            ),
            json!([
                signed("Check", "EqQB"),
                {"type": "redacted", "data": r#"{"signature":"gAAA","format":"openai-responses-v1","id":"rs_1"}"#},
                text("done")
            ]),
            EndReason::Stop,
        ),
        (
            "openrouter",
            deltas(
                &[
                    r#"{"reasoning":"s","reasoning_details":[{"type":"reasoning.summary","summary":"s","id":"rs","format":"openai-responses-v1","index":0}]}"#,
                ],
                "stop",
            ),
            json!([signed(
                "s",
                r#"{"type":"reasoning.summary","format":"openai-responses-v1","id":"rs"}"#
            )]),
            EndReason::Stop,
        ),
        // Signatures where nobody wants a detail_meta; two blocks that follow each other.
        (
            "openai",
            deltas(
                &[
                    r#"{"reasoning_details":[{"type":"reasoning.text","text":"a","signature":"1","index":0},{"type":"reasoning.text","text":"b","index":1}]}"#,
                    r#"{"reasoning_details":[{"type":"reasoning.text","signature":"2","index":1}]}"#,
                    r#"{"reasoning_details":[{"type":"reasoning.text","signature":"3","index":2}]}"#,
                ],
                "stop",
            ),
            json!([signed("a", "1"), signed("b", "2"), signed("", "3")]),
            EndReason::Stop,
        ),
        // LiteLLM: Anthropic's blocks.
        (
            "litellm",
            deltas(
                &[
                    r#"{"reasoning_content":"a","thinking_blocks":[{"type":"thinking","thinking":"a","signature":null}]}"#,
                    r#"{"reasoning_content":"","thinking_blocks":[{"type":"thinking","thinking":"","signature":"s"}]}"#,
                    r#"{"thinking_blocks":[{"type":"redacted_thinking","data":"d"}]}"#,
                    r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"f","arguments":"{}"},"provider_specific_fields":{"thought_signature":"t"}}]}"#,
                ],
                "tool_calls",
            ),
            json!([
                signed("a", "s"),
                {"type": "redacted", "data": "d"},
                {"type": "tool_call", "id": "c", "name": "f", "arguments": "{}", "signature": "t"}
            ]),
            EndReason::ToolCalls,
        ),
        // The same in both lists, and a signature that comes alone.
        (
            "litellm",
            deltas(
                &[
                    r#"{"reasoning_details":[{"type":"reasoning.text","text":"a","index":0}],"thinking_blocks":[{"type":"thinking","thinking":"a"}]}"#,
                    r#"{"reasoning_details":[{"type":"reasoning.text","signature":"s","index":0}],"thinking_blocks":[{"type":"thinking","signature":"s"}]}"#,
                ],
                "stop",
            ),
            json!([signed("a", "s")]),
            EndReason::Stop,
        ),
        (
            "openai",
            deltas(&[r#"{"refusal":"I can"}"#, r#"{"refusal":"not"}"#], "stop"),
            json!([{"type": "refusal", "text": "I cannot"}]),
            EndReason::Refusal,
        ),
        (
            "openai",
            deltas(&[r#"{"content":"a"}"#], "content_filter"),
            json!([text("a")]),
            EndReason::Refusal,
        ),
        (
            "mistral",
            deltas(&[r#"{"content":"a"}"#], "model_length"),
            json!([text("a")]),
            EndReason::Length,
        ),
        (
            "sglang",
            deltas(&[r#"{"content":"a"}"#], "abort"),
            json!([text("a")]),
            EndReason::Other("abort".to_owned()),
        ),
        (
            "vllm",
            deltas(&[r#"{"content":"a"}"#], "tool_calls"),
            json!([text("a")]),
            EndReason::Stop,
        ),
    ]
}

#[test]
fn streams_of_many_servers_are_read() {
    for (variant, stream, content, reason) in streams() {
        let reply = read_reply(variant, true, stream.as_bytes());
        assert_eq!(serde_json::to_value(&reply.content).unwrap(), content, "{stream}");
        assert_eq!(reply.reason, Some(reason), "{stream}");
        assert_eq!((reply.id.as_str(), reply.model.as_str()), ("c1", "x"));
        let usage = Usage { input: Some(1), output: Some(2), ..Usage::default() };
        assert_eq!((reply.usage, reply.fault), (usage, None), "{stream}");
    }
}

#[test]
fn any_split_gives_the_same_events() {
    for (variant, stream, ..) in streams() {
        let bytes = stream.as_bytes();
        let (expected, _) = read_pieces(variant, true, &[bytes]);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(read_pieces(variant, true, &single).0, expected, "{stream}");
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            let (found, _) = read_pieces(variant, true, &[first, second]);
            assert_eq!(found, expected, "{stream} at {cut}");
        }
    }
}

/// Chunks that repeat the one before are read by what differs; a space makes them differ.
#[test]
fn a_chunk_reads_the_same_whatever_stands_before_it() {
    for (variant, stream, ..) in streams() {
        let mut odd = false;
        let spaced: String = stream
            .split_inclusive("\n\n")
            .map(|event| {
                odd = !odd;
                event.replacen('{', if odd { "{ " } else { "{" }, 1)
            })
            .collect();
        let expected = read_pieces(variant, true, &[spaced.as_bytes()]).0;
        assert_eq!(read_pieces(variant, true, &[stream.as_bytes()]).0, expected);
    }
    // The same head and tail, and in between more than a delta.
    let chunk = |delta: &str| format!(r#"{{"choices":[{{"index":0,"delta":{delta}}}]}}"#);
    let sly = chunk(r#"{"content":"b"},"finish_reason":"length","x":{}"#);
    let bytes = super::stream(&[&chunk(r#"{"content":"a"}"#), &sly, "[DONE]"]);
    let reply = read_reply("openai", true, bytes.as_bytes());
    assert_eq!(reply.reason, Some(EndReason::Length));
}

#[test]
fn every_cut_ends_in_exactly_one_end() {
    for (variant, stream, ..) in streams() {
        let finish = stream.find(r#""finish_reason":""#).unwrap();
        for cut in 0..stream.len() {
            let (events, reply) = read_pieces(variant, true, &[&stream.as_bytes()[..cut]]);
            let ends = events.iter().filter(|event| event.contains(r#""type":"ended""#));
            assert_eq!(ends.count(), 1, "{stream} at {cut}");
            assert!(events.last().unwrap().contains(r#""type":"ended""#));
            if cut < finish {
                assert_eq!(reply.reason, Some(EndReason::Cut), "{stream} at {cut}");
            }
        }
    }
}

#[test]
fn a_stream_may_lack_its_last_line_or_its_reason() {
    let check = |stream: &str, reason: EndReason| {
        assert_eq!(read_reply("openai", true, stream.as_bytes()).reason, Some(reason), "{stream}");
    };
    let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    let call =
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f"}}]}}]}"#;
    check(
        &stream(&[text, r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#]),
        EndReason::Stop,
    );
    check(&stream(&[text, "[DONE]"]), EndReason::Stop);
    check(&stream(&[call, "[DONE]"]), EndReason::ToolCalls);
    check(&stream(&[text]), EndReason::Cut);
    let azure = r#"{"choices":[],"id":"","model":"","prompt_filter_results":[{}]}"#;
    let bytes = stream(&[azure, r#"{"id":"c","model":"x","choices":[{"delta":{"content":"a"}}]}"#]);
    assert_eq!(read_reply("openai", true, bytes.as_bytes()).id, "c");
    check("", EndReason::Cut);
    check(": OPENROUTER PROCESSING\n\n", EndReason::Cut);
}

#[test]
fn errors_inside_a_stream_end_it() {
    let text = r#"{"choices":[{"delta":{"content":"a"}}]}"#;
    let check = |chunk: &str, kind: FaultKind, message: &str| {
        let bytes = stream(&[text, chunk, text, "[DONE]"]);
        let (events, reply) = read_pieces("openai", true, &[bytes.as_bytes()]);
        let fault = reply.fault.unwrap();
        assert_eq!((fault.kind, fault.message.as_str()), (kind, message), "{chunk}");
        assert_eq!(reply.reason, Some(EndReason::Failed));
        assert_eq!(
            serde_json::to_value(&reply.content).unwrap(),
            json!([{"type": "text", "text": "a"}])
        );
        assert!(events.last().unwrap().contains("ended"));
    };
    check(
        r#"{"error":{"message":"oops","type":"server_error","param":null,"code":null}}"#,
        FaultKind::Internal,
        "oops",
    );
    check(r#"{"error":{"message":"slow","code":429}}"#, FaultKind::RateLimited, "slow");
    check(r#"{"error":"gone"}"#, FaultKind::Internal, "gone");
    check(
        r#"{"object":"error","message":"bad","type":"BadRequestError","code":400}"#,
        FaultKind::Invalid,
        "bad",
    );
    check(
        r#"{"choices":[{"delta":{"content":""},"finish_reason":"error","error":{"code":502,"message":"down"}}]}"#,
        FaultKind::Unreachable,
        "down",
    );
    check(
        r#"{"choices":[{"delta":{},"finish_reason":"error"}]}"#,
        FaultKind::Internal,
        "the provider reported an error",
    );
    check(
        r#"{"choices":[{"delta":{},"finish_reason":"insufficient_system_resource"}]}"#,
        FaultKind::Overloaded,
        "the provider ran out of resources",
    );
    check(
        r#"{"choices":[{"#,
        FaultKind::Unreachable,
        "the provider sent an event that is not JSON",
    );
}

#[test]
fn an_error_that_says_nothing_is_none() {
    for error in ["null", "false", "\"\""] {
        let bytes = stream(&[&format!(
            r#"{{"error":{error},"choices":[{{"delta":{{"content":"a"}},"finish_reason":"stop"}}]}}"#
        )]);
        assert_eq!(read_reply("openai", true, bytes.as_bytes()).reason, Some(EndReason::Stop));
    }
}

#[test]
fn whole_replies_are_read_as_streams_are() {
    let check = |variant: &str, message: Value, finish: &str, content: Value, reason: EndReason| {
        let body = json!({"id": "c1", "object": "chat.completion", "created": 1, "model": "x",
            "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 80, "total_tokens": 92}});
        let bytes = body.to_string();
        let reply = read_reply(variant, false, bytes.as_bytes());
        assert_eq!(serde_json::to_value(&reply.content).unwrap(), content, "{body}");
        assert_eq!(reply.reason, Some(reason), "{body}");
        assert_eq!(reply.usage.output, Some(80));
        for cut in 0..bytes.len() {
            let (first, second) = bytes.as_bytes().split_at(cut);
            assert_eq!(read_pieces(variant, false, &[first, second]).1, reply);
            let cut = read_reply(variant, false, first);
            assert_eq!(cut.reason, Some(EndReason::Cut));
        }
    };
    check(
        "openai",
        json!({"role": "assistant", "content": "42", "refusal": null, "annotations": []}),
        "stop",
        json!([{"type": "text", "text": "42"}]),
        EndReason::Stop,
    );
    check(
        "openai",
        json!({"role": "assistant", "content": null, "refusal": "no"}),
        "stop",
        json!([{"type": "refusal", "text": "no"}]),
        EndReason::Refusal,
    );
    check(
        "glm",
        json!({"content": "", "reasoning_content": "hm", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}, {"id": "b", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
        "tool_calls",
        json!([{"type": "thinking", "text": "hm"}, {"type": "tool_call", "id": "a", "name": "f", "arguments": "{}"}, {"type": "tool_call", "id": "b", "name": "f", "arguments": "{}"}]),
        EndReason::ToolCalls,
    );
    // Two calls under one id are two calls.
    check(
        "vllm",
        json!({"content": null, "tool_calls": [{"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}, {"id": "call_0", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}),
        "tool_calls",
        json!([{"type": "tool_call", "id": "call_0", "name": "f", "arguments": "{}"}, {"type": "tool_call", "id": "call_0", "name": "f", "arguments": "{}"}]),
        EndReason::ToolCalls,
    );
    check(
        "mistral",
        json!({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, {"type": "thinking", "thinking": "b"}, {"type": "text", "text": "c"}]}),
        "stop",
        json!([{"type": "thinking", "text": "a"}, {"type": "thinking", "text": "b"}, {"type": "text", "text": "c"}]),
        EndReason::Stop,
    );
}

#[test]
fn what_is_too_long_is_a_fault() {
    let mut reader = OpenAiChat.reply_reader(&Target { model: "m", variant: "" }, true);
    let mut events = Vec::new();
    let mut take = |event: Event<'_>| events.push(serde_json::to_string(&event).unwrap());
    reader.push(b"data: {\"choices\":[{\"delta\":{\"content\":\"", &mut take);
    let piece = vec![b'x'; 1 << 20];
    for _ in 0..17 {
        reader.push(&piece, &mut take);
    }
    reader.finish(&mut take);
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events[0].contains("too long") && events[1].contains("failed"));
    let mut reader = OpenAiChat.reply_reader(&Target { model: "m", variant: "" }, false);
    let mut events = Vec::new();
    for _ in 0..65 {
        reader.push(&piece, &mut |event| {
            events.push(serde_json::to_string(&event).unwrap());
        });
    }
    reader.finish(&mut |event| events.push(serde_json::to_string(&event).unwrap()));
    assert_eq!(events.len(), 2, "{events:?}");
}

#[test]
fn more_calls_than_any_model_makes_are_a_fault() {
    let calls: Vec<Value> = (0..5000)
        .map(|number| json!({"index": number, "id": format!("c{number}"), "function": {"name": "f", "arguments": "{}"}}))
        .collect();
    let body = json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": "stop"}]});
    let reply = read_reply("openai", false, body.to_string().as_bytes());
    assert_eq!(reply.reason, Some(EndReason::Failed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_end_in_exactly_one_end(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        words in proptest::collection::vec(prop_oneof![
            Just("data: "), Just("{\"choices\":[{\"delta\":{"), Just("\"content\":"), Just("\"reasoning_details\":["),
            Just("\"tool_calls\":[{"), Just("\"index\":0"), Just("null"), Just("\"x\""), Just("}"), Just("]"), Just(","),
            Just("\n\n"), Just("[DONE]"), Just("{"), Just("["), Just("\"function\":{\"name\":\"f\"}"), Just("\"type\":\"thinking\""),
            Just("\"thinking\":["), Just("\"usage\":{"), Just("\"error\":"), Just("\"finish_reason\":\"stop\""),
        ], 0..40),
        streamed in any::<bool>(),
    ) {
        for bytes in [bytes, words.concat().into_bytes()] {
            let (events, _) = read_pieces("openrouter", streamed, &[&bytes]);
            prop_assert_eq!(events.iter().filter(|event| event.contains(r#""type":"ended""#)).count(), 1);
        }
    }
}
