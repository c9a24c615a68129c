//! Replies for clients, checked against the rules of client libraries.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Fold, Reply, Request, Usage,
};

use super::writer;
use crate::dialects::openai_responses::OpenAiResponses;
use crate::dialects::{ClientDialect, ReplyIdentity};
use crate::framing::sse::Framer;

pub(super) fn request() -> Request {
    Request { model: "what the client calls it".to_owned(), ..Request::default() }
}

pub(super) fn written(events: &[Event<'_>]) -> Vec<u8> {
    let mut writer = writer(&request());
    let mut out = Vec::new();
    for event in events {
        writer.push(event, &mut out);
    }
    out
}

/// The events of a stream. The name of each equals its type.
pub(super) fn events(bytes: &[u8]) -> Vec<Value> {
    let mut all = Vec::new();
    let mut framer = Framer::new(1 << 24);
    framer.push(bytes, |frame, _| {
        let event: Value = serde_json::from_slice(frame.data).unwrap();
        assert_eq!(event["type"].as_str().unwrap().as_bytes(), frame.event);
        all.push(event);
    });
    assert!(framer.between_events());
    all
}

/// The rules of the Python and JavaScript libraries, and a little more: only known event types, every
/// number in order, every item repeated at the end.
pub(super) fn check_stream(bytes: &[u8]) -> Value {
    let events = events(bytes);
    let mut open: BTreeMap<u64, (Value, String, bool)> = BTreeMap::new();
    let mut done: BTreeMap<u64, Value> = BTreeMap::new();
    let id = &events[0]["response"]["id"];
    assert_eq!(events[0]["type"], "response.created");
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number, "{event}");
        let name = event["type"].as_str().unwrap();
        let last = number + 1 == events.len();
        let place = event["output_index"].as_u64();
        let text = |key: &str| event[key].as_str().unwrap().to_owned();
        match name {
            "response.created" | "response.in_progress" => {
                assert!(number < 2);
                assert_eq!(&event["response"]["id"], id);
                assert_eq!(event["response"]["status"], "in_progress");
            }
            "response.output_item.added" => {
                let item = event["item"].clone();
                assert_eq!(item["status"], "in_progress");
                assert!(open.insert(place.unwrap(), (item, String::new(), false)).is_none());
                assert!(!done.contains_key(&place.unwrap()));
            }
            "response.content_part.added" | "response.reasoning_summary_part.added" => {
                let (item, _, part) = open.get_mut(&place.unwrap()).unwrap();
                assert_eq!(item["id"], event["item_id"]);
                assert!(!*part);
                *part = true;
                if name == "response.content_part.added" {
                    assert_eq!(
                        event["part"],
                        json!({"type": "output_text", "text": "", "annotations": [], "logprobs": []})
                    );
                }
            }
            "response.output_text.delta"
            | "response.reasoning_summary_text.delta"
            | "response.function_call_arguments.delta" => {
                let (item, all, part) = open.get_mut(&place.unwrap()).unwrap();
                assert_eq!(item["id"], event["item_id"]);
                assert!(*part || name == "response.function_call_arguments.delta");
                assert!(name != "response.output_text.delta" || event["logprobs"] == json!([]));
                all.push_str(&text("delta"));
            }
            "response.output_text.done" | "response.reasoning_summary_text.done" => {
                assert_eq!(open[&place.unwrap()].1, text("text"));
                assert!(name != "response.output_text.done" || event["logprobs"] == json!([]));
            }
            "response.content_part.done" | "response.reasoning_summary_part.done" => {
                assert_eq!(open[&place.unwrap()].1, event["part"]["text"].as_str().unwrap());
            }
            "response.function_call_arguments.done" => {
                assert_eq!(open[&place.unwrap()].1, text("arguments"));
                assert_eq!(open[&place.unwrap()].0["name"], event["name"]);
            }
            "response.output_item.done" => {
                let (begun, all, _) = open.remove(&place.unwrap()).unwrap();
                let item = event["item"].clone();
                for key in ["id", "type", "call_id", "name"] {
                    assert_eq!(begun[key], item[key]);
                }
                let found = match item["type"].as_str().unwrap() {
                    "message" => &item["content"][0]["text"],
                    "reasoning" => &item["summary"][0]["text"],
                    _ => &item["arguments"],
                };
                assert_eq!(found.as_str().unwrap_or_default(), all);
                done.insert(place.unwrap(), item);
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                assert!(last);
                assert!(open.is_empty() || name == "response.failed");
                assert_eq!(&event["response"]["id"], id);
                assert_eq!(
                    format!("response.{}", event["response"]["status"].as_str().unwrap()),
                    name
                );
                let items: Vec<Value> = done.values().cloned().collect();
                assert_eq!(event["response"]["output"], Value::from(items));
                assert!(event["response"]["usage"]["total_tokens"].is_u64());
            }
            "keepalive" => assert!(!last),
            other => panic!("no client knows `{other}`"),
        }
        assert!(!last || event["response"]["status"] != "in_progress", "no end");
    }
    events[events.len() - 1]["response"].clone()
}

fn delta(index: u32, delta: Delta<'static>) -> Event<'static> {
    Event::BlockDelta { index, delta }
}

fn begin(index: u32, block: BlockStart<'static>) -> Event<'static> {
    Event::BlockStarted { index, block }
}

fn end(index: u32) -> Event<'static> {
    Event::BlockEnded { index }
}

fn ended(reason: EndReason) -> Event<'static> {
    Event::Ended { reason }
}

fn text(text: &'static str) -> BlockStart<'static> {
    BlockStart::Text { text: text.into() }
}

fn thinking(text: &'static str) -> BlockStart<'static> {
    BlockStart::Thinking { text: text.into(), signature: "".into() }
}

fn tool(id: &'static str) -> BlockStart<'static> {
    BlockStart::ToolCall { id: id.into(), name: "f".into() }
}

fn started() -> Event<'static> {
    Event::MessageStarted { id: "their id".into(), model: "their model".into() }
}

fn everything() -> Vec<Event<'static>> {
    vec![
        started(),
        begin(0, thinking("")),
        delta(0, Delta::Thinking("Look \"it\" up.\n".into())),
        delta(0, Delta::Thinking("é🧠\u{1}".into())),
        delta(0, Delta::Signature("s+/=".into())),
        end(0),
        begin(1, BlockStart::Redacted { data: "sealed".into() }),
        end(1),
        begin(2, text("")),
        delta(2, Delta::Text("Let me".into())),
        delta(2, Delta::Text(" see.".into())),
        delta(2, Delta::Signature("phase=commentary".into())),
        end(2),
        begin(3, tool("c1")),
        begin(4, tool("c2")),
        delta(3, Delta::ToolArguments("{\"a\"".into())),
        delta(4, Delta::ToolArguments("{}".into())),
        delta(3, Delta::ToolArguments(":1}".into())),
        end(4),
        end(3),
        begin(5, tool("c3")),
        end(5),
        begin(6, BlockStart::Opaque { dialect: "another".into(), name: "x".into() }),
        end(6),
        Event::Usage(Usage {
            input: Some(15),
            cache_read: Some(10),
            cache_write: Some(5),
            output: Some(90),
            thinking: Some(64),
            ..Usage::default()
        }),
        ended(EndReason::ToolCalls),
    ]
}

fn expected_output() -> Value {
    json!([
        {"id": "rs_x7_0", "type": "reasoning", "status": "completed", "summary": [{"type": "summary_text", "text": "Look \"it\" up.\né🧠\u{1}"}], "encrypted_content": "s+/="},
        {"id": "rs_x7_1", "type": "reasoning", "status": "completed", "summary": [], "encrypted_content": "sealed"},
        {"id": "msg_x7_2", "type": "message", "status": "completed", "role": "assistant", "content": [{"type": "output_text", "text": "Let me see.", "annotations": [], "logprobs": []}], "phase": "commentary"},
        {"id": "fc_x7_3", "type": "function_call", "status": "completed", "call_id": "c1", "name": "f", "arguments": "{\"a\":1}"},
        {"id": "fc_x7_4", "type": "function_call", "status": "completed", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"id": "fc_x7_5", "type": "function_call", "status": "completed", "call_id": "c3", "name": "f", "arguments": "{}"},
    ])
}

#[test]
fn a_stream_keeps_all_rules_and_ends_with_the_whole_reply() {
    let response = check_stream(&written(&everything()));
    assert_eq!(response["output"], expected_output());
    assert_eq!(response["id"], "resp_x7");
    assert_eq!(response["object"], "response");
    assert_eq!(response["created_at"], 1_794_700_000);
    assert_eq!(response["model"], "what the client calls it");
    assert_eq!(response["error"], Value::Null);
    assert_eq!(
        response["usage"],
        json!({"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10, "cache_write_tokens": 5},
            "output_tokens": 90, "output_tokens_details": {"reasoning_tokens": 64}, "total_tokens": 120})
    );
    for member in [
        "instructions",
        "metadata",
        "parallel_tool_calls",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
        "incomplete_details",
    ] {
        assert!(response.get(member).is_some(), "{member}");
    }
}

#[test]
fn a_whole_reply_equals_the_last_event() {
    let mut fold = throughline_canonical::Fold::default();
    for event in everything() {
        fold.push(&event);
    }
    let whole = writer(&request()).whole(&fold.finish());
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!(whole, check_stream(&written(&everything())));
}

#[test]
fn a_refusal_is_a_separate_part() {
    let reply = Reply {
        content: vec![Block::Refusal { text: "no".to_owned() }],
        reason: Some(EndReason::Stop),
        ..Reply::default()
    };
    let whole: Value = serde_json::from_slice(&writer(&request()).whole(&reply)).unwrap();
    assert_eq!(whole["output"][0]["content"], json!([{"type": "refusal", "refusal": "no"}]));
}

#[test]
fn events_have_the_exact_bytes_of_the_wire() {
    let stream = written(&[begin(0, thinking("a")), end(0), ended(EndReason::Stop)]);
    let stream = String::from_utf8(stream).unwrap();
    let (_, items) = stream.split_once("event: response.output_item.added\n").unwrap();
    let (items, _) = items.split_once("event: response.completed\n").unwrap();
    assert_eq!(
        items,
        r#"data: {"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":{"id":"rs_x7_0","type":"reasoning","status":"in_progress","summary":[]}}

event: response.reasoning_summary_part.added
data: {"type":"response.reasoning_summary_part.added","sequence_number":3,"item_id":"rs_x7_0","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}

event: response.reasoning_summary_text.delta
data: {"type":"response.reasoning_summary_text.delta","item_id":"rs_x7_0","output_index":0,"summary_index":0,"delta":"a","sequence_number":4}

event: response.reasoning_summary_text.done
data: {"type":"response.reasoning_summary_text.done","sequence_number":5,"item_id":"rs_x7_0","output_index":0,"summary_index":0,"text":"a"}

event: response.reasoning_summary_part.done
data: {"type":"response.reasoning_summary_part.done","sequence_number":6,"item_id":"rs_x7_0","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"a"}}

event: response.output_item.done
data: {"type":"response.output_item.done","sequence_number":7,"output_index":0,"item":{"id":"rs_x7_0","type":"reasoning","status":"completed","summary":[{"type":"summary_text","text":"a"}]}}

"#
    );
}

#[test]
fn each_end_reason_has_a_status() {
    for (reason, status, details) in [
        (EndReason::Stop, "completed", Value::Null),
        (EndReason::StopSequence, "completed", Value::Null),
        (EndReason::ToolCalls, "completed", Value::Null),
        (EndReason::Pause, "completed", Value::Null),
        (EndReason::Other("x".to_owned()), "completed", Value::Null),
        (EndReason::Length, "incomplete", json!({"reason": "max_output_tokens"})),
        (EndReason::Refusal, "incomplete", json!({"reason": "content_filter"})),
        (
            EndReason::Other("content_filter".to_owned()),
            "incomplete",
            json!({"reason": "content_filter"}),
        ),
        (EndReason::Failed, "failed", Value::Null),
        (EndReason::Cut, "failed", Value::Null),
    ] {
        // An open block is ended here, or stays incomplete if the reply failed.
        let response =
            check_stream(&written(&[started(), begin(0, text("x")), ended(reason.clone())]));
        assert_eq!(
            (&response["status"], &response["incomplete_details"]),
            (&json!(status), &details),
            "{reason:?}"
        );
        assert_eq!(response["error"].is_null(), status != "failed");
        match status {
            "failed" => assert_eq!(response["output"], json!([])),
            status => assert_eq!(response["output"][0]["status"], status),
        }
    }
}

#[test]
fn a_fault_ends_the_stream_once() {
    for (kind, code) in [
        (FaultKind::RateLimited, "rate_limit_exceeded"),
        (FaultKind::Invalid, "invalid_prompt"),
        (FaultKind::Overloaded, "server_error"),
        (FaultKind::Unreachable, "server_error"),
    ] {
        let fault = Event::Fault(Fault::new(kind, "it \"broke\""));
        for before in [vec![], vec![started(), begin(0, text("x")), end(0), begin(1, tool("c"))]] {
            let mut events = before;
            events.extend([fault.clone(), ended(EndReason::Failed), ended(EndReason::Cut)]);
            let response = check_stream(&written(&events));
            assert_eq!(response["error"], json!({"code": code, "message": "it \"broke\""}));
        }
    }
}

#[test]
fn keep_alive_is_written_between_start_and_end() {
    let mut writer = writer(&request());
    let mut out = Vec::new();
    writer.keep_alive(&mut out);
    for event in everything() {
        writer.push(&event, &mut out);
        writer.keep_alive(&mut out);
    }
    check_stream(&out);
    let first = events(&out)[2].clone();
    assert_eq!(first, json!({"type": "keepalive", "sequence_number": 2}));
}

#[test]
fn deltas_without_a_block_are_dropped() {
    let response = check_stream(&written(&[
        delta(7, Delta::Text("nobody".into())),
        begin(0, text("")),
        delta(0, Delta::Thinking("thought in text".into())),
        delta(0, Delta::ToolArguments("{}".into())),
        delta(0, Delta::Opaque("x".into())),
        end(0),
        end(0),
        begin(1, thinking("")),
        delta(1, Delta::Text("text in thought".into())),
        end(1),
        ended(EndReason::Stop),
        delta(0, Delta::Text("late".into())),
    ]));
    assert_eq!(response["output"].as_array().unwrap().len(), 1);
    assert_eq!(response["output"][0]["summary"][0]["text"], "text in thought");
}

#[test]
fn a_reused_index_is_a_new_block() {
    let response = check_stream(&written(&[
        begin(0, text("a")),
        begin(0, text("b")),
        delta(0, Delta::Text("c".into())),
        end(0),
        ended(EndReason::Stop),
    ]));
    let texts: Vec<&Value> =
        [0, 1].map(|place: usize| &response["output"][place]["content"][0]["text"]).to_vec();
    assert_eq!(texts, ["a", "bc"]);
}

#[test]
fn empty_text_is_a_message_only_if_there_is_nothing_else() {
    let signed = |index| delta(index, Delta::Signature("made elsewhere".into()));
    for (events, kinds) in [
        (vec![begin(0, text("a")), end(0), begin(1, text("")), signed(1), end(1)], vec!["message"]),
        (vec![begin(0, text("")), end(0), begin(1, thinking("a")), end(1)], vec!["reasoning"]),
        (vec![begin(0, text("")), signed(0), end(0)], vec!["message"]),
        (vec![begin(0, text(""))], vec!["message"]),
        (vec![], vec![]),
    ] {
        let mut fold = Fold::default();
        let events: Vec<_> = events.into_iter().chain([ended(EndReason::Stop)]).collect();
        events.iter().for_each(|event| fold.push(event));
        let streamed = check_stream(&written(&events));
        let whole = writer(&request()).whole(&fold.finish());
        let whole: Value = serde_json::from_slice(&whole).unwrap();
        for response in [streamed, whole] {
            let items = response["output"].as_array().unwrap();
            let found: Vec<&str> =
                items.iter().map(|item| item["type"].as_str().unwrap()).collect();
            assert_eq!(found, kinds, "{response}");
        }
    }
}

#[test]
fn response_has_every_member_of_the_specification() {
    let identity = ReplyIdentity { now: || 1_794_700_005, ..super::identity() };
    let mut writer = OpenAiResponses.session().reply_writer(&request(), &identity);
    let mut out = Vec::new();
    for event in [begin(0, text("a")), end(0), ended(EndReason::Stop)] {
        writer.push(&event, &mut out);
    }
    let all = events(&out);
    assert_eq!(all[0]["response"]["completed_at"], Value::Null);
    let response = check_stream(&out);
    assert_eq!(response["completed_at"], 1_794_700_005);
    for (member, value) in [
        ("background", json!(false)),
        ("temperature", json!(1.0)),
        ("top_p", json!(1.0)),
        ("presence_penalty", json!(0.0)),
        ("frequency_penalty", json!(0.0)),
        ("top_logprobs", json!(0)),
        ("max_tool_calls", Value::Null),
        ("service_tier", json!("default")),
        ("safety_identifier", Value::Null),
        ("prompt_cache_key", Value::Null),
        ("user", Value::Null),
    ] {
        assert_eq!(response.get(member), Some(&value), "{member}");
    }
}

#[test]
fn settings_of_the_request_are_echoed() {
    let body = json!({"model": "m", "input": "x", "metadata": {"a": "b"}, "temperature": 0.5, "max_output_tokens": 99,
        "reasoning": {"effort": "high", "summary": "detailed"}, "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false});
    let request = super::read(&body).request;
    let whole: Value = serde_json::from_slice(
        &writer(&request).whole(&Reply { reason: Some(EndReason::Stop), ..Reply::default() }),
    )
    .unwrap();
    for key in [
        "model",
        "metadata",
        "temperature",
        "max_output_tokens",
        "reasoning",
        "tool_choice",
        "parallel_tool_calls",
    ] {
        assert_eq!(whole[key], body[key], "{key}");
    }
}

/// Every response object repeats the settings of the request.
#[test]
fn a_response_echoes_its_request() {
    let asked = json!({
        "model": "m", "input": "hi", "instructions": "Be brief.", "max_output_tokens": 99, "temperature": 0.5, "top_p": 0.9,
        "metadata": {"a": "b"}, "parallel_tool_calls": false, "previous_response_id": "resp_0", "truncation": "auto",
        "user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "service_tier": "flex", "max_tool_calls": 3,
        "top_logprobs": 2, "presence_penalty": 0.5, "frequency_penalty": 0.25,
        "tool_choice": {"type": "function", "name": "f"},
        "reasoning": {"effort": "low", "summary": "concise"},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": true, "description": "d"}, "verbosity": "low"},
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true},
            {"type": "web_search"},
        ],
    });
    let body = asked.to_string();
    let dialect = crate::dialects::client("openai_responses").unwrap();
    let read = dialect.read_request(&crate::dialects::RequestParts {
        path: "/v1/responses",
        query: "",
        body: body.as_bytes(),
        ..Default::default()
    });
    let mut writer = read.unwrap().reply_writer(&super::identity());
    let mut stream = Vec::new();
    writer.push(&ended(EndReason::Stop), &mut stream);
    let mut responses: Vec<Value> =
        events(&stream).into_iter().map(|event| event["response"].clone()).collect();
    let whole = writer.whole(&Reply { reason: Some(EndReason::Stop), ..Reply::default() });
    responses.push(serde_json::from_slice(&whole).unwrap());
    assert_eq!(responses.len(), 4);
    for response in responses {
        for (key, value) in asked.as_object().unwrap() {
            if key != "input" {
                assert_eq!(&response[key], value, "{key}");
            }
        }
    }
}
