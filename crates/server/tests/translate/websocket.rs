//! Responses over a WebSocket, as Codex uses it: first a warm-up, then only the new items.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use throughline_testkit::{Gateway, RawUpstream, ok_head, open_responses, wait_until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::support::{BINARY, BedOptions, TestBed, thinking_in, upstream};
use crate::test_client::{list, text};

pub(crate) type Connection =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

fn handshake(bed: &TestBed) -> tungstenite::handshake::client::Request {
    let url = bed.gateway.url.replace("http://", "ws://");
    let mut handshake = format!("{url}/v1/responses").into_client_request().expect("a request");
    let headers = handshake.headers_mut();
    headers.insert("authorization", "Bearer ada".parse().expect("a value"));
    let beta = "responses_websockets=2026-02-06".parse().expect("a value");
    headers.insert("openai-beta", beta);
    handshake
}

pub(crate) async fn connect(bed: &TestBed) -> Connection {
    tokio_tungstenite::connect_async(handshake(bed)).await.expect("a connection").0
}

/// Sends a message.
#[allow(clippy::needless_pass_by_value, reason = "call sites pass a new value")]
pub(crate) async fn send(connection: &mut Connection, message: Value) {
    let message = Message::Text(message.to_string().into());
    connection.send(message).await.expect("an open connection");
}

/// Sends a message, and returns all events up to the last one.
async fn send_and_collect(connection: &mut Connection, message: Value) -> Vec<Value> {
    send(connection, message).await;
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

/// Reads all events up to the end, and returns the close code.
pub(crate) async fn read_until_closed(
    stream: &mut (impl StreamExt<Item = Result<Message, tungstenite::Error>> + Unpin),
) -> (Vec<Value>, u16) {
    let mut events = Vec::new();
    loop {
        match stream.next().await.expect("an end").expect("a message") {
            Message::Text(event) => events.push(serde_json::from_str(&event).expect("JSON")),
            Message::Close(frame) => return (events, frame.expect("a reason").code.into()),
            _ => {}
        }
    }
}

#[allow(clippy::needless_pass_by_value, reason = "call sites pass a new value")]
pub(crate) fn create_message(input: Value, previous: Option<&Value>) -> Value {
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
async fn connection_keeps_unstored_responses() {
    for row in ["anthropic, budget", "gemini 3", "openai_responses"] {
        let bed = TestBed::over(&[row]).await;
        let mut connection = connect(&bed).await;
        let user = json!({"role": "user", "content": "use one tool"});
        let mut warm = create_message(json!([user]), None);
        warm["generate"] = false.into();
        let warmed = send_and_collect(&mut connection, warm).await;
        assert_eq!(warmed.len(), 2, "{warmed:?}");
        assert_eq!(bed.simulators[0].received().await.len(), 0, "no backend was asked");

        let id = &warmed[1]["response"]["id"];
        let called = send_and_collect(&mut connection, create_message(json!([]), Some(id))).await;
        let response = &called.last().expect("events")["response"];
        let call = list(&response["output"]).find(|item| item["type"] == "function_call");
        let call = &call.expect("a call")["call_id"];
        let numbers = called.iter().map(|event| event["sequence_number"].as_u64());
        assert!(numbers.eq((0..).map(Some).take(called.len())), "{called:?}");

        let result =
            json!([{"type": "function_call_output", "call_id": call, "output": "row green"}]);
        let events =
            send_and_collect(&mut connection, create_message(result, Some(&response["id"]))).await;
        let end = &events.last().expect("events")["response"];
        assert_eq!(end["status"], "completed", "{row}");
        assert_eq!(thinking_in(&bed.last_received(0).await.json()), 1, "{row}");
        bed.expect_no_refusals().await;
    }
}

/// Covers: S4-63
#[tokio::test]
async fn stored_response_includes_its_unstored_history() {
    let bed = TestBed::over(&["gemini 3"]).await;
    let mut connection = connect(&bed).await;
    let first = send_and_collect(&mut connection, create_message(json!("ponder this"), None)).await;
    let first = &first.last().expect("events")["response"];
    let mut kept = create_message(json!("ponder more"), Some(&first["id"]));
    kept["store"] = true.into();
    kept["stream_id"] = "one".into();
    let kept = send_and_collect(&mut connection, kept).await;
    assert!(kept.iter().all(|event| event["stream_id"] == "one"));
    let kept = &kept.last().expect("events")["response"];
    drop(connection);
    let body =
        json!({"model": "some-model", "input": "and on", "previous_response_id": kept["id"]});
    let key = [("authorization", "Bearer ada")];
    let client = &bed.gateway.client;
    client.post("/v1/responses", &key, &body).await.expect_ok();
    let sent = bed.last_received(0).await.json();
    assert_eq!(list(&sent["contents"]).count(), 5, "{sent}");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn disconnected_client_finds_the_received_part() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["anthropic, budget"],
        scenario: "[[step]]\nfault = \"stall:event=8,ms=60000\"\n\
                   say = [{ thinking = \"One.\" }, { text = \"Two, three, four, five.\" }]",
        ..BedOptions::default()
    })
    .await;
    let mut connection = connect(&bed).await;
    let mut message = create_message(json!("ponder this"), None);
    message["store"] = true.into();
    let message = Message::Text(message.to_string().into());
    connection.send(message).await.expect("an open connection");
    let first_event = connection.next().await.expect("an event").expect("one");
    let first_event: Value =
        serde_json::from_str(first_event.to_text().expect("text")).expect("JSON");
    drop(connection);
    let path = format!("/v1/responses/{}", text(&first_event["response"]["id"]));
    let key = [("authorization", "Bearer ada")];
    let client = &bed.gateway.client;
    wait_until("the response is stored", async || {
        let kept = client.send(http::Method::GET, &path, &key, "").await;
        kept.status == 200 && kept.json()["status"] == "cancelled"
    })
    .await;
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn events_over_a_connection_are_those_of_the_specification() {
    for row in ["anthropic, adaptive", "gemini 3", "openai_responses", "deepseek-v4", "ollama"] {
        let bed = TestBed::over(&[row]).await;
        let mut connection = connect(&bed).await;
        let first = create_message(json!("use one tool"), None);
        let events = send_and_collect(&mut connection, first).await;
        let response = open_responses::check_events(&events);
        let call = list(&response["output"]).find(|item| item["type"] == "function_call");
        let call = &call.expect("a call")["call_id"];
        let result =
            json!([{"type": "function_call_output", "call_id": call, "output": "row green"}]);
        let next = create_message(result, Some(&response["id"]));
        let events = send_and_collect(&mut connection, next).await;
        open_responses::check_events(&events);
        bed.expect_no_refusals().await;
    }
}

#[tokio::test]
async fn failed_continuation_forgets_the_unstored_response() {
    let bed = TestBed::over(&["gemini 3"]).await;
    let mut connection = connect(&bed).await;
    let first = create_message(json!("ponder this"), None);
    let events = send_and_collect(&mut connection, first).await;
    let id = &events.last().expect("events")["response"]["id"];
    let stray = json!([{"type": "function_call_output", "call_id": "call_none", "output": "x"}]);
    let failed = send_and_collect(&mut connection, create_message(stray, Some(id))).await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0]["status"], 400);
    assert!(failed[0]["error"]["code"].is_string(), "{failed:?}");

    let again = create_message(json!("ponder more"), Some(id));
    let lost = send_and_collect(&mut connection, again).await;
    assert_eq!(lost[0]["error"]["code"], "previous_response_not_found", "{lost:?}");
    // The client starts again with its whole history, on the same connection.
    let fresh = create_message(json!("ponder this"), None);
    let events = send_and_collect(&mut connection, fresh).await;
    assert_eq!(events.last().expect("events")["type"], "response.completed");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn stored_response_continues_after_a_reconnect_and_an_unstored_one_is_lost() {
    let bed = TestBed::over(&["anthropic, adaptive"]).await;
    for (store, last) in [(true, "response.completed"), (false, "error")] {
        let mut connection = connect(&bed).await;
        let mut first = create_message(json!("ponder this"), None);
        first["store"] = store.into();
        let events = send_and_collect(&mut connection, first).await;
        let id = events.last().expect("events")["response"]["id"].clone();
        drop(connection);
        let mut connection = connect(&bed).await;
        let next = create_message(json!("ponder more"), Some(&id));
        let events = send_and_collect(&mut connection, next).await;
        assert_eq!(events.last().expect("events")["type"], last, "{events:?}");
        if store {
            open_responses::check_events(&events);
            let sent = bed.last_received(0).await.json();
            assert_eq!(list(&sent["messages"]).count(), 3, "{sent}");
        } else {
            assert_eq!(events[0]["error"]["code"], "previous_response_not_found");
        }
    }
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn cross_origin_page_connects_only_if_allowed() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        settings: "cors_origins = [\"https://app.example\"]",
        ..BedOptions::default()
    })
    .await;
    for (origin, opens) in [
        ("https://evil.example", false),
        ("null", false),
        ("http://localhost:3000", false),
        ("https://app.example", true),
        ("http://app.example", false),
    ] {
        let mut handshake = handshake(&bed);
        let value = origin.parse().expect("a value");
        handshake.headers_mut().insert("origin", value);
        let opened = tokio_tungstenite::connect_async(handshake).await;
        assert_eq!(opened.is_ok(), opens, "{origin}");
    }
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn invalid_message_gets_an_error_and_the_connection_stays_open() {
    let bed = TestBed::over(&["gemini 3"]).await;
    let mut connection = connect(&bed).await;
    for (message, status) in [
        (json!({"type": "response.steer"}), 400),
        (json!([1]), 400),
        (create_message(json!(5), None), 400),
        (create_message(json!("x"), Some(&json!("resp_nobody"))), 400),
    ] {
        let events = send_and_collect(&mut connection, message).await;
        assert_eq!(events[0]["type"], "error");
        assert_eq!(events[0]["status"], status, "{events:?}");
        assert!(!text(&events[0]["error"]["message"]).is_empty());
    }
    let events =
        send_and_collect(&mut connection, create_message(json!("ponder this"), None)).await;
    assert_eq!(events.last().expect("events")["type"], "response.completed");

    // A plain request gets a hint to upgrade.
    let answer = bed
        .gateway
        .client
        .send(http::Method::GET, "/v1/responses", &[("upgrade", "websocket")], "")
        .await;
    assert_eq!(answer.status, 426);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn too_large_message_gets_an_error_after_earlier_answers() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        settings: "limits.body = \"4KiB\"",
        ..BedOptions::default()
    })
    .await;
    let mut connection = connect(&bed).await;
    let large = create_message(json!("x".repeat(5000)), None);
    for message in [create_message(json!("ponder this"), None), large] {
        let message = Message::Text(message.to_string().into());
        connection.send(message).await.expect("an open connection");
    }
    let (events, code) = read_until_closed(&mut connection).await;
    assert_eq!(code, 1009);
    let [.., answered, error] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(answered["type"], "response.completed");
    assert_eq!((&error["type"], &error["status"]), (&json!("error"), &json!(413)));
    assert!(text(&error["error"]["message"]).contains("limits.body"), "{error}");
    bed.expect_no_refusals().await;
}

/// The gateway reads none of it, however much arrives.
#[tokio::test]
async fn oversized_message_closes_the_connection() {
    let bed = TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        settings: "limits.body = \"4KiB\"",
        ..BedOptions::default()
    })
    .await;
    let (mut sink, mut stream) = connect(&bed).await.split();
    let huge = Message::Text("x".repeat(32 << 20).into());
    let (_, (events, code)) = tokio::join!(sink.send(huge), read_until_closed(&mut stream));
    assert_eq!((events.len(), code), (1, 1009), "{events:?}");
    assert_eq!(events[0]["status"], 413);
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn oversized_message_lets_the_answer_in_progress_end() {
    let server = RawUpstream::start().await;
    let backend = upstream("gemini 3").backend("a", &server.url);
    let bed = TestBed { gateway: Gateway::start(BINARY, &backend).await, simulators: Vec::new() };
    let mut connection = connect(&bed).await;
    let message = Message::Text(create_message(json!("go on"), None).to_string().into());
    connection.send(message).await.expect("an open connection");
    let exchange = server.next().await;
    // The header of a text frame of one terabyte.
    let length = (1_u64 << 40).to_be_bytes();
    let frame = [&[0x81, 0xff], &length[..], &[0; 4]].concat();
    let sent = connection.get_mut().write_all(&frame).await;
    sent.expect("an open connection");
    let words = json!({"candidates": [{"finishReason": "STOP",
        "content": {"role": "model", "parts": [{"text": "Yes."}]}}]});
    let reply = format!("{}data: {words}\n\n", ok_head("text/event-stream", ""));
    exchange.answer(reply.as_bytes()).await;
    let (events, code) = read_until_closed(&mut connection).await;
    assert_eq!(code, 1009);
    let [.., answered, error] = events.as_slice() else {
        panic!("{events:?}");
    };
    assert_eq!(answered["type"], "response.completed", "{events:?}");
    assert_eq!(error["status"], 413, "{events:?}");
}

#[tokio::test]
async fn invalid_frames_close_with_the_matching_code() {
    let bed = TestBed::over(&["gemini 3"]).await;
    for (frame, named) in [
        // Invalid UTF-8, an unknown opcode, and an unmasked frame.
        (&[0x81, 0x81, 0, 0, 0, 0, 0xff][..], 1007),
        (&[0x83, 0x80, 0, 0, 0, 0], 1002),
        (&[0x81, 0x01, b'x'], 1002),
    ] {
        let mut connection = connect(&bed).await;
        let sent = connection.get_mut().write_all(frame).await;
        sent.expect("an open connection");
        let (events, code) = read_until_closed(&mut connection).await;
        assert_eq!((events.len(), code), (0, named), "{events:?}");
    }
    bed.expect_no_refusals().await;
}

/// Starts a test bed that pings its clients often.
async fn bed_with_frequent_pings(settings: &str) -> TestBed {
    TestBed::build(&BedOptions {
        upstreams: &["gemini 3"],
        settings: &format!("keep_alive = \"50ms\"\n{settings}"),
        ..BedOptions::default()
    })
    .await
}

#[tokio::test]
async fn client_that_answers_pings_stays_connected() {
    let bed = bed_with_frequent_pings("").await;
    let mut connection = connect(&bed).await;
    // More pings than may stay unanswered.
    for _ in 0..25 {
        let message = connection.next().await.expect("a sign").expect("a message");
        assert!(matches!(message, Message::Ping(_)), "{message:?}");
    }
    let events =
        send_and_collect(&mut connection, create_message(json!("ponder this"), None)).await;
    assert_eq!(events.last().expect("events")["type"], "response.completed");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn client_that_answers_no_pings_is_disconnected() {
    let bed = bed_with_frequent_pings("").await;
    let mut connection = connect(&bed).await;
    let mut received = Vec::new();
    // The raw TCP connection answers no pings.
    let read = connection.get_mut().read_to_end(&mut received).await;
    read.expect("an end");
    assert_eq!(received, [0x89, 0].repeat(20), "pings alone");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn connections_over_the_limit_are_rejected_with_a_hint() {
    let bed = bed_with_frequent_pings("limits.streams = 1").await;
    let mut connection = connect(&bed).await;
    let refused = tokio_tungstenite::connect_async(handshake(&bed)).await;
    let Err(tungstenite::Error::Http(refused)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(refused.status(), 426);
    // An open connection can send requests: it occupies no request slot.
    let events =
        send_and_collect(&mut connection, create_message(json!("ponder this"), None)).await;
    assert_eq!(events.last().expect("events")["type"], "response.completed");
    drop(connection);
    wait_until("another connection opens", async || {
        let opened = tokio_tungstenite::connect_async(handshake(&bed)).await;
        opened.is_ok()
    })
    .await;
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected() {
    let server = RawUpstream::start().await;
    let backend = upstream("gemini 3").backend("a", &server.url);
    let settings = "keep_alive = \"50ms\"\nlimits.streams = 1\n";
    let bed = TestBed {
        gateway: Gateway::start(BINARY, &format!("{settings}{backend}")).await,
        simulators: Vec::new(),
    };
    let mut connection = connect(&bed).await;
    let message = Message::Text(create_message(json!("go on"), None).to_string().into());
    connection.send(message).await.expect("an open connection");
    // The events repeat the text several times, so it is more than the socket buffers hold.
    let words = json!({"candidates": [{"finishReason": "STOP",
        "content": {"role": "model", "parts": [{"text": "x".repeat(6 << 20)}]}}]});
    let reply = format!("{}data: {words}\n\n", ok_head("text/event-stream", ""));
    server.next().await.answer(reply.as_bytes()).await;
    wait_until("its connection is free", async || {
        let opened = tokio_tungstenite::connect_async(handshake(&bed)).await;
        opened.is_ok()
    })
    .await;
    drop(connection);
}
