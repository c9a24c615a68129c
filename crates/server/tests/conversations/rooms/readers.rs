//! Readers of rooms: cursors, channels, and those who come late or are slow.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

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

#[tokio::test]
async fn messages_are_listed_in_both_orders() {
    let api = api().await;
    let room = room(&api, &[]).await;
    for number in 0..3 {
        say(&api, &room, &format!("number {number}")).await;
    }
    for (query, expected) in [
        ("", vec!["number 0", "number 1", "number 2"]),
        ("?order=asc&limit=1", vec!["number 0"]),
        ("?order=desc", vec!["number 2", "number 1", "number 0"]),
        ("?order=desc&limit=1", vec!["number 2"]),
    ] {
        let page = api.get(&format!("{room}/messages{query}")).await;
        let nodes = page["nodes"].as_array().expect("a list");
        let shown: Vec<&str> =
            nodes.iter().map(|node| node["content"].as_str().unwrap_or_default()).collect();
        assert_eq!(shown, expected, "{query}");
    }
    let path = format!("{room}/messages?order=random");
    assert_eq!(api.send(http::Method::GET, &path, &Value::Null).await.status, 400);
}

/// A hook decides about the message of a client for a minute. The client still reads.
#[tokio::test]
async fn client_of_a_socket_reads_while_a_hook_decides() {
    let api = api().await;
    let room = room(&api, &[]).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let hook = json!({
        "trigger": "before_message", "blocking": true, "timeoutMs": 60000, "secret": "s",
        "url": format!("http://{}/", silent.local_addr().expect("an address")),
    });
    let hook = api.post(&format!("{room}/hooks"), hook).await.json();
    let url = format!("{}{room}/ws", api.gateway.url.replace("http://", "ws://"));
    let mut handshake = url.into_client_request().expect("a request");
    handshake.headers_mut().insert("authorization", "Bearer ada".parse().expect("a value"));
    let (mut socket, _) = tokio_tungstenite::connect_async(handshake).await.expect("a connection");
    let message = json!({"participant": "ada", "content": "decided later"}).to_string();
    socket.send(Message::Text(message.into())).await.expect("an open connection");
    // The hook has the call.
    let _call = silent.accept().await.expect("a call");
    let path = format!("{room}/hooks/{}", hook["id"].as_str().unwrap_or_default());
    assert_eq!(api.delete(&path).await.status, 204);
    say(&api, &room, "said at once").await;
    let read = async {
        loop {
            let message = socket.next().await.expect("an event").expect("a message");
            if message.to_text().is_ok_and(|text| text.contains("said at once")) {
                return;
            }
        }
    };
    tokio::time::timeout(super::PATIENCE, read).await.expect("the event comes in time");
}
