//! The limit of concurrent streams, and that every turn frees its slot.

use tokio::io::AsyncWriteExt;

use crate::support::{
    STREAM, expect_gateway_error, gateway_over_raw_upstream, message_request, metric, open_stream,
    read_exactly, wait_until_metric,
};

const ONE_STREAM: &str = "[limits]\nstreams = 1\n";
const ACTIVE_STREAMS: &str = "throughline_streams_active";

#[tokio::test]
async fn request_over_the_stream_limit_gets_a_retry_hint() {
    let (upstream, gateway) = gateway_over_raw_upstream(ONE_STREAM, "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    assert_eq!(metric(&gateway, ACTIVE_STREAMS).await, 1);
    for stream in [false, true] {
        let answer =
            gateway.client.post("/v1/messages", &[], &message_request("Too many.", stream)).await;
        let message = expect_gateway_error(&answer, 529, "overloaded_error");
        assert!(message.contains("limits.streams"), "{message}");
        assert_eq!(answer.header("retry-after"), "1");
    }
    // The admin API has no such limit.
    gateway.client.get("/healthz").await.expect_ok();
    gateway.client.get("/readyz").await.expect_ok();
    gateway.client.get("/admin/turns").await.expect_ok();
    exchange.write(STREAM).await;
    exchange.close().await;
    assert_eq!(streamed.read_to_break().await.0, STREAM.as_bytes());
    wait_until_metric(&gateway, ACTIVE_STREAMS, 0).await;
    drop(open_stream(&upstream, &gateway.client).await);
}

/// A request over the limit is not read into memory, and its sender still gets the answer.
#[tokio::test]
async fn stream_limit_is_checked_before_the_body_is_read() {
    let (upstream, gateway) = gateway_over_raw_upstream(ONE_STREAM, "").await;
    let address = gateway.url.trim_start_matches("http://");
    let mut slow = tokio::net::TcpStream::connect(address).await.unwrap();
    let head =
        format!("POST /v1/messages HTTP/1.1\r\nhost: {address}\r\ncontent-length: 1000\r\n\r\n{{");
    slow.write_all(head.as_bytes()).await.unwrap();
    wait_until_metric(&gateway, ACTIVE_STREAMS, 1).await;
    for path in ["/v1/messages", "/v1/messages/count_tokens", "/v1/plan"] {
        let answer =
            gateway.client.post(path, &[], &message_request(&"x".repeat(1 << 20), false)).await;
        expect_gateway_error(&answer, 529, "overloaded_error");
        let turn = &gateway.turns().await[0];
        assert_eq!(turn["id"], answer.header("x-throughline-turn"));
        assert_eq!((&turn["status"], &turn["path"]), (&529.into(), &path.into()));
    }
    drop(slow);
    wait_until_metric(&gateway, ACTIVE_STREAMS, 0).await;
    drop(open_stream(&upstream, &gateway.client).await);
}

/// The slot is free again however the turn ended.
#[tokio::test]
async fn every_end_frees_its_slot() {
    let (upstream, gateway) =
        gateway_over_raw_upstream(ONE_STREAM, "timeouts = { idle = \"200ms\" }").await;
    let client = &gateway.client;
    // The client disconnects in mid-stream.
    let (mut streamed, mut exchange) = open_stream(&upstream, client).await;
    exchange.write(&STREAM[..300]).await;
    read_exactly(&mut streamed, 300).await;
    drop(streamed);
    exchange.wait_until_closed().await;
    wait_until_metric(&gateway, ACTIVE_STREAMS, 0).await;
    // The upstream disconnects in mid-stream.
    let (mut streamed, mut exchange) = open_stream(&upstream, client).await;
    exchange.write(&STREAM[..300]).await;
    exchange.close().await;
    streamed.read_to_break().await;
    wait_until_metric(&gateway, ACTIVE_STREAMS, 0).await;
    // The upstream stalls until the idle timeout.
    let (mut streamed, exchange) = open_stream(&upstream, client).await;
    streamed.read_to_break().await;
    exchange.wait_until_closed().await;
    wait_until_metric(&gateway, ACTIVE_STREAMS, 0).await;
    // The upstream refuses the request.
    let refusal = b"HTTP/1.1 400 No\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    let body = message_request("Hello.", true);
    let answer = crate::support::exchange(&upstream, client, &body, refusal).await;
    assert_eq!(answer.status, 400);
    wait_until_metric(&gateway, ACTIVE_STREAMS, 0).await;
    // The request is invalid.
    let answer = client.post_bytes("/v1/messages", &[], "{").await;
    expect_gateway_error(&answer, 400, "invalid_request_error");
    assert_eq!(metric(&gateway, ACTIVE_STREAMS).await, 0);
}

/// A slow client occupies its own slot and nothing else.
#[tokio::test]
async fn slow_reader_slows_down_only_its_own_upstream() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let (mut slow, mut exchange) = open_stream(&upstream, &gateway.client).await;
    // This is more than all buffers can hold, so the upstream has to wait.
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
    assert_eq!(other.read_to_break().await.0, STREAM.as_bytes());
    assert!(!writing.is_finished(), "40 MiB were buffered");
    let (bytes, broken) = slow.read_to_break().await;
    assert!(!broken);
    assert!(bytes.ends_with(STREAM.as_bytes()));
    writing.await.unwrap();
}
