//! Branches whose newest answer called tools: whatever comes next, the branch goes on.

use serde_json::{Value, json};

use crate::support::{ANTHROPIC, Api, CHAT, GEMINI, RESPONSES, done};
use crate::upstreams::SCENARIO;

fn tools() -> Value {
    json!([{"name": "lookup", "description": "Reads a row.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}])
}

/// Asks for two calls and returns their ids.
async fn two_calls(api: &Api, project: &str, branch: &str) -> Vec<Value> {
    let ask = json!({"branch": branch, "message": "two tools", "tools": tools()});
    let lines = api.chat(project, ask).await;
    let calls = lines.iter().filter(|line| line["type"] == "tool_call");
    let ids: Vec<Value> = calls.map(|call| call["id"].clone()).collect();
    assert_eq!(ids.len(), 2, "{lines:#?}");
    ids
}

async fn check_completes(api: &Api, project: &str, chat: Value) {
    let lines = api.chat(project, chat.clone()).await;
    assert_eq!(done(&lines)["reason"], "completed", "{chat}: {lines:#?}");
}

#[tokio::test]
async fn branch_goes_on_without_the_results_of_its_calls() {
    for backend in [ANTHROPIC, GEMINI, RESPONSES, CHAT] {
        let api = Api::over(&[backend]).await;
        for (branch, next) in [
            ("no results", json!({"message": "plain", "tools": tools()})),
            (
                "one result",
                json!({"toolResults": [{"id": "", "content": "row green"}], "tools": tools()}),
            ),
        ] {
            let project = api.project(json!({"title": branch})).await;
            let calls = two_calls(&api, &project, "main").await;
            let mut next = next;
            if next.get("toolResults").is_some() {
                next["toolResults"][0]["id"] = calls[1].clone();
            }
            check_completes(&api, &project, next).await;
            let body = api.simulators[0].last_received().await.body;
            assert!(body.contains("no result was given"), "{}: {body}", backend.0);
        }
        assert_eq!(api.refusals().await, [""; 0], "{}", backend.0);
    }
}

#[tokio::test]
async fn merge_and_edit_leave_no_open_call() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "t"})).await;
    api.say(&project, "main", "plain").await;
    api.branch(&project, json!({"name": "side"})).await;
    api.say(&project, "side", "plain").await;
    let calls = two_calls(&api, &project, "main").await;
    let merge = json!({"from": "side", "into": "main", "summary": "All is well."});
    assert_eq!(api.post(&format!("{project}/merge"), merge).await.status, 201);
    check_completes(&api, &project, json!({"message": "plain"})).await;

    // Results are words of the user, and their edit keeps the calls that they answer.
    let other = api.project(json!({"title": "u"})).await;
    let ids = two_calls(&api, &other, "main").await;
    let results: Vec<Value> =
        ids.iter().map(|id| json!({"id": id, "content": "row green"})).collect();
    check_completes(&api, &other, json!({"toolResults": results, "tools": tools()})).await;
    let node = api.nodes(&other, "main").await[2]["id"].clone();
    let edit = json!({"nodeId": node, "message": "plain, without results", "branch": "edited"});
    api.post(&format!("{other}/edit"), edit).await.expect_ok();
    let foreign = json!([{"type": "tool_result", "id": calls[0], "content": "x"}]);
    let edit = json!({"nodeId": node, "message": foreign, "branch": "foreign"});
    assert_eq!(api.post(&format!("{other}/edit"), edit).await.status, 400);
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn results_of_a_failed_turn_can_be_sent_again() {
    let failing = "[[step]]\nwhen = { contains = \"row red\" }\nfault = \"status:400\"\n\
        say = [{ text = \"Never.\" }]\n";
    let api = Api::with(&[ANTHROPIC], &format!("{SCENARIO}{failing}"), "").await;
    let project = api.project(json!({"title": "t"})).await;
    let ids = two_calls(&api, &project, "main").await;
    let results = |text: &str| {
        let results: Vec<Value> = ids.iter().map(|id| json!({"id": id, "content": text})).collect();
        json!({"toolResults": results, "tools": tools()})
    };
    let lines = api.chat(&project, results("row red")).await;
    assert_eq!(done(&lines)["reason"], "error", "{lines:#?}");
    check_completes(&api, &project, results("row green")).await;
    let body = api.simulators[0].last_received().await.body;
    assert!(!body.contains("row red"), "{body}");
}
