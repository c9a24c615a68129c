//! Leases of users end with their session, with a new passphrase, and with the key of the project, at every
//! instance.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use throughline_sealing::ChatKey;
use throughline_testkit::{PostgresDatabase, StreamedAnswer};

use super::sharing::{ENDLESS, chat_key, next_key, sealed_project, with_key};
use super::{Person, api, base64url, keys_of};
use crate::support::{ANTHROPIC, Api, run_of, text};

const LEASE: &str = "x-throughline-lease";

/// What the promise of a second may cost on a busy machine.
const SOON: Duration = Duration::from_millis(1500);

async fn lease(person: &Person<'_>, project: &str, key: &ChatKey) -> String {
    let path = format!("{project}/lease");
    let made = with_key(person, Method::POST, &path, key, &json!({})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    text(&made.json()["lease"]).to_owned()
}

/// The status of a read with a lease.
async fn read(person: &Person<'_>, project: &str, lease: &str) -> u16 {
    let path = format!("{project}/nodes");
    let answer = person.open(Method::GET, &path, &[(LEASE, lease)], &Value::Null).await;
    answer.read_all().await.status
}

/// Waits until a read is refused because the lease has ended. Returns how long that took.
async fn time_to_end(person: &Person<'_>, project: &str, lease: &str) -> Duration {
    let began = Instant::now();
    while read(person, project, lease).await != 423 {
        assert!(began.elapsed() < Duration::from_secs(20), "the lease goes on");
        tokio::task::yield_now().await;
    }
    began.elapsed()
}

#[tokio::test]
async fn lease_ends_with_its_session() {
    let api = api().await;
    let mut ada = Person::join(&api.gateway, "ada").await;
    let key = chat_key(41);
    let project = sealed_project(&ada, &key).await;
    let mut elsewhere = ada.elsewhere();
    elsewhere.log_in().await;
    let [own, other] = [lease(&ada, &project, &key).await, lease(&elsewhere, &project, &key).await];
    assert_eq!(read(&ada, &project, &own).await, 200);
    assert_eq!(ada.post("/api/auth/logout", Value::Null).await.status, 204);
    ada.log_in().await;
    assert_eq!(read(&ada, &project, &own).await, 423);
    assert_eq!(read(&ada, &project, &other).await, 200, "the other session goes on");
}

#[tokio::test]
async fn new_passphrase_ends_all_leases_of_the_user() {
    let api = api().await;
    let mut ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "bob").await;
    let key = chat_key(42);
    let (project, others) = (sealed_project(&ada, &key).await, sealed_project(&bob, &key).await);
    let own = lease(&ada, &project, &key).await;
    let bobs = lease(&bob, &others, &key).await;
    let new = keys_of(99);
    let change = json!({
        "authKey": *ada.keys.auth.write(), "newAuthKey": *new.auth.write(), "kdf": super::kdf(9),
        "wrappedMasterKey": ada.wrapped_master(&new.wrap, 9),
    });
    ada.post("/api/auth/passphrase", change).await.expect_ok();
    assert_eq!(read(&ada, &project, &own).await, 423);
    assert_eq!(read(&bob, &others, &bobs).await, 200);

    // A recovery does the same.
    let own = lease(&ada, &project, &key).await;
    let next = keys_of(100);
    let change = json!({
        "name": "ada", "authKey": *ada.code.derive().auth.write(),
        "newAuthKey": *next.auth.write(), "kdf": super::kdf(9),
        "wrappedMasterKey": ada.wrapped_master(&next.wrap, 9),
    });
    ada.post("/api/auth/recover", change).await.expect_ok();
    ada.keys = next;
    ada.log_in().await;
    assert_eq!(read(&ada, &project, &own).await, 423);
}

#[tokio::test]
async fn leases_at_another_instance_end_within_a_second() {
    let database = PostgresDatabase::new();
    let scenario = "[[step]]\nsay = [{ text = \"Just a text.\" }]\n";
    let [one, other] = Api::instances(&database, &[ANTHROPIC], scenario, "").await;
    let mut ada = Person::join(&one.gateway, "ada").await;
    let mut there = Person::new(&other.gateway, "ada");
    there.log_in().await;
    let (first, second) = (chat_key(43), chat_key(44));
    let project = sealed_project(&ada, &first).await;

    // The key changes here, and the lease is there.
    let held = lease(&there, &project, &first).await;
    assert_eq!(read(&there, &project, &held).await, 200);
    let next = next_key(&ada, &[], &project, (&first, &second)).await;
    with_key(&ada, Method::PUT, &format!("{project}/key"), &first, &next).await.expect_ok();
    let status = read(&there, &project, &held).await;
    assert!(status == 409 || status == 423, "the old key opens nothing from now on: {status}");
    let time = time_to_end(&there, &project, &held).await;
    assert!(time < SOON, "{time:?}");

    // The session ends here, and a lease of it is there.
    there.cookie.clone_from(&ada.cookie);
    let held = lease(&there, &project, &second).await;
    assert_eq!(read(&there, &project, &held).await, 200);
    assert_eq!(ada.post("/api/auth/logout", Value::Null).await.status, 204);
    there.log_in().await;
    let time = time_to_end(&there, &project, &held).await;
    assert!(time < SOON, "{time:?}");
    ada.log_in().await;
}

/// A turn that stands still in the middle of its answer, and a second reader of it, both with this lease.
async fn open_streams(person: &Person<'_>, project: &str, lease: &str) -> [StreamedAnswer; 2] {
    let headers = [(LEASE, lease)];
    let (chat, body) = (format!("{project}/chat"), json!({"message": "endless"}));
    let mut own = person.open(Method::POST, &chat, &headers, &body).await;
    let events = format!("/api/runs/{}/events", run_of(&own));
    let mut reader = person.open(Method::GET, &events, &headers, &Value::Null).await;
    for stream in [&mut own, &mut reader] {
        assert_eq!(stream.status, 200);
        assert!(stream.next().await.is_some(), "it has begun");
    }
    [own, reader]
}

#[tokio::test]
async fn open_streams_end_within_a_second_if_their_lease_ends_at_another_instance() {
    let database = PostgresDatabase::new();
    let [one, other] = Api::instances(&database, &[ANTHROPIC], ENDLESS, "").await;
    let ada = Person::join(&one.gateway, "ada").await;
    let mut there = Person::new(&other.gateway, "ada");
    there.cookie.clone_from(&ada.cookie);
    for (first, ends_session) in [(chat_key(51), false), (chat_key(53), true)] {
        let project = sealed_project(&ada, &first).await;
        let held = lease(&there, &project, &first).await;
        let streams = open_streams(&there, &project, &held).await;
        let began = Instant::now();
        if ends_session {
            assert_eq!(ada.post("/api/auth/logout", Value::Null).await.status, 204);
        } else {
            let next = next_key(&ada, &[], &project, (&first, &chat_key(52))).await;
            let path = format!("{project}/key");
            with_key(&ada, Method::PUT, &path, &first, &next).await.expect_ok();
        }
        for stream in streams {
            stream.read_all().await;
        }
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn next_key_without_a_copy_for_the_owner_is_refused() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let (first, second) = (chat_key(45), chat_key(46));
    let project = sealed_project(&ada, &first).await;
    let path = format!("{project}/key");
    let before = ada.get(&path).await.expect_ok().text();
    let mut next = next_key(&ada, &[], &project, (&first, &second)).await;
    next["wrappedKeys"] = json!({});
    let refused = with_key(&ada, Method::PUT, &path, &first, &next).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(text(&refused.json()["detail"]).starts_with("wrappedKeys: lacks the owner"));
    assert_eq!(ada.get(&path).await.expect_ok().text(), before);
    next["wrappedKeys"] = json!({"ADA": base64url(&[1; 80])});
    with_key(&ada, Method::PUT, &path, &first, &next).await.expect_ok();
}
