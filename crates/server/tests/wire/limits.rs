//! How many at a time, and that every place is given back.

use tokio::io::AsyncWriteExt;

use crate::support::{
    STREAM, ask, metric, open_stream, over_upstream, own_error, read_exactly, read_to_end,
    until_metric,
};

const ONE: &str = "[limits]\nstreams = 1\n";
const ACTIVE: &str = "throughline_streams_active";

#[tokio::test]
async fn a_request_too_many_is_told_to_come_back() {
    let (upstream, gateway) = over_upstream(ONE, "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    assert_eq!(metric(&gateway, ACTIVE).await, 1);
    for stream in [false, true] {
        let answer = gateway.client.post("/v1/messages", &[], &ask("Too many.", stream)).await;
        let message = own_error(&answer, 529, "overloaded_error");
        assert!(message.contains("limits.streams"), "{message}");
        assert_eq!(answer.header("retry-after"), "1");
    }
    // Whoever looks after it is not kept out.
    gateway.client.get("/healthz").await.good();
    gateway.client.get("/readyz").await.good();
    gateway.client.get("/admin/turns").await.good();
    exchange.write(STREAM).await;
    exchange.close().await;
    assert_eq!(read_to_end(&mut streamed).await.0, STREAM.as_bytes());
    until_metric(&gateway, ACTIVE, 0).await;
    drop(open_stream(&upstream, &gateway.client).await);
}

/// A request without a place is not read into memory, but its sender is told all the same.
#[tokio::test]
async fn a_place_comes_before_the_body() {
    let (upstream, gateway) = over_upstream(ONE, "").await;
    let address = gateway.url.trim_start_matches("http://");
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    let head =
        format!("POST /v1/messages HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.unwrap();
    until_metric(&gateway, ACTIVE, 1).await;
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/plan"] {
        let answer = gateway.client.post(path, &[], &ask(&"x".repeat(1 << 20), false)).await;
        own_error(&answer, 529, "overloaded_error");
        let turn = &gateway.turns().await[0];
        assert_eq!(turn["id"], answer.header("x-throughline-turn"));
        assert_eq!((&turn["status"], &turn["path"]), (&529.into(), &path.into()));
    }
    drop(slow);
    until_metric(&gateway, ACTIVE, 0).await;
    drop(open_stream(&upstream, &gateway.client).await);
}

/// The place is free again however the turn before it ended.
#[tokio::test]
async fn every_end_gives_its_place_back() {
    let (upstream, gateway) = over_upstream(ONE, "timeouts = { idle = \"200ms\" }").await;
    let client = &gateway.client;
    // The client goes away in mid-stream.
    let (mut streamed, mut exchange) = open_stream(&upstream, client).await;
    exchange.write(&STREAM[..300]).await;
    read_exactly(&mut streamed, 300).await;
    drop(streamed);
    exchange.closed().await;
    until_metric(&gateway, ACTIVE, 0).await;
    // The upstream goes away in mid-stream.
    let (mut streamed, mut exchange) = open_stream(&upstream, client).await;
    exchange.write(&STREAM[..300]).await;
    exchange.close().await;
    read_to_end(&mut streamed).await;
    until_metric(&gateway, ACTIVE, 0).await;
    // It falls silent.
    let (mut streamed, exchange) = open_stream(&upstream, client).await;
    read_to_end(&mut streamed).await;
    exchange.closed().await;
    until_metric(&gateway, ACTIVE, 0).await;
    // It refuses.
    let refusal = b"HTTP/1.1 400 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let body = ask("Hello.", true);
    let answer = crate::support::exchange(&upstream, client, &body, refusal).await;
    assert_eq!(answer.status, 400);
    until_metric(&gateway, ACTIVE, 0).await;
    // The request makes no sense.
    let answer = client.post_bytes("/v1/messages", &[], "{").await;
    own_error(&answer, 400, "invalid_request_error");
    assert_eq!(metric(&gateway, ACTIVE).await, 0);
}

/// A client that reads slowly holds its place and nothing else.
#[tokio::test]
async fn a_slow_reader_slows_down_its_own_upstream_only() {
    let (upstream, gateway) = over_upstream("", "").await;
    let (mut slow, mut exchange) = open_stream(&upstream, &gateway.client).await;
    // More than all buffers between take; the upstream is made to wait.
    let filler = format!(": {}\n\n", "x".repeat(1 << 20));
    let writing = tokio::spawn(async move {
        for _ in 0..40 {
            exchange.write(&filler).await;
        }
        exchange.write(STREAM).await;
        exchange.close().await;
    });
    let (mut other, mut second) = open_stream(&upstream, &gateway.client).await;
    second.write(STREAM).await;
    second.close().await;
    assert_eq!(read_to_end(&mut other).await.0, STREAM.as_bytes());
    assert!(!writing.is_finished(), "40 MiB were buffered");
    let (bytes, broken) = read_to_end(&mut slow).await;
    assert!(!broken);
    assert!(bytes.ends_with(STREAM.as_bytes()));
    writing.await.unwrap();
}
