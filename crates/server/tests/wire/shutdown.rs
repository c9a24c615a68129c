//! How it stops: streams end whole, nothing new begins, what is remembered stays.

use throughline_testkit::Gateway;

use crate::support::{
    BINARY, STREAM, ask, ask_after, backend, exchange, open_stream, over_upstream, read_exactly,
    read_to_end, until,
};
use crate::upstream::{Upstream, whole};

///
#[tokio::test]
async fn a_stream_in_progress_ends_whole_after_a_stop() {
    for signal in ["TERM", "INT"] {
        let settings = "[thinking]\nunknown = \"drop\"\n";
        let (upstream, mut gateway) = over_upstream(settings, "").await;
        let (mut streamed, mut going) = open_stream(&upstream, &gateway.client).await;
        let (first, second) = STREAM.as_bytes().split_at(400);
        going.write(first).await;
        assert_eq!(read_exactly(&mut streamed, first.len()).await, first);
        gateway.signal(signal).await;
        let address = gateway.url.trim_start_matches("http://").to_owned();
        until("nobody new is let in", async || {
            tokio::net::TcpStream::connect(&address).await.is_err()
        })
        .await;
        going.write(second).await;
        going.close().await;
        assert_eq!(read_to_end(&mut streamed).await, (second.to_vec(), false));
        assert_eq!(gateway.ended().await, Some(0), "{signal}");

        // The block that ended after the stop is known after the start.
        gateway.start_again().await;
        let block = serde_json::json!({"type": "thinking", "thinking": "Hm \u{1F914}.", "signature": "c2ln"});
        let reply = whole("application/json", "", crate::support::REPLY);
        let body = ask_after(&block, false);
        let answer = exchange(&upstream, &gateway.client, &body, &reply).await;
        assert_eq!(answer.good().header("x-throughline-loss"), "", "{signal}");
        assert_eq!(gateway.turns().await[0]["blocks"][0]["fate"], "sent");
    }
}

#[tokio::test]
async fn an_idle_gateway_stops_at_once() {
    let (upstream, mut gateway) = over_upstream("", "").await;
    // A connection that is kept but not used holds up nothing.
    let reply = whole("application/json", "", crate::support::REPLY);
    exchange(&upstream, &gateway.client, &ask("Hello.", false), &reply).await.good();
    gateway.signal("TERM").await;
    assert_eq!(gateway.ended().await, Some(0));
    assert!(!gateway.log().contains("cut off by the shutdown"));
}

/// Somebody who watches the turns does not keep the gateway from stopping.
#[tokio::test]
async fn a_watcher_of_turns_does_not_hold_up_a_stop() {
    let (_upstream, mut gateway) = over_upstream("", "").await;
    let mut watching = gateway.client.open(http::Method::GET, "/admin/turns/stream", &[], "").await;
    gateway.signal("TERM").await;
    read_to_end(&mut watching).await;
    assert_eq!(gateway.ended().await, Some(0));
    assert!(!gateway.log().contains("cut off by the shutdown"), "{}", gateway.log());
}

#[tokio::test]
async fn a_second_signal_stops_at_once() {
    let (upstream, mut gateway) = over_upstream("", "").await;
    let (streamed, going) = open_stream(&upstream, &gateway.client).await;
    gateway.signal("TERM").await;
    until("the first is heard", async || gateway.log().contains("stopping")).await;
    gateway.signal("TERM").await;
    assert_eq!(gateway.ended().await, Some(0));
    assert!(gateway.log().contains("second stop signal"));
    drop(streamed);
    going.closed().await;
}

/// A crash loses at most what was not written yet, and never the file.
#[tokio::test]
async fn a_killed_gateway_starts_again_on_its_data() {
    let upstream = Upstream::start().await;
    let mut gateway = Gateway::start(BINARY, &backend("a", &upstream.url, "")).await;
    let (mut streamed, mut going) = open_stream(&upstream, &gateway.client).await;
    going.write(&STREAM[..400]).await;
    read_exactly(&mut streamed, 400).await;
    gateway.kill().await;
    going.closed().await;
    assert!(read_to_end(&mut streamed).await.1, "the connection breaks");
    gateway.start_again().await;
    let reply = whole("application/json", "", crate::support::REPLY);
    exchange(&upstream, &gateway.client, &ask("Hello.", false), &reply).await.good();
}
