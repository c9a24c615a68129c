//! Hooks: what they are received, and what they decide.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use serde_json::{Value, json};
use sha2::Sha256;
use throughline_testkit::wait_until;
use tokio::sync::watch;

use super::{Events, api, room, say};
use crate::support::{Api, text};

pub(crate) const SECRET: &str = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// A program that is called.
pub(crate) struct Receiver {
    pub(crate) url: String,
    calls: Arc<Calls>,
}

struct Calls {
    seen: watch::Sender<Vec<(HeaderMap, Value)>>,
    /// What it answers: a status, and a body.
    answer: Mutex<(u16, Value)>,
}

impl Receiver {
    pub(crate) async fn start(status: u16, body: Value) -> Self {
        let calls = Calls { seen: watch::Sender::default(), answer: Mutex::new((status, body)) };
        let calls = Arc::new(calls);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(take).with_state(calls.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, calls }
    }

    /// Waits for this many calls, and returns the bodies.
    pub(crate) async fn calls(&self, count: usize) -> Vec<Value> {
        let mut seen = self.calls.seen.subscribe();
        let seen = tokio::time::timeout(super::PATIENCE, seen.wait_for(|seen| seen.len() >= count));
        let seen = seen.await.expect("calls in time").expect("the receiver lives").clone();
        seen.into_iter().map(|(_, body)| body).collect()
    }

    fn answers(&self, status: u16, body: Value) {
        *self.calls.answer.lock() = (status, body);
    }

    pub(super) async fn add(&self, api: &Api, room: &str, trigger: &str, more: Value) -> String {
        let mut hook = json!({"trigger": trigger, "url": self.url, "secret": SECRET});
        for (name, value) in more.as_object().expect("an object") {
            hook[name] = value.clone();
        }
        let added = api.post(&format!("{room}/hooks"), hook).await;
        assert_eq!(added.status, 201, "{}", added.text());
        assert!(!added.text().contains(SECRET), "the secret is not shown");
        text(&added.json()["id"]).to_owned()
    }
}

/// Takes a call, after it has checked the signature as the scheme says.
async fn take(
    State(calls): State<Arc<Calls>>,
    headers: HeaderMap,
    body: Bytes,
) -> (StatusCode, String) {
    let header = |name: &str| headers[name].to_str().expect("text").to_owned();
    let key = BASE64_STANDARD.decode(SECRET.trim_start_matches("whsec_")).expect("base64");
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("a key");
    mac.update(format!("{}.{}.", header("webhook-id"), header("webhook-timestamp")).as_bytes());
    mac.update(&body);
    let expected = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(header("webhook-signature"), expected);
    let call: Value = serde_json::from_slice(&body).expect("JSON");
    calls.seen.send_modify(|seen| seen.push((headers, call)));
    let (status, answer) = calls.answer.lock().clone();
    (StatusCode::from_u16(status).expect("a status"), answer.to_string())
}

#[tokio::test]
async fn hooks_are_told_what_happens() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let thinking = Receiver::start(200, json!({})).await;
    let answers = Receiver::start(204, json!({})).await;
    let changes = Receiver::start(200, json!({})).await;
    thinking.add(&api, &room, "on_ai_thinking", json!({})).await;
    answers.add(&api, &room, "after_response", json!({})).await;
    changes.add(&api, &room, "on_room_change", json!({})).await;
    let (_, runs) = say(&api, &room, "@tutor hello").await;
    let received = &thinking.calls(1).await[0];
    assert_eq!(received["type"], "on_ai_thinking");
    let data = &received["data"];
    assert_eq!(data["text"], "First thought. Second thought.");
    assert_eq!((&data["signed"], &data["run"]), (&json!(true), &json!(runs[0])), "{received:#}");
    assert!(data["tokens"].as_u64().is_some(), "{received:#}");
    let run = api.get(&format!("/api/runs/{}", runs[0])).await;
    assert!(data["cost"].as_f64() > Some(0.0) && data["cost"] == run["cost"], "{run:#}");
    let received = &answers.calls(1).await[0];
    assert_eq!(received["data"]["content"], "The answer is 42.");
    assert_eq!(received["data"]["channel"], "tutor");
    assert_eq!(received["data"]["cost"], run["cost"]);
    let changes = changes.calls(2).await;
    let said: Vec<&str> = changes.iter().map(|call| text(&call["data"]["change"])).collect();
    assert!(said.contains(&"hook_added") && said.contains(&"participant_joined"), "{said:?}");
}

#[tokio::test]
async fn error_hook_gets_failed_and_refused_answers() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let errors = Receiver::start(200, json!({})).await;
    errors.add(&api, &room, "on_error", json!({})).await;
    let (_, runs) = say(&api, &room, "@tutor please break").await;
    let data = errors.calls(1).await[0]["data"].clone();
    assert_eq!((&data["kind"], &data["run"]), (&json!("interrupted"), &json!(runs[0])), "{data:#}");
    assert_eq!(data["channel"], "tutor");
    // A model that is asked again would see the message that breaks it.
    let room = super::room(&api, &[("tutor", json!({}))]).await;
    errors.add(&api, &room, "on_error", json!({})).await;
    let refuser = Receiver::start(200, json!({"action": "refuse", "reason": "no"})).await;
    refuser.add(&api, &room, "before_broadcast", json!({"blocking": true})).await;
    let (_, runs) = say(&api, &room, "@tutor hello").await;
    let calls = errors.calls(2).await;
    let data = &calls[1]["data"];
    assert_eq!((&data["kind"], &data["run"]), (&json!("refused"), &json!(runs[0])), "{data:#}");
    assert_eq!(calls.len(), 2, "each failure is one call");
}

#[tokio::test]
async fn hidden_thinking_reaches_the_hook_as_a_notice() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let thinking = Receiver::start(200, json!({})).await;
    thinking.add(&api, &room, "on_ai_thinking", json!({})).await;
    say(&api, &room, "@tutor secretly").await;
    let data = thinking.calls(1).await[0]["data"].clone();
    assert_eq!(data["text"], "[Some reasoning was hidden for safety reasons]", "{data:#}");
    assert_eq!(data["signed"], true);
}

#[tokio::test]
async fn blocking_hook_decides_about_messages() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let receiver = Receiver::start(200, json!({"action": "continue"})).await;
    receiver.add(&api, &room, "before_message", json!({"blocking": true})).await;
    say(&api, &room, "as it is").await;
    receiver.answers(200, json!({"action": "replace", "content": "as the hook says"}));
    say(&api, &room, "as I say").await;
    receiver.answers(200, json!({"action": "refuse", "reason": "not here"}));
    let message = json!({"participant": "ada", "content": "refused"});
    let refused = api.post(&format!("{room}/messages"), message).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(refused.json()["detail"], "not here");
    let history = api.get(&format!("{room}/messages")).await;
    let shown: Vec<&str> = history["nodes"]
        .as_array()
        .expect("nodes")
        .iter()
        .map(|node| text(&node["content"]))
        .collect();
    assert_eq!(shown, ["as it is", "as the hook says"]);
}

#[tokio::test]
async fn blocking_hook_decides_about_answers() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let receiver = Receiver::start(200, json!({"action": "replace", "content": "[hidden]"})).await;
    receiver.add(&api, &room, "before_broadcast", json!({"blocking": true})).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor one").await;
    let answer = events.answer_of("tutor").await;
    assert_eq!(answer["content"], "[hidden]");
    assert_eq!(receiver.calls(1).await[0]["data"]["content"], "The answer is 42.");
    receiver.answers(200, json!({"action": "refuse", "reason": "not today"}));
    let (_, runs) = say(&api, &room, "@tutor two").await;
    let error = events.until(|event| event["type"] == "ERROR").await;
    assert_eq!(error["data"], json!({"kind": "refused", "message": "not today"}));
    assert_eq!(error["run"], json!(runs[0]));
    let history = api.get(&format!("{room}/messages")).await;
    assert_eq!(history["nodes"].as_array().map(Vec::len), Some(3), "{history:#}");
    assert_eq!(api.refusals().await, [""; 0]);
}

/// Reads the events of a run until they have some text.
async fn read_text_of_run(api: &Api, run: &str) {
    let mut events =
        api.open(http::Method::GET, &format!("/api/runs/{run}/events"), &Value::Null).await;
    let mut seen = String::new();
    while !seen.contains(r#""type":"text""#) {
        seen.push_str(&String::from_utf8_lossy(&events.next().await.expect("more lines")));
    }
}

/// Who replaces an answer does not want the first one to be found elsewhere.
#[tokio::test]
async fn replaced_answer_keeps_nothing_of_the_first_one() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let receiver = Receiver::start(200, json!({"action": "replace", "content": "[hidden]"})).await;
    receiver.add(&api, &room, "before_broadcast", json!({"blocking": true})).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor one").await;
    let answer = events.answer_of("tutor").await;
    let project = text(&api.get(&room).await["project"]).to_owned();
    let path = format!("/api/projects/{project}/nodes/{}/raw", text(&answer["id"]));
    let raw = api.send(http::Method::GET, &path, &Value::Null).await;
    assert_eq!(raw.status, 404, "{}", raw.text());
    say(&api, &room, "@tutor two").await;
    events.answer_of("tutor").await;
    let request = api.simulators[0].received().await.last().expect("a request").body.clone();
    assert!(request.contains("[hidden]") && !request.contains("The answer is 42."), "{request}");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn text_of_a_stopped_answer_needs_the_hook_too() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let receiver = Receiver::start(200, json!({"action": "refuse", "reason": "not this"})).await;
    let closed = json!({"blocking": true, "onFailure": "closed"});
    receiver.add(&api, &room, "before_broadcast", closed).await;
    let errors = Receiver::start(200, json!({})).await;
    errors.add(&api, &room, "on_error", json!({})).await;
    let mut events = Events::open(&api, &room, "").await;
    let (_, runs) = say(&api, &room, "@tutor stall").await;
    read_text_of_run(&api, &runs[0]).await;
    api.post(&format!("/api/runs/{}/stop", runs[0]), json!({})).await.expect_ok();
    let error = events.until(|event| event["type"] == "ERROR").await;
    assert_eq!(error["data"], json!({"kind": "refused", "message": "not this"}));
    let asked = text(&receiver.calls(1).await[0]["data"]["content"]).to_owned();
    assert!(asked.starts_with("Secret"), "the part that arrived: {asked}");
    let history = api.get(&format!("{room}/messages")).await;
    assert_eq!(history["nodes"].as_array().map(Vec::len), Some(1), "{history:#}");
    let call = &errors.calls(1).await[0]["data"];
    assert_eq!((&call["kind"], &call["run"]), (&json!("refused"), &json!(runs[0])), "{call}");
}

/// The hook was not asked about an answer whose server has died.
#[tokio::test]
async fn text_of_a_killed_server_needs_the_hook_too() {
    let mut api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let receiver = Receiver::start(200, json!({"action": "continue"})).await;
    let closed = json!({"blocking": true, "onFailure": "closed"});
    receiver.add(&api, &room, "before_broadcast", closed).await;
    let (_, runs) = say(&api, &room, "@tutor stall").await;
    read_text_of_run(&api, &runs[0]).await;
    api.gateway.kill().await;
    api.gateway.restart().await;
    let path = format!("/api/runs/{}", runs[0]);
    wait_until("the run has ended", async || api.get(&path).await["status"] != "running").await;
    let mut events = Events::open(&api, &room, "").await;
    let error = events.until(|event| event["type"] == "ERROR").await;
    assert_eq!(error["data"]["kind"], "refused", "{error}");
    let history = api.get(&format!("{room}/messages")).await;
    assert_eq!(history["nodes"].as_array().map(Vec::len), Some(1), "{history:#}");
}

#[tokio::test]
async fn hook_hears_of_an_answer_that_was_cut() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let errors = Receiver::start(200, json!({})).await;
    errors.add(&api, &room, "on_error", json!({})).await;
    let (_, runs) = say(&api, &room, "@tutor cut").await;
    let call = errors.calls(1).await[0].clone();
    assert_eq!(call["type"], "on_error");
    let data = &call["data"];
    assert_eq!((&data["kind"], &data["run"]), (&json!("interrupted"), &json!(runs[0])), "{call}");
    assert_eq!(data["channel"], "tutor");
}

/// A hook that takes a call and never answers.
#[tokio::test]
async fn slow_hook_delays_no_other_room() {
    let api = api().await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}/", silent.local_addr().expect("an address"));
    let slow = room(&api, &[]).await;
    let hook =
        json!({"trigger": "on_room_change", "url": url, "secret": SECRET, "timeoutMs": 60000});
    assert_eq!(api.post(&format!("{slow}/hooks"), hook).await.status, 201);
    for number in 0..40 {
        let title = json!({"title": format!("title {number}")});
        api.patch(&slow, title).await.expect_ok();
    }
    let other = room(&api, &[]).await;
    let receiver = Receiver::start(200, json!({})).await;
    receiver.add(&api, &other, "on_room_change", json!({})).await;
    assert_eq!(receiver.calls(1).await[0]["data"]["change"], "hook_added");
}

#[tokio::test]
async fn hook_that_does_not_answer_is_open_or_closed() {
    let api = api().await;
    let room = room(&api, &[]).await;
    let broken = Receiver::start(500, json!({})).await;
    let more = json!({"blocking": true, "onFailure": "open", "timeoutMs": 2000});
    let open = broken.add(&api, &room, "before_message", more).await;
    say(&api, &room, "it goes on").await;
    assert_eq!(api.delete(&format!("{room}/hooks/{open}")).await.status, 204);
    let more = json!({"blocking": true, "onFailure": "closed", "timeoutMs": 2000});
    broken.add(&api, &room, "before_message", more).await;
    let message = json!({"participant": "ada", "content": "it does not"});
    let refused = api.post(&format!("{room}/messages"), message).await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert!(text(&refused.json()["detail"]).contains("status 500"), "{}", refused.text());
}

#[tokio::test]
async fn failing_call_is_repeated_then_dead_then_replayed() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let receiver = Receiver::start(503, json!({})).await;
    receiver.add(&api, &room, "after_response", json!({})).await;
    say(&api, &room, "@tutor hello").await;
    let calls = receiver.calls(3).await;
    assert_eq!(calls[0], calls[2], "it is repeated as it was");
    let ids: Vec<String> = receiver
        .calls
        .seen
        .borrow()
        .iter()
        .map(|(headers, _)| headers["webhook-id"].to_str().expect("text").to_owned())
        .collect();
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    let dead = loop {
        let dead = api.get(&format!("{room}/hooks/dead")).await;
        if let Some(first) = dead["dead"].get(0) {
            break first.clone();
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((&dead["id"], &dead["attempts"]), (&json!(ids[0]), &json!(3)), "{dead}");
    assert_eq!(dead["error"], "the hook answered with status 503");
    receiver.answers(200, json!({}));
    let path = format!("{room}/hooks/dead/{}/replay", ids[0]);
    assert_eq!(api.post(&path, json!({})).await.status, 202);
    assert_eq!(receiver.calls(4).await.len(), 4);
    loop {
        let dead = api.get(&format!("{room}/hooks/dead")).await;
        if dead["dead"] == json!([]) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(api.post(&path, json!({})).await.status, 404, "it was delivered");
}

#[tokio::test]
async fn private_addresses_are_refused_unless_allowed() {
    let api = Api::with(&[super::ANTHROPIC], super::SCENARIO, "").await;
    let room = room(&api, &[]).await;
    for url in [
        "http://127.0.0.1:9/x",
        "http://localhost/x",
        "http://[::1]/",
        "http://10.0.0.8/",
        "http://2852039166/",
        "http://127.1/",
        "http://0x7f000001/",
    ] {
        let hook = json!({"trigger": "on_error", "url": url, "secret": SECRET});
        let refused = api.post(&format!("{room}/hooks"), hook).await;
        assert_eq!(refused.status, 400, "{url}: {}", refused.text());
    }
}
