//! Shutdown: open streams complete or end with an error, no new requests begin, and the memory is
//! written.

use throughline_testkit::{Gateway, RawUpstream, ok_reply};

use crate::support::{
    BINARY, STREAM, backend, exchange, gateway_over_raw_upstream, message_request, open_stream,
    read_exactly, request_after, wait_until,
};

///
#[tokio::test]
async fn stream_in_progress_completes_after_a_stop() {
    for signal in ["TERM", "INT"] {
        let settings = "[thinking]\nunknown = \"drop\"\n";
        let (upstream, mut gateway) = gateway_over_raw_upstream(settings, "").await;
        let (mut streamed, mut going) = open_stream(&upstream, &gateway.client).await;
        let (first, second) = STREAM.as_bytes().split_at(400);
        going.write(first).await;
        assert_eq!(read_exactly(&mut streamed, first.len()).await, first);
        gateway.signal(signal).await;
        let address = gateway.url.trim_start_matches("http://").to_owned();
        wait_until("new connections are rejected", async || {
            tokio::net::TcpStream::connect(&address).await.is_err()
        })
        .await;
        going.write(second).await;
        going.close().await;
        assert_eq!(streamed.read_to_break().await, (second.to_vec(), false));
        assert_eq!(gateway.wait_for_exit().await, Some(0), "{signal}");

        // The block that ended after the stop is known after the restart.
        gateway.restart().await;
        let block = serde_json::json!({"type": "thinking", "thinking": "Hm \u{1F914}.", "signature": "c2ln"});
        let reply = ok_reply("application/json", "", crate::support::REPLY);
        let body = request_after(&block, false);
        let answer = exchange(&upstream, &gateway.client, &body, &reply).await;
        assert_eq!(answer.expect_ok().header("x-throughline-loss"), "", "{signal}");
        assert_eq!(gateway.turns().await[0]["blocks"][0]["fate"], "sent");
    }
}

/// The error that a client gets from a server that stops.
const STOPPING: &str = "the server is stopping";

#[tokio::test]
async fn stream_left_after_the_grace_ends_with_an_error_and_is_recorded_as_stopped() {
    let grace = "shutdown_grace = \"200ms\"\n";
    let (upstream, mut gateway) = gateway_over_raw_upstream(grace, "").await;
    let (mut streamed, mut going) = open_stream(&upstream, &gateway.client).await;
    let sent = &STREAM.as_bytes()[..400];
    going.write(sent).await;
    assert_eq!(read_exactly(&mut streamed, sent.len()).await, sent);
    gateway.signal("TERM").await;
    let (rest, broken) = streamed.read_to_break().await;
    let rest = String::from_utf8(rest).unwrap();
    assert!(!broken, "the stream ends cleanly");
    assert!(rest.contains("event: error\n") && rest.contains("overloaded_error"), "{rest}");
    assert!(rest.contains(STOPPING), "{rest}");
    assert_eq!(gateway.wait_for_exit().await, Some(0));
    let log = gateway.log();
    let ended = log.lines().find(|line| line.contains("Turn ended")).unwrap();
    assert!(ended.contains("stopped"), "{ended}");
    drop(going);
}

#[tokio::test]
async fn request_without_a_reply_is_answered_with_an_error_when_the_grace_ends() {
    for stream in [false, true] {
        let grace = "shutdown_grace = \"200ms\"\n";
        let (upstream, mut gateway) = gateway_over_raw_upstream(grace, "").await;
        let client = gateway.client.clone();
        let body = message_request("Hello.", stream);
        let (answer, _waiting) = tokio::join!(client.post("/v1/messages", &[], &body), async {
            let waiting = upstream.next().await;
            gateway.signal("TERM").await;
            waiting
        });
        assert_eq!(answer.status, 529, "{}", answer.text());
        assert_eq!(answer.json()["error"]["type"], "overloaded_error");
        assert!(answer.text().contains(STOPPING), "{}", answer.text());
        assert_eq!(gateway.wait_for_exit().await, Some(0));
        let log = gateway.log();
        let ended = log.lines().find(|line| line.contains("Turn ended")).unwrap();
        assert!(ended.contains("stopped"), "{ended}");
    }
}

#[tokio::test]
async fn idle_gateway_stops_at_once() {
    let (upstream, mut gateway) = gateway_over_raw_upstream("", "").await;
    // An idle kept-alive connection does not delay the stop.
    let reply = ok_reply("application/json", "", crate::support::REPLY);
    exchange(&upstream, &gateway.client, &message_request("Hello.", false), &reply)
        .await
        .expect_ok();
    gateway.signal("TERM").await;
    assert_eq!(gateway.wait_for_exit().await, Some(0));
    assert!(!gateway.log().contains("cut off by the shutdown"));
}

/// An open `/admin/turns/stream` does not keep the gateway running.
#[tokio::test]
async fn turn_stream_does_not_delay_a_stop() {
    let (_upstream, mut gateway) = gateway_over_raw_upstream("", "").await;
    let mut watching = gateway.client.open(http::Method::GET, "/admin/turns/stream", &[], "").await;
    gateway.signal("TERM").await;
    watching.read_to_break().await;
    assert_eq!(gateway.wait_for_exit().await, Some(0));
    assert!(!gateway.log().contains("cut off by the shutdown"), "{}", gateway.log());
}

#[tokio::test]
async fn second_signal_stops_at_once() {
    let (upstream, mut gateway) = gateway_over_raw_upstream("", "").await;
    let (streamed, going) = open_stream(&upstream, &gateway.client).await;
    gateway.signal("TERM").await;
    wait_until("the first signal is logged", async || gateway.log().contains("stopping")).await;
    gateway.signal("TERM").await;
    assert_eq!(gateway.wait_for_exit().await, Some(0));
    assert!(gateway.log().contains("second stop signal"));
    drop(streamed);
    going.wait_until_closed().await;
}

/// A crash loses at most the data that was not written yet, and never damages the file.
#[tokio::test]
async fn killed_gateway_restarts_on_its_data() {
    let upstream = RawUpstream::start().await;
    let mut gateway = Gateway::start(BINARY, &backend("a", &upstream.url, "")).await;
    let (mut streamed, mut going) = open_stream(&upstream, &gateway.client).await;
    going.write(&STREAM[..400]).await;
    read_exactly(&mut streamed, 400).await;
    gateway.kill().await;
    going.wait_until_closed().await;
    assert!(streamed.read_to_break().await.1, "the connection breaks");
    gateway.restart().await;
    let reply = ok_reply("application/json", "", crate::support::REPLY);
    exchange(&upstream, &gateway.client, &message_request("Hello.", false), &reply)
        .await
        .expect_ok();
}
