//! Responses over a WebSocket, as Codex speaks it: warmed up first, then only what is new.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use throughline_testkit::{Gateway, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::bare::{self, head};
use crate::speaker::{list, text};
use crate::support::{BINARY, House, Plan, thinking_in, upstream};

type Connection =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

fn request(house: &House) -> tungstenite::handshake::client::Request {
    let url = house.gateway.url.replace("http://", "ws://");
    let mut request = format!("{url}/v1/responses").into_client_request().expect("a request");
    let headers = request.headers_mut();
    headers.insert("authorization", "Bearer ada".parse().expect("a value"));
    let beta = "responses_websockets=2026-02-06".parse().expect("a value");
    headers.insert("openai-beta", beta);
    request
}

async fn connect(house: &House) -> Connection {
    tokio_tungstenite::connect_async(request(house)).await.expect("a connection").0
}

/// Asks, and hears all events up to the last.
async fn ask(connection: &mut Connection, message: Value) -> Vec<Value> {
    let message = Message::Text(message.to_string().into());
    connection.send(message).await.expect("an open connection");
    let mut events = Vec::new();
    loop {
        let message = connection.next().await.expect("an answer").expect("a message");
        let Message::Text(event) = message else {
            continue;
        };
        let event: Value = serde_json::from_str(&event).expect("JSON");
        events.push(event);
        let kind = text(&events[events.len() - 1]["type"]);
        if ["response.completed", "response.failed", "error"].contains(&kind) {
            return events;
        }
    }
}

/// Hears all events up to the end, and the code the connection is closed with.
async fn until_closed(
    told: &mut (impl StreamExt<Item = Result<Message, tungstenite::Error>> + Unpin),
) -> (Vec<Value>, u16) {
    let mut events = Vec::new();
    loop {
        match told.next().await.expect("an end").expect("a message") {
            Message::Text(event) => events.push(serde_json::from_str(&event).expect("JSON")),
            Message::Close(frame) => return (events, frame.expect("a reason").code.into()),
            _ => {}
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is made where it is given")]
fn create(input: Value, previous: Option<&Value>) -> Value {
    let mut message = json!({
        "type": "response.create",
        "model": "some-model",
        "store": false,
        "stream": true,
        "instructions": "Be brief.",
        "input": input,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "tools": [{"type": "function", "name": "lookup", "strict": false,
            "parameters": {"type": "object", "properties": {"row": {"type": "integer"}}}}],
    });
    if let Some(previous) = previous {
        message["previous_response_id"] = previous.clone();
    }
    message
}

#[tokio::test]
async fn a_connection_keeps_what_its_client_does_not() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses"] {
        let house = House::over(&[row]).await;
        let mut connection = connect(&house).await;
        let user = json!({"role": "user", "content": "use one tool"});
        let mut warm = create(json!([user]), None);
        warm["generate"] = false.into();
        let warmed = ask(&mut connection, warm).await;
        assert_eq!(warmed.len(), 2, "{warmed:?}");
        assert_eq!(house.simulators[0].seen().await.len(), 0, "nobody was asked");

        let id = &warmed[1]["response"]["id"];
        let called = ask(&mut connection, create(json!([]), Some(id))).await;
        let response = &called.last().expect("events")["response"];
        let call = list(&response["output"]).find(|item| item["type"] == "function_call");
        let call = &call.expect("a call")["call_id"];
        let numbers = called.iter().map(|event| event["sequence_number"].as_u64());
        assert!(numbers.eq((0..).map(Some).take(called.len())), "{called:?}");

        let result =
            json!([{"type": "function_call_output", "call_id": call, "output": "row green"}]);
        let told = ask(&mut connection, create(result, Some(&response["id"]))).await;
        let end = &told.last().expect("events")["response"];
        assert_eq!(end["status"], "completed", "{row}");
        assert_eq!(thinking_in(&house.last(0).await.json()), 1, "{row}");
        house.end_in_peace().await;
    }
}

/// Covers: S4-63
#[tokio::test]
async fn a_response_that_is_kept_brings_its_unkept_past_along() {
    let house = House::over(&["gemini 3"]).await;
    let mut connection = connect(&house).await;
    let first = ask(&mut connection, create(json!("ponder this"), None)).await;
    let first = &first.last().expect("events")["response"];
    let mut kept = create(json!("ponder more"), Some(&first["id"]));
    kept["store"] = true.into();
    kept["stream_id"] = "one".into();
    let kept = ask(&mut connection, kept).await;
    assert!(kept.iter().all(|event| event["stream_id"] == "one"));
    let kept = &kept.last().expect("events")["response"];
    drop(connection);
    let body =
        json!({"model": "some-model", "input": "and on", "previous_response_id": kept["id"]});
    let key = [("authorization", "Bearer ada")];
    let client = &house.gateway.client;
    client.post("/v1/responses", &key, &body).await.good();
    let sent = house.last(0).await.json();
    assert_eq!(list(&sent["contents"]).count(), 5, "{sent}");
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_client_that_leaves_finds_what_had_come() {
    let house = House::build(&Plan {
        upstreams: &["anthropic, budget"],
        scenario: "[[step]]\nfault = \"stall:event=8,ms=60000\"\n\
                   say = [{ thinking = \"One.\" }, { text = \"Two, three, four, five.\" }]",
        ..Plan::default()
    })
    .await;
    let mut connection = connect(&house).await;
    let mut message = create(json!("ponder this"), None);
    message["store"] = true.into();
    let message = Message::Text(message.to_string().into());
    connection.send(message).await.expect("an open connection");
    let begun = connection.next().await.expect("an event").expect("one");
    let begun: Value = serde_json::from_str(begun.to_text().expect("text")).expect("JSON");
    drop(connection);
    let path = format!("/v1/responses/{}", text(&begun["response"]["id"]));
    let key = [("authorization", "Bearer ada")];
    let client = &house.gateway.client;
    until("it is kept", async || {
        let kept = client.send(http::Method::GET, &path, &key, "").await;
        kept.status == 200 && kept.json()["status"] == "cancelled"
    })
    .await;
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_page_from_elsewhere_opens_no_connection_unless_it_is_named() {
    let house = House::build(&Plan {
        upstreams: &["gemini 3"],
        settings: "cors_origins = [\"https://app.example\"]",
        ..Plan::default()
    })
    .await;
    for (origin, opens) in [
        ("https://evil.example", false),
        ("null", false),
        ("http://localhost:3000", true),
        ("https://app.example", true),
        ("http://app.example", false),
    ] {
        let mut request = request(&house);
        let value = origin.parse().expect("a value");
        request.headers_mut().insert("origin", value);
        let opened = tokio_tungstenite::connect_async(request).await;
        assert_eq!(opened.is_ok(), opens, "{origin}");
    }
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_mistake_is_told_and_the_connection_goes_on() {
    let house = House::over(&["gemini 3"]).await;
    let mut connection = connect(&house).await;
    for (message, status) in [
        (json!({"type": "response.steer"}), 400),
        (json!([1]), 400),
        (create(json!(5), None), 400),
        (create(json!("x"), Some(&json!("resp_nobody"))), 400),
    ] {
        let told = ask(&mut connection, message).await;
        assert_eq!(told[0]["type"], "error");
        assert_eq!(told[0]["status"], status, "{told:?}");
        assert!(!text(&told[0]["error"]["message"]).is_empty());
    }
    let told = ask(&mut connection, create(json!("ponder this"), None)).await;
    assert_eq!(told.last().expect("events")["type"], "response.completed");

    // What is no connection is told to ask otherwise.
    let answer = house
        .gateway
        .client
        .send(http::Method::GET, "/v1/responses", &[("upgrade", "websocket")], "")
        .await;
    assert_eq!(answer.status, 426);
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_message_that_is_too_large_is_told_after_what_came_before_it() {
    let house = House::build(&Plan {
        upstreams: &["gemini 3"],
        settings: "limits.body = \"4KiB\"",
        ..Plan::default()
    })
    .await;
    let mut connection = connect(&house).await;
    let large = create(json!("x".repeat(5000)), None);
    for message in [create(json!("ponder this"), None), large] {
        let message = Message::Text(message.to_string().into());
        connection.send(message).await.expect("an open connection");
    }
    let (told, code) = until_closed(&mut connection).await;
    assert_eq!(code, 1009);
    let [.., answered, error] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(answered["type"], "response.completed");
    assert_eq!((&error["type"], &error["status"]), (&json!("error"), &json!(413)));
    assert!(text(&error["error"]["message"]).contains("limits.body"), "{error}");
    house.end_in_peace().await;
}

/// Nothing of it is read, however much of it comes.
#[tokio::test]
async fn a_message_beyond_all_measure_closes_the_connection() {
    let house = House::build(&Plan {
        upstreams: &["gemini 3"],
        settings: "limits.body = \"4KiB\"",
        ..Plan::default()
    })
    .await;
    let (mut ask, mut told) = connect(&house).await.split();
    let huge = Message::Text("x".repeat(32 << 20).into());
    let (_, (events, code)) = tokio::join!(ask.send(huge), until_closed(&mut told));
    assert_eq!((events.len(), code), (1, 1009), "{events:?}");
    assert_eq!(events[0]["status"], 413);
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_message_beyond_all_measure_lets_the_answer_in_progress_end() {
    let server = bare::Upstream::start().await;
    let backend = upstream("gemini 3").backend("a", &server.url);
    let house = House { gateway: Gateway::start(BINARY, &backend).await, simulators: Vec::new() };
    let mut connection = connect(&house).await;
    let message = Message::Text(create(json!("go on"), None).to_string().into());
    connection.send(message).await.expect("an open connection");
    let exchange = server.next().await;
    // A text of a terabyte begins.
    let length = (1_u64 << 40).to_be_bytes();
    let frame = [&[0x81, 0xff], &length[..], &[0; 4]].concat();
    let sent = connection.get_mut().write_all(&frame).await;
    sent.expect("an open connection");
    let words = json!({"candidates": [{"finishReason": "STOP",
        "content": {"role": "model", "parts": [{"text": "Yes."}]}}]});
    let reply = format!("{}data: {words}\n\n", head("text/event-stream", ""));
    exchange.answer(reply.as_bytes()).await;
    let (events, code) = until_closed(&mut connection).await;
    assert_eq!(code, 1009);
    let [.., answered, error] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(answered["type"], "response.completed", "{events:?}");
    assert_eq!(error["status"], 413, "{events:?}");
}

#[tokio::test]
async fn what_is_no_message_is_closed_by_its_own_name() {
    let house = House::over(&["gemini 3"]).await;
    for (frame, named) in [
        // A text that is none, a kind that does not exist, and one that a client may not send so.
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff][..], 1007),
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        (&[0x81, 0x01, b'x'], 1002),
    ] {
        let mut connection = connect(&house).await;
        let sent = connection.get_mut().write_all(frame).await;
        sent.expect("an open connection");
        let (events, code) = until_closed(&mut connection).await;
        assert_eq!((events.len(), code), (0, named), "{events:?}");
    }
    house.end_in_peace().await;
}

/// A house whose clients are often asked for a sign of life.
async fn impatient(settings: &str) -> House {
    House::build(&Plan {
        upstreams: &["gemini 3"],
        settings: &format!("keep_alive = \"50ms\"\n{settings}"),
        ..Plan::default()
    })
    .await
}

#[tokio::test]
async fn a_client_that_gives_signs_of_life_is_kept_however_long_it_is_silent() {
    let house = impatient("").await;
    let mut connection = connect(&house).await;
    // More than may stay unanswered.
    for _ in 0..25 {
        let message = connection.next().await.expect("a sign").expect("a message");
        assert!(matches!(message, Message::Ping(_)), "{message:?}");
    }
    let told = ask(&mut connection, create(json!("ponder this"), None)).await;
    assert_eq!(told.last().expect("events")["type"], "response.completed");
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_client_that_gives_no_sign_of_life_is_left() {
    let house = impatient("").await;
    let mut connection = connect(&house).await;
    let mut heard = Vec::new();
    // Below the protocol nobody answers.
    let read = connection.get_mut().read_to_end(&mut heard).await;
    read.expect("an end");
    assert_eq!(heard, [0x89, 0].repeat(20), "pings alone");
    house.end_in_peace().await;
}

#[tokio::test]
async fn only_so_many_connections_are_open_and_others_are_sent_to_plain_requests() {
    let house = impatient("limits.streams = 1").await;
    let mut connection = connect(&house).await;
    let refused = tokio_tungstenite::connect_async(request(&house)).await;
    let Err(tungstenite::Error::Http(refused)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.status(), 426);
    // Whoever has one can ask: it takes no place of a request.
    let told = ask(&mut connection, create(json!("ponder this"), None)).await;
    assert_eq!(told.last().expect("events")["type"], "response.completed");
    drop(connection);
    until("another connection opens", async || {
        let opened = tokio_tungstenite::connect_async(request(&house)).await;
        opened.is_ok()
    })
    .await;
    house.end_in_peace().await;
}

#[tokio::test]
async fn a_client_that_does_not_take_its_answer_is_left() {
    let server = bare::Upstream::start().await;
    let backend = upstream("gemini 3").backend("a", &server.url);
    let settings = "keep_alive = \"50ms\"\nlimits.streams = 1\n";
    let house = House {
        gateway: Gateway::start(BINARY, &format!("{settings}{backend}")).await,
        simulators: Vec::new(),
    };
    let mut connection = connect(&house).await;
    let message = Message::Text(create(json!("go on"), None).to_string().into());
    connection.send(message).await.expect("an open connection");
    // Said several times over in the events, it is more than what lies between two programs takes.
    let words = json!({"candidates": [{"finishReason": "STOP",
        "content": {"role": "model", "parts": [{"text": "x".repeat(6 << 20)}]}}]});
    let reply = format!("{}data: {words}\n\n", head("text/event-stream", ""));
    server.next().await.answer(reply.as_bytes()).await;
    until("its connection is free", async || {
        let opened = tokio_tungstenite::connect_async(request(&house)).await;
        opened.is_ok()
    })
    .await;
    drop(connection);
}
