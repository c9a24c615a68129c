//! Tools that fail: the model is told, and the answer goes on.

use serde_json::{Value, json};

use super::{api, newest, of_type, results, server};
use crate::support::{Api, done, text};

async fn result_of(api: &Api, message: &str) -> Value {
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": message, "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed", "{lines:#?}");
    assert_eq!(results(&newest(api, &project).await).len(), 1);
    of_type(&lines, "tool_result")[0].clone()
}

#[tokio::test]
async fn failed_call_is_a_result_that_says_why() {
    let api = api(&server("calc", &[], "timeout = \"1s\"")).await;
    for (message, words) in [
        ("please fail", "this tool always fails"),
        ("please wait", "did not return within 1s; it may still run"),
        ("please crash", "the tool may have run"),
        ("invented", "there is no tool `calc__nothing`"),
    ] {
        let result = result_of(&api, message).await;
        assert_eq!(result["isError"], true, "{result}");
        assert!(text(&result["content"]).contains(words), "{message}: {result}");
    }
    // The server that crashed is started again.
    assert_eq!(result_of(&api, "the sum").await["content"], "5");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn empty_reply_after_a_tool_is_not_a_completed_answer() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": "then nothing", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "empty", "{lines:#?}");
    let node = newest(&api, &project).await;
    assert_eq!(results(&node), ["say nothing"], "the finished round stays");
    assert_eq!(node["status"], "error");
}

#[tokio::test]
async fn long_result_is_cut_with_a_mark() {
    let settings = format!("{}[tools]\nmax_result = \"1KiB\"\n", server("calc", &[], ""));
    let api = api(&settings).await;
    let result = result_of(&api, "very long").await;
    let content = text(&result["content"]);
    assert!(
        content.ends_with("[cut: 98976 more bytes; a result may have 1024 bytes]"),
        "{content}"
    );
    let sent = api.simulators[0].last_received().await.body;
    assert!(sent.contains("98976 more bytes") && sent.len() < 8_000, "{sent}");
}

#[tokio::test]
async fn image_of_a_tool_reaches_the_model() {
    let api = api(&server("calc", &[], "")).await;
    let result = result_of(&api, "show me").await;
    assert_eq!(result["content"][1]["type"], "media", "{result}");
    let sent = api.simulators[0].last_received().await.json();
    let result = &sent["messages"][2]["content"][0];
    assert_eq!(result["content"][1]["type"], "image", "{result}");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn log_of_the_server_has_no_arguments_and_no_results() {
    let api = api(&server("calc", &[], "")).await;
    assert_eq!(result_of(&api, "the sum").await["isError"], false);
    let log = api.gateway.log();
    assert!(log.contains("calling a tool"), "{log}");
    assert!(!log.contains("\"a\":2") && !log.contains("echo\""), "{log}");
}
