//! What providers answer, as canonical events.

use proptest::prelude::*;
use serde_json::json;
use throughline_canonical::{Block, EndReason, FaultKind, Usage};

use super::*;
use crate::dialects::shared::limits::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};

fn candidate(parts: impl Into<Value>) -> Value {
    let parts = parts.into();
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "index": 0}]})
}

fn last(parts: impl Into<Value>, reason: &str) -> Value {
    let parts = parts.into();
    json!({"candidates": [{"finishReason": reason, "content": {"parts": parts, "role": "model"}}]})
}

/// The reply of a stream, which is the same in all its framings and splits.
fn reply(pieces: &[Value]) -> Reply {
    reply_of(pieces, "")
}

fn reply_of(pieces: &[Value], variant: &str) -> Reply {
    let stream = stream(pieces);
    let (lines, reply) = events(true, variant, &[stream.as_bytes()]);
    let ends = lines.iter().filter(|line| line.contains(r#""type":"ended""#)).count();
    assert_eq!(ends, 1, "{stream}");
    let crlf = stream.replace('\n', "\r\n");
    let list = format!("{:#}", Value::from(pieces.to_vec()));
    for framed in [&stream, &crlf, &list] {
        let bytes = framed.as_bytes();
        let compare = |pieces: &[&[u8]]| {
            let (other, folded) = events(true, variant, pieces);
            if framed == &list {
                // A list spells a call's arguments with its own white space.
                assert_eq!(tight(folded), tight(reply.clone()), "{framed}");
            } else {
                assert_eq!(other, lines, "{framed}");
            }
        };
        compare(&[bytes]);
        compare(&bytes.chunks(1).collect::<Vec<_>>());
        for at in 0..bytes.len() {
            let (one, two) = bytes.split_at(at);
            compare(&[one, two]);
        }
    }
    // Wherever it is cut, there is one end.
    for at in 0..stream.len() {
        let (lines, _) = events(true, variant, &[&stream.as_bytes()[..at]]);
        let ends = lines.iter().filter(|line| line.contains(r#""type":"ended""#)).count();
        assert_eq!((ends, lines.last().map(|line| line.contains("ended"))), (1, Some(true)));
    }
    reply
}

fn tight(mut reply: Reply) -> Reply {
    for block in &mut reply.content {
        if let Block::ToolCall { arguments, .. } = block {
            *arguments = serde_json::from_str::<Value>(arguments).unwrap().to_string();
        }
    }
    reply
}

fn text(text: &str, signature: Option<&str>) -> Block {
    Block::Text {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        citations: Vec::new(),
    }
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

fn call(id: &str, name: &str, arguments: &str, signature: Option<&str>) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        signature: signature.map(str::to_owned),
    }
}

/// Covers: S0-11, S0-12, S0-13, S4-19
#[test]
fn thoughts_text_and_calls_stay_apart_and_in_order() {
    let mut first = candidate(json!([{"text": "I need ", "thought": true}]));
    first["responseId"] = "r9".into();
    first["modelVersion"] = "gemini-3.8-flash".into();
    first["usageMetadata"] = json!({"promptTokenCount": 31, "totalTokenCount": 31});
    let mut end = last(json!([{"text": "", "thoughtSignature": "t=="}]), "STOP");
    end["usageMetadata"] = json!({"promptTokenCount": 31, "cachedContentTokenCount": "8", "candidatesTokenCount": 9,
        "thoughtsTokenCount": 52, "toolUsePromptTokenCount": 2, "totalTokenCount": 94});
    let reply = reply(&[
        first,
        candidate(json!([{"text": "the tool.", "thought": true}, {"text": "Let "}])),
        candidate(json!([{"text": "me \"see\"\n"}])),
        candidate(json!([
            {"functionCall": {"id": "fc1", "name": "weather", "args": {"city": "Oslo"}}, "thoughtSignature": "CiQ+/w=="},
            {"functionCall": {"name": "time"}}])),
        candidate(json!([{"text": "more"}])),
        end,
    ]);
    assert_eq!((reply.id.as_str(), reply.model.as_str()), ("r9", "gemini-3.8-flash"));
    assert_eq!(
        reply.content,
        [
            thinking("I need the tool.", None),
            text("Let me \"see\"\n", None),
            call("fc1", "weather", r#"{"city":"Oslo"}"#, Some("CiQ+/w==")),
            call("call_1", "time", "{}", None),
            text("more", None),
            text("", Some("t==")),
        ]
    );
    assert_eq!(
        reply.usage,
        Usage {
            input: Some(25),
            cache_read: Some(8),
            cache_write: None,
            output: Some(61),
            thinking: Some(52),
        }
    );
    assert_eq!(reply.reason, Some(EndReason::ToolCalls));
}

/// Covers: S0-14
#[test]
fn a_signature_is_found_wherever_it_is() {
    let beside = |mut piece: Value| {
        piece["candidates"][0]["thoughtSignature"] = "s".into();
        piece
    };
    for (parts, expected) in [
        (
            json!([{"text": "a", "thought": true, "thoughtSignature": "s"}]),
            vec![thinking("a", Some("s"))],
        ),
        (json!([{"text": "a", "thoughtSignature": "s"}]), vec![text("a", Some("s"))]),
        (
            json!([{"text": "a"}, {"thoughtSignature": "s"}]),
            vec![text("a", None), text("", Some("s"))],
        ),
        (
            json!([{"text": "a", "thought": true}, {"text": "", "thought": true, "thought_signature": "s"}]),
            vec![thinking("a", Some("s"))],
        ),
        (
            json!([{"text": "a"}, {"text": "b", "thoughtSignature": "s"}]),
            vec![text("a", None), text("b", Some("s"))],
        ),
    ] {
        assert_eq!(reply(&[last(parts.clone(), "STOP")]).content, expected, "{parts}");
    }
    let thought = reply(&[
        candidate(json!([{"text": "a", "thought": true}])),
        beside(last(json!([]), "STOP")),
    ]);
    assert_eq!(thought.content, [thinking("a", Some("s"))]);
    let said = reply(&[candidate(json!([{"text": "a"}])), beside(last(json!([]), "STOP"))]);
    assert_eq!(said.content, [text("a", None), text("", Some("s"))]);
}

#[test]
fn every_finish_reason_has_its_meaning() {
    for (word, reason) in [
        ("STOP", EndReason::Stop),
        ("MAX_TOKENS", EndReason::Length),
        ("CONTINUATION", EndReason::Length),
        ("SAFETY", EndReason::Refusal),
        ("RECITATION", EndReason::Refusal),
        ("BLOCKLIST", EndReason::Refusal),
        ("PROHIBITED_CONTENT", EndReason::Refusal),
        ("SPII", EndReason::Refusal),
        ("IMAGE_SAFETY", EndReason::Refusal),
        ("LANGUAGE", EndReason::Other("LANGUAGE".to_owned())),
        ("OTHER", EndReason::Other("OTHER".to_owned())),
        ("TOO_MANY_TOOL_CALLS", EndReason::Other("TOO_MANY_TOOL_CALLS".to_owned())),
        ("BRAND_NEW", EndReason::Other("BRAND_NEW".to_owned())),
        ("FINISH_REASON_UNSPECIFIED", EndReason::Cut),
    ] {
        let reply = reply(&[
            candidate(json!([{"text": "a"}])),
            json!({"candidates": [{"content": {}, "finishReason": word}]}),
        ]);
        assert_eq!(reply.reason, Some(reason), "{word}");
    }
    for (word, kind) in [
        ("MALFORMED_FUNCTION_CALL", FaultKind::ToolCallUnreadable),
        ("UNEXPECTED_TOOL_CALL", FaultKind::ToolCallUnreadable),
        ("MALFORMED_RESPONSE", FaultKind::Unreachable),
        ("MISSING_THOUGHT_SIGNATURE", FaultKind::Invalid),
    ] {
        let reply =
            reply(&[json!({"candidates": [{"finishReason": word, "finishMessage": "oh"}]})]);
        assert_eq!(reply.fault, Some(Fault::new(kind, "oh")));
        assert_eq!(reply.reason, Some(EndReason::Failed));
    }
    // A call is not the end of a reply that was too long.
    let long = reply(&[last(json!([{"functionCall": {"name": "f"}}]), "MAX_TOKENS")]);
    assert_eq!(long.reason, Some(EndReason::Length));
    // Some say the reason with every piece.
    let often =
        reply(&[last(json!([{"text": "a"}]), "STOP"), last(json!([{"text": "b"}]), "STOP")]);
    assert_eq!(often.content, [text("ab", None)]);
}

#[test]
fn a_blocked_prompt_is_a_refusal() {
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 4}});
    let streamed = reply(std::slice::from_ref(&blocked));
    let (_, whole) = events(false, "", &[blocked.to_string().as_bytes()]);
    for reply in [streamed, whole] {
        assert_eq!(reply.reason, Some(EndReason::Refusal));
        assert_eq!(reply.usage.input, Some(4));
        assert_eq!(reply.content, []);
    }
}

#[test]
fn an_error_ends_a_reply_in_every_form() {
    let error = json!({"error": {"code": 503, "message": "overloaded", "status": "UNAVAILABLE"}});
    let begun = stream(&[candidate(json!([{"text": "a"}]))]);
    for stream in [
        format!("{begun}data: {error}\n\n"),
        format!("{begun}{error}\n"),
        format!("{begun}{error:#}"),
        format!("{begun}[{error:#}]"),
        format!("{}\n{error}", begun.trim_end()),
        format!("[{},\n{error}]", candidate(json!([{"text": "a"}]))),
    ] {
        for at in 0..stream.len() {
            let (one, two) = stream.as_bytes().split_at(at);
            let (_, reply) = events(true, "", &[one, two]);
            assert_eq!(
                reply.fault,
                Some(Fault::new(FaultKind::Overloaded, "overloaded")),
                "{stream}"
            );
            assert_eq!((reply.reason, reply.content.len()), (Some(EndReason::Failed), 1));
        }
    }
    for whole in [error.to_string(), json!([error]).to_string()] {
        let (lines, reply) = events(false, "", &[whole.as_bytes()]);
        assert_eq!((lines.len(), reply.reason), (2, Some(EndReason::Failed)));
    }
}

#[test]
fn a_reply_that_stops_is_cut_and_its_last_block_stays_open() {
    let stream = stream(&[
        candidate(json!([{"text": "a", "thought": true}])),
        candidate(json!([{"text": "b"}])),
    ]);
    let (lines, reply) = events(true, "", &[stream.as_bytes()]);
    assert_eq!(reply.reason, Some(EndReason::Cut));
    let ended = lines.iter().filter(|line| line.contains("block_ended")).count();
    assert_eq!(ended, 1, "{lines:?}");
    for nothing in
        ["", "\n\n", "<html>no</html>", "data: [DONE]\n\n", ": ping\n\n", "[", "[]", "{}"]
    {
        for streamed in [true, false] {
            let (_, reply) = events(streamed, "", &[nothing.as_bytes()]);
            assert_eq!(reply.reason, Some(EndReason::Cut), "{nothing}");
        }
    }
}

#[test]
fn a_whole_reply_is_whole_without_a_reason() {
    let whole = candidate(json!([{"functionCall": {"name": "f", "args": {"a": 1}}}]));
    let (_, reply) = events(false, "", &[format!("{whole:#}").as_bytes()]);
    assert_eq!(reply.reason, Some(EndReason::ToolCalls));
    let (_, count) = events(false, "", &[br#"{"totalTokens": 31, "cachedContentTokenCount": 1}"#]);
    assert_eq!(
        (count.usage.input, count.usage.cache_read, count.reason),
        (Some(30), Some(1), Some(EndReason::Stop))
    );
}

#[test]
fn broken_and_foreign_data_harm_nothing_else() {
    let stream = format!(
        "event: x\ndata: {{\"candidates\": oops\n\n: comment\n\nid: 4\n\ndata: 7\n\n{}",
        stream(&[
            json!({"candidates": [7, {"content": {"parts": [7, {"text": "a"}, {}]}, "groundingMetadata": {"x": [{}]}}], "new": {"a": 1}}),
            json!({"candidates": [{"index": 1, "content": {"parts": [{"text": "other answer"}]}}]}),
            last(json!([{"text": ""}]), "STOP"),
        ])
    );
    let (_, reply) = events(true, "", &[stream.as_bytes()]);
    assert_eq!((reply.content, reply.reason), (vec![text("a", None)], Some(EndReason::Stop)));
}

#[test]
fn parts_without_a_word_are_told_as_they_are() {
    let code =
        json!({"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "s"});
    let (lines, _) = events(true, "", &[stream(&[last(json!([code]), "STOP")]).as_bytes()]);
    let told: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        told[1]["block"],
        json!({"kind": "opaque", "dialect": "gemini", "name": "executableCode"})
    );
    let value: Value = serde_json::from_str(told[2]["delta"]["value"].as_str().unwrap()).unwrap();
    assert_eq!(value, code);
}

#[test]
fn arguments_that_come_in_pieces_are_put_together() {
    let piece = |call: Value| candidate(json!([{"functionCall": call}]));
    let mut first = piece(json!({"name": "weather", "id": "c1", "willContinue": true}));
    first["candidates"][0]["content"]["parts"][0]["thoughtSignature"] = "s".into();
    let reply = reply_of(
        &[
            first,
            piece(
                json!({"partialArgs": [{"jsonPath": "$.city", "stringValue": "Os", "willContinue": true}], "willContinue": true}),
            ),
            piece(
                json!({"partialArgs": [{"jsonPath": "$.city", "stringValue": "lo"}], "willContinue": true}),
            ),
            piece(
                json!({"partialArgs": [{"jsonPath": "$.days", "numberValue": 2}], "willContinue": true}),
            ),
            piece(json!({})),
            piece(json!({"name": "time"})),
            piece(json!({"name": "open", "willContinue": true})),
            last(json!([{"text": "x"}]), "STOP"),
        ],
        "vertex",
    );
    assert_eq!(
        reply.content,
        [
            call("c1", "weather", r#"{"city":"Oslo","days":2}"#, Some("s")),
            call("call_1", "time", "{}", None),
            call("call_2", "open", "{}", None),
            text("x", None),
        ]
    );
}

/// Covers: case 31
#[test]
fn a_provider_that_repeats_itself_is_told_once() {
    let pieces = [
        candidate(json!([{"text": "think1 ", "thought": true}, {"text": "Answer"}])),
        candidate(
            json!([{"text": "think1 think2", "thought": true}, {"text": "Answer more"}, {"text": "", "thoughtSignature": "s"}]),
        ),
        last(
            json!([{"text": "think1 think2", "thought": true}, {"text": "Answer more"}, {"text": "", "thoughtSignature": "s"},
            {"functionCall": {"name": "f"}}]),
            "STOP",
        ),
        last(
            json!([{"text": "think1 think2", "thought": true}, {"text": "Answer more"}, {"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]),
            "STOP",
        ),
        last(json!([{"text": "Answer"}]), "STOP"),
    ];
    let reply = reply_of(&pieces, "cumulative");
    assert_eq!(
        reply.content,
        [
            thinking("think1 ", None),
            text("Answer", None),
            thinking("think2", None),
            text("", Some("s")),
            text(" more", None),
            call("call_0", "f", "{}", None),
            call("call_1", "g", "{}", None),
        ]
    );
}

#[test]
fn what_is_too_long_is_a_fault() {
    let piece = "x".repeat(1 << 20);
    for streamed in [true, false] {
        for head in ["data: {\"a\":\"", "{\"a\":\"", "[{\"a\":\""] {
            let limit = if streamed { MAX_EVENT_BYTES } else { MAX_REPLY_BYTES };
            let mut pieces = vec![head.as_bytes()];
            pieces.resize(2 + (limit >> 20), piece.as_bytes());
            let (lines, reply) = events(streamed, "", &pieces);
            assert_eq!(reply.reason, Some(EndReason::Failed), "{head}");
            assert_eq!(lines.len(), 2);
        }
    }
    let whole = format!("data: {{\"a\":\"{}\"}}\n\n", "x".repeat(MAX_EVENT_BYTES));
    assert_eq!(events(true, "", &[whole.as_bytes()]).1.reason, Some(EndReason::Failed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                r#"(data: |\n\n|\{"candidates":\[|\{"content":|\{"parts":\[|\{"text":"a"|\{"functionCall":|"partialArgs":\[|\}|\]|,|"error":|"b":1){0,12}"#.prop_map(String::into_bytes),
            ],
            0..8,
        ),
        streamed: bool,
        variant in "(vertex )?(cumulative)?",
    ) {
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let (lines, reply) = events(streamed, &variant, &pieces);
        prop_assert!(reply.reason.is_some());
        prop_assert_eq!(lines.iter().filter(|line| line.contains(r#""type":"ended""#)).count(), 1);
        prop_assert!(lines.last().is_some_and(|line| line.contains(r#""type":"ended""#)));
        // The same bytes in one piece give the same events.
        prop_assert_eq!(events(streamed, &variant, &[&pieces.concat()]).0, lines);
        let _ = Gemini.read_fault(400, &pieces.concat());
        let _ = Gemini.read_request(&RequestParts { path: super::PATH, query: "", body: &pieces.concat() });
    }
}
