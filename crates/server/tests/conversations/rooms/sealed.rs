//! Rooms in sealed projects: without the key there is nothing to read, and nothing readable is stored.

use http::Method;
use serde_json::{Value, json};
use throughline_sealing::ChatKey;

use super::{Events, SCENARIO, bind, say};
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
        let mut api = Api::with_bus(database, &[ANTHROPIC], &scenario, everything).await;
        let key = ChatKey::new([5; 32]);
        api.present(&[(CHAT_KEY, &key.write())]);
        let sealed =
            json!({"title": "t", "mode": "sealed", "keyCheck": key.key_check().to_string()});
        let project = api.project(sealed).await;
        let project = project.trim_start_matches("/api/projects/");
        assert_eq!(api.post("/api/channels", json!({"id": "tutor"})).await.status, 201);
        let made = api.post("/api/rooms", json!({"title": "r", "project": project})).await;
        let room = format!("/api/rooms/{}", text(&made.json()["id"]));
        bind(&api, &room, "tutor", "intelligence", json!({"thinking_budget": 2048})).await;
        let mut events = Events::open(&api, &room, "").await;
        say(&api, &room, "@tutor promptmark").await;
        let answer = events.answer_of("tutor").await;
        assert_eq!(answer["content"], "answermark");
        assert_eq!(answer["thinking_content"], "thinkingmark");
        assert_eq!(stored_marks(&api), [""; 0], "{database:?}");

        // Without the key, the room cannot be read or used.
        api.present(&[]);
        for (method, path, body) in [
            (Method::GET, "/events", Value::Null),
            (Method::POST, "/messages", json!({"participant": "eve", "content": "hello"})),
        ] {
            let refused = api.send(method, &format!("{room}{path}"), &body).await;
            assert_eq!(refused.status, 423, "{path}: {}", refused.text());
        }
    }
}
