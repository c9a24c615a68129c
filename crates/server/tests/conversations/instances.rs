//! Two instances on one Postgres database: a caller may use any of them, and one takes over the runs
//! of the other.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{PostgresDatabase, wait_until};

use crate::support::{
    ANTHROPIC, Api, CHAT, FORMATS, GEMINI, RESPONSES, check_cursors, cursors, done, joined, lines,
    run_of, text,
};
use crate::upstreams;

/// Words without an answer stay in the request, so the step of the next turn comes first.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
when = { contains = "slow" }
fault = "stall:event=12,ms=2500"
say = [{ thinking = "One. Two. Three. Four." }, { text = "Five. Six. Seven. Eight. Nine. Ten." }]
[[step]]
when = { contains = "stall" }
fault = "stall:event=12,ms=600000"
say = [{ thinking = "One. Two. Three. Four." }, { text = "Five. Six. Seven. Eight. Nine. Ten." }]
"#;

/// A request of the same caller that is not about projects.
async fn send(api: &Api, method: Method, path: &str, body: Value) -> Value {
    api.send(method, path, &body).await.expect_ok().json()
}

/// A conversation with thinking and tools, with each request at the next instance. Returns what every
/// answer has, and how much thinking each request sent back.
async fn tool_conversation(provider: &str, instances: &[&Api], home: &Api) -> Vec<String> {
    let mut at = 0;
    let mut next = || {
        at += 1;
        instances[at % instances.len()]
    };
    let project = next().project(json!({"title": "t", "provider": provider})).await;
    let tool = json!({"name": "lookup", "parameters": {"type": "object",
        "properties": {"key": {"type": "string"}}, "required": ["key"]}});
    let chat = |mut body: Value| {
        body["thinking"] = "medium".into();
        body["tools"] = json!([tool]);
        body
    };
    let mut report = Vec::new();
    let mut said = next().chat(&project, chat(json!({"message": "two tools"}))).await;
    for result in ["row blue", "row green"] {
        report.push(shape(&said));
        let calls = said.iter().filter(|line| line["type"] == "tool_call");
        let results: Vec<Value> =
            calls.map(|call| json!({"id": call["id"], "content": result})).collect();
        assert!(!results.is_empty(), "{said:?}");
        said = next().chat(&project, chat(json!({"toolResults": results}))).await;
    }
    report.push(shape(&said));
    for words in ["ponder", "plain"] {
        report.push(shape(&next().chat(&project, chat(json!({"message": words}))).await));
    }
    for node in next().nodes(&project, "main").await {
        report.push(format!("{} {} {}", node["role"], node["status"], node["has_thinking"]));
    }
    for simulator in &home.simulators {
        for seen in simulator.received().await {
            // Ids and signatures differ from conversation to conversation.
            let words = ["signature", "encrypted_content", "thoughtSignature", "reasoning_content"];
            let counts = words.map(|word| seen.body.matches(&format!("\"{word}\"")).count());
            report.push(format!("{} {counts:?} {}", seen.status, seen.refusal));
        }
        simulator.clear_received().await;
    }
    report
}

/// The end of an answer and the kinds of its lines.
fn shape(said: &[Value]) -> String {
    let mut kinds: Vec<&str> = said.iter().map(|line| text(&line["type"])).collect();
    kinds.dedup();
    format!("{} {kinds:?}", done(said)["reason"])
}

#[tokio::test]
async fn conversation_with_tools_works_round_robin_as_on_one_instance() {
    let database = PostgresDatabase::new();
    let backends = [ANTHROPIC, GEMINI, RESPONSES, CHAT];
    let [one, two] = Api::instances(&database, &backends, upstreams::SCENARIO, "").await;
    for (provider, _) in backends {
        let alone = tool_conversation(provider, &[&one], &one).await;
        let shared = tool_conversation(provider, &[&one, &two], &one).await;
        assert_eq!(shared, alone, "{provider}");
        assert!(shared.iter().any(|line| line.contains("tool_call")), "{shared:#?}");
    }
}

#[tokio::test]
async fn reader_resumes_on_the_other_instance() {
    let database = PostgresDatabase::new();
    let [one, two] = Api::instances(&database, &[ANTHROPIC], SCENARIO, "").await;
    for format in FORMATS {
        let project = one.project(json!({"title": "t"})).await;
        let chat = json!({"message": "slow", "thinking": "medium"});
        let path = format!("{project}/chat?format={format}");
        let mut stream = one.open(Method::POST, &path, &chat).await;
        let run = run_of(&stream);
        let mut begun = String::new();
        let (cursor, length) = loop {
            let piece = stream.next().await.expect("a piece");
            begun.push_str(std::str::from_utf8(&piece).expect("text"));
            if let Some(last) = cursors(format, &begun).pop() {
                break last;
            }
        };
        drop(stream);
        let events = format!("/api/runs/{run}/events?format={format}");
        let state = two.get(&format!("/api/runs/{run}")).await;
        assert_eq!(state["status"], "running", "{format}");
        let resumed = format!("{events}&after={cursor}");
        let rest = two.send(Method::GET, &resumed, &Value::Null).await.expect_ok().text();
        let whole = one.send(Method::GET, &events, &Value::Null).await.expect_ok().text();
        assert_eq!(format!("{}{rest}", &begun[..length]), whole, "{format}");
        check_cursors(format, &whole);
        // A run can be stopped from anywhere, and its branch is known everywhere.
        let branches = two.get(&format!("{project}/branches")).await;
        assert_eq!(branches["branches"][0]["runId"], Value::Null);
    }
}

#[tokio::test]
async fn runs_of_a_killed_instance_are_ended_by_the_other() {
    let database = PostgresDatabase::new();
    let [mut one, two] = Api::instances(&database, &[ANTHROPIC], SCENARIO, "").await;
    let project = one.project(json!({"title": "t"})).await;
    let chat = json!({"message": "stall", "thinking": "medium"});
    let stream = one.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let run = run_of(&stream);
    let busy = two.post(&format!("{project}/chat"), json!({"message": "plain"})).await;
    assert_eq!((busy.status, &busy.json()["runId"]), (409, &json!(run)));
    let mut reader = two.open(Method::GET, &format!("/api/runs/{run}/events"), &Value::Null).await;
    let mut shown = reader.next().await.expect("a line").to_vec();
    // A reply of a front end and a background response are runs of the same instance.
    let body = json!({"model": "m", "stream": true, "thinking": "medium",
        "messages": [{"role": "user", "content": "stall"}]});
    let front_end = one.open(Method::POST, "/ndjson/chat", &body).await;
    let front_end = format!("/runs/{}", run_of(&front_end));
    let body = json!({"model": "m", "background": true, "store": true, "input": "stall"});
    let response = send(&one, Method::POST, "/v1/responses", body).await;
    let response = format!("/v1/responses/{}", text(&response["id"]));
    one.gateway.kill().await;
    let began = Instant::now();
    let rest = reader.read_all().await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    shown.extend_from_slice(&rest.body);
    let shown = lines(&throughline_testkit::Answer { body: shown.into(), ..rest });
    assert_eq!(done(&shown)["reason"], "interrupted");
    assert_eq!(two.get(&format!("/api/runs/{run}")).await["status"], "interrupted");
    let node = two.nodes(&project, "main").await[1].clone();
    assert_eq!((&node["id"], &node["interrupted"]), (&done(&shown)["nodeId"], &json!(true)));
    assert_eq!(node["contentBlocks"][0]["thinking"], joined(&shown, "thinking"));
    assert_eq!(done(&two.say(&project, "main", "plain").await)["reason"], "completed");
    wait_until("the runs of other kinds have ended", async || {
        let front_end = send(&two, Method::GET, &front_end, Value::Null).await;
        let response = send(&two, Method::GET, &response, Value::Null).await;
        front_end["status"] == "interrupted" && response["status"] == "failed"
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(one.refusals().await, [""; 0]);
}

#[tokio::test]
async fn reader_at_another_instance_keeps_a_run_of_a_front_end_going() {
    let database = PostgresDatabase::new();
    let settings = "[runs]\ndetached = \"300ms\"\n";
    let [one, two] = Api::instances(&database, &[ANTHROPIC], SCENARIO, settings).await;
    let start = async |words: &str| {
        let body = json!({"model": "m", "stream": true, "thinking": "medium",
            "messages": [{"role": "user", "content": words}]});
        run_of(&one.open(Method::POST, "/ndjson/chat", &body).await)
    };
    // The client of the first instance is gone at once.
    let run = start("slow").await;
    let read = two.send(Method::GET, &format!("/runs/{run}/events"), &Value::Null).await;
    let read = read.expect_ok().text();
    assert!(read.contains("\"reason\":\"completed\""), "{read}");
    // One that nobody reads any more is stopped.
    let run = start("stall").await;
    let path = format!("/runs/{run}/events");
    let mut reader = two.open(Method::GET, &path, &Value::Null).await;
    assert!(reader.next().await.is_some());
    drop(reader);
    wait_until("the run is stopped", async || {
        send(&two, Method::GET, &format!("/runs/{run}"), Value::Null).await["status"] == "cancelled"
    })
    .await;
}

#[tokio::test]
async fn background_response_is_shown_and_cancelled_at_another_instance() {
    let database = PostgresDatabase::new();
    let [one, two] = Api::instances(&database, &[ANTHROPIC], SCENARIO, "").await;
    let body = |words: &str| {
        json!({"model": "m", "background": true, "store": true, "input": words,
            "reasoning": {"effort": "medium", "summary": "auto"}})
    };
    let queued = send(&one, Method::POST, "/v1/responses", body("slow")).await;
    let path = format!("/v1/responses/{}", text(&queued["id"]));
    let state = async || send(&two, Method::GET, &path, Value::Null).await;
    wait_until("its first item is shown", async || {
        let response = state().await;
        response["status"] == "in_progress" && response["output"][0].is_object()
    })
    .await;
    wait_until("its end is shown", async || state().await["status"] == "completed").await;

    let stalled = send(&one, Method::POST, "/v1/responses", body("stall")).await;
    let path = format!("/v1/responses/{}", text(&stalled["id"]));
    let cancelled = send(&two, Method::POST, &format!("{path}/cancel"), Value::Null).await;
    assert_eq!(cancelled["status"], "cancelled");
    assert_eq!(send(&one, Method::GET, &path, Value::Null).await["status"], "cancelled");
    // A run of another kind is not a response.
    let project = one.project(json!({"title": "t"})).await;
    let stream =
        one.open(Method::POST, &format!("{project}/chat"), &json!({"message": "stall"})).await;
    let run = run_of(&stream);
    let refused = two.delete(&format!("/v1/responses/{run}")).await;
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert_eq!(one.get(&format!("/api/runs/{run}")).await["status"], "running");
}
