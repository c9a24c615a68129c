//! Turns that break: a cut provider, a stop, an empty reply, a refusal.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, ok_reply, wait_until};

use crate::support::{ANTHROPIC, Api, BINARY, check_cursors, done, joined, kinds, lines, text};

/// Words without an answer stay in the request, so the step of the next turn comes first.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
when = { contains = "cut" }
fault = "cut:event=12"
say = [{ thinking = "One. Two. Three. Four. Five. Six. Seven." }, { text = "Never." }]
[[step]]
when = { contains = "stall" }
fault = "stall:event=12,ms=600000"
say = [{ thinking = "One. Two. Three. Four. Five. Six. Seven." }, { text = "Never." }]
[[step]]
when = { contains = "slow" }
fault = "stall:event=12,ms=1500"
say = [{ text = "One. Two. Three. Four. Five. Six. Seven." }]
[[step]]
when = { contains = "refused" }
fault = "status:400"
say = [{ text = "Never." }]
"#;

fn thinking(message: &str) -> Value {
    json!({"message": message, "thinking": "medium"})
}

/// Covers: S0-69, S4-55, case 10
#[tokio::test]
async fn cut_reply_keeps_what_had_arrived_and_is_not_replayed() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let answer = api.post(&format!("{project}/chat"), thinking("cut")).await.expect_ok();
    let lines = lines(&answer);
    let thought = joined(&lines, "thinking");
    assert!(thought.starts_with("One"), "{lines:#?}");
    assert!(lines.iter().any(|line| line["type"] == "error" && line["message"].is_string()));
    assert_eq!(done(&lines)["reason"], "interrupted");
    let node = api.nodes(&project, "main").await[1].clone();
    assert_eq!(done(&lines)["nodeId"], node["id"]);
    assert_eq!((&node["status"], &node["interrupted"]), (&json!("interrupted"), &json!(true)));
    assert_eq!(kinds(&node), ["thinking"]);
    assert_eq!(node["contentBlocks"][0]["thinking"], thought);
    let raw = api.get(&format!("{project}/nodes/{}/raw", text(&node["id"]))).await;
    assert!(raw["payload"].as_array().is_some_and(|events| !events.is_empty()), "{raw}");
    let run = api.get(&format!("/api/runs/{}", answer.header("x-throughline-run"))).await;
    assert_eq!(run["status"], "interrupted");
    // The next turn works, without the cut block.
    assert_eq!(done(&api.chat(&project, thinking("plain")).await)["reason"], "completed");
    assert!(!api.simulators[0].last_received().await.body.contains("One. Two."));
    assert_eq!(api.refusals().await, [""; 0]);
}

/// Covers: case 42
#[tokio::test]
async fn stopped_run_is_cancelled_and_its_branch_is_free_again() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let chat = format!("{project}/chat");
    let mut stream = api.open(Method::POST, &chat, &thinking("stall")).await;
    let run = stream.headers["x-throughline-run"].to_str().unwrap().to_owned();
    let mut begun = stream.next().await.expect("a line").to_vec();
    // The branch has one run at a time.
    let busy = api.post(&chat, json!({"message": "plain"})).await;
    assert_eq!((busy.status, &busy.json()["runId"]), (409, &json!(run)), "{}", busy.text());
    let list = api.get(&format!("{project}/branches")).await;
    assert_eq!(list["branches"][0]["runId"], run);
    assert_eq!(api.delete(&format!("{project}/branches/main")).await.status, 409);
    let merge = json!({"from": "main", "into": "main"});
    assert_eq!(api.post(&format!("{project}/merge"), merge).await.status, 400);
    assert_eq!(api.get(&format!("/api/runs/{run}")).await["status"], "running");
    let stopped = api.post(&format!("/api/runs/{run}/stop"), Value::Null).await.expect_ok().json();
    assert_eq!(stopped["status"], "cancelled");
    begun.extend_from_slice(&stream.read_all().await.body);
    let text_of_lines = String::from_utf8(begun).unwrap();
    let last = text_of_lines.trim_end().lines().last().expect("a line").to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["type"], &last["reason"]), (&json!("done"), &json!("cancelled")));
    assert_eq!(last["nodeId"], stopped["nodeId"]);
    let node = api.nodes(&project, "main").await[1].clone();
    assert_eq!((&node["status"], &node["interrupted"]), (&json!("interrupted"), &json!(true)));
    // A second stop changes nothing.
    let again = api.post(&format!("/api/runs/{run}/stop"), Value::Null).await.expect_ok().json();
    assert_eq!(again["status"], "cancelled");
    assert_eq!(done(&api.say(&project, "main", "plain").await)["reason"], "completed");
}

/// Covers: X-2
#[tokio::test]
async fn disconnect_is_not_a_stop() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let path = format!("{project}/chat");
    let mut stream = api.open(Method::POST, &path, &json!({"message": "slow"})).await;
    let run = stream.headers["x-throughline-run"].to_str().unwrap().to_owned();
    assert!(stream.next().await.is_some());
    drop(stream);
    wait_until("the run has ended", async || {
        api.get(&format!("/api/runs/{run}")).await["status"] != "running"
    })
    .await;
    assert_eq!(api.get(&format!("/api/runs/{run}")).await["status"], "completed");
    let node = api.nodes(&project, "main").await[1].clone();
    assert_eq!(node["content"], "One. Two. Three. Four. Five. Six. Seven.");
}

/// Covers: case 43
#[tokio::test]
async fn empty_reply_is_an_error_without_a_node() {
    let chunk = r#"data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"stop"}]}"#;
    let chat = format!("{chunk}\n\ndata: [DONE]\n\n");
    // A block that begins and has no text.
    let message = r#"{"id":"m","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":0}}"#;
    let anthropic = [
        ("message_start", format!(r#""message":{message}"#)),
        (
            "content_block_start",
            r#""index":0,"content_block":{"type":"text","text":""}"#.to_owned(),
        ),
        ("content_block_stop", r#""index":0"#.to_owned()),
        (
            "message_delta",
            r#""delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":0}"#.to_owned(),
        ),
        ("message_stop", r#""x":0"#.to_owned()),
    ]
    .map(|(name, data)| format!("event: {name}\ndata: {{\"type\":\"{name}\",{data}}}\n\n"))
    .concat();
    for (dialect, stream) in [("openai_chat", chat), ("anthropic", anthropic)] {
        let reply = ok_reply("text/event-stream", "", stream);
        let url = RawUpstream::always_answering(reply).await;
        let config = format!(
            "[[backend]]\nname = \"a\"\ndialect = \"{dialect}\"\nbase_url = \"{url}\"\ndefault_model = \"m\"\n"
        );
        let api = Api::of(Gateway::start(BINARY, &config).await);
        check_empty_reply(&api).await;
    }
}

async fn check_empty_reply(api: &Api) {
    let project = api.project(json!({"title": "t"})).await;
    let answer = api.post(&format!("{project}/chat"), json!({"message": "hi"})).await.expect_ok();
    let said = lines(&answer);
    assert_eq!(said.iter().filter(|line| line["type"] == "error").count(), 1, "{said:#?}");
    // Every line has a number, so a reader can go on after each of them.
    check_cursors("ndjson", &answer.text());
    assert_eq!((&done(&said)["reason"], &done(&said)["nodeId"]), (&json!("empty"), &Value::Null));
    let id = answer.header("x-throughline-run");
    for (at, line) in said.iter().enumerate() {
        let path = format!("/api/runs/{id}/events?after={}", line["seq"]);
        let rest = lines(&api.send(Method::GET, &path, &Value::Null).await.expect_ok());
        assert_eq!(rest, said[at + 1..], "{line}");
    }
    let run = api.get(&format!("/api/runs/{id}")).await;
    assert_eq!((&run["status"], &run["nodeId"]), (&json!("error"), &Value::Null));
    let nodes = api.nodes(&project, "main").await;
    assert_eq!((nodes.len(), text(&nodes[0]["content"])), (1, "hi"));
}

#[tokio::test]
async fn refused_turn_is_an_error_line_and_keeps_the_users_words() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let answer =
        api.post(&format!("{project}/chat"), json!({"message": "refused"})).await.expect_ok();
    let lines = lines(&answer);
    let error = lines.iter().find(|line| line["type"] == "error").expect("an error");
    assert!(error["kind"].is_string() && error["seq"].is_u64(), "{error}");
    assert_eq!((&done(&lines)["reason"], &done(&lines)["nodeId"]), (&json!("error"), &Value::Null));
    let run = api.get(&format!("/api/runs/{}", answer.header("x-throughline-run"))).await;
    assert_eq!((&run["status"], &run["nodeId"]), (&json!("error"), &Value::Null));
    assert_eq!(api.nodes(&project, "main").await.len(), 1);
    // Words without an answer are part of the history.
    assert_eq!(done(&api.say(&project, "main", "plain").await)["reason"], "completed");
}

#[tokio::test]
async fn repeated_request_id_returns_the_same_run() {
    let api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let path = format!("{project}/chat");
    let chat = json!({"message": "plain", "clientRequestId": "r1"});
    let first = api.post(&path, chat.clone()).await.expect_ok();
    let second = api.post(&path, chat).await.expect_ok();
    assert_eq!(first.header("x-throughline-run"), second.header("x-throughline-run"));
    assert_eq!(first.text(), second.text());
    assert_eq!((api.count(&project).await, api.simulators[0].received().await.len()), (2, 1));
    // The name belongs to the project.
    let other = api.project(json!({"title": "t"})).await;
    let chat = json!({"message": "plain", "clientRequestId": "r1"});
    let third = api.post(&format!("{other}/chat"), chat).await.expect_ok();
    assert_ne!(first.header("x-throughline-run"), third.header("x-throughline-run"));
}

#[tokio::test]
async fn killed_server_leaves_an_interrupted_node() {
    let mut api = Api::with(&[ANTHROPIC], SCENARIO, "").await;
    let project = api.project(json!({"title": "t"})).await;
    let path = format!("{project}/chat");
    let mut stream = api.open(Method::POST, &path, &thinking("stall")).await;
    let run = stream.headers["x-throughline-run"].to_str().unwrap().to_owned();
    let begun = String::from_utf8(stream.next().await.expect("a line").to_vec()).unwrap();
    let first: Value = serde_json::from_str(begun.lines().next().expect("a line")).unwrap();
    api.gateway.kill().await;
    api.gateway.restart().await;
    // A reader of the run waits for its end, which may take some seconds on a shared database.
    let events = format!("/api/runs/{run}/events");
    api.send(Method::GET, &events, &Value::Null).await.expect_ok();
    assert_eq!(api.get(&format!("/api/runs/{run}")).await["status"], "interrupted");
    let node = api.nodes(&project, "main").await[1].clone();
    let shown = text(&node["contentBlocks"][0]["thinking"]);
    assert!(shown.starts_with(text(&first["content"])), "{first} {node}");
    // A reader goes on where it was cut.
    let after = format!("/api/runs/{run}/events?after={}", first["seq"]);
    let rest = lines(&api.send(Method::GET, &after, &Value::Null).await.expect_ok());
    assert_eq!(format!("{}{}", text(&first["content"]), joined(&rest, "thinking")), shown);
    assert_eq!(
        (&done(&rest)["reason"], &done(&rest)["nodeId"]),
        (&json!("interrupted"), &node["id"])
    );
    assert_eq!(done(&api.say(&project, "main", "plain").await)["reason"], "completed");
}
