//! Whole conversations in the passthrough lane against strict simulators. These refuse foreign
//! reasoning and tool calls that lack their reasoning.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Gateway, Simulator, block_fates};

use crate::support::{BINARY, JSON, RESPONSES};

const DROP_UNKNOWN: &str = "[thinking]\nunknown = \"drop\"\n";

async fn gateway_over(settings: &str, a: &Simulator, b: &Simulator) -> Gateway {
    let backends = [("a", a), ("b", b)].map(|(name, at)| RESPONSES.backend(name, &at.url, ""));
    Gateway::start(BINARY, &format!("{settings}{}", backends.concat())).await
}

fn first_request() -> Value {
    json!({"model": "gpt-5.5", "store": false, "include": ["reasoning.encrypted_content"],
        "instructions": "You are terse.", "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", "name": "lookup", "strict": false,
            "parameters": {"type": "object", "properties": {"k": {"type": "string"}}}}],
        "input": [{"role": "user", "content": "use a tool twice"}]})
}

/// Sends the request and appends the output and the results of its tool calls. Returns the number
/// of calls.
async fn send_step(gateway: &Gateway, backend: &str, body: &mut Value) -> usize {
    let headers = [JSON, ("x-throughline-backend", backend)];
    let sent = gateway.client.send(Method::POST, RESPONSES.whole_path, &headers, body.to_string());
    let reply = sent.await.expect_ok().json();
    let output = reply["output"].as_array().unwrap();
    let calls = output.iter().filter(|item| item["type"] == "function_call");
    let outputs: Vec<_> = calls
        .map(|call| json!({"type": "function_call_output", "call_id": call["call_id"], "output": "7"}))
        .collect();
    let count = outputs.len();
    let input = body["input"].as_array_mut().unwrap();
    input.extend(output.iter().cloned());
    input.extend(outputs);
    count
}

async fn send_turn(gateway: &Gateway, backend: &str, body: &mut Value) {
    while send_step(gateway, backend, body).await > 0 {}
}

fn push_user(body: &mut Value) {
    let input = body["input"].as_array_mut().unwrap();
    input.push(json!({"role": "user", "content": "And now?"}));
}

async fn refusals(simulator: &Simulator) -> Vec<String> {
    let seen = simulator.received().await.into_iter();
    seen.map(|seen| seen.refusal).filter(|refusal| !refusal.is_empty()).collect()
}

fn count_reasoning(body: &str) -> usize {
    body.matches("\"encrypted_content\":\"").count()
}

#[tokio::test]
async fn each_backend_gets_only_its_own_reasoning_across_switches() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = gateway_over("", &a, &b).await;
    let mut body = first_request();
    send_turn(&gateway, "a", &mut body).await;
    let made = count_reasoning(&body.to_string());
    assert!(made >= 2, "{body}");
    push_user(&mut body);
    send_turn(&gateway, "b", &mut body).await;
    let seen = b.received().await;
    assert_eq!(count_reasoning(&seen[0].body), 0, "{}", seen[0].body);
    push_user(&mut body);
    send_turn(&gateway, "a", &mut body).await;
    let seen = a.received().await;
    assert_eq!(count_reasoning(&seen.last().unwrap().body), made);
    assert_eq!(refusals(&a).await, [""; 0]);
    assert_eq!(refusals(&b).await, [""; 0]);
}

/// The simulator requires the reasoning of a tool call inside an open tool loop.
#[tokio::test]
async fn tool_loop_continues_after_its_reasoning_was_dropped() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let first = gateway_over("", &a, &b).await;
    let mut body = first_request();
    assert!(send_step(&first, "a", &mut body).await > 0);
    // A second gateway does not know the reasoning. It tries it once, or drops it.
    for (settings, at, tries) in [("", "b", 1), (DROP_UNKNOWN, "a", 0), (DROP_UNKNOWN, "b", 0)] {
        let gateway = gateway_over(settings, &a, &b).await;
        let simulator = if at == "a" { &a } else { &b };
        let before = refusals(simulator).await.len();
        send_step(&gateway, at, &mut body.clone()).await;
        assert_eq!(refusals(simulator).await.len() - before, tries, "{settings} {at}");
        let fates = block_fates(&gateway.last_turn().await);
        assert!(fates.iter().all(|fate| fate.starts_with("left_out")), "{fates:?}");
        let seen = simulator.received().await;
        assert_eq!(count_reasoning(&seen.last().unwrap().body), 0);
    }
}
