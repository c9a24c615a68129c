//! Streams as they happen: nothing is held back, and nobody who left is waited for.

use http::Method;
use throughline_testkit::{Gateway, Simulator};

use crate::support::{
    BINARY, REPLY, STREAM, ask, open_stream, over_upstream, read_exactly, read_to_end, until,
    until_metric,
};
use crate::upstream::head;

#[tokio::test]
async fn half_an_event_reaches_the_client_at_once() {
    let (upstream, gateway) = over_upstream("", "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let mut sent = 0;
    // In the middle of a name, of a number, of a character, and just before a line end.
    let character = STREAM.find('\u{1F914}').unwrap() + 2;
    for cut in [3, 30, 200, character, STREAM.len() - 1] {
        let piece = &STREAM.as_bytes()[sent..cut];
        exchange.write(piece).await;
        // The rest is sent only after this came.
        assert_eq!(read_exactly(&mut streamed, piece.len()).await, piece);
        sent = cut;
    }
    exchange.write(&STREAM.as_bytes()[sent..]).await;
    exchange.close().await;
    let (rest, broken) = read_to_end(&mut streamed).await;
    assert_eq!((rest.as_slice(), broken), (&b"\n"[..], false));
}

#[tokio::test]
async fn a_head_without_a_body_reaches_the_client_at_once() {
    let (upstream, gateway) = over_upstream("", "").await;
    // Returns only once the client has the head; the upstream has sent no byte of the body.
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(STREAM).await;
    exchange.close().await;
    assert_eq!(read_to_end(&mut streamed).await.0, STREAM.as_bytes());
}

#[tokio::test]
async fn a_whole_reply_passes_as_it_arrives() {
    let (upstream, gateway) = over_upstream("", "").await;
    let headers = [("content-type", "application/json")];
    let body = ask("Hello.", false).to_string();
    let opened = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
    let (mut streamed, mut exchange) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        let length = format!("content-length: {}\r\n", REPLY.len());
        exchange.write(head("application/json", &length)).await;
        exchange
    });
    let (first, second) = REPLY.as_bytes().split_at(20);
    exchange.write(first).await;
    assert_eq!(read_exactly(&mut streamed, 20).await, first);
    exchange.write(second).await;
    exchange.close().await;
    assert_eq!(read_to_end(&mut streamed).await, (second.to_vec(), false));
    // Its length was known, so it stays known.
    assert_eq!(streamed.headers["content-length"].to_str().unwrap(), REPLY.len().to_string());
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_request_upstream() {
    let (upstream, gateway) = over_upstream("", "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(&STREAM[..300]).await;
    read_exactly(&mut streamed, 300).await;
    drop(streamed);
    exchange.closed().await;
    until_metric(&gateway, "throughline_streams_active", 0).await;
    until("the turn tells that its client left", async || {
        gateway.turns().await[0]["end"] == "client_gone"
    })
    .await;
}

#[tokio::test]
async fn a_client_that_leaves_before_the_head_ends_the_request_upstream() {
    let (upstream, gateway) = over_upstream("", "").await;
    let client = gateway.client.clone();
    let asking =
        tokio::spawn(async move { client.post("/v1/messages", &[], &ask("Hello.", true)).await });
    let exchange = upstream.next().await;
    asking.abort();
    exchange.closed().await;
    until_metric(&gateway, "throughline_streams_active", 0).await;
}

/// A switch is for what comes next.
#[tokio::test]
async fn a_switch_leaves_a_stream_in_progress_alone() {
    let (upstream, b) = (crate::upstream::Upstream::start().await, Simulator::start("b").await);
    let config =
        [crate::support::backend("a", &upstream.url, ""), crate::support::backend("b", &b.url, "")];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let (first, second) = STREAM.as_bytes().split_at(500);
    exchange.write(first).await;
    assert_eq!(read_exactly(&mut streamed, first.len()).await, first);
    gateway.switch("b").await;
    let other = gateway.client.post("/v1/messages", &[], &ask("Other.", true)).await.good();
    assert_eq!(other.header("x-throughline-backend"), "b");
    exchange.write(second).await;
    exchange.close().await;
    assert_eq!(read_to_end(&mut streamed).await, (second.to_vec(), false));
    assert_eq!(streamed.headers["x-throughline-backend"], "a");
    // Its block belongs to the backend it came from.
    let turns = gateway.turns().await;
    let turn = turns.iter().find(|turn| turn["backend"] == "a").unwrap();
    assert_eq!(turn["end"], "completed");
    assert_eq!(gateway.statistics().await["total"], 2);
}
