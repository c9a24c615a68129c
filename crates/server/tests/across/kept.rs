//! Responses that are kept: clients without a history, runs without a client, and what is left when the
//! process is not.

use http::Method;
use serde_json::{Value, json};
use throughline_simulator::{Options, Scenario};
use throughline_testkit::{Client, Gateway, Simulator, until};

use crate::speaker::{events, list, text};
use crate::support::{BINARY, House, Plan, Wrong, files, thinking_in, upstream};

const KEY: [(&str, &str); 1] = [("authorization", "Bearer ada")];
const PATH: &str = "/v1/responses";

/// An answer that is long enough to be left in the middle.
const LONG: &str = r#"
[[step]]
when = { contains = "slowly" }
say = [
  { thinking = "One step after the other." },
  { text = "That takes a while, as it is meant to, and here are some more words to wait for, one after the other, until there are enough of them for anybody to go away and to come back before the last of them has been said." },
]
"#;

#[allow(clippy::needless_pass_by_value, reason = "it is made where it is given")]
fn asked(text: &str, more: Value) -> Value {
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

async fn create(client: &Client, text: &str, more: Value) -> Value {
    let answer = client.post(PATH, &KEY, &asked(text, more)).await;
    answer.good().json()
}

async fn get(client: &Client, path: &str) -> (u16, Value) {
    let answer = client.send(Method::GET, path, &KEY, "").await;
    (answer.status, answer.json())
}

/// What a recorded request holds of the conversation, in whichever dialect.
fn turns_in(body: &Value) -> usize {
    ["messages", "contents", "input"].iter().map(|member| list(&body[*member]).count()).sum()
}

/// Covers: S4-61, S4-63
#[tokio::test]
async fn a_client_without_history_goes_on_and_forks_over_any_backend() {
    let mut wrong = Wrong::default();
    for row in ["gemini 3", "anthropic, budget", "deepseek-v4"] {
        let house = House::over(&[row]).await;
        let client = &house.gateway.client;
        let first = create(client, "ponder this", json!({})).await;
        wrong.unless_equal(row, &first["store"], &json!(true));
        let id = text(&first["id"]).to_owned();
        let more = json!({"previous_response_id": id});
        let second = create(client, "ponder more", more.clone()).await;
        wrong.unless_equal(row, text(&second["previous_response_id"]), &*id);
        let sent = house.last(0).await.json();
        wrong.unless_equal(row, turns_in(&sent), 3);
        // The older one is no further than it was.
        create(client, "something else", more).await;
        let sent = house.last(0).await.json();
        wrong.unless_equal(row, turns_in(&sent), 3);
        let second_id = text(&second["id"]);
        let on = json!({"previous_response_id": second_id});
        create(client, "and on", on).await;
        let sent = house.last(0).await.json();
        wrong.unless_equal(row, turns_in(&sent), 5);

        let path = format!("{PATH}/{second_id}");
        wrong.unless_equal(row, get(client, &path).await, (200, second.clone()));
        let (_, given) = get(client, &format!("{path}/input_items?order=asc")).await;
        // A text whose end is signed apart is two messages.
        let mut kinds: Vec<&str> = list(&given["data"])
            .map(|item| match text(&item["role"]) {
                "" => text(&item["type"]),
                role => role,
            })
            .collect();
        kinds.dedup();
        wrong.unless_equal(row, kinds, ["user", "reasoning", "assistant", "user"]);
        house.end_in_peace().await;
    }
    wrong.end();
}

#[tokio::test]
async fn reasoning_comes_back_in_its_makers_form_after_a_switch_and_a_restart() {
    let mut house = House::over(&["openai_responses", "anthropic, budget"]).await;
    let client = house.gateway.client.clone();
    // The first reply passes as it comes, and we have a copy.
    let native = create(&client, "ponder this", json!({})).await;
    let more = json!({"previous_response_id": native["id"]});
    let native = create(&client, "ponder more", more).await;
    let sent = house.last(0).await.json();
    assert_eq!((turns_in(&sent), thinking_in(&sent)), (4, 1), "items");
    house.gateway.switch("b").await;
    let more = json!({"previous_response_id": native["id"]});
    let ours = create(&client, "ponder there", more).await;
    let sent = house.last(1).await.json();
    assert_eq!((turns_in(&sent), thinking_in(&sent)), (5, 0));
    house.stop().await;
    house.gateway.start_again().await;
    let more = json!({"previous_response_id": ours["id"]});
    create(&house.gateway.client, "ponder again", more).await;
    let sent = house.last(1).await.json();
    assert_eq!((turns_in(&sent), thinking_in(&sent)), (7, 1));
    house.gateway.switch("a").await;
    let more = json!({"previous_response_id": ours["id"]});
    create(&house.gateway.client, "back again", more).await;
    let sent = house.last(0).await.json();
    assert_eq!(thinking_in(&sent), 2, "both of its own");
    house.end_in_peace().await;
}

#[tokio::test]
async fn what_is_not_there_is_told_and_nobody_gets_at_what_others_keep() {
    let house = House::over(&["gemini 3"]).await;
    let client = &house.gateway.client;
    let kept = create(client, "ponder this", json!({})).await;
    let id = text(&kept["id"]);
    let lost = json!({"previous_response_id": "resp_nobody"});
    let answer = client.post(PATH, &KEY, &asked("x", lost)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "previous_response_not_found");
    assert_eq!(answer.json()["error"]["param"], "previous_response_id");

    let eve = [("authorization", "Bearer eve")];
    let path = format!("{PATH}/{id}");
    let stolen = client.send(Method::GET, &path, &eve, "").await;
    assert_eq!(stolen.status, 404);
    let nobody = client.send(Method::GET, &path, &[], "").await;
    assert_eq!(nobody.json()["error"]["code"], "not_found");
    let stolen = json!({"previous_response_id": id});
    let answer = client.post(PATH, &eve, &asked("x", stolen)).await;
    assert_eq!(answer.status, 400);
    let item = json!({"input": [{"type": "item_reference", "id": kept["output"][0]["id"]}]});
    assert_eq!(client.post(PATH, &eve, &asked("x", item.clone())).await.status, 400);
    client.post(PATH, &KEY, &asked("x", item)).await.good();

    let gone = client.send(Method::DELETE, &path, &KEY, "").await;
    assert_eq!(gone.good().json()["deleted"], true);
    assert_eq!(get(client, &path).await.0, 404);
    // Whoever gets the bytes might read the other one.
    let twice = r#"{"model":"m","input":"x","store":false,"previous_response_id":"resp_a","previous_response_id":null}"#;
    let json = ("content-type", "application/json");
    let twice = client.send(Method::POST, PATH, &[KEY[0], json], twice).await;
    assert_eq!(twice.status, 400);
    assert_eq!(twice.json()["error"]["param"], "previous_response_id");
    let both = json!({"previous_response_id": "a", "conversation": "b"});
    assert_eq!(client.post(PATH, &KEY, &asked("x", both)).await.status, 400);
    let unkept = create(client, "ponder this", json!({"store": false})).await;
    let path = format!("{PATH}/{}", text(&unkept["id"]));
    assert_eq!(get(client, &path).await.0, 404);
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_conversation_is_named_and_grows_by_itself() {
    let house = House::over(&["anthropic, budget"]).await;
    let client = &house.gateway.client;
    let made =
        json!({"metadata": {"of": "ada"}, "items": [{"role": "user", "content": "I am Ada."}]});
    let made = client.post("/v1/conversations", &KEY, &made).await.good().json();
    let id = text(&made["id"]);
    for (text, turns) in [("ponder this", 1), ("ponder more", 3)] {
        let said = create(client, text, json!({"conversation": id})).await;
        assert_eq!(said["conversation"]["id"], id);
        assert_eq!(turns_in(&house.last(0).await.json()), turns);
    }
    let path = format!("/v1/conversations/{id}");
    let (_, items) = get(client, &format!("{path}/items?order=asc")).await;
    let last = list(&items["data"]).last().expect("items")["id"].clone();
    assert_eq!(list(&items["data"]).count(), 7);
    let one = format!("{path}/items/{}", text(&last));
    assert_eq!(get(client, &one).await.0, 200);
    client.send(Method::DELETE, &one, &KEY, "").await.good();
    assert_eq!(get(client, &one).await.0, 404);
    let (_, items) = get(client, &format!("{path}/items")).await;
    assert_eq!(list(&items["data"]).count(), 6);
    assert_eq!(get(client, &path).await.1["metadata"], json!({"of": "ada"}));
    client.send(Method::DELETE, &path, &KEY, "").await.good();
    let answer = client.post(PATH, &KEY, &asked("x", json!({"conversation": id}))).await;
    assert_eq!(answer.status, 404);
    house.end_in_peace().await;
}

/// A house over an upstream that takes its time.
async fn slow_house() -> House {
    let row = upstream("anthropic, budget");
    let simulator = Simulator::with(Options {
        identity: "a".to_owned(),
        scenario: Some(Scenario::from_toml(LONG).expect("a scenario")),
        tokens_per_second: 60,
        ..Options::default()
    })
    .await;
    let config = row.backend("a", &simulator.url);
    House { gateway: Gateway::start(BINARY, &config).await, simulators: vec![simulator] }
}

/// The numbers of events.
fn numbers(stream: &str) -> Vec<u64> {
    let number = |event: &Value| event["sequence_number"].as_u64();
    events(stream).iter().filter_map(number).collect()
}

/// Covers: case 48
#[tokio::test]
async fn a_stream_is_resumed_where_it_was_left() {
    let mut house = slow_house().await;
    let client = house.gateway.client.clone();
    let body = asked("slowly", json!({"background": true, "stream": true}));
    let mut stream = client.open(Method::POST, PATH, &KEY, body.to_string()).await;
    let mut heard = String::new();
    while numbers(&heard).len() < 5 {
        let piece = stream.next().await.expect("more of it");
        heard.push_str(&String::from_utf8_lossy(&piece));
    }
    drop(stream);
    let heard = &heard[..heard.rfind("\n\n").expect("an event") + 2];
    let first = numbers(heard);
    let id = text(&events(heard)[0]["response"]["id"]).to_owned();
    let last = first.last().expect("events");
    let path = format!("{PATH}/{id}?stream=true&starting_after={last}");
    let rest = client.send(Method::GET, &path, &KEY, "").await.good();
    let (told, rest) = (rest.text(), numbers(&rest.text()));
    let all: Vec<u64> = first.iter().chain(&rest).copied().collect();
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    let end = events(&told).last().cloned().expect("an end");
    assert_eq!(end["type"], "response.completed");

    // The same after the end, and after the process.
    for _ in 0..2 {
        let again = house.gateway.client.send(Method::GET, &path, &KEY, "").await;
        assert_eq!(again.good().text(), told);
        house.stop().await;
        house.gateway.start_again().await;
    }
    let kept = get(&house.gateway.client, &format!("{PATH}/{id}")).await.1;
    assert_eq!(kept, end["response"]);
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_run_can_be_stopped_and_a_dead_process_leaves_what_had_arrived() {
    let mut house = slow_house().await;
    let client = house.gateway.client.clone();
    let background = json!({"background": true});
    let run = create(&client, "slowly", background.clone()).await;
    assert_eq!(run["status"], "queued");
    let path = format!("{PATH}/{}", text(&run["id"]));
    let stopped = client.post(&format!("{path}/cancel"), &KEY, &json!({})).await;
    assert_eq!(stopped.good().json()["status"], "cancelled");
    assert_eq!(get(&client, &path).await.1["status"], "cancelled");
    assert_eq!(told_end(&client, &path).await, "cancelled");

    let named = client.post("/v1/conversations", &KEY, &json!({})).await.good().json();
    let id = text(&named["id"]);
    let named = json!({"background": true, "conversation": id});
    let run = create(&client, "slowly", named).await;
    let on = json!({"previous_response_id": run["id"]});
    // Whoever may not read it does not learn that it runs.
    let eve = [("authorization", "Bearer eve")];
    let stolen = client.post(PATH, &eve, &asked("x", on.clone())).await.json();
    assert_eq!(stolen["error"]["code"], "previous_response_not_found");
    let early = client.post(PATH, &KEY, &asked("and?", on)).await;
    assert_eq!(early.status, 400, "its answer would be missing");
    let path = format!("{PATH}/{}", text(&run["id"]));
    until("the thinking is complete", async || {
        list(&get(&client, &path).await.1["output"]).count() == 1
    })
    .await;
    // What is told to somebody is written within a moment; the file shows when.
    let size = || {
        let files = files(&house.gateway.folder().join("data"));
        let of_store = files.iter().filter(|(path, _)| path.contains("throughline.db-wal"));
        of_store.map(|(_, bytes)| bytes.len()).sum::<usize>()
    };
    let before = size();
    until("more is written", async || size() > before).await;
    house.gateway.kill().await;
    house.gateway.start_again().await;
    let client = house.gateway.client.clone();
    let (_, left) = get(&client, &path).await;
    assert_eq!(left["status"], "failed", "from the first moment on");
    assert!(text(&left["error"]["message"]).contains("stopped"), "{left}");
    assert_eq!(told_end(&client, &path).await, "failed");
    let (_, items) = get(&client, &format!("/v1/conversations/{id}/items")).await;
    assert_eq!(list(&items["data"]).count(), 1 + list(&left["output"]).count());
    house.end_in_peace().await;
}

/// How the last event of a run says that it ended, to somebody who comes back.
async fn told_end(client: &Client, path: &str) -> String {
    let path = format!("{path}?stream=true&starting_after=0");
    let told = client.send(Method::GET, &path, &KEY, "").await.good();
    let end = events(&told.text()).last().cloned().unwrap_or_default();
    assert_eq!(end["type"], "response.failed", "{end}");
    text(&end["response"]["status"]).to_owned()
}

#[tokio::test]
async fn a_run_nobody_waits_for_is_waited_for_at_the_end() {
    let mut house = slow_house().await;
    let run = create(&house.gateway.client, "slowly", json!({"background": true})).await;
    house.stop().await;
    house.gateway.start_again().await;
    let path = format!("{PATH}/{}", text(&run["id"]));
    let (_, ended) = get(&house.gateway.client, &path).await;
    assert_eq!(ended["status"], "completed");
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_conversation_outlives_its_responses() {
    let house = House::over(&["anthropic, budget"]).await;
    let client = &house.gateway.client;
    let named = client.post("/v1/conversations", &KEY, &json!({})).await.good().json();
    let named = json!({"conversation": named["id"]});
    let first = create(client, "ponder this", named.clone()).await;
    let path = format!("{PATH}/{}", text(&first["id"]));
    client.send(Method::DELETE, &path, &KEY, "").await.good();
    assert_eq!(get(client, &path).await.0, 404);
    let on = json!({"previous_response_id": first["id"]});
    assert_eq!(client.post(PATH, &KEY, &asked("x", on)).await.status, 400);
    create(client, "ponder more", named).await;
    assert_eq!(turns_in(&house.last(0).await.json()), 3);
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_run_that_is_deleted_leaves_its_conversation_what_had_come() {
    let house = slow_house().await;
    let client = &house.gateway.client;
    let named = client.post("/v1/conversations", &KEY, &json!({})).await;
    let id = named.good().json()["id"].clone();
    let more = json!({"background": true, "conversation": id});
    let run = create(client, "slowly", more).await;
    let path = format!("{PATH}/{}", text(&run["id"]));
    until("the thinking is complete", async || {
        list(&get(client, &path).await.1["output"]).count() == 1
    })
    .await;
    client.send(Method::DELETE, &path, &KEY, "").await.good();
    assert_eq!(get(client, &path).await.0, 404);
    let items = format!("/v1/conversations/{}/items", text(&id));
    let (_, items) = get(client, &items).await;
    let kinds: Vec<&str> = list(&items["data"]).map(|item| text(&item["type"])).collect();
    assert_eq!(kinds, ["reasoning", "message"], "the newest first");
    house.end_in_peace().await;
}

#[tokio::test]
async fn what_has_expired_or_is_too_much_is_gone_without_waiting_for_a_sweep() {
    for (settings, length) in
        [("responses = { retention = \"1s\" }", 10), ("responses = { limit = \"24KiB\" }", 10_000)]
    {
        let house =
            House::build(&Plan { upstreams: &["anthropic, budget"], settings, ..Plan::default() })
                .await;
        let client = &house.gateway.client;
        let mut first = None;
        for _ in 0..4 {
            let text = format!("ponder {}", "x".repeat(length));
            let kept = create(client, &text, json!({})).await;
            first = first.or(Some(kept));
        }
        let path = format!("{PATH}/{}", text(&first.expect("one")["id"]));
        until("the first is gone", async || get(client, &path).await.0 == 404).await;
        house.end_in_peace().await;
    }
}

#[tokio::test]
async fn a_conversation_is_forgotten_with_its_last_turn() {
    let house = House::build(&Plan {
        upstreams: &["anthropic, budget"],
        settings: "responses = { retention = \"2s\" }",
        ..Plan::default()
    })
    .await;
    let client = &house.gateway.client;
    let make = async || {
        let made = client.post("/v1/conversations", &KEY, &json!({})).await;
        made.good().json()["id"].clone()
    };
    let (empty, used) = (make().await, make().await);
    let path = |id: &Value| format!("/v1/conversations/{}", text(id));
    until("it is gone", async || {
        // Every turn keeps its conversation for as long again.
        create(client, "ponder this", json!({"conversation": used})).await;
        get(client, &path(&empty)).await.0 == 404
    })
    .await;
    assert_eq!(get(client, &path(&used)).await.0, 200);
    until("the other is gone too", async || get(client, &path(&used)).await.0 == 404).await;
    house.end_in_peace().await;
}

#[tokio::test]
async fn nothing_that_is_kept_can_be_read_at_rest_and_nothing_is_kept_without_room() {
    let mut house = House::over(&["gemini 3"]).await;
    let kept = create(&house.gateway.client, "ponder the marked sentence", json!({})).await;
    house.stop().await;
    let said = kept["output"].to_string();
    assert!(said.len() > 100);
    for (path, bytes) in files(&house.gateway.folder().join("data")) {
        let held = String::from_utf8_lossy(&bytes).into_owned();
        for word in ["marked sentence", "Blue", "ponder"] {
            assert!(!held.contains(word), "{path} holds `{word}`");
        }
    }
    let house = House::build(&Plan {
        upstreams: &["gemini 3"],
        settings: "responses = { limit = \"0B\" }",
        ..Plan::default()
    })
    .await;
    let client = &house.gateway.client;
    let unkept = create(client, "ponder this", json!({})).await;
    let path = format!("{PATH}/{}", text(&unkept["id"]));
    assert_eq!(get(client, &path).await.0, 404);
    house.end_in_peace().await;
}
