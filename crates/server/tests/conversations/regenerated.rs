//! Answers that are written again while a second reader is attached: both runs reach it whole.

use std::collections::HashSet;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::StreamedAnswer;
use tokio::task::JoinSet;

use crate::support::{ANTHROPIC, Api, check_cursors, done, joined, lines, run_of, text};

/// How many answers are written again, over all projects.
const ROUNDS: usize = 1_000;
/// Projects at the same time.
const PROJECTS: usize = 10;
/// Of these, projects whose answers are stopped in the middle before they are written again.
const STOPPING: usize = 3;

/// A reply stops for a moment, so that its run is in progress when the second reader comes.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "ponder" }
fault = "stall:event=8,ms=40"
say = [{ thinking = "One. Two. Three." }, { text = "Four. Five. Six." }]
[[step]]
when = { contains = "stall" }
fault = "stall:event=8,ms=600000"
say = [{ thinking = "One. Two. Three." }, { text = "Four. Five. Six." }]
"#;

/// A run with its two readers, each from the first event on.
struct ReadTwice {
    run: String,
    first: StreamedAnswer,
    second: StreamedAnswer,
}

struct Project {
    api: Arc<Api>,
    path: String,
    /// Whether its answers are stopped.
    stops: bool,
    /// How often the branch named the new run to the second reader.
    named: usize,
}

impl Project {
    async fn new(api: Arc<Api>, stops: bool) -> Self {
        let path = api.project(json!({"title": "t"})).await;
        Self { api, path, stops, named: 0 }
    }

    /// Starts a run as the first reader. The second one finds it by the branch.
    async fn start(&mut self, action: &str, body: &Value) -> ReadTwice {
        let path = format!("{}/{action}", self.path);
        let first = self.api.open(Method::POST, &path, body).await;
        let run = run_of(&first);
        let list = self.api.get(&format!("{}/branches", self.path)).await;
        // A run that has ended already is not named.
        let named = &list["branches"][0]["runId"];
        assert!(named.is_null() || *named == run, "{named} is not {run}");
        self.named += usize::from(named.is_string());
        let path = format!("/api/runs/{run}/events");
        let second = self.api.open(Method::GET, &path, &Value::Null).await;
        assert_eq!(second.status, 200);
        ReadTwice { run, first, second }
    }

    /// Writes the answer of a run again while its second reader has read only a part of it.
    async fn regenerate(&mut self, mut old: ReadTwice) -> ReadTwice {
        let mut seen = old.second.next().await.expect("a line").to_vec();
        if self.stops {
            let path = format!("/api/runs/{}/stop", old.run);
            let state = self.api.post(&path, Value::Null).await.expect_ok().json();
            assert_eq!(state["status"], "cancelled");
        }
        let first = old.first.read_all().await;
        let said = lines(&first);
        let node = &done(&said)["nodeId"];
        let again = json!({"nodeId": node, "expectedHead": node});
        let new = self.start("regenerate", &again).await;
        // The second reader gets all of the old run, and nothing of the new one.
        seen.extend_from_slice(&old.second.read_all().await.body);
        assert_eq!(String::from_utf8_lossy(&seen), first.text());
        check_cursors("ndjson", &first.text());
        let end = if self.stops { "cancelled" } else { "completed" };
        assert_eq!(done(&said)["reason"], end);
        if !self.stops {
            assert_eq!(joined(&said, "thinking"), "One. Two. Three.");
            assert_eq!(joined(&said, "text"), "Four. Five. Six.");
        }
        new
    }

    /// Returns the ids of all runs, and how often the branch named a run.
    async fn run(mut self, rounds: usize) -> (Vec<String>, usize) {
        let message = if self.stops { "stall" } else { "ponder" };
        let chat = json!({"message": message, "thinking": "medium"});
        let mut last = self.start("chat", &chat).await;
        let mut runs = vec![last.run.clone()];
        for _ in 0..rounds {
            last = self.regenerate(last).await;
            runs.push(last.run.clone());
        }
        // A run that is stopped before anything arrives has no node.
        let mut seen = last.second.next().await.expect("a line").to_vec();
        let path = format!("/api/runs/{}/stop", last.run);
        self.api.post(&path, Value::Null).await.expect_ok();
        // On a busy machine the first bytes may be the whole run.
        let mut end = last.second.read_all().await;
        seen.extend_from_slice(&end.body);
        end.body = seen.into();
        let end = lines(&end);
        // The question, and one answer for each run.
        assert_eq!(self.api.count(&self.path).await, 1 + runs.len());
        let nodes = self.api.nodes(&self.path, "main").await;
        assert_eq!((nodes.len(), text(&nodes[1]["id"])), (2, text(&done(&end)["nodeId"])));
        (runs, self.named)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_reader_gets_the_old_and_the_new_run_whole() {
    let api = Arc::new(Api::quiet(&[ANTHROPIC], SCENARIO).await);
    let mut projects = JoinSet::new();
    for number in 0..PROJECTS {
        let project = Project::new(api.clone(), number < STOPPING).await;
        projects.spawn(project.run(ROUNDS / PROJECTS));
    }
    let (mut unique, mut all, mut named) = (HashSet::new(), 0, 0);
    while let Some(project) = projects.join_next().await {
        let (runs, found) = project.expect("a project");
        all += runs.len();
        unique.extend(runs);
        named += found;
    }
    assert_eq!(unique.len(), all, "a run id was used twice");
    assert!(all > ROUNDS && named > ROUNDS / 4, "{all} runs, {named} named by their branch");
}
