//! Sharing: a second user reads and chats in a project, and no longer after the removal.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};
use throughline_sealing::{
    ChatKey, PrivateKey, PublicKey, open_shared_key, share_key, unwrap_key, wrap_key,
};
use throughline_testkit::PostgresDatabase;

use super::{Person, api, base64url, from_base64url};
use crate::support::{ANTHROPIC, Api, lines, text};

/// An answer that stops in the middle for as long as a test runs.
pub(super) const ENDLESS: &str = r#"
[[step]]
when = { contains = "endless" }
fault = "stall:event=12,ms=600000"
say = [{ text = "One. Two. Three. Four. Five. Six. Seven." }]
[[step]]
say = [{ text = "Just a text." }]
"#;

fn id(project: &str) -> &str {
    project.rsplit('/').next().unwrap_or_default()
}

#[tokio::test]
async fn member_reads_and_chats_and_changes_nothing_else() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "Bob").await;
    let eve = Person::join(&api.gateway, "eve").await;
    let project = ada.project(json!({"title": "Herons"})).await;
    let members = format!("{project}/members");
    assert_eq!(bob.get(&project).await.status, 404);
    let added = ada.post(&members, json!({"name": "bob"})).await;
    assert_eq!(added.status, 201, "{}", added.text());
    assert_eq!(added.json()["name"], "Bob");
    assert_eq!(bob.get("/api/projects").await.json()["projects"][0]["title"], "Herons");
    let said = bob.post(&format!("{project}/chat"), json!({"message": "plain"})).await.expect_ok();
    let run = format!("/api/runs/{}", said.header("x-throughline-run"));
    for person in [&ada, &bob] {
        person.get(&run).await.expect_ok();
        person.get(&format!("{run}/events")).await.expect_ok();
        let nodes = person.get(&format!("{project}/nodes")).await.expect_ok().json();
        assert_eq!(nodes["nodes"][1]["content"], "Just a text.");
        let names = person.get(&members).await.expect_ok().json();
        let names: Vec<&str> = names["members"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| text(&one["name"]))
            .collect();
        assert_eq!(names, ["ada", "Bob"]);
    }
    for (method, path, body) in [
        (Method::POST, members.clone(), json!({"name": "eve"})),
        (Method::DELETE, format!("{members}/ada"), Value::Null),
        (Method::PATCH, project.clone(), json!({"title": "Mine"})),
        (Method::DELETE, project.clone(), Value::Null),
        (Method::DELETE, format!("{project}?purge=true"), Value::Null),
        (Method::POST, format!("{project}/restore"), Value::Null),
        (Method::DELETE, format!("{project}/branches/main"), Value::Null),
        (Method::DELETE, format!("{project}/branches/main?purge=true"), Value::Null),
    ] {
        let answer = bob.send(method.clone(), &path, &body).await;
        assert_eq!(answer.status, 403, "{method} {path}: {}", answer.text());
        assert_eq!(answer.json()["type"], "/problems/not-owner");
        let answer = eve.send(method.clone(), &path, &body).await;
        assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text());
    }
    assert_eq!(eve.delete(&format!("{members}/bob")).await.status, 404);
    assert_eq!(ada.post(&members, json!({"name": "nobody"})).await.status, 404);
    let owner = ada.delete(&format!("{members}/ada")).await;
    assert_eq!(owner.status, 409, "{}", owner.text());
    // A member may leave.
    assert_eq!(bob.delete(&format!("{members}/BOB")).await.status, 204);
    for path in [&project, &run, &members] {
        assert_eq!(bob.get(path).await.status, 404, "{path}");
    }
    assert_eq!(ada.delete(&format!("{members}/bob")).await.status, 404, "there is none any more");
    // A deleted project is gone for members.
    ada.post(&members, json!({"name": "bob"})).await;
    assert_eq!(ada.delete(&project).await.status, 204);
    assert_eq!(bob.get(&project).await.status, 404);
    assert_eq!(bob.post(&format!("{project}/restore"), Value::Null).await.status, 404);
    assert_eq!(bob.get("/api/projects?deleted=true").await.json()["projects"], json!([]));
}

/// Bob reads a run that stands still; Ada removes him. His stream ends with an error within a second,
/// hers goes on.
async fn check_removal(ada: &Person<'_>, bob: &Person<'_>) {
    let project = ada.project(json!({"title": "Herons"})).await;
    let members = format!("{project}/members");
    assert_eq!(ada.post(&members, json!({"name": "bob"})).await.status, 201);
    let chat = json!({"message": "endless"});
    let mut own = ada.open(Method::POST, &format!("{project}/chat"), &[], &chat).await;
    let run = crate::support::run_of(&own);
    assert!(own.next().await.is_some());
    let path = format!("/api/runs/{run}/events");
    let mut others = bob.open(Method::GET, &path, &[], &Value::Null).await;
    assert_eq!(others.status, 200);
    assert!(others.next().await.is_some());
    assert_eq!(ada.delete(&format!("{members}/bob")).await.status, 204);
    let removed = Instant::now();
    let rest = others.read_all().await;
    // Half a second for a busy machine.
    assert!(removed.elapsed() < Duration::from_millis(1500), "{:?}", removed.elapsed());
    let last = lines(&rest);
    assert!(rest.text().contains("no longer a member"), "{}", rest.text());
    assert_eq!(last.last().map(|line| &line["reason"]), Some(&json!("error")), "{}", rest.text());
    assert_eq!(bob.get(&path).await.status, 404);
    ada.get(&format!("/api/runs/{run}")).await.expect_ok();
    ada.post(&format!("/api/runs/{run}/stop"), Value::Null).await.expect_ok();
}

#[tokio::test]
async fn removed_member_stops_reading_within_a_second() {
    let api = Api::with(&[ANTHROPIC], ENDLESS, "").await;
    let ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "bob").await;
    check_removal(&ada, &bob).await;
}

#[tokio::test]
async fn removed_member_stops_reading_at_another_instance_too() {
    let database = PostgresDatabase::new();
    let [one, other] = Api::instances(&database, &[ANTHROPIC], ENDLESS, "").await;
    let ada = Person::join(&one.gateway, "ada").await;
    let bob = Person::join(&other.gateway, "bob").await;
    check_removal(&ada, &bob).await;
}

/// A chat key, as a browser makes it.
pub(super) fn chat_key(seed: u8) -> ChatKey {
    ChatKey::new([seed; 32])
}

/// Sends a request with a chat key.
pub(super) async fn with_key(
    person: &Person<'_>,
    method: Method,
    path: &str,
    key: &ChatKey,
    body: &Value,
) -> throughline_testkit::Answer {
    let text = key.write();
    let headers = [("x-throughline-chat-key", text.as_str())];
    person.open(method, path, &headers, body).await.read_all().await
}

/// The texts of all nodes, read with one key.
async fn contents(person: &Person<'_>, project: &str, key: &ChatKey) -> Vec<String> {
    let path = format!("{project}/nodes");
    let page = with_key(person, Method::GET, &path, key, &Value::Null).await.expect_ok().json();
    let nodes = page["nodes"].as_array().expect("a list").clone();
    nodes.iter().map(|node| text(&node["content"]).to_owned()).collect()
}

/// The chat key that a member gets: sealed to the own public key.
async fn received_key(person: &Person<'_>, project: &str) -> ChatKey {
    let answer = person.get(&format!("{project}/key")).await.expect_ok().json();
    let wrapped = from_base64url(text(&answer["wrappedKey"]));
    open_shared_key(&wrapped, id(project), &person.private).expect("a key for this person")
}

/// Seals a chat key for another person, whose public key comes from the server.
async fn shared_key(by: &Person<'_>, with: &str, project: &str, key: &ChatKey) -> String {
    let user = by.get(&format!("/api/users/{with}")).await.expect_ok().json();
    let public = from_base64url(text(&user["publicKey"])).try_into().expect("32 bytes");
    let once = PrivateKey::new([77; 32]);
    let shared = share_key(key, id(project), &PublicKey::new(public), &once, &[5; 12]);
    base64url(&shared.expect("a usable key"))
}

/// A sealed project of this person, with a first answer. The own key is stored under the master key.
pub(super) async fn sealed_project(ada: &Person<'_>, key: &ChatKey) -> String {
    let new = json!({"title": "Herons", "mode": "sealed", "keyCheck": key.key_check().to_string()});
    let made = with_key(ada, Method::POST, "/api/projects", key, &new).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let project = format!("/api/projects/{}", text(&made.json()["id"]));
    let own = wrap_key(key, &ada.master, id(&project), &[4; 12]);
    let own = json!({"name": ada.name, "wrappedKey": base64url(&own)});
    let stored = ada.post(&format!("{project}/members"), own).await;
    assert_eq!(stored.status, 201, "{}", stored.text());
    say(ada, &project, key, "plain one").await;
    project
}

async fn say(person: &Person<'_>, project: &str, key: &ChatKey, message: &str) {
    let body = json!({"message": message});
    let path = format!("{project}/chat");
    with_key(person, Method::POST, &path, key, &body).await.expect_ok();
}

/// The next key for the owner and some members.
pub(super) async fn next_key(
    ada: &Person<'_>,
    members: &[&str],
    project: &str,
    (present, next): (&ChatKey, &ChatKey),
) -> Value {
    let own = wrap_key(next, &ada.master, id(project), &[6; 12]);
    let mut wrapped = json!({ada.name: base64url(&own)});
    for name in members {
        wrapped[*name] = json!(shared_key(ada, name, project, next).await);
    }
    let previous = wrap_key(present, next, id(project), &[7; 12]);
    json!({
        "keyCheck": next.key_check().to_string(), "wrappedKeys": wrapped,
        "previous": base64url(&previous),
    })
}

/// A second person is added, reads, is removed, and reads nothing that was written after.
#[tokio::test]
async fn shared_key_opens_a_sealed_project_until_the_next_key() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "bob").await;
    let cleo = Person::join(&api.gateway, "cleo").await;
    let (first, second) = (chat_key(21), chat_key(22));
    let project = sealed_project(&ada, &first).await;
    let members = format!("{project}/members");
    let missing = ada.post(&members, json!({"name": "bob"})).await;
    assert_eq!(missing.status, 400, "{}", missing.text());
    for name in ["bob", "cleo"] {
        let wrapped = shared_key(&ada, name, &project, &first).await;
        let added = ada.post(&members, json!({"name": name, "wrappedKey": wrapped})).await;
        assert_eq!(added.status, 201, "{}", added.text());
    }
    let bobs = received_key(&bob, &project).await;
    assert_eq!(bobs, first);
    assert_eq!(contents(&bob, &project, &bobs).await, ["plain one", "Just a text."]);
    say(&bob, &project, &bobs, "plain two").await;

    assert_eq!(ada.delete(&format!("{members}/bob")).await.status, 204);
    let path = format!("{project}/key");
    let next = next_key(&ada, &["cleo"], &project, (&first, &second)).await;
    let put =
        async |key: &ChatKey, body: &Value| with_key(&ada, Method::PUT, &path, key, body).await;
    assert_eq!(ada.send(Method::PUT, &path, &next).await.status, 423, "it needs the present key");
    assert_eq!(put(&second, &next).await.status, 409);
    let mut with_bob = next.clone();
    with_bob["wrappedKeys"]["bob"] = json!(base64url(&[1; 112]));
    assert_eq!(put(&first, &with_bob).await.status, 409, "he is no member");
    put(&first, &next).await.expect_ok();
    let late = next_key(&ada, &["cleo"], &project, (&first, &chat_key(23))).await;
    assert_eq!(put(&first, &late).await.status, 409, "a second writer");
    say(&ada, &project, &second, "plain three").await;

    // One key opens all nodes, old and new.
    let all =
        ["plain one", "Just a text.", "plain two", "Just a text.", "plain three", "Just a text."];
    let own = ada.get(&path).await.expect_ok().json();
    let own = from_base64url(text(&own["wrappedKey"]));
    let own: ChatKey = unwrap_key(&own, &ada.master, id(&project)).expect("the next key");
    assert_eq!(contents(&ada, &project, &own).await, all);
    assert_eq!(contents(&cleo, &project, &received_key(&cleo, &project).await).await, all);
    // The removed person has the first key only, and it opens nothing over the API.
    for path in [project.clone(), format!("{project}/nodes"), path.clone(), members.clone()] {
        let answer = with_key(&bob, Method::GET, &path, &first, &Value::Null).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    let stale = with_key(
        &cleo,
        Method::POST,
        &format!("{project}/chat"),
        &first,
        &json!({"message": "plain"}),
    )
    .await;
    assert_eq!(stale.status, 409, "{}", stale.text());
    // New nodes are sealed under the second key, so the first one does not even open their bytes.
    let page = cleo.get(&format!("{project}/nodes")).await.expect_ok().json();
    let sealed: Vec<Vec<u8>> = page["nodes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|node| from_base64url(text(&node["encrypted_content"])))
        .collect();
    let key_ids: Vec<bool> =
        sealed.iter().map(|sealed| sealed[4..20] == first.key_check().as_bytes()[..]).collect();
    assert_eq!(key_ids, [true, true, true, true, false, false]);
}

#[tokio::test]
async fn members_of_a_sealed_project_cannot_change_its_key() {
    let api = api().await;
    let ada = Person::join(&api.gateway, "ada").await;
    let bob = Person::join(&api.gateway, "bob").await;
    let first = chat_key(31);
    let project = sealed_project(&ada, &first).await;
    let wrapped = shared_key(&ada, "bob", &project, &first).await;
    let body = json!({"name": "bob", "wrappedKey": wrapped});
    assert_eq!(ada.post(&format!("{project}/members"), body).await.status, 201);
    let next = next_key(&ada, &["bob"], &project, (&first, &chat_key(32))).await;
    let path = format!("{project}/key");
    let answer = with_key(&bob, Method::PUT, &path, &first, &next).await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    // A managed project has no such key.
    let managed = ada.project(json!({"title": "t"})).await;
    assert_eq!(ada.get(&format!("{managed}/key")).await.status, 404);
    let answer = ada.send(Method::PUT, &format!("{managed}/key"), &next).await;
    assert_eq!(answer.status, 409, "{}", answer.text());
}
