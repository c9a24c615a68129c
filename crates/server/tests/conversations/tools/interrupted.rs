//! Loops that end early: finished rounds stay, and no call is made twice.

use http::Method;
use serde_json::json;
use throughline_testkit::wait_until;

use super::{api, newest, results, server};
use crate::support::{done, kinds, lines, run_of, text};

#[tokio::test]
async fn stop_keeps_the_finished_rounds() {
    let api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask = json!({"message": "add and wait", "tools": ["calc"]});
    let mut answer = api.open(Method::POST, &format!("{project}/chat"), &ask).await;
    let run = run_of(&answer);
    let mut seen = String::new();
    while !seen.contains("tool_result") {
        seen.push_str(&String::from_utf8_lossy(&answer.next().await.expect("more lines")));
    }
    api.post(&format!("/api/runs/{run}/stop"), json!({})).await.expect_ok();
    let rest = lines(&answer.read_all().await);
    assert_eq!(done(&rest)["reason"], "cancelled", "{rest:#?}");
    let node = newest(&api, &project).await;
    assert_eq!(kinds(&node), ["thinking", "tool_call", "tool_call", "tool_result", "tool_result"]);
    assert_eq!(node["status"], "interrupted");
    let found = results(&node);
    assert_eq!(found[0], "5");
    assert!(found[1].contains("it may have run"), "{found:?}");
    // The next turn has the round, with its signed thinking.
    let next =
        api.chat(&project, json!({"message": "plain", "tools": ["calc"], "thinking": true})).await;
    assert_eq!(done(&next)["reason"], "completed", "{next:#?}");
    let sent = api.simulators[0].last_received().await;
    assert_eq!(sent.thinking().len(), 1, "{}", sent.body);
    assert!(sent.body.contains("it may have run"), "{}", sent.body);
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn call_of_a_killed_server_is_reported_and_not_made_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("calls");
    let arguments = ["--log", log.to_str().expect("a path")];
    let mut api = api(&server("calc", &arguments, "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let ask = json!({"message": "add and wait", "tools": ["calc"]});
    let answer = api.open(Method::POST, &format!("{project}/chat"), &ask).await;
    let run = run_of(&answer);
    let calls = || std::fs::read_to_string(&log).unwrap_or_default();
    wait_until("both calls were made", async || calls().lines().count() == 2).await;
    api.gateway.kill().await;
    drop(answer);
    api.gateway.restart().await;
    // With a shared database, an instance is dead only after some seconds without a sign of life.
    let status = async || api.get(&format!("/api/runs/{run}")).await["status"].clone();
    wait_until("the run has ended", async || status().await != "running").await;
    assert_eq!(status().await, "interrupted");
    let node = newest(&api, &project).await;
    let blocks = kinds(&node);
    assert_eq!(blocks[..3], ["thinking", "tool_call", "tool_call"], "{node:#}");
    let found = results(&node);
    assert!(
        found.len() == 2 && found.iter().any(|text| text.contains("it may have run")),
        "{found:?}"
    );
    let events = api.send(Method::GET, &format!("/api/runs/{run}/events"), &json!(null)).await;
    assert_eq!(done(&lines(&events))["reason"], "interrupted");
    let next =
        api.chat(&project, json!({"message": "plain", "tools": ["calc"], "thinking": true})).await;
    assert_eq!(done(&next)["reason"], "completed", "{next:#?}");
    let sent = api.simulators[0].last_received().await;
    assert_eq!(sent.thinking()[0]["signature"], node["contentBlocks"][0]["signature"]);
    assert_eq!(calls().lines().count(), 2, "no call was made again");
    assert_eq!(api.refusals().await, [""; 0]);
}

/// Neither a tool nor a person ends by itself.
#[tokio::test]
async fn waiting_loop_ends_when_the_grace_of_a_shutdown_is_over() {
    for (message, approve) in [("please wait", ""), ("the sum", "approve = [\"add\"]")] {
        let settings = format!("shutdown_grace = \"100ms\"\n{}", server("calc", &[], approve));
        let mut api = api(&settings).await;
        let project = api.project(json!({"title": "t"})).await;
        let ask = json!({"message": message, "tools": ["calc"]});
        let mut answer = api.open(Method::POST, &format!("{project}/chat"), &ask).await;
        let run = run_of(&answer);
        let mut seen = String::new();
        while !seen.contains("tool_call") {
            seen.push_str(&String::from_utf8_lossy(&answer.next().await.expect("more lines")));
        }
        api.gateway.signal("TERM").await;
        let rest = lines(&answer.read_all().await);
        assert_eq!(done(&rest)["reason"], "interrupted", "{message}: {rest:#?}");
        api.gateway.wait_for_exit().await;
        api.gateway.restart().await;
        assert_eq!(api.get(&format!("/api/runs/{run}")).await["status"], "interrupted");
        let node = newest(&api, &project).await;
        assert_eq!(node["status"], "interrupted", "{node:#}");
        assert_eq!(results(&node).len(), 1, "the call has a result: {node:#}");
    }
}

#[tokio::test]
async fn child_ends_with_the_server() {
    let mut api = api(&server("calc", &[], "")).await;
    let project = api.project(json!({"title": "t"})).await;
    let lines = api.chat(&project, json!({"message": "the sum", "tools": ["calc"]})).await;
    assert_eq!(done(&lines)["reason"], "completed");
    let folder = text(&json!(api.gateway.folder().to_str())).to_owned();
    let children = || children_in(&folder);
    assert_eq!(children(), 1);
    api.gateway.signal("TERM").await;
    api.gateway.wait_for_exit().await;
    assert_eq!(children(), 0);
}

/// The number of MCP servers that run in a directory.
fn children_in(folder: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("a list of processes").flatten();
    let is_child = |path: std::path::PathBuf| {
        let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).into_owned();
        let place = std::fs::read_link(path.join("cwd")).unwrap_or_default();
        command.contains("simulate-mcp") && place.to_str() == Some(folder)
    };
    processes.filter(|process| is_child(process.path())).count()
}
