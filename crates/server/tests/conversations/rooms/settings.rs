//! Channels and rooms: what they are, and what requests of their members have.

use serde_json::{Value, json};

use super::{Events, api, bind, room, say};
use crate::support::{Api, text};

/// The body of the newest request.
async fn last_body(api: &Api) -> Value {
    let received = api.simulators[0].received().await;
    serde_json::from_str(&received.last().expect("a request").body).expect("JSON")
}

#[tokio::test]
async fn room_overrides_budget_and_prompt_of_a_channel() {
    let api = api().await;
    let channel = json!({"id": "tutor", "systemPrompt": "You teach.", "thinkingBudget": 2000});
    assert_eq!(api.post("/api/channels", channel).await.status, 201);
    for (metadata, system, budget) in [
        (json!({}), "You teach.", 2000),
        (
            json!({"system_prompt": "You teach maths.", "thinking_budget": 4000}),
            "You teach maths.",
            4000,
        ),
    ] {
        let room = room(&api, &[]).await;
        bind(&api, &room, "tutor", "intelligence", metadata).await;
        let mut events = Events::open(&api, &room, "").await;
        say(&api, &room, "@tutor hello").await;
        events.answer_of("tutor").await;
        let body = last_body(&api).await;
        assert!(body["system"].to_string().contains(system), "{body:#}");
        assert_eq!(body["thinking"]["budget_tokens"], budget, "{body:#}");
        assert!(body.get("temperature").is_none());
    }
    let plain = json!({"id": "plain"});
    assert_eq!(api.post("/api/channels", plain).await.status, 201);
    let room = room(&api, &[]).await;
    bind(&api, &room, "plain", "intelligence", json!({})).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@plain hello").await;
    events.answer_of("plain").await;
    assert!(last_body(&api).await.get("thinking").is_none(), "nothing is asked for");
}

#[tokio::test]
async fn channels_are_made_changed_and_removed() {
    let api = api().await;
    let wrong = api.post("/api/channels", json!({"id": "has space"})).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    let wrong = api.post("/api/channels", json!({"id": "a", "provider": "nobody"})).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    assert_eq!(api.post("/api/channels", json!({"id": "a"})).await.status, 201);
    assert_eq!(api.post("/api/channels", json!({"id": "a"})).await.status, 409);
    let changed = api.patch("/api/channels/a", json!({"thinkingBudget": 3000})).await;
    assert_eq!(changed.json()["thinkingBudget"], 3000);
    let list = api.get("/api/channels").await;
    assert_eq!(list["channels"].as_array().map(Vec::len), Some(1));
    assert_eq!(api.delete("/api/channels/a").await.status, 204);
    assert_eq!(api.delete("/api/channels/a").await.status, 404);
}

/// Covers: C-26
#[tokio::test]
async fn room_on_a_locked_branch_takes_only_its_model() {
    let api = api().await;
    let project = api.project(json!({"title": "t"})).await;
    let id = project.rsplit('/').next().expect("an id");
    api.say(&project, "main", "hello").await;
    let made = api.post("/api/rooms", json!({"title": "r", "project": id})).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let room = format!("/api/rooms/{}", text(&made.json()["id"]));
    api.post("/api/channels", json!({"id": "other", "model": "another-model"})).await;
    let binding = json!({"channel": "other", "category": "intelligence"});
    let refused = api.post(&format!("{room}/channels"), binding).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    assert_eq!(refused.json()["lock"]["provider"], "claude");
    api.post("/api/channels", json!({"id": "same"})).await;
    bind(&api, &room, "same", "intelligence", json!({})).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@same go on").await;
    let answer = events.answer_of("same").await;
    assert_eq!(answer["status"], "complete");
    let history = api.get(&format!("{room}/messages")).await;
    assert_eq!(history["nodes"].as_array().map(Vec::len), Some(4), "the chat is its history");
    assert_eq!(api.refusals().await, [""; 0]);
}

#[tokio::test]
async fn strangers_find_nothing() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let stranger = api.with_key("eve");
    for path in ["", "/messages", "/events", "/hooks", "/hooks/dead"] {
        let answer = stranger.send(http::Method::GET, &format!("{room}{path}"), &Value::Null).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    let message = json!({"participant": "eve", "content": "hi"});
    assert_eq!(stranger.post(&format!("{room}/messages"), message).await.status, 404);
    assert_eq!(stranger.get("/api/rooms").await["rooms"], json!([]));
    assert_eq!(stranger.get("/api/channels").await["channels"], json!([]));
}

#[tokio::test]
async fn wrong_requests_say_what_is_wrong() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    for (path, body, status, member) in [
        ("messages", json!({"participant": "", "content": "x"}), 400, "participant"),
        ("messages", json!({"participant": "ada", "content": ""}), 400, "content"),
        ("messages", json!({"participant": "ada"}), 400, "content"),
        ("channels", json!({"channel": "nobody", "category": "intelligence"}), 404, ""),
        ("hooks", json!({"trigger": "on_error", "url": "ftp://x", "secret": "s"}), 400, "url"),
        ("hooks", json!({"trigger": "on_error", "url": "http://x", "secret": ""}), 400, "secret"),
        (
            "hooks",
            json!({"trigger": "on_error", "url": "http://x", "secret": "s", "blocking": true}),
            400,
            "blocking",
        ),
        (
            "hooks",
            json!({"trigger": "on_error", "url": "http://x", "secret": "s", "timeoutMs": 0}),
            400,
            "timeoutMs",
        ),
    ] {
        let answer = api.post(&format!("{room}/{path}"), body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        if !member.is_empty() {
            assert_eq!(text(&answer.json()["path"]), member, "{body}");
        }
    }
}

#[tokio::test]
async fn removed_room_keeps_its_messages_in_the_project() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let project = text(&api.get(&room).await["project"]).to_owned();
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor hello").await;
    events.answer_of("tutor").await;
    assert_eq!(api.delete(&room).await.status, 204);
    assert!(events.next().await.is_none(), "its readers end");
    assert_eq!(api.nodes(&format!("/api/projects/{project}"), "main").await.len(), 2);
}
