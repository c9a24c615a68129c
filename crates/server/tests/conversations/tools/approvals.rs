//! Calls that wait for a person.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{PostgresDatabase, StreamedAnswer};

use super::{SCENARIO, api, newest, of_type, results, server};
use crate::support::{ANTHROPIC, Api, done, run_of, text};

/// Reads an answer until one of its calls waits for a decision.
async fn read_until_a_call_waits(answer: &mut StreamedAnswer) -> String {
    let mut seen = String::new();
    while !seen.contains("approval_needed") {
        seen.push_str(&String::from_utf8_lossy(&answer.next().await.expect("more lines")));
    }
    seen
}

/// Asks for a sum, and decides about the call as soon as it waits. Returns the lines of the answer.
async fn decide(api: &Api, at: &Api, project: &str, message: &str, decision: Value) -> Vec<Value> {
    let ask = json!({"message": message, "tools": ["calc"]});
    let mut answer = api.open(Method::POST, &format!("{project}/chat"), &ask).await;
    let run = run_of(&answer);
    let mut seen = read_until_a_call_waits(&mut answer).await;
    let line = seen.lines().find(|line| line.contains("approval_needed")).expect("a line");
    let waiting: Value = serde_json::from_str(line).expect("a whole line");
    let call = text(&waiting["calls"][0]["id"]).to_owned();
    let path = format!("/api/runs/{run}/approvals/{call}");
    let decided = at.post(&path, decision.clone()).await;
    assert_eq!(decided.status, 204, "{}", decided.text());
    let rest = answer.read_all().await;
    assert_eq!(at.post(&path, decision).await.status, 409, "the first decision counts");
    seen.push_str(&rest.text());
    seen.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).expect("a line"))
        .collect()
}

#[tokio::test]
async fn approved_call_runs_and_a_denied_one_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("calls");
    let log = log.to_str().expect("a path");
    let api = api(&server("calc", &["--log", log], "approve = [\"add\"]")).await;
    let calls = || std::fs::read_to_string(log).unwrap_or_default().lines().count();
    let project = api.project(json!({"title": "t"})).await;
    let shown = decide(&api, &api, &project, "the sum", json!({"approve": false})).await;
    assert_eq!(done(&shown)["reason"], "completed", "{shown:#?}");
    let result = of_type(&shown, "tool_result")[0];
    assert_eq!((&result["isError"], calls()), (&json!(true), 0), "{result}");
    assert!(text(&result["content"]).contains("denied"), "{result}");
    let shown = decide(&api, &api, &project, "the sum", json!({"approve": true})).await;
    assert_eq!(of_type(&shown, "tool_result")[0]["content"], "5");
    assert_eq!(calls(), 1);
    let waiting = of_type(&shown, "approval_needed")[0];
    assert_eq!(waiting["calls"][0]["arguments"], json!({"a": 2, "b": 3}));
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn call_that_nobody_approves_is_denied_in_time() {
    let settings =
        format!("{}[tools]\napproval_timeout = \"1s\"\n", server("calc", &[], "approve = [\"*\"]"));
    let api = api(&settings).await;
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": "the sum", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    let results = results(&newest(&api, &project).await);
    assert_eq!(results, ["this call was not approved in time; it was not run"]);
}

#[tokio::test]
async fn tool_that_asks_gets_the_answer_of_a_person() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let answer = json!({"approve": true, "input": {"name": "Ada"}});
    let shown = decide(&api, &api, &project, "greet me", answer).await;
    let waiting = &of_type(&shown, "approval_needed")[0]["calls"][0];
    assert_eq!(waiting["message"], "What is your name?");
    assert_eq!(waiting["schema"]["required"], json!(["name"]), "{waiting}");
    assert_eq!(of_type(&shown, "tool_result")[0]["content"], "hello Ada", "{shown:#?}");
    let shown = decide(&api, &api, &project, "greet me", json!({"approve": false})).await;
    let result = of_type(&shown, "tool_result")[0];
    assert_eq!(text(&result["content"]), "the person does not want to be greeted", "{result}");
}

#[tokio::test]
async fn any_instance_takes_the_decision() {
    let database = PostgresDatabase::new();
    let settings = server("calc", &[], "approve = [\"add\"]");
    let [one, other] = Api::instances(&database, &[ANTHROPIC], SCENARIO, &settings).await;
    let project = one.project(json!({"title": "t"})).await;
    let shown = decide(&one, &other, &project, "the sum", json!({"approve": true})).await;
    assert_eq!(done(&shown)["reason"], "completed", "{shown:#?}");
    assert_eq!(of_type(&shown, "tool_result")[0]["content"], "5");
}

#[tokio::test]
async fn stranger_cannot_decide() {
    let api = api(&server("calc", &[], "approve = [\"add\"]")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask = json!({"message": "the sum", "tools": ["calc"]});
    let mut answer = api.open(Method::POST, &format!("{project}/chat"), &ask).await;
    let run = run_of(&answer);
    let mut seen = read_until_a_call_waits(&mut answer).await;
    let api = api.with_key("eve");
    let path = format!("/api/runs/{run}/approvals/x");
    assert_eq!(api.post(&path, json!({"approve": true})).await.status, 404);
    let api = api.with_key("ada");
    assert_eq!(api.post(&path, json!({"approve": true})).await.status, 409);
    assert_eq!(api.post(&path, json!({"approve": 1})).await.status, 400);
    api.post(&format!("/api/runs/{run}/stop"), json!({})).await.expect_ok();
    seen.push_str(&answer.read_all().await.text());
    assert!(seen.contains(r#""reason":"cancelled""#), "{seen}");
    assert!(results(&newest(&api, &project).await)[0].contains("it was not run"));
}
