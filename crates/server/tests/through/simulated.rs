//! Whole conversations that pass to strict simulators, which refuse reasoning that is not their own and
//! calls that miss theirs.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Gateway, Simulator};

use crate::support::{BINARY, JSON, RESPONSES, fates, last_turn};

const UNKNOWN: &str = "[thinking]\nunknown = \"drop\"\n";

async fn over(settings: &str, a: &Simulator, b: &Simulator) -> Gateway {
    let backends = [("a", a), ("b", b)].map(|(name, at)| RESPONSES.backend(name, &at.url, ""));
    Gateway::start(BINARY, &format!("{settings}{}", backends.concat())).await
}

fn begin() -> Value {
    json!({"model": "gpt-5.5", "store": false, "include": ["reasoning.encrypted_content"],
        "instructions": "You are terse.", "reasoning": {"summary": "auto"},
        "tools": [{"type": "function", "name": "lookup", "strict": false,
            "parameters": {"type": "object", "properties": {"k": {"type": "string"}}}}],
        "input": [{"role": "user", "content": "use a tool twice"}]})
}

/// Asks once, and puts the answer and the outputs of its calls behind the request. Answers how many
/// calls there were.
async fn step(gateway: &Gateway, backend: &str, body: &mut Value) -> usize {
    let headers = [JSON, ("x-throughline-backend", backend)];
    let sent = gateway.client.send(Method::POST, RESPONSES.whole_path, &headers, body.to_string());
    let reply = sent.await.good().json();
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

async fn turn(gateway: &Gateway, backend: &str, body: &mut Value) {
    while step(gateway, backend, body).await > 0 {}
}

fn say(body: &mut Value) {
    let input = body["input"].as_array_mut().unwrap();
    input.push(json!({"role": "user", "content": "And now?"}));
}

async fn refusals(simulator: &Simulator) -> Vec<String> {
    let seen = simulator.seen().await.into_iter();
    seen.map(|seen| seen.refusal).filter(|refusal| !refusal.is_empty()).collect()
}

fn reasoning(body: &str) -> usize {
    body.matches("\"encrypted_content\":\"").count()
}

#[tokio::test]
async fn a_conversation_goes_to_another_and_back_and_each_reads_its_own() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = over("", &a, &b).await;
    let mut body = begin();
    turn(&gateway, "a", &mut body).await;
    let made = reasoning(&body.to_string());
    assert!(made >= 2, "{body}");
    say(&mut body);
    turn(&gateway, "b", &mut body).await;
    let seen = b.seen().await;
    assert_eq!(reasoning(&seen[0].body), 0, "{}", seen[0].body);
    say(&mut body);
    turn(&gateway, "a", &mut body).await;
    let seen = a.seen().await;
    assert_eq!(reasoning(&seen.last().unwrap().body), made);
    assert_eq!(refusals(&a).await, [""; 0]);
    assert_eq!(refusals(&b).await, [""; 0]);
}

/// In the middle of a tool loop, where a call asks for the reasoning that led to it.
#[tokio::test]
async fn a_tool_loop_goes_on_where_its_reasoning_had_to_stay_behind() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let first = over("", &a, &b).await;
    let mut body = begin();
    assert!(step(&first, "a", &mut body).await > 0);
    // Another gateway knows nothing of it. It may try, or not even that.
    for (settings, at, tries) in [("", "b", 1), (UNKNOWN, "a", 0), (UNKNOWN, "b", 0)] {
        let gateway = over(settings, &a, &b).await;
        let simulator = if at == "a" { &a } else { &b };
        let before = refusals(simulator).await.len();
        step(&gateway, at, &mut body.clone()).await;
        assert_eq!(refusals(simulator).await.len() - before, tries, "{settings} {at}");
        let told = fates(&last_turn(&gateway).await);
        assert!(told.iter().all(|fate| fate.starts_with("left_out")), "{told:?}");
        let seen = simulator.seen().await;
        assert_eq!(reasoning(&seen.last().unwrap().body), 0);
    }
}
