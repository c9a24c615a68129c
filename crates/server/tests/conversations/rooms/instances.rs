//! Two instances on one Postgres database: rooms work through either, and no room sees another one.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{PostgresDatabase, wait_until};

use super::{Events, bind, say};
use crate::support::{ANTHROPIC, Api, text};

const ROOMS: usize = 200;
/// How many rooms are asked at the same time. All of them stay in use until the end.
const PARALLEL: usize = 32;

/// The answer repeats the words of its room, slowly.
fn scenario() -> String {
    let step = |room: usize| {
        format!(
            "[[step]]\nwhen = {{ contains = \"{0}\" }}\nfault = \"stall:event=6,ms=400\"\n\
             say = [{{ thinking = \"I think about {0}. And once more.\" }}, {{ text = \"It is {0}.\" }}]\n",
            word(room)
        )
    };
    let stalls = "[[step]]\nwhen = { contains = \"stall\" }\nfault = \"stall:event=8,ms=600000\"\n\
        say = [{ thinking = \"One. Two. Three. Four.\" }, { text = \"Five. Six. Seven.\" }]\n";
    (0..ROOMS).map(step).chain([stalls.to_owned()]).collect()
}

/// A word that only one room has.
fn word(room: usize) -> String {
    format!("word{room:03}x")
}

async fn make_room(api: &Api) -> String {
    let made = api.post("/api/rooms", json!({"title": "A room"})).await;
    let room = format!("/api/rooms/{}", text(&made.json()["id"]));
    bind(api, &room, "tutor", "intelligence", json!({})).await;
    room
}

/// Says something at one instance, reads the answer at the other, and comes back to the first one with
/// the cursor. Returns all that the readers got.
async fn use_room(number: usize, [one, two]: [&Api; 2]) -> (String, Vec<Value>) {
    let (here, there) = if number.is_multiple_of(2) { (one, two) } else { (two, one) };
    let room = make_room(here).await;
    let mut first = Events::open(there, &room, "").await;
    say(here, &room, &format!("@tutor {}", word(number))).await;
    let message = first.until(|event| event["type"] == "MESSAGE").await;
    let cursor = message["seq"].as_u64().expect("a cursor");
    // The reader hops to the instance that writes the answer.
    let mut second = Events::open(here, &room, &format!("?after={cursor}")).await;
    for reader in [&mut first, &mut second] {
        let answer = reader.answer_of("tutor").await;
        assert_eq!(answer["content"], format!("It is {}.", word(number)));
        let end = reader.seen.iter().find(|event| event["type"] == "THINKING_END");
        let thought = format!("I think about {}. And once more.", word(number));
        assert_eq!(end.expect("thinking")["data"]["text"], thought);
    }
    let seqs: Vec<u64> = second.seen.iter().filter_map(|event| event["seq"].as_u64()).collect();
    assert!(seqs.iter().all(|seq| *seq > cursor), "{seqs:?}");
    (room, [first.seen, second.seen].concat())
}

#[tokio::test]
async fn many_rooms_work_through_both_instances_and_never_mix() {
    let database = PostgresDatabase::new();
    let [one, two] = Api::instances(&database, &[ANTHROPIC], &scenario(), "").await;
    let channel = json!({"id": "tutor", "thinkingBudget": 2048});
    assert_eq!(one.post("/api/channels", channel).await.status, 201);
    let used = stream::iter(0..ROOMS).map(|number| use_room(number, [&one, &two]));
    // In order, so that the index of a room is its number.
    let rooms: Vec<(String, Vec<Value>)> = used.buffered(PARALLEL).collect().await;
    for (number, (room, seen)) in rooms.iter().enumerate() {
        let seen = json!(seen).to_string();
        let found: BTreeSet<usize> =
            (0..ROOMS).filter(|other| seen.contains(&word(*other))).collect();
        assert_eq!(found, BTreeSet::from([number]), "words of other rooms");
        // Nothing is stored twice.
        let history = two.get(&format!("{room}/messages")).await;
        assert_eq!(history["nodes"].as_array().map(Vec::len), Some(2), "{history}");
    }
    assert_eq!(one.refusals().await, [""; 0]);
}

#[tokio::test]
async fn answer_of_a_killed_instance_ends_as_interrupted_at_the_other() {
    let database = PostgresDatabase::new();
    let [mut one, two] = Api::instances(&database, &[ANTHROPIC], &scenario(), "").await;
    let channel = json!({"id": "tutor", "thinkingBudget": 2048});
    assert_eq!(one.post("/api/channels", channel).await.status, 201);
    let room = make_room(&one).await;
    let mut reader = Events::open(&two, &room, "").await;
    let (_, runs) = say(&one, &room, "@tutor stall").await;
    reader.until(|event| event["type"] == "THINKING_DELTA").await;
    one.gateway.kill().await;
    let status = async || two.get(&format!("/api/runs/{}", runs[0])).await["status"].clone();
    wait_until("the run has ended", async || status().await != "running").await;
    assert_eq!(status().await, "interrupted");
    let answer = reader.answer_of("tutor").await;
    assert_eq!(answer["interrupted"], true, "{answer}");
    let mut open: BTreeMap<String, i32> = BTreeMap::new();
    for event in &reader.seen {
        let step = match text(&event["type"]) {
            "THINKING_START" => 1,
            "THINKING_END" => -1,
            _ => continue,
        };
        *open.entry(text(&event["run"]).to_owned()).or_default() += step;
    }
    assert_eq!(open.into_values().collect::<Vec<_>>(), [0], "{:#?}", reader.seen);
    // The room goes on at the other instance.
    let (_, runs) = say(&two, &room, &format!("@tutor {}", word(1))).await;
    assert_eq!(runs.len(), 1);
    reader.answer_of("tutor").await;
    let history = two.send(Method::GET, &format!("{room}/messages"), &Value::Null).await.json();
    assert_eq!(history["nodes"].as_array().map(Vec::len), Some(4), "{history}");
}

#[tokio::test]
async fn removed_room_ends_its_readers_at_every_instance() {
    let database = PostgresDatabase::new();
    let [one, two] = Api::instances(&database, &[ANTHROPIC], &scenario(), "").await;
    let made = one.post("/api/rooms", json!({"title": "A room"})).await;
    let room = format!("/api/rooms/{}", text(&made.json()["id"]));
    let mut reader = Events::open(&two, &room, "").await;
    say(&one, &room, "hello").await;
    reader.until(|event| event["type"] == "MESSAGE").await;
    assert_eq!(one.delete(&room).await.status, 204);
    assert!(reader.next().await.is_none(), "it ends");
}
