//! What a stop does to translated streams, background responses and WebSockets: they end, or they are
//! cut with an error of their dialect and recorded as stopped.

use http::Method;
use serde_json::json;
use throughline_testkit::{Gateway, Simulator, wait_until};

use crate::stored_responses::{KEY, PATH, create, get, response_request, slow_upstream};
use crate::support::{BINARY, Mismatches, TestBed};
use crate::test_client::{events, list, text};
use crate::websocket::{connect, create_message, read_until_closed, send};

/// Starts a gateway over a slow upstream that cuts requests soon after a stop signal.
async fn hasty_gateway() -> (Simulator, Gateway) {
    let (simulator, config) = slow_upstream().await;
    let config = format!("shutdown_grace = \"300ms\"\n{config}");
    (simulator, Gateway::start(BINARY, &config).await)
}

/// The last line of the log about the end of a turn.
fn end_of_turn(gateway: &Gateway) -> String {
    let log = gateway.log();
    let ended = log.lines().rfind(|line| line.contains("Turn ended"));
    ended.expect("a turn").to_owned()
}

#[tokio::test]
async fn stream_of_every_dialect_ends_with_its_error_when_the_server_stops() {
    let mut mismatches = Mismatches::default();
    let slowly = json!([{"role": "user", "content": "slowly"}]);
    let model = "some-model";
    for (path, body, error) in [
        (
            "/v1/messages",
            json!({"model": model, "max_tokens": 4096, "stream": true, "messages": slowly}),
            "event: error\n",
        ),
        (
            "/v1/chat/completions",
            json!({"model": model, "stream": true, "messages": slowly}),
            "{\"error\":{",
        ),
        (
            PATH,
            json!({"model": model, "stream": true, "store": false, "input": slowly}),
            "\"response.failed\"",
        ),
        (
            "/v1beta/models/some-model:streamGenerateContent?alt=sse",
            json!({"contents": [{"role": "user", "parts": [{"text": "slowly"}]}]}),
            "\"status\":\"UNAVAILABLE\"",
        ),
        ("/api/chat", json!({"model": model, "messages": slowly}), "{\"error\":"),
        ("/ndjson/chat", json!({"model": model, "messages": slowly}), "\"type\":\"error\""),
        ("/v1/stream", json!({"model": model, "messages": slowly}), "fault"),
        (
            "/ag-ui",
            json!({"threadId": "t", "runId": "r", "state": {}, "tools": [], "context": [],
                "messages": [{"id": "1", "role": "user", "content": "slowly"}],
                "forwardedProps": {"model": model}}),
            "\"RUN_ERROR\"",
        ),
        (
            "/ui/chat",
            json!({"id": "c", "model": model,
                "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "slowly"}]}]}),
            "\"type\":\"error\"",
        ),
    ] {
        let dialect = path;
        let (_simulator, mut gateway) = hasty_gateway().await;
        let version = ("anthropic-version", "2023-06-01");
        let headers = [("content-type", "application/json"), version];
        let body = body.to_string();
        let mut stream = gateway.client.open(Method::POST, path, &headers, body).await;
        let mut received = stream.next().await.expect("a beginning").to_vec();
        gateway.signal("TERM").await;
        let (rest, broken) = stream.read_to_break().await;
        received.extend(rest);
        let received = String::from_utf8_lossy(&received);
        mismatches.check_equal(dialect, broken, false);
        mismatches.check_equal(dialect, received.contains("the server is stopping"), true);
        mismatches.check_equal(dialect, received.contains(error), true);
        mismatches.check_equal(dialect, gateway.wait_for_exit().await, Some(0));
        mismatches.check_equal(dialect, end_of_turn(&gateway).contains("stopped"), true);
    }
    mismatches.assert_none();
}

#[tokio::test]
async fn background_response_cut_by_a_stop_is_stored_as_failed() {
    let (simulator, gateway) = hasty_gateway().await;
    let mut bed = TestBed { gateway, simulators: vec![simulator] };
    let client = bed.gateway.client.clone();
    let run = create(&client, "slowly", json!({"background": true})).await;
    let path = format!("{PATH}/{}", text(&run["id"]));
    wait_until("the thinking is complete", async || {
        list(&get(&client, &path).await.1["output"]).count() == 1
    })
    .await;
    bed.stop().await;
    assert!(end_of_turn(&bed.gateway).contains("stopped"), "{}", end_of_turn(&bed.gateway));
    bed.gateway.restart().await;
    let (_, cut) = get(&bed.gateway.client, &path).await;
    assert_eq!(cut["status"], "failed");
    assert!(text(&cut["error"]["message"]).contains("the server is stopping"), "{cut}");
    assert!(list(&cut["output"]).count() >= 1, "what was received stays: {cut}");
    bed.expect_no_refusals().await;
}

#[tokio::test]
async fn stored_stream_cut_by_a_stop_can_be_read_but_not_taken_for_complete() {
    let (_simulator, mut gateway) = hasty_gateway().await;
    let json = ("content-type", "application/json");
    let body = response_request("slowly", json!({"stream": true})).to_string();
    let mut stream = gateway.client.open(Method::POST, PATH, &[KEY[0], json], body).await;
    let mut received = stream.next().await.expect("a beginning").to_vec();
    gateway.signal("TERM").await;
    received.extend(stream.read_to_break().await.0);
    assert_eq!(gateway.wait_for_exit().await, Some(0));
    let end = events(&String::from_utf8_lossy(&received)).pop().expect("an end");
    assert_eq!(end["type"], "response.failed", "{end}");
    gateway.restart().await;
    let path = format!("{PATH}/{}", text(&end["response"]["id"]));
    let (status, stored) = get(&gateway.client, &path).await;
    assert_eq!((status, &stored["status"]), (200, &json!("failed")), "{stored}");
}

#[tokio::test]
async fn websocket_is_closed_after_its_last_answer_when_the_server_stops() {
    let (simulator, gateway) = hasty_gateway().await;
    let mut bed = TestBed { gateway, simulators: vec![simulator] };
    let mut idle = connect(&bed).await;
    let mut busy = connect(&bed).await;
    let user = json!({"role": "user", "content": "slowly"});
    send(&mut busy, create_message(json!([user]), None)).await;
    wait_until("the backend is asked", async || bed.simulators[0].received().await.len() == 1)
        .await;
    bed.gateway.signal("TERM").await;
    const AWAY: u16 = 1001;
    assert_eq!(read_until_closed(&mut idle).await, (Vec::new(), AWAY));
    let (events, code) = read_until_closed(&mut busy).await;
    assert_eq!(events.last().expect("events")["type"], "response.failed", "{events:?}");
    assert_eq!(code, AWAY);
    assert_eq!(bed.gateway.wait_for_exit().await, Some(0));
}
