//! Rooms in sealed projects: without the key there is nothing to read, and nothing readable is stored.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use throughline_sealing::{ChatKey, FieldPath};

use super::{Events, SCENARIO, bind};
use crate::sealed::{CHAT_KEY, stored_marks};
use crate::support::{ANTHROPIC, Api, Database, text};

/// Covers: S0-3, C-33
#[tokio::test]
async fn room_of_a_sealed_project_stores_nothing_readable() {
    let everything = "[debug_log]\nenabled = true\nfull_body = true\n";
    let steps = "[[step]]\nwhen = { contains = \"promptmark\" }\n\
        say = [{ thinking = \"thinkingmark\" }, { text = \"answermark\" }]\n";
    for database in [Database::Sqlite, Database::Postgres] {
        let scenario = format!("{steps}{SCENARIO}");
        let mut api = Api::on(database, &[ANTHROPIC], &scenario, everything).await;
        let key = ChatKey::new([5; 32]);
        api.present(&[(CHAT_KEY, &key.write())]);
        let sealed =
            json!({"title": "t", "mode": "sealed", "keyCheck": key.key_check().to_string()});
        let project = api.project(sealed).await;
        let project = project.trim_start_matches("/api/projects/");
        assert_eq!(api.post("/api/channels", json!({"id": "tutor"})).await.status, 201);
        let made = api.post("/api/rooms", json!({"title": "titlemark", "project": project})).await;
        let room = format!("/api/rooms/{}", text(&made.json()["id"]));
        let metadata = json!({"thinking_budget": 2048, "system_prompt": "systemmark"});
        bind(&api, &room, "tutor", "intelligence", metadata).await;
        let url = "https://hooks.example/resultmark";
        let hook = json!({"trigger": "on_error", "url": url, "secret": "argumentmark"});
        assert_eq!(api.post(&format!("{room}/hooks"), hook).await.status, 201);
        let mut events = Events::open(&api, &room, "").await;
        let message = json!({"participant": "argumentmark", "content": "@tutor promptmark"});
        let said = api.post(&format!("{room}/messages"), message).await;
        assert_eq!(said.status, 202, "{}", said.text());
        let answer = events.answer_of("tutor").await;
        assert_eq!(answer["content"], "answermark");
        assert_eq!(answer["thinking_content"], "thinkingmark");
        assert_eq!(stored_marks(&api), [""; 0], "{database:?}");

        let opened = api.get(&room).await;
        assert_eq!(
            (&opened["title"], &opened["channels"][0]["channel"]),
            (&json!("titlemark"), &json!("tutor"))
        );
        let request = &api.simulators[0].received().await[0].body;
        assert!(request.contains("systemmark"), "{request}");

        // Without the key, the room cannot be read, used or changed.
        api.present(&[]);
        let hook = json!({"trigger": "on_error", "url": url, "secret": "s"});
        let binding = json!({"channel": "tutor", "category": "observer"});
        for (method, path, body) in [
            (Method::GET, "/events", Value::Null),
            (Method::POST, "/messages", json!({"participant": "eve", "content": "hello"})),
            (Method::PATCH, "", json!({"title": "mine"})),
            (Method::DELETE, "", Value::Null),
            (Method::POST, "/channels", binding),
            (Method::DELETE, "/channels/tutor", Value::Null),
            (Method::GET, "/hooks", Value::Null),
            (Method::POST, "/hooks", hook),
            (Method::DELETE, "/hooks/hook_1", Value::Null),
            (Method::GET, "/hooks/dead", Value::Null),
        ] {
            let refused = api.send(method.clone(), &format!("{room}{path}"), &body).await;
            assert_eq!(refused.status, 423, "{method} {path}: {}", refused.text());
        }
        let (locked, listed) = (api.get(&room).await, api.get("/api/rooms").await);
        for shown in [&locked, &listed["rooms"][0]] {
            assert_eq!(
                (&shown["title"], &shown["channels"]),
                (&Value::Null, &json!([])),
                "{shown}"
            );
            let id = room.trim_start_matches("/api/rooms/");
            let path = FieldPath { chat: project, node: id, field: "title" };
            let envelope = BASE64_URL_SAFE_NO_PAD.decode(text(&shown["encrypted_title"]));
            let title = key.open(path, &envelope.expect("base64url")).expect("the key opens it");
            assert_eq!(title, b"titlemark");
        }
        let new = json!({"title": "r", "project": project});
        assert_eq!(api.post("/api/rooms", new).await.status, 423);
        let messages = api.get(&format!("{room}/messages")).await;
        assert_eq!(messages["nodes"].as_array().map(Vec::len), Some(2), "as ciphertext");
    }
}
