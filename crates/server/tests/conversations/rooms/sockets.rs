//! Rooms over WebSockets: the same events as over server-sent events, and messages the other way.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::{Events, PATIENCE, api, bind, room};
use crate::support::{Api, text};

struct Socket(WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>);

impl Socket {
    async fn open(api: &Api, room: &str, query: &str) -> Self {
        let url = format!("{}{room}/ws{query}", api.gateway.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request().expect("a request");
        request.headers_mut().insert("authorization", "Bearer ada".parse().expect("a value"));
        Self(connect_async(request).await.expect("a connection").0)
    }

    async fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).await.expect("it is sent");
    }

    /// Reads until an event is as wanted. Returns all events until then.
    async fn until(&mut self, wanted: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut seen: Vec<Value> = Vec::new();
        loop {
            let next = timeout(PATIENCE, self.0.next()).await;
            let next = next.unwrap_or_else(|_| panic!("no event in time: {seen:#?}"));
            let Some(Ok(Message::Text(json))) = next else { continue };
            let event: Value = serde_json::from_str(&json).expect("JSON");
            seen.push(event);
            if seen.last().is_some_and(&wanted) {
                return seen;
            }
        }
    }
}

fn is_answer(event: &Value) -> bool {
    event["type"] == "MESSAGE" && event["channel"] == "tutor"
}

fn stored(events: &[Value]) -> Vec<Value> {
    events.iter().filter(|event| event.get("seq").is_some()).cloned().collect()
}

#[tokio::test]
async fn socket_shows_the_same_events_and_resumes_after_its_cursor() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut events = Events::open(&api, &room, "").await;
    let mut socket = Socket::open(&api, &room, "").await;
    socket.say(&json!({"participant": "ada", "content": "@tutor hello"})).await;
    let seen = socket.until(is_answer).await;
    events.answer_of("tutor").await;
    assert_eq!(seen, events.seen, "both readers see the same");
    let types: Vec<&str> = seen.iter().map(|event| text(&event["type"])).collect();
    let ends = types.iter().filter(|kind| **kind == "THINKING_END").count();
    assert_eq!(ends, 1, "{types:?}");
    drop(socket);
    let stored = stored(&seen);
    let first = stored[0]["seq"].as_u64().expect("a number");
    let mut rest = Socket::open(&api, &room, &format!("?after={first}")).await;
    assert_eq!(rest.until(is_answer).await, stored[1..]);
}

#[tokio::test]
async fn wrong_message_over_a_socket_gets_an_error_and_the_socket_stays() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    let mut socket = Socket::open(&api, &room, "").await;
    for wrong in [json!({"participant": "ada"}), json!({"people": 1}), json!("hello")] {
        socket.say(&wrong).await;
        let seen = socket.until(|event| event["type"] == "ERROR").await;
        let data = &seen.last().expect("an error")["data"];
        assert_eq!(data["kind"], "refused", "{wrong}: {data}");
    }
    socket.say(&json!({"participant": "ada", "content": "@tutor hello"})).await;
    socket.until(is_answer).await;
}

#[tokio::test]
async fn transport_over_a_socket_gets_thinking_only_if_it_asked() {
    let api = api().await;
    let room = room(&api, &[("tutor", json!({}))]).await;
    for (id, metadata) in [("phone", json!({})), ("screen", json!({"thinking": true}))] {
        api.post("/api/channels", json!({"id": id})).await;
        bind(&api, &room, id, "transport", metadata).await;
    }
    let mut phone = Socket::open(&api, &room, "?channel=phone").await;
    let mut screen = Socket::open(&api, &room, "?channel=screen").await;
    phone.say(&json!({"participant": "ada", "content": "@tutor hello"})).await;
    let thinks =
        |events: &[Value]| events.iter().any(|event| text(&event["type"]).starts_with("THINKING"));
    assert!(!thinks(&phone.until(is_answer).await));
    assert!(thinks(&screen.until(is_answer).await));
}
