//! Replies of servers that leave out what clients of their dialect require. The gateway adds it; a
//! complete reply passes unchanged (`bytes`).

use serde_json::{Value, json};
use throughline_simulator::{Options, Variant};
use throughline_testkit::{Answer, Gateway, Simulator, open_responses};

use crate::support::{BINARY, JSON, RESPONSES};

/// A gateway over a server that answers as llama.cpp does.
async fn over_llama_cpp(more: &str) -> (Simulator, Gateway) {
    let variant = Some(Variant::named("llamacpp").expect("a variant"));
    let simulator = Simulator::with(Options { variant, ..Options::default() }).await;
    let config = RESPONSES.backend("a", &simulator.url, more);
    let gateway = Gateway::start(BINARY, &config).await;
    (simulator, gateway)
}

fn request(input: &Value, stream: bool) -> Value {
    json!({"model": "gpt-5.2", "input": input, "stream": stream, "store": false, "temperature": 0.5,
        "reasoning": {"effort": "medium"},
        "tools": [{"type": "function", "name": "lookup", "strict": false, "parameters":
            {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}}]})
}

/// Checks a reply against the specification, and returns the response.
fn checked(answer: &Answer, stream: bool) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let text = answer.text();
    if !stream {
        let response = serde_json::from_str(&text).expect("JSON");
        open_responses::check_response(&response);
        return response;
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> =
        data.map(|data| serde_json::from_str(data).expect("JSON in an event")).collect();
    open_responses::check_events(&events)
}

#[tokio::test]
async fn reply_without_numbers_and_members_is_completed() {
    let (simulator, gateway) = over_llama_cpp("").await;
    for stream in [false, true, false] {
        let mut input = vec![json!({"role": "user", "content": "use a tool"})];
        let body = request(&json!(input), stream);
        let answer = gateway.client.post(RESPONSES.whole_path, &[JSON], &body).await;
        let response = checked(&answer, stream);
        assert_eq!(response["temperature"], 0.5);
        assert_eq!(response["tools"][0]["name"], "lookup");
        let output = response["output"].as_array().expect("items");
        let kinds: Vec<&Value> = output.iter().map(|item| &item["type"]).collect();
        assert_eq!(kinds, ["reasoning", "message", "function_call"], "{response}");
        assert!(!output[0]["content"][0]["text"].as_str().unwrap_or_default().is_empty());

        // The items go back to the server as the client got them.
        input.extend(output.iter().cloned());
        let call = &output[2]["call_id"];
        input.push(json!({"type": "function_call_output", "call_id": call, "output": "row blue"}));
        let body = request(&json!(input), stream);
        let answer = gateway.client.post(RESPONSES.whole_path, &[JSON], &body).await;
        let response = checked(&answer, stream);
        assert_eq!(response["output"][1]["type"], "message", "{response}");
        let last = simulator.received().await.pop().expect("a request").json();
        assert_eq!(last["input"][1]["content"], output[0]["content"]);
    }
    for received in simulator.received().await {
        assert!(received.refusal.is_empty(), "{}", received.refusal);
    }
}

#[tokio::test]
async fn completed_reply_names_the_model_that_the_client_asked_for() {
    let (_simulator, gateway) = over_llama_cpp("models = { \"*\" = \"gpt-5.1\" }").await;
    for stream in [false, true] {
        let body = request(&json!("hello"), stream);
        let answer = gateway.client.post(RESPONSES.whole_path, &[JSON], &body).await;
        assert_eq!(checked(&answer, stream)["model"], "gpt-5.2");
    }
}

#[tokio::test]
async fn completed_stream_that_is_cut_ends_with_a_numbered_failure() {
    let (_simulator, gateway) = over_llama_cpp("").await;
    let headers = [JSON, ("x-simulator-fault", "cut:event=6")];
    let body = request(&json!("hello"), true);
    let answer = gateway.client.post(RESPONSES.whole_path, &headers, &body).await;
    let response = checked(&answer, true);
    assert_eq!(response["status"], "failed");
}
