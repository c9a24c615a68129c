//! Servers that are killed or stopped in the middle of answers.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::support::{ANTHROPIC, Api, Database, Random, done, joined, lines, text};

/// How often the server is killed.
const KILLS: usize = 50;
/// The same on a shared database, where the next server waits some seconds before it takes the runs of
/// one that may be alive.
const KILLS_ON_POSTGRES: usize = 8;
/// The longest time from a question to a kill. An answer takes about as long.
const MAX_DELAY_MS: usize = 160;

/// Words without an answer stay in the request, so the step of the next turn comes first.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
when = { contains = "long" }
fault = "stall:event=14,ms=60"
say = [
  { thinking = "One. Two. Three. Four. Five. Six. Seven. Eight. Nine. Ten." },
  { text = "And one. And two. And three. And four. And five. And six. And seven." },
]
[[step]]
when = { contains = "stall" }
fault = "stall:event=12,ms=600000"
say = [{ thinking = "One. Two. Three. Four. Five. Six. Seven." }, { text = "Never." }]
"#;

/// What the client of a turn knew when the server was killed.
#[derive(Debug, Default)]
struct Seen {
    /// The run; `None` if the turn was not acknowledged.
    run: Option<String>,
    /// The complete lines.
    lines: Vec<Value>,
}

/// Asks, and reads until a moment.
async fn ask_until(api: &Api, project: &str, words: &str, end: Instant) -> Seen {
    let mut seen = Seen::default();
    let chat = json!({"message": words, "thinking": "medium"});
    let path = format!("{project}/chat");
    let Ok(mut stream) = timeout_at(end, api.open(Method::POST, &path, &chat)).await else {
        return seen;
    };
    assert_eq!(stream.status, 200);
    seen.run = Some(stream.headers["x-throughline-run"].to_str().expect("an id").to_owned());
    let mut bytes = Vec::new();
    while let Ok(Some(Ok(piece))) = timeout_at(end, stream.try_next()).await {
        bytes.extend_from_slice(&piece);
    }
    let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let complete = String::from_utf8_lossy(&bytes[..complete]).into_owned();
    seen.lines = complete.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    seen
}

/// The lines of a run, when it has ended.
async fn read_to_the_end(api: &Api, run: &str) -> Vec<Value> {
    let path = format!("/api/runs/{run}/events");
    lines(&api.send(Method::GET, &path, &Value::Null).await.expect_ok())
}

/// Checks what the server knows after it was killed.
async fn check_after_kill(api: &Api, project: &str, words: &str, seen: &Seen) {
    // A turn that was not acknowledged may have started, too.
    let branch = api.get(project).await["branches"][0].clone();
    if let Some(run) = branch["runId"].as_str() {
        read_to_the_end(api, run).await;
    }
    let nodes = api.nodes(project, "main").await;
    let question = nodes.iter().position(|node| node["content"] == words);
    let Some(run) = &seen.run else {
        return;
    };
    let question = question.unwrap_or_else(|| panic!("`{words}` is lost"));
    let log = read_to_the_end(api, run).await;
    let state = api.get(&format!("/api/runs/{run}")).await;
    let status = text(&state["status"]);
    assert!(["interrupted", "completed"].contains(&status), "{state}");
    assert_eq!(log[..seen.lines.len()], seen.lines, "the log begins as the reader saw it");
    let end = done(&log);
    assert_eq!(end["reason"], status);
    let Some(answer) = nodes.get(question + 1) else {
        // Nothing had arrived.
        assert_eq!((&end["nodeId"], log.len()), (&Value::Null, 2), "{log:?}");
        return;
    };
    assert_eq!((&answer["id"], &state["nodeId"]), (&end["nodeId"], &end["nodeId"]));
    let is_interrupted = status == "interrupted";
    assert_eq!(answer["interrupted"], is_interrupted, "{answer}");
    let blocks = answer["contentBlocks"].as_array().expect("a list");
    let stored = |kind: &str| -> String {
        blocks.iter().map(|block| text(&block[kind])).collect::<String>()
    };
    for kind in ["thinking", "text"] {
        assert_eq!(stored(kind), joined(&log, kind));
        assert!(stored(kind).starts_with(&joined(&seen.lines, kind)), "{answer} {seen:?}");
    }
}

/// How often the server is killed. `TEST_KILLS` says another number, for a long run by hand.
fn kills() -> usize {
    let number = |text: String| text.parse().unwrap_or_else(|_| panic!("TEST_KILLS is `{text}`"));
    let default = match Database::chosen() {
        Database::Sqlite => KILLS,
        Database::Postgres => KILLS_ON_POSTGRES,
    };
    std::env::var("TEST_KILLS").map_or(default, number)
}

/// Covers: X-3
#[tokio::test]
async fn killed_server_loses_nothing_that_it_had_shown() {
    let mut api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let mut random = Random(0x0bad_5eed);
    let (mut interrupted, mut completed) = (0, 0);
    let kills = kills();
    for kill in 0..kills {
        // A new project, because words that were not acknowledged may be there or not.
        let project = api.project(json!({"title": "t"})).await;
        let words = format!("a long answer, number {kill}");
        let delay = Duration::from_millis(random.below(MAX_DELAY_MS) as u64);
        let seen = ask_until(&api, &project, &words, Instant::now() + delay).await;
        api.gateway.kill().await;
        api.gateway.restart().await;
        check_after_kill(&api, &project, &words, &seen).await;
        let next = api.say(&project, "main", "plain").await;
        assert_eq!(
            (&done(&next)["reason"], joined(&next, "text")),
            (&json!("completed"), "Just a text.".to_owned())
        );
        let shown = seen.lines.last().map(|line| text(&line["type"]).to_owned());
        match shown.as_deref() {
            Some("done") => completed += 1,
            Some(_) => interrupted += 1,
            None => {}
        }
    }
    assert!(interrupted > kills / 5, "{kills} kills: {interrupted} inside, {completed} after");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn stopped_server_ends_its_runs_as_interrupted() {
    let mut api = Api::with(&[ANTHROPIC], SCENARIO, "shutdown_grace = \"100ms\"\n").await;
    let project = api.project(json!({"title": "t"})).await;
    let chat = json!({"message": "stall", "thinking": "medium"});
    let mut stream = api.open(Method::POST, &format!("{project}/chat"), &chat).await;
    let run = stream.headers["x-throughline-run"].to_str().expect("an id").to_owned();
    let mut shown = stream.next().await.expect("a line").to_vec();
    api.gateway.signal("TERM").await;
    shown.extend_from_slice(&stream.read_all().await.body);
    assert_eq!(api.gateway.wait_for_exit().await, Some(0));
    let shown = String::from_utf8(shown).expect("text");
    let shown: Vec<Value> =
        shown.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(done(&shown)["reason"], "interrupted");
    let error = shown.iter().find(|line| line["type"] == "error").expect("an error");
    assert!(text(&error["message"]).contains("the server is stopping"), "{error}");
    api.gateway.restart().await;
    // It was ended by the server that stopped, not by the next one.
    assert!(!api.gateway.log().contains("ending a run whose server has stopped"));
    let state = api.get(&format!("/api/runs/{run}")).await;
    assert_eq!(
        (&state["status"], &state["nodeId"]),
        (&json!("interrupted"), &done(&shown)["nodeId"])
    );
    let node = api.nodes(&project, "main").await[1].clone();
    assert_eq!((&node["status"], &node["interrupted"]), (&json!("interrupted"), &json!(true)));
    assert_eq!(node["contentBlocks"][0]["thinking"], joined(&shown, "thinking"));
    assert_eq!(done(&api.say(&project, "main", "plain").await)["reason"], "completed");
}

/// A provider that has not answered when the server stops.
#[tokio::test]
async fn stopped_server_ends_a_run_without_a_reply_as_interrupted() {
    let upstream = throughline_testkit::RawUpstream::start().await;
    let config = format!(
        "shutdown_grace = \"100ms\"\n[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\n\
         base_url = \"{}\"\ndefault_model = \"claude-sonnet-4-5\"\n",
        upstream.url
    );
    let gateway = throughline_testkit::Gateway::start(crate::support::BINARY, &config).await;
    let mut api = Api::of(gateway);
    let project = api.project(json!({"title": "t"})).await;
    let stream = api.open(Method::POST, &format!("{project}/chat"), &json!({"message": "x"})).await;
    let run = stream.headers["x-throughline-run"].to_str().expect("an id").to_owned();
    let _silent = upstream.next().await;
    api.gateway.signal("TERM").await;
    let shown = lines(&stream.read_all().await);
    assert_eq!(
        (&done(&shown)["reason"], &done(&shown)["nodeId"]),
        (&json!("interrupted"), &Value::Null)
    );
    assert_eq!(api.gateway.wait_for_exit().await, Some(0));
    api.gateway.restart().await;
    assert_eq!(api.get(&format!("/api/runs/{run}")).await["status"], "interrupted");
    assert_eq!(api.nodes(&project, "main").await.len(), 1);
}
