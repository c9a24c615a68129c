//! Rooms of shared projects: who may read them, and until when.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Answer, StreamedAnswer};

use super::Person;
use super::sharing::{chat_key, next_key, sealed_project, with_key};
use crate::rooms::hooks::{Receiver, SECRET};
use crate::support::{ANTHROPIC, Api, text};

/// How long a stream may take to end.
const MAX_WAIT: Duration = Duration::from_secs(30);

const SCENARIO: &str = "[[step]]\nsay = [{ text = \"Just a text.\" }]\n";

async fn api() -> Api {
    let hooks = "[hooks]\nallow_private = true\nfirst_pause = \"50ms\"\n";
    Api::with(&[ANTHROPIC], SCENARIO, hooks).await
}

fn id(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// A project of Ada that Bob is a member of, and a room on it.
async fn shared_room(ada: &Person<'_>) -> (String, String) {
    let project = ada.project(json!({"title": "Herons"})).await;
    let added = ada.post(&format!("{project}/members"), json!({"name": "bob"})).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let new = json!({"title": "A room", "project": id(&project)});
    let made = ada.post("/api/rooms", new).await;
    assert_eq!(made.status, 201, "{}", made.text());
    (project, format!("/api/rooms/{}", text(&made.json()["id"])))
}

/// The rest of a stream that ends by itself.
async fn end_of(events: StreamedAnswer) -> Answer {
    tokio::time::timeout(MAX_WAIT, events.read_all()).await.expect("the stream ends")
}

/// Reads until the events have a text.
async fn read_until(events: &mut StreamedAnswer, wanted: &str) {
    let mut seen = String::new();
    while !seen.contains(wanted) {
        seen.push_str(&String::from_utf8_lossy(&events.next().await.expect("more events")));
    }
}

/// Half a second more than promised, for a busy machine.
fn check_soon(since: Instant) {
    assert!(since.elapsed() < Duration::from_millis(1500), "{:?}", since.elapsed());
}

#[tokio::test]
async fn removed_member_stops_reading_a_room_within_a_second() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "bob").await;
    let (project, room) = shared_room(&ada).await;
    let say = async |person: &Person<'_>, content: &str| {
        let message = json!({"participant": "someone", "content": content});
        let said = person.post(&format!("{room}/messages"), message).await;
        assert_eq!(said.status, 202, "{}", said.text());
    };
    let path = format!("{room}/events");
    let mut own = ada.open(Method::GET, &path, &[], &Value::Null).await;
    let mut others = bob.open(Method::GET, &path, &[], &Value::Null).await;
    say(&bob, "firstword").await;
    read_until(&mut own, "firstword").await;
    read_until(&mut others, "firstword").await;
    assert_eq!(ada.delete(&format!("{project}/members/bob")).await.status, 204);
    let removed = Instant::now();
    let rest = end_of(others).await;
    check_soon(removed);
    say(&ada, "secondword").await;
    read_until(&mut own, "secondword").await;
    assert!(!rest.text().contains("secondword"));
    assert_eq!(bob.get(&path).await.status, 404);
}

#[tokio::test]
async fn hook_leaves_with_the_member_who_added_it() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "bob").await;
    let (project, room) = shared_room(&ada).await;
    let [adas, bobs] =
        [Receiver::start(200, json!({})).await, Receiver::start(200, json!({})).await];
    for (person, receiver) in [(&bob, &bobs), (&ada, &adas)] {
        let hook = json!({"trigger": "on_room_change", "url": receiver.url, "secret": SECRET});
        let added = person.post(&format!("{room}/hooks"), hook).await;
        assert_eq!(added.status, 201, "{}", added.text());
    }
    // Both of them hear of the second hook.
    assert_eq!(adas.calls(1).await.len(), 1);
    assert_eq!(bobs.calls(2).await.len(), 2);
    assert_eq!(ada.delete(&format!("{project}/members/bob")).await.status, 204);
    let hooks = ada.get(&format!("{room}/hooks")).await.expect_ok().json();
    assert_eq!(hooks["hooks"].as_array().map(Vec::len), Some(1), "{hooks}");
    // The calls of one change begin in the order of the hooks, and Bob's came first.
    let title = json!({"title": "Without Bob"});
    ada.send(Method::PATCH, &room, &title).await.expect_ok();
    assert_eq!(adas.calls(2).await[1]["data"]["change"], "title");
    assert_eq!(bobs.calls(2).await.len(), 2, "he hears nothing more");
}

#[tokio::test]
async fn readers_of_a_sealed_room_end_when_its_key_changes() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let (first, second) = (chat_key(51), chat_key(52));
    let project = sealed_project(&ada, &first).await;
    let new = json!({"title": "A room", "project": id(&project)});
    let made = with_key(&ada, Method::POST, "/api/rooms", &first, &new).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let room = format!("/api/rooms/{}", text(&made.json()["id"]));
    let say = async |key, content: &str| {
        let message = json!({"participant": "ada", "content": content});
        let path = format!("{room}/messages");
        let said = with_key(&ada, Method::POST, &path, key, &message).await;
        assert_eq!(said.status, 202, "{}", said.text());
    };
    let events = async |key: &throughline_sealing::ChatKey| {
        let (path, key) = (format!("{room}/events"), key.write());
        ada.open(Method::GET, &path, &[("x-throughline-chat-key", key.as_str())], &Value::Null)
            .await
    };
    let mut early = events(&first).await;
    say(&first, "firstword").await;
    read_until(&mut early, "firstword").await;
    let next = next_key(&ada, &[], &project, (&first, &second)).await;
    let path = format!("{project}/key");
    with_key(&ada, Method::PUT, &path, &first, &next).await.expect_ok();
    let changed = Instant::now();
    // What the new key opens comes at once, before any look at the keys.
    say(&second, "secondword").await;
    let rest = end_of(early).await;
    check_soon(changed);
    assert!(!rest.text().contains("secondword"), "{}", rest.text());
    let mut late = events(&second).await;
    read_until(&mut late, "secondword").await;
    // Also a room that is not used otherwise ends its readers.
    let third = chat_key(53);
    let next = next_key(&ada, &[], &project, (&second, &third)).await;
    with_key(&ada, Method::PUT, &path, &second, &next).await.expect_ok();
    let changed = Instant::now();
    end_of(late).await;
    check_soon(changed);
}
