//! Stored responses: clients without a history, background runs, and what survives a killed
//! process.

use http::Method;
use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Client, Gateway, Simulator, wait_until};

use crate::support::{BINARY, BedOptions, Mismatches, TestBed, files, thinking_in, upstream};
use crate::test_client::{events, list, text};

pub(crate) const KEY: [(&str, &str); 1] = [("authorization", "Bearer ada")];
pub(crate) const PATH: &str = "/v1/responses";

/// An answer that is long enough to disconnect in the middle.
const LONG: &str = r#"
[[step]]
when = { contains = "slowly" }
say = [
  { thinking = "One step after the other." },
  { text = "That takes a while, as it is meant to, and here are some more words to wait for, one after the other, until there are enough of them for anybody to go away and to come back before the last of them has been said." },
]
"#;

#[allow(clippy::needless_pass_by_value, reason = "call sites pass a new value")]
pub(crate) fn response_request(text: &str, more: Value) -> Value {
    let mut body = json!({
        "model": "some-model",
        "input": text,
        "reasoning": {"effort": "medium", "summary": "auto"},
    });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

pub(crate) async fn create(client: &Client, text: &str, more: Value) -> Value {
    let answer = client.post(PATH, &KEY, &response_request(text, more)).await;
    answer.expect_ok().json()
}

pub(crate) async fn get(client: &Client, path: &str) -> (u16, Value) {
    let answer = client.send(Method::GET, path, &KEY, "").await;
    (answer.status, answer.json())
}

/// Counts the turns of the conversation in a recorded request of any dialect.
pub(crate) fn turns_in(body: &Value) -> usize {
    ["messages", "contents", "input"].iter().map(|member| list(&body[*member]).count()).sum()
}

/// Covers: S4-61, S4-63
#[tokio::test]
async fn client_without_history_continues_and_forks_over_any_backend() {
    let mut mismatches = Mismatches::default();
    for row in ["gemini 3", "anthropic, budget", "deepseek-v4"] {
        let bed = TestBed::over(&[row]).await;
        let client = &bed.gateway.client;
        let first = create(client, "ponder this", json!({})).await;
        mismatches.check_equal(row, &first["store"], &json!(true));
        let id = text(&first["id"]).to_owned();
        let more = json!({"previous_response_id": id});
        let second = create(client, "ponder more", more.clone()).await;
        mismatches.check_equal(row, text(&second["previous_response_id"]), &*id);
        let sent = bed.last_received(0).await.json();
        mismatches.check_equal(row, turns_in(&sent), 3);
        // The older response has not changed.
        create(client, "something else", more).await;
        let sent = bed.last_received(0).await.json();
        mismatches.check_equal(row, turns_in(&sent), 3);
        let second_id = text(&second["id"]);
        let on = json!({"previous_response_id": second_id});
        create(client, "and on", on).await;
        let sent = bed.last_received(0).await.json();
        mismatches.check_equal(row, turns_in(&sent), 5);

        let path = format!("{PATH}/{second_id}");
        mismatches.check_equal(row, get(client, &path).await, (200, second.clone()));
        let (_, given) = get(client, &format!("{path}/input_items?order=asc")).await;
        // A text with a separate signature becomes two messages.
        let mut kinds: Vec<&str> = list(&given["data"])
            .map(|item| match text(&item["role"]) {
                "" => text(&item["type"]),
                role => role,
            })
            .collect();
        kinds.dedup();
        mismatches.check_equal(row, kinds, ["user", "reasoning", "assistant", "user"]);
        bed.expect_no_refusals().await;
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn stored_reasoning_keeps_its_original_form_after_a_switch_and_a_restart() {
    let mut bed = TestBed::over(&["openai_responses", "anthropic, budget"]).await;
    let client = bed.gateway.client.clone();
    // The first reply uses the passthrough lane, and the gateway stores a copy.
    let native = create(&client, "ponder this", json!({})).await;
    let more = json!({"previous_response_id": native["id"]});
    let native = create(&client, "ponder more", more).await;
    let sent = bed.last_received(0).await.json();
    assert_eq!((turns_in(&sent), thinking_in(&sent)), (4, 1), "items");
    bed.gateway.switch("b").await;
    let more = json!({"previous_response_id": native["id"]});
    let ours = create(&client, "ponder there", more).await;
    let sent = bed.last_received(1).await.json();
    assert_eq!((turns_in(&sent), thinking_in(&sent)), (5, 0));
    bed.stop().await;
    bed.gateway.restart().await;
    let more = json!({"previous_response_id": ours["id"]});
    create(&bed.gateway.client, "ponder again", more).await;
    let sent = bed.last_received(1).await.json();
    assert_eq!((turns_in(&sent), thinking_in(&sent)), (7, 1));
    bed.gateway.switch("a").await;
    let more = json!({"previous_response_id": ours["id"]});
    create(&bed.gateway.client, "back again", more).await;
    let sent = bed.last_received(0).await.json();
    assert_eq!(thinking_in(&sent), 2, "both of its own");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn unknown_and_foreign_responses_are_not_found() {
    let bed = TestBed::over(&["gemini 3"]).await;
    let client = &bed.gateway.client;
    let kept = create(client, "ponder this", json!({})).await;
    let id = text(&kept["id"]);
    let lost = json!({"previous_response_id": "resp_nobody"});
    let answer = client.post(PATH, &KEY, &response_request("x", lost)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "previous_response_not_found");
    assert_eq!(answer.json()["error"]["param"], "previous_response_id");

    let eve = [("authorization", "Bearer eve")];
    let path = format!("{PATH}/{id}");
    let stolen = client.send(Method::GET, &path, &eve, "").await;
    assert_eq!(stolen.status, 404);
    let missing = client.send(Method::GET, &path, &[], "").await;
    assert_eq!(missing.json()["error"]["code"], "not_found");
    let stolen = json!({"previous_response_id": id});
    let answer = client.post(PATH, &eve, &response_request("x", stolen)).await;
    assert_eq!(answer.status, 400);
    let answered = list(&kept["output"]).find(|item| item["type"] == "message");
    let answered = &answered.expect("a message")["id"];
    let item = json!({"input": [{"type": "item_reference", "id": answered}]});
    assert_eq!(client.post(PATH, &eve, &response_request("x", item.clone())).await.status, 400);
    client.post(PATH, &KEY, &response_request("x", item)).await.expect_ok();

    let gone = client.send(Method::DELETE, &path, &KEY, "").await;
    assert_eq!(gone.expect_ok().json()["deleted"], true);
    assert_eq!(get(client, &path).await.0, 404);
    // Another parser could read the other value of a duplicate member, so the request is rejected.
    let twice = r#"{"model":"m","input":"x","store":false,"previous_response_id":"resp_a","previous_response_id":null}"#;
    let json = ("content-type", "application/json");
    let twice = client.send(Method::POST, PATH, &[KEY[0], json], twice).await;
    assert_eq!(twice.status, 400);
    assert_eq!(twice.json()["error"]["param"], "previous_response_id");
    let both = json!({"previous_response_id": "a", "conversation": "b"});
    assert_eq!(client.post(PATH, &KEY, &response_request("x", both)).await.status, 400);
    let unkept = create(client, "ponder this", json!({"store": false})).await;
    let path = format!("{PATH}/{}", text(&unkept["id"]));
    assert_eq!(get(client, &path).await.0, 404);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn conversation_collects_its_responses() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let client = &bed.gateway.client;
    let made =
        json!({"metadata": {"of": "ada"}, "items": [{"role": "user", "content": "I am Ada."}]});
    let made = client.post("/v1/conversations", &KEY, &made).await.expect_ok().json();
    let id = text(&made["id"]);
    for (text, turns) in [("ponder this", 1), ("ponder more", 3)] {
        let view = create(client, text, json!({"conversation": id})).await;
        assert_eq!(view["conversation"]["id"], id);
        assert_eq!(turns_in(&bed.last_received(0).await.json()), turns);
    }
    let path = format!("/v1/conversations/{id}");
    let (_, items) = get(client, &format!("{path}/items?order=asc")).await;
    let last = list(&items["data"]).last().expect("items")["id"].clone();
    assert_eq!(list(&items["data"]).count(), 7);
    let one = format!("{path}/items/{}", text(&last));
    assert_eq!(get(client, &one).await.0, 200);
    client.send(Method::DELETE, &one, &KEY, "").await.expect_ok();
    assert_eq!(get(client, &one).await.0, 404);
    let (_, items) = get(client, &format!("{path}/items")).await;
    assert_eq!(list(&items["data"]).count(), 6);
    assert_eq!(get(client, &path).await.1["metadata"], json!({"of": "ada"}));
    client.send(Method::DELETE, &path, &KEY, "").await.expect_ok();
    let answer = client.post(PATH, &KEY, &response_request("x", json!({"conversation": id}))).await;
    assert_eq!(answer.status, 404);
    bed.expect_no_refusals().await;
}

/// Starts a test bed over a slow upstream.
async fn slow_bed() -> TestBed {
    let (simulator, config) = slow_upstream().await;
    TestBed { gateway: Gateway::start(BINARY, &config).await, simulators: vec![simulator] }
}

/// Starts an upstream that answers `slowly`, and returns the configuration of its backend.
pub(crate) async fn slow_upstream() -> (Simulator, String) {
    let row = upstream("anthropic, budget");
    let simulator = Simulator::with(Options {
        identity: "a".to_owned(),
        scenario: Some(Scenario::from_toml(LONG).expect("a scenario")),
        tokens_per_second: 60,
        ..Options::default()
    })
    .await;
    let config = row.backend("a", &simulator.url);
    (simulator, config)
}

/// Returns the sequence numbers of the events.
fn sequence_numbers(stream: &str) -> Vec<u64> {
    let number = |event: &Value| event["sequence_number"].as_u64();
    events(stream).iter().filter_map(number).collect()
}

/// Covers: case 48
#[tokio::test]
async fn stream_resumes_after_the_last_received_event() {
    let mut bed = slow_bed().await;
    let client = bed.gateway.client.clone();
    let body = response_request("slowly", json!({"background": true, "stream": true}));
    let mut stream = client.open(Method::POST, PATH, &KEY, body.to_string()).await;
    let mut reading = String::new();
    while sequence_numbers(&reading).len() < 5 {
        let piece = stream.next().await.expect("more of it");
        reading.push_str(&String::from_utf8_lossy(&piece));
    }
    drop(stream);
    let reading = &reading[..reading.rfind("\n\n").expect("an event") + 2];
    let first = sequence_numbers(reading);
    let id = text(&events(reading)[0]["response"]["id"]).to_owned();
    let last = first.last().expect("events");
    let path = format!("{PATH}/{id}?stream=true&starting_after={last}");
    let rest = client.send(Method::GET, &path, &KEY, "").await.expect_ok();
    let (stream, rest) = (rest.text(), sequence_numbers(&rest.text()));
    let all: Vec<u64> = first.iter().chain(&rest).copied().collect();
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    let end = events(&stream).last().cloned().expect("an end");
    assert_eq!(end["type"], "response.completed");

    // The same after the end of the run, and after a restart.
    for _ in 0..2 {
        let again = bed.gateway.client.send(Method::GET, &path, &KEY, "").await;
        assert_eq!(again.expect_ok().text(), stream);
        bed.stop().await;
        bed.gateway.restart().await;
    }
    let kept = get(&bed.gateway.client, &format!("{PATH}/{id}")).await.1;
    assert_eq!(kept, end["response"]);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn cancelled_or_killed_run_keeps_the_received_part() {
    let mut bed = slow_bed().await;
    let client = bed.gateway.client.clone();
    let background = json!({"background": true});
    let run = create(&client, "slowly", background.clone()).await;
    assert_eq!(run["status"], "queued");
    let path = format!("{PATH}/{}", text(&run["id"]));
    let stopped = client.post(&format!("{path}/cancel"), &KEY, &json!({})).await;
    assert_eq!(stopped.expect_ok().json()["status"], "cancelled");
    assert_eq!(get(&client, &path).await.1["status"], "cancelled");
    assert_eq!(last_event_type(&client, &path).await, "cancelled");

    let named = client.post("/v1/conversations", &KEY, &json!({})).await.expect_ok().json();
    let id = text(&named["id"]);
    let named = json!({"background": true, "conversation": id});
    let run = create(&client, "slowly", named).await;
    let on = json!({"previous_response_id": run["id"]});
    // A caller without access does not learn that the run exists.
    let eve = [("authorization", "Bearer eve")];
    let stolen = client.post(PATH, &eve, &response_request("x", on.clone())).await.json();
    assert_eq!(stolen["error"]["code"], "previous_response_not_found");
    let early = client.post(PATH, &KEY, &response_request("and?", on)).await;
    assert_eq!(early.status, 400, "its answer would be missing");
    let path = format!("{PATH}/{}", text(&run["id"]));
    wait_until("the thinking is complete", async || {
        list(&get(&client, &path).await.1["output"]).count() == 1
    })
    .await;
    // Events are written shortly after they are sent. The file shows when.
    let size = || {
        let files = files(&bed.gateway.folder().join("data"));
        let of_store = files.iter().filter(|(path, _)| path.contains("throughline.db-wal"));
        of_store.map(|(_, bytes)| bytes.len()).sum::<usize>()
    };
    let before = size();
    wait_until("more is written", async || size() > before).await;
    bed.gateway.kill().await;
    bed.gateway.restart().await;
    let client = bed.gateway.client.clone();
    let (_, left) = get(&client, &path).await;
    assert_eq!(left["status"], "failed", "from the first moment on");
    assert!(text(&left["error"]["message"]).contains("stopped"), "{left}");
    assert_eq!(last_event_type(&client, &path).await, "failed");
    let (_, items) = get(&client, &format!("/v1/conversations/{id}/items")).await;
    assert_eq!(list(&items["data"]).count(), 1 + list(&left["output"]).count());
    bed.expect_no_refusals().await;
}

/// Returns the type of the last event of a run, as a returning client gets it.
async fn last_event_type(client: &Client, path: &str) -> String {
    let path = format!("{path}?stream=true&starting_after=0");
    let stream = client.send(Method::GET, &path, &KEY, "").await.expect_ok();
    let end = events(&stream.text()).last().cloned().unwrap_or_default();
    assert_eq!(end["type"], "response.failed", "{end}");
    text(&end["response"]["status"]).to_owned()
}

#[tokio::test]
async fn shutdown_waits_for_background_runs() {
    let mut bed = slow_bed().await;
    let run = create(&bed.gateway.client, "slowly", json!({"background": true})).await;
    bed.stop().await;
    bed.gateway.restart().await;
    let path = format!("{PATH}/{}", text(&run["id"]));
    let (_, ended) = get(&bed.gateway.client, &path).await;
    assert_eq!(ended["status"], "completed");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn conversation_outlives_its_responses() {
    let bed = TestBed::over(&["anthropic, budget"]).await;
    let client = &bed.gateway.client;
    let named = client.post("/v1/conversations", &KEY, &json!({})).await.expect_ok().json();
    let named = json!({"conversation": named["id"]});
    let first = create(client, "ponder this", named.clone()).await;
    let path = format!("{PATH}/{}", text(&first["id"]));
    client.send(Method::DELETE, &path, &KEY, "").await.expect_ok();
    assert_eq!(get(client, &path).await.0, 404);
    let on = json!({"previous_response_id": first["id"]});
    assert_eq!(client.post(PATH, &KEY, &response_request("x", on)).await.status, 400);
    create(client, "ponder more", named).await;
    assert_eq!(turns_in(&bed.last_received(0).await.json()), 3);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn deleting_a_run_keeps_the_received_part_in_its_conversation() {
    let bed = slow_bed().await;
    let client = &bed.gateway.client;
    let named = client.post("/v1/conversations", &KEY, &json!({})).await;
    let id = named.expect_ok().json()["id"].clone();
    let more = json!({"background": true, "conversation": id});
    let run = create(client, "slowly", more).await;
    let path = format!("{PATH}/{}", text(&run["id"]));
    wait_until("the thinking is complete", async || {
        list(&get(client, &path).await.1["output"]).count() == 1
    })
    .await;
    client.send(Method::DELETE, &path, &KEY, "").await.expect_ok();
    assert_eq!(get(client, &path).await.0, 404);
    let items = format!("/v1/conversations/{}/items", text(&id));
    let (_, items) = get(client, &items).await;
    let kinds: Vec<&str> = list(&items["data"]).map(|item| text(&item["type"])).collect();
    assert_eq!(kinds, ["reasoning", "message"], "the newest first");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn expired_and_excess_responses_are_gone_before_the_sweep() {
    for (settings, length) in
        [("responses = { retention = \"1s\" }", 10), ("responses = { limit = \"24KiB\" }", 10_000)]
    {
        let bed = TestBed::build(&BedOptions {
            upstreams: &["anthropic, budget"],
            settings,
            ..BedOptions::default()
        })
        .await;
        let client = &bed.gateway.client;
        let mut first = None;
        for _ in 0..4 {
            let text = format!("ponder {}", "x".repeat(length));
            let kept = create(client, &text, json!({})).await;
            first = first.or(Some(kept));
        }
        let path = format!("{PATH}/{}", text(&first.expect("one")["id"]));
        wait_until("the first is gone", async || get(client, &path).await.0 == 404).await;
        bed.expect_no_refusals().await;
    }
}

#[tokio::test]
async fn conversation_expires_with_its_last_turn() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget"],
        settings: "responses = { retention = \"2s\" }",
        ..BedOptions::default()
    })
    .await;
    let client = &bed.gateway.client;
    let make = async || {
        let made = client.post("/v1/conversations", &KEY, &json!({})).await;
        made.expect_ok().json()["id"].clone()
    };
    let (empty, used) = (make().await, make().await);
    let path = |id: &Value| format!("/v1/conversations/{}", text(id));
    wait_until("it is gone", async || {
        // Every turn extends the life of its conversation.
        create(client, "ponder this", json!({"conversation": used})).await;
        get(client, &path(&empty)).await.0 == 404
    })
    .await;
    assert_eq!(get(client, &path(&used)).await.0, 200);
    wait_until("the other is gone too", async || get(client, &path(&used)).await.0 == 404).await;
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn stored_responses_are_encrypted_and_need_storage() {
    let mut bed = TestBed::over(&["gemini 3"]).await;
    let kept = create(&bed.gateway.client, "ponder the marked sentence", json!({})).await;
    bed.stop().await;
    let view = kept["output"].to_string();
    assert!(view.len() > 100);
    for (path, bytes) in files(&bed.gateway.folder().join("data")) {
        let held = String::from_utf8_lossy(&bytes).into_owned();
        for word in ["marked sentence", "Blue", "ponder"] {
            assert!(!held.contains(word), "{path} holds `{word}`");
        }
    }
    let bed = TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        settings: "responses = { limit = \"0B\" }",
        ..BedOptions::default()
    })
    .await;
    let client = &bed.gateway.client;
    let unkept = create(client, "ponder this", json!({})).await;
    let path = format!("{PATH}/{}", text(&unkept["id"]));
    assert_eq!(get(client, &path).await.0, 404);
    bed.expect_no_refusals().await;
}
