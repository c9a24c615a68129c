//! What is read of providers' replies.

use proptest::prelude::*;
use serde_json::{Value, json};
use throughline_canonical::{Block, EndDetails, EndReason, Fault, FaultKind, Reply, Usage};

use super::{reply, stream};

fn added(place: u64, item: Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": place, "item": item})
}

fn done(place: u64, item: Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": place, "item": item})
}

fn created() -> Value {
    json!({"type": "response.created", "response": {"id": "resp_1", "model": "gpt-6.1-sol-0901", "status": "in_progress", "output": []}})
}

fn completed() -> Value {
    json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [], "usage": null}})
}

/// A stream as OpenAI sends it: two parts of a summary, an answer with its phase, a call.
fn usual() -> Vec<Value> {
    let message = |status: &str, content: Value| json!({"id": "msg_1", "type": "message", "role": "assistant", "status": status, "phase": "commentary", "content": content});
    let call = |status: &str, arguments: &str| json!({"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "lookup", "status": status, "arguments": arguments});
    let summary = |kind: &str, part: u64, key: &str, value: Value| json!({"type": format!("response.reasoning_summary_{kind}"), "item_id": "rs_1", "output_index": 0, "summary_index": part, key: value});
    let text = |kind: &str, key: &str, value: Value| json!({"type": format!("response.{kind}"), "item_id": "msg_1", "output_index": 1, "content_index": 0, key: value});
    let arguments = |kind: &str, key: &str, value: &str| json!({"type": format!("response.function_call_arguments.{kind}"), "item_id": "fc_1", "output_index": 2, key: value});
    let mut events = vec![
        created(),
        json!({"type": "response.in_progress", "response": {"id": "resp_1", "model": "gpt-6.1-sol-0901"}}),
        added(
            0,
            json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "partial"}),
        ),
        summary("part.added", 0, "part", json!({"type": "summary_text", "text": ""})),
        summary("text.delta", 0, "delta", json!("Com")),
        summary("text.delta", 0, "delta", json!("pare \"both\".\n")),
        summary("text.done", 0, "text", json!("Compare \"both\".\n")),
        summary(
            "part.done",
            0,
            "part",
            json!({"type": "summary_text", "text": "Compare \"both\".\n"}),
        ),
        summary("part.added", 1, "part", json!({"type": "summary_text", "text": ""})),
        summary("text.delta", 1, "delta", json!("Then é🧠.")),
        summary("text.done", 1, "text", json!("Then é🧠.")),
        done(
            0,
            json!({"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Compare \"both\".\n"}, {"type": "summary_text", "text": "Then é🧠."}], "encrypted_content": "gAAAAAB+/="}),
        ),
        added(1, message("in_progress", json!([]))),
        text(
            "content_part.added",
            "part",
            json!({"type": "output_text", "text": "", "annotations": []}),
        ),
        text("output_text.delta", "delta", json!("Let me")),
        text("output_text.delta", "delta", json!(" see.")),
        text("output_text.done", "text", json!("Let me see.")),
        text(
            "content_part.done",
            "part",
            json!({"type": "output_text", "text": "Let me see.", "annotations": []}),
        ),
        done(1, message("completed", json!([{"type": "output_text", "text": "Let me see."}]))),
        added(2, call("in_progress", "")),
        arguments("delta", "delta", "{\"k\""),
        arguments("delta", "delta", ":\"7\"}"),
        arguments("done", "arguments", "{\"k\":\"7\"}"),
        done(2, call("completed", "{\"k\":\"7\"}")),
        json!({"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [{"type": "message"}],
            "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5}, "output_tokens": 90, "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 120}}}),
    ];
    for (number, event) in events.iter_mut().enumerate() {
        event["sequence_number"] = number.into();
    }
    events
}

fn usual_reply() -> Reply {
    Reply {
        id: "resp_1".to_owned(),
        model: "gpt-6.1-sol-0901".to_owned(),
        content: vec![
            thought("Compare \"both\".\n\n\nThen é🧠.", Some("gAAAAAB+/=")),
            said("Let me see.", Some("phase=commentary")),
            call("call_1", "lookup", "{\"k\":\"7\"}"),
        ],
        usage: Usage {
            input: Some(15),
            cache_read: Some(10),
            cache_write: Some(5),
            output: Some(90),
            thinking: Some(64),
        },
        details: EndDetails::default(),
        fault: None,
        reason: Some(EndReason::ToolCalls),
        summary: false,
    }
}

fn thought(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking { text: text.to_owned(), signature: signature.map(str::to_owned) }
}

fn said(text: &str, signature: Option<&str>) -> Block {
    Block::Text {
        text: text.to_owned(),
        signature: signature.map(str::to_owned),
        citations: Vec::new(),
    }
}

fn call(id: &str, name: &str, arguments: &str) -> Block {
    Block::ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments.to_owned(),
        signature: None,
    }
}

/// As the server of llama.cpp sends it: no numbers, a bare response, several items open at once.
fn llama() -> Vec<Value> {
    let event = |kind: &str, key: &str, value: Value| json!({"type": format!("response.{kind}"), key: value});
    let grown = |kind: &str, id: &str, delta: &str| json!({"type": format!("response.{kind}.delta"), "item_id": id, "delta": delta});
    let reasoning = |text: Value| json!({"id": "rs_a", "type": "reasoning", "summary": [], "content": text, "encrypted_content": ""});
    let call = |id: &str, arguments: &str| json!({"type": "function_call", "call_id": id, "name": "f", "arguments": arguments});
    vec![
        event(
            "created",
            "response",
            json!({"id": "resp_a", "object": "response", "status": "in_progress"}),
        ),
        event("output_item.added", "item", reasoning(json!([]))),
        grown("reasoning_text", "rs_a", "hm"),
        grown("reasoning_text", "rs_a", "m"),
        event(
            "output_item.added",
            "item",
            json!({"id": "msg_a", "type": "message", "role": "assistant", "content": []}),
        ),
        json!({"type": "response.content_part.added", "item_id": "msg_a", "part": {"type": "output_text", "text": ""}}),
        grown("output_text", "msg_a", "Hi"),
        event("output_item.added", "item", call("fc_1", "")),
        grown("function_call_arguments", "fc_1", "{\"a\""),
        event("output_item.added", "item", call("fc_2", "")),
        grown("function_call_arguments", "fc_2", "{\"b\""),
        grown("function_call_arguments", "fc_1", ":1}"),
        grown("function_call_arguments", "fc_2", ":2}"),
        event(
            "output_item.done",
            "item",
            reasoning(json!([{"type": "reasoning_text", "text": "hmm"}])),
        ),
        event(
            "output_item.done",
            "item",
            json!({"id": "msg_a", "type": "message", "content": [{"type": "output_text", "text": "Hi"}]}),
        ),
        event("output_item.done", "item", call("fc_1", "{\"a\":1}")),
        event("output_item.done", "item", call("fc_2", "{\"b\":2}")),
        event(
            "completed",
            "response",
            json!({"id": "resp_a", "status": "completed", "output": [], "usage": {"input_tokens": 3, "output_tokens": 4}}),
        ),
    ]
}

#[test]
fn a_usual_stream_is_read() {
    assert_eq!(reply(&[&stream(&usual())], true).1, usual_reply());
}

#[test]
fn a_stream_without_numbers_and_names_is_read() {
    let expected = Reply {
        id: "resp_a".to_owned(),
        model: "gpt-6.1-sol".to_owned(),
        content: vec![
            thought("hmm", None),
            said("Hi", None),
            call("fc_1", "f", "{\"a\":1}"),
            call("fc_2", "f", "{\"b\":2}"),
        ],
        usage: Usage { input: Some(3), output: Some(4), ..Usage::default() },
        details: EndDetails::default(),
        fault: None,
        reason: Some(EndReason::ToolCalls),
        summary: false,
    };
    assert_eq!(reply(&[&stream(&llama())], true).1, expected);
}

#[test]
fn an_item_that_is_told_done_twice_is_told_once() {
    let mut events = llama();
    let (reasoning, call) = (events[13].clone(), events[15].clone());
    let expected = reply(&[&stream(&events)], true);
    // While another of its kind is still open, too.
    events.insert(16, call);
    events.insert(14, reasoning);
    assert_eq!(reply(&[&stream(&events)], true), expected);
}

#[test]
fn every_split_gives_the_same_events() {
    for events in [usual(), llama()] {
        let bytes = stream(&events);
        let expected = reply(&[&bytes], true);
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(reply(&single, true), expected);
        for cut in 0..bytes.len() {
            assert_eq!(reply(&[&bytes[..cut], &bytes[cut..]], true), expected, "cut at {cut}");
        }
    }
}

#[test]
fn every_cut_ends_in_exactly_one_end() {
    for events in [usual(), llama()] {
        let bytes = stream(&events);
        let last = bytes.len() - stream(&events[events.len() - 1..]).len();
        for cut in 0..last {
            let (events, reply) = reply(&[&bytes[..cut]], true);
            assert_eq!(ends(&events), 1, "cut at {cut}");
            assert!(events[events.len() - 1].contains("\"type\":\"ended\""));
            assert_eq!(reply.reason, Some(EndReason::Cut), "cut at {cut}");
        }
    }
    let whole = whole().to_string();
    for cut in 0..whole.len() {
        let (events, _) = reply(&[&whole.as_bytes()[..cut]], false);
        assert_eq!(events, [r#"{"type":"ended","reason":"cut"}"#], "cut at {cut}");
    }
}

fn ends(events: &[String]) -> usize {
    let end = |event: &&String| event.contains("\"type\":\"ended\"");
    events.iter().filter(end).count()
}

/// A block that was not closed is not told to be closed, since what is closed is remembered.
#[test]
fn a_cut_leaves_open_what_was_open() {
    let events = usual();
    let (told, _) = reply(&[&stream(&events[..15])], true);
    let closed =
        |index: u32| told.contains(&format!(r#"{{"type":"block_ended","index":{index}}}"#));
    assert!(closed(0) && !closed(1));
}

fn whole() -> Value {
    json!({"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "error": null, "incomplete_details": null, "model": "gpt-6.1-sol-0901",
        "output": [
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Compare \"both\".\n"}, {"type": "summary_text", "text": "Then é🧠."}], "encrypted_content": "gAAAAAB+/="},
            {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary", "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "lookup", "arguments": "{\"k\":\"7\"}", "status": "completed"}],
        "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5}, "output_tokens": 90, "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 120}})
}

#[test]
fn a_whole_reply_is_the_stream_folded() {
    let body = whole().to_string();
    assert_eq!(reply(&[body.as_bytes()], false).1, usual_reply());
    let single: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
    assert_eq!(reply(&single, false), reply(&[body.as_bytes()], false));
    // A server that tells everything at the end of a stream.
    let last = json!({"type": "response.completed", "response": whole()});
    assert_eq!(reply(&[&stream(&[last])], true).1, usual_reply());
}

#[test]
fn a_signature_counts_only_when_the_item_is_done() {
    let item = |mark: &str| json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": mark});
    let found = |events: &[Value]| reply(&[&stream(events)], true).1.content;
    assert_eq!(
        found(&[created(), added(0, item("partial")), done(0, item("whole")), completed()]),
        [thought("", Some("whole"))]
    );
    assert_eq!(found(&[created(), added(0, item("partial"))]), []);
    let empty =
        json!({"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": null});
    assert_eq!(found(&[created(), added(0, empty.clone()), done(0, empty), completed()]), []);
}

#[test]
fn what_was_only_told_at_the_end_of_an_item_is_told() {
    let found = |events: &[Value]| reply(&[&stream(events)], true).1.content;
    let message = json!({"id": "m", "type": "message", "phase": "final_answer", "content": [{"type": "output_text", "text": "a"}, {"type": "output_text", "text": "b"}]});
    let call_item =
        json!({"id": "f", "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"});
    let expected = [
        said("a", Some("phase=final_answer")),
        said("b", Some("phase=final_answer")),
        call("c", "f", "{}"),
    ];
    // NoPassthrough announced; announced and empty until then; told twice.
    assert_eq!(
        found(&[created(), done(0, message.clone()), done(1, call_item.clone()), completed()]),
        expected
    );
    let bare = json!({"id": "m", "type": "message", "content": []});
    let nameless = json!({"id": "f", "type": "function_call"});
    let events = [
        created(),
        added(0, bare),
        done(0, message.clone()),
        done(0, message),
        added(1, nameless),
        done(1, call_item.clone()),
        done(1, call_item),
        completed(),
    ];
    assert_eq!(found(&events), expected);
    let text = json!({"type": "response.output_text.done", "output_index": 0, "content_index": 0, "text": "x"});
    assert_eq!(found(&[text, completed()]), [said("x", None)]);
    let arguments = json!({"type": "response.function_call_arguments.done", "output_index": 0, "arguments": "{}"});
    let start = json!({"type": "function_call", "name": "f"});
    assert_eq!(
        found(&[created(), added(0, start.clone()), arguments, done(0, start), completed()]),
        [call("call_0", "f", "{}")]
    );
}

#[test]
fn an_item_whose_end_was_not_told_ends_with_the_reply() {
    let mut events = usual();
    let items: Vec<Value> = events
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| event["item"].clone())
        .collect();
    for event in &mut events {
        if event["type"] == "response.completed" {
            event["response"]["output"] = items.clone().into();
        }
    }
    let numbered = events.clone();
    for event in &mut events {
        event.as_object_mut().unwrap().remove("output_index");
    }
    for mut events in [numbered, events] {
        events.retain(|event| event["type"] != "response.output_item.done");
        assert_eq!(reply(&[&stream(&events)], true).1, usual_reply());
    }
}

#[test]
fn parts_of_a_message_are_blocks_of_their_own() {
    let delta = |part: u64, delta: &str| json!({"type": "response.output_text.delta", "output_index": 0, "content_index": part, "delta": delta});
    let item = json!({"id": "m", "type": "message", "content": [{"type": "output_text", "text": "ab"}, {"type": "output_text", "text": "c"}]});
    let events = [
        created(),
        added(0, json!({"id": "m", "type": "message"})),
        delta(0, "a"),
        delta(0, "b"),
        delta(1, "c"),
        done(0, item),
        completed(),
    ];
    assert_eq!(reply(&[&stream(&events)], true).1.content, [said("ab", None), said("c", None)]);
}

#[test]
fn items_without_a_word_are_opaque_and_unknown_events_nothing() {
    let search = json!({"id": "ws_1", "type": "web_search_call", "status": "completed"});
    let unknown =
        json!({"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"});
    let alive = json!({"type": "keepalive", "sequence_number": 3});
    let (events, reply) = reply(
        &[&stream(&[
            created(),
            alive,
            added(0, search.clone()),
            unknown,
            done(0, search.clone()),
            completed(),
        ])],
        true,
    );
    assert_eq!(
        events[1..],
        [
            r#"{"type":"block_started","index":0,"block":{"kind":"opaque","dialect":"openai_responses","name":"web_search_call"}}"#,
            r#"{"type":"block_delta","index":0,"delta":{"kind":"opaque","value":"{\"id\":\"ws_1\",\"type\":\"web_search_call\",\"status\":\"completed\"}"}}"#,
            r#"{"type":"block_ended","index":0}"#,
            r#"{"type":"ended","reason":"stop"}"#,
        ]
    );
    let item = Block::Opaque { dialect: "openai_responses".to_owned(), value: search };
    assert_eq!(reply.content, [item]);
    assert_eq!(reply.reason, Some(EndReason::Stop));
}

#[test]
fn ends_have_their_reasons() {
    let ending = |kind: &str, response: Value| {
        reply(
            &[&stream(&[
                created(),
                json!({"type": format!("response.{kind}"), "response": response}),
            ])],
            true,
        )
        .1
    };
    let incomplete = |reason: &str| json!({"id": "resp_1", "status": "incomplete", "incomplete_details": {"reason": reason}, "usage": {"output_tokens": 3}});
    for (reason, expected) in [
        ("max_output_tokens", EndReason::Length),
        ("content_filter", EndReason::Refusal),
        ("steered", EndReason::Other("steered".to_owned())),
    ] {
        let found = ending("incomplete", incomplete(reason));
        assert_eq!((found.reason, found.usage.output), (Some(expected), Some(3)));
    }
    let refusal = json!({"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "I can't"});
    let declined = reply(&[&stream(&[created(), refusal, completed()])], true).1;
    assert_eq!(
        (declined.reason, declined.content),
        (Some(EndReason::Refusal), vec![Block::Refusal { text: "I can't".to_owned() }])
    );
}

#[test]
fn faults_end_a_reply() {
    let failed = |code: &str, message: &str| json!({"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": {"code": code, "message": message}}});
    for (event, kind, message) in [
        (failed("server_error", "broke"), FaultKind::Internal, "broke"),
        (failed("rate_limit_exceeded", "slow"), FaultKind::RateLimited, "slow"),
        (
            failed("server_is_overloaded", ""),
            FaultKind::Overloaded,
            "the provider failed with `server_is_overloaded`",
        ),
        (
            json!({"type": "error", "code": "invalid_prompt", "message": "bad", "param": null}),
            FaultKind::Invalid,
            "bad",
        ),
        (
            json!({"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}),
            FaultKind::Invalid,
            "bad",
        ),
        (json!({"error": {"message": "lost", "code": 502}}), FaultKind::Internal, "lost"),
        (json!({"error": "lost"}), FaultKind::Internal, "lost"),
        (
            json!({"type": "response.failed"}),
            FaultKind::Internal,
            "the provider's reply failed, without a reason",
        ),
    ] {
        // Whatever comes behind it does not count.
        let found = reply(&[&stream(&[created(), event.clone(), completed()])], true);
        assert_eq!(found.1.fault, Some(Fault::new(kind, message)), "{event}");
        assert_eq!(found.1.reason, Some(EndReason::Failed), "{event}");
        assert_eq!(ends(&found.0), 1);
    }
    let (_, whole) = reply(&[br#"{"error":{"message":"no","code":"rate_limit_exceeded"}}"#], false);
    assert_eq!(whole.fault, Some(Fault::new(FaultKind::RateLimited, "no")));
    let (_, whole) = reply(&[br#"{"id":"resp_1","status":"failed","error":{"message":"no","code":"server_error"},"output":[]}"#], false);
    assert_eq!(
        (whole.reason, whole.fault),
        (Some(EndReason::Failed), Some(Fault::new(FaultKind::Internal, "no")))
    );
}

#[test]
fn what_is_too_long_is_a_fault() {
    let long = vec![b'x'; 17 << 20];
    let (_, found) = reply(&[&stream(&[created()]), b"data: ", &long], true);
    assert_eq!(found.reason, Some(EndReason::Failed));
    let event = [b"data: {\"type\":\"x\",\"y\":\"", &long[..], b"\"}\n\n"].concat();
    let (_, found) = reply(&[&event], true);
    assert_eq!(found.reason, Some(EndReason::Failed));
    let pieces: Vec<&[u8]> = (0..5).map(|_| &long[..]).collect();
    let (events, found) = reply(&pieces, false);
    assert_eq!((found.reason, events.len()), (Some(EndReason::Failed), 2));
    let many: Vec<Value> =
        (0..2000).map(|place| added(place, json!({"type": "message"}))).collect();
    assert_eq!(reply(&[&stream(&many)], true).1.reason, Some(EndReason::Failed));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300), streamed in any::<bool>()) {
        let (events, _) = reply(&[&bytes], streamed);
        prop_assert_eq!(ends(&events), 1);
    }

    /// Events in any order, each whole or with members missing.
    #[test]
    fn shuffled_and_maimed_streams_do_no_harm(
        order in proptest::collection::vec((0usize..25, any::<bool>(), 0usize..8), 0..40),
        cut in 0usize..4000,
    ) {
        let (one, other) = (usual(), llama());
        let events: Vec<Value> = order.into_iter().filter_map(|(place, which, maimed)| {
            let mut event = if which { one.get(place)? } else { other.get(place)? }.clone();
            let key = event.as_object()?.keys().nth(maimed)?.clone();
            if maimed > 3 {
                event.as_object_mut()?.remove(&key);
            }
            Some(event)
        }).collect();
        let bytes = stream(&events);
        let cut = cut.min(bytes.len());
        let whole = reply(&[&bytes], true);
        prop_assert_eq!(ends(&whole.0), 1);
        prop_assert_eq!(reply(&[&bytes[..cut], &bytes[cut..]], true), whole);
    }
}
