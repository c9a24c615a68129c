//! Replies for clients, and the limit of calls. All other cases are in `corpus/ollama`.

use serde_json::{Value, json};
use throughline_canonical::{Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Reply};

use super::{Ollama, identity, lines, read_at, read_reply};
use crate::dialects::{ClientDialect, RefusedSetting, ReplyWriter, UpstreamDialect};

fn call(arguments: &str) -> Vec<Event<'_>> {
    vec![
        Event::BlockStarted {
            index: 0,
            block: BlockStart::ToolCall { id: "c1".into(), name: "f".into() },
        },
        Event::BlockDelta { index: 0, delta: Delta::ToolArguments(arguments.into()) },
        Event::BlockEnded { index: 0 },
    ]
}

fn asked(path: &str) -> Box<dyn ReplyWriter> {
    let body = json!({"model": "m", "prompt": "x", "messages": [{"role": "user", "content": "x"}]});
    read_at(path, &body).unwrap().reply_writer(&identity())
}

fn written_lines(events: &[Event<'_>]) -> Vec<Value> {
    let text = lines(asked("/api/chat"), events);
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn arguments_are_one_object_on_one_line() {
    for (arguments, expected) in [
        ("", json!({})),
        ("{}", json!({})),
        (r#"{"z":1,"a":2}"#, json!({"z": 1, "a": 2})),
        ("{\n  \"a\": \"x\\ny\",\r\n \"b\": [1]\n}", json!({"a": "x\ny", "b": [1]})),
        ("[1]", json!({"arguments": "[1]"})),
        ("{\"a\":", json!({"arguments": "{\"a\":"})),
    ] {
        let lines = written_lines(&call(arguments));
        assert_eq!(lines.len(), 1, "{arguments}");
        let call = &lines[0]["message"]["tool_calls"][0];
        assert_eq!(call["function"]["arguments"], expected, "{arguments}");
        assert_eq!(call["id"], "c1");
        assert_eq!(lines[0]["done"], false);
    }
    // Numbers keep the spelling of the model, and members keep its order.
    let text = lines(asked("/api/chat"), &call(r#"{"z":1.50,"a":12345678901234567890123}"#));
    assert!(text.contains(r#"{"z":1.50,"a":12345678901234567890123}"#), "{text}");
}

#[test]
fn keep_alive_is_a_line_without_content() {
    for (path, said) in [
        ("/api/chat", json!({"message": {"role": "assistant", "content": ""}})),
        ("/api/generate", json!({"response": ""})),
    ] {
        let mut writer = asked(path);
        let mut out = Vec::new();
        writer.keep_alive(&mut out);
        assert_eq!(out.last(), Some(&b'\n'));
        let mut line: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(line["created_at"], "2027-01-15T08:00:00Z");
        let members = line.as_object_mut().unwrap();
        members.shift_remove("created_at");
        members.shift_remove("model");
        assert_eq!(members.shift_remove("done"), Some(json!(false)));
        assert_eq!(line, said);
        writer.push(&Event::Ended { reason: EndReason::Stop }, &mut out);
        out.clear();
        writer.keep_alive(&mut out);
        assert!(out.is_empty());
    }
}

#[test]
fn a_generate_request_gets_generate_members() {
    let events = [
        Event::BlockStarted {
            index: 0,
            block: BlockStart::Thinking { text: "Hm.".into(), signature: "".into() },
        },
        Event::BlockEnded { index: 0 },
        Event::BlockStarted { index: 1, block: BlockStart::Text { text: "Yes.".into() } },
        Event::BlockEnded { index: 1 },
        Event::Ended { reason: EndReason::Length },
    ];
    let text = lines(asked("/api/generate"), &events);
    let said: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&said[0]["response"], &said[0]["thinking"]), (&json!(""), &json!("Hm.")));
    assert_eq!((&said[1]["response"], said[1].get("thinking")), (&json!("Yes."), None));
    assert_eq!((&said[2]["done"], &said[2]["done_reason"]), (&json!(true), &json!("length")));
    assert!(said.iter().all(|line| line.get("message").is_none()));
    let whole = asked("/api/generate").whole(&Reply {
        content: vec![
            Block::Thinking { text: "Hm.".to_owned(), signature: None },
            Block::text("Yes."),
        ],
        reason: Some(EndReason::Stop),
        ..Reply::default()
    });
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    assert_eq!((&whole["response"], &whole["thinking"]), (&json!("Yes."), &json!("Hm.")));
    let (read, ends) = read_reply([text.as_bytes()], true);
    assert_eq!((read.content.len(), read.reason, ends), (2, Some(EndReason::Length), 1));
}

#[test]
fn a_fault_is_the_last_line() {
    let fault = Fault::new(FaultKind::Overloaded, "no room");
    let lines =
        written_lines(&[Event::Fault(fault.clone()), Event::Ended { reason: EndReason::Failed }]);
    assert_eq!(lines, [json!({"error": "no room"})]);
    let cut = written_lines(&[Event::Ended { reason: EndReason::Cut }]);
    assert_eq!(cut.len(), 1);
    assert!(cut[0]["error"].is_string());
    let (status, body) = Ollama.write_fault(&fault, "");
    assert_eq!((status, body.as_slice()), (503, &b"{\"error\":\"no room\"}"[..]));
    assert_eq!(Ollama.read_fault(status, &body), fault);
    let signed_out = br#"{"error":"unauthorized","signin_url":"https://h.example"}"#;
    let fault = Ollama.read_fault(401, signed_out);
    assert_eq!((fault.kind, fault.message.as_str()), (FaultKind::Unauthenticated, "unauthorized"));
}

#[test]
fn recognizes_a_model_that_cannot_think() {
    let body = br#"{"error":"\"llama3\" does not support thinking"}"#;
    assert_eq!(Ollama.refused_setting(400, body), Some(RefusedSetting::Thinking));
    assert_eq!(Ollama.refused_setting(500, body), None);
    assert_eq!(Ollama.refused_setting(400, br#"{"error":"model is required"}"#), None);
}

#[test]
fn too_many_calls_are_a_fault() {
    let calls = r#"{"function":{"name":"f","arguments":{}}},"#.repeat(5000);
    let many = format!("{{\"message\":{{\"tool_calls\":[{calls}{{}}]}}}}\n");
    let (read, _) = read_reply([many.as_bytes()], true);
    assert_eq!(read.fault.unwrap().message, "the reply holds too many tool calls");
}
