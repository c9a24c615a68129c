//! Readers of rooms: cursors, channels, and those who come late or are slow.

use serde_json::{Value, json};

use super::{Events, api, bind, room, say};

#[tokio::test]
async fn reader_resumes_after_its_cursor() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut whole = Events::open(&api, &room, "").await;
    for number in 0..3 {
        say(&api, &room, &format!("@tutor {number}")).await;
        whole.answer_of("tutor").await;
    }
    let stored: Vec<Value> =
        whole.seen.iter().filter(|event| event.get("seq").is_some()).cloned().collect();
    assert_eq!(stored.len(), 6);
    for after in 0..6_usize {
        let mut rest = Events::open(&api, &room, &format!("?after={after}")).await;
        for expected in &stored[after..] {
            assert_eq!(rest.next().await.as_ref(), Some(expected));
        }
    }
    let wrong = api.send(http::Method::GET, &format!("{room}/events?after=99"), &Value::Null).await;
    assert_eq!(wrong.status, 400, "{}", wrong.text());
    assert_eq!(api.get(&room).await["seq"], 6);
}

#[tokio::test]
async fn transport_gets_thinking_only_if_it_asked() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    for (id, metadata) in [("phone", json!({})), ("screen", json!({"thinking": true}))] {
        api.post("/api/channels", json!({"id": id})).await;
        bind(&api, &room, id, "transport", metadata).await;
    }
    let mut phone = Events::open(&api, &room, "?channel=phone").await;
    let mut screen = Events::open(&api, &room, "?channel=screen").await;
    say(&api, &room, "@tutor hello").await;
    for reader in [&mut phone, &mut screen] {
        reader.answer_of("tutor").await;
    }
    assert_eq!(phone.types(), ["MESSAGE", "TYPING", "MESSAGE"]);
    assert!(screen.types().contains(&"THINKING_END"));
    let path = format!("{room}/events?channel=nobody");
    assert_eq!(api.send(http::Method::GET, &path, &Value::Null).await.status, 404);
}

#[tokio::test]
async fn large_thinking_arrives_whole() {
    let thinking = "A long thought. ".repeat(70_000);
    let scenario = format!(
        "[[step]]\nwhen = {{ contains = \"\" }}\nsay = [{{ thinking = {thinking:?} }}, {{ text = \"Done.\" }}]\n"
    );
    // This model takes no budget, which would cut the thought.
    let backend = ("claude", "anthropic, adaptive");
    let api = crate::support::Api::with(&[backend], &scenario, "").await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    say(&api, &room, "@tutor think").await;
    let end = events.until(|event| event["type"] == "THINKING_END").await;
    assert_eq!(end["data"]["text"].as_str().map(str::len), Some(thinking.len()));
    assert_eq!(end["data"]["text"], json!(thinking));
    let joined: String = events
        .seen
        .iter()
        .filter(|event| event["type"] == "THINKING_DELTA")
        .map(|event| event["data"]["text"].as_str().unwrap_or_default())
        .collect();
    assert!(joined == thinking, "deltas have all of it");
}
