//! The path of the tutorial: create a project, chat, read what was stored.

use serde_json::json;

use crate::support::{ANTHROPIC, Api, done, joined, kinds, text};

/// Covers: S4-1, S4-3, S4-4, S4-5, S4-27, S4-52, S4-53, S4-54
#[tokio::test]
async fn chat_streams_lines_and_stores_two_nodes() {
    let api = Api::over(&[ANTHROPIC]).await;
    let project = api.project(json!({"title": "Birds"})).await;
    let body = json!({
        "branch": "main",
        "message": "please ponder this",
        "thinking": {"budget": 2048},
    });
    let answer = api.post(&format!("{project}/chat"), body).await.expect_ok();
    assert_eq!(answer.header("content-type"), "application/x-ndjson");
    let lines = crate::support::lines(&answer);
    assert_eq!(joined(&lines, "thinking"), "First this, then that.");
    assert_eq!(joined(&lines, "text"), "I have thought.");
    let seqs: Vec<u64> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    let end = done(&lines);
    assert_eq!(end["reason"], "completed");
    assert!(end["usage"]["output"].as_u64() > Some(0), "{end}");
    assert_eq!(end["nodeId"], answer.header("x-throughline-node"));
    let nodes = api.nodes(&project, "main").await;
    let roles: Vec<&str> = nodes.iter().map(|node| text(&node["role"])).collect();
    assert_eq!(roles, ["user", "assistant"]);
    assert_eq!(nodes[1]["id"], end["nodeId"]);
    assert_eq!(nodes[1]["parent"], nodes[0]["id"]);
    assert_eq!(kinds(&nodes[1]), ["thinking", "text"]);
    assert_eq!(nodes[1]["content"], "I have thought.");
    assert_eq!(nodes[1]["modelUsed"], "claude-sonnet-4-5");
    assert_eq!(nodes[1]["createdOnBranch"], "main");
    assert_eq!(
        (&nodes[1]["status"], &nodes[1]["has_thinking"]),
        (&json!("complete"), &json!(true))
    );
    let run = api.get(&format!("/api/runs/{}", answer.header("x-throughline-run"))).await;
    assert_eq!((&run["status"], &run["nodeId"]), (&json!("completed"), &end["nodeId"]));
    assert_eq!(api.refusals().await, [""; 0]);
}
