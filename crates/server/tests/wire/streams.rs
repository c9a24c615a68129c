//! Streams in progress: bytes are not held back, and a disconnected client ends its upstream
//! request.

use http::Method;
use serde_json::json;
use throughline_testkit::{Gateway, Simulator, ok_head, ok_reply};

use crate::support::{
    BINARY, REPLY, STREAM, gateway_over_raw_upstream, message_request, open_stream, read_exactly,
    request_after, wait_until, wait_until_metric,
};

#[tokio::test]
async fn half_an_event_reaches_the_client_at_once() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let mut sent = 0;
    // In the middle of a name, of a number, of a character, and just before a line end.
    let character = STREAM.find('\u{1F914}').unwrap() + 2;
    for cut in [3, 30, 200, character, STREAM.len() - 1] {
        let piece = &STREAM.as_bytes()[sent..cut];
        exchange.write(piece).await;
        // The upstream sends the rest only after the client got this part.
        assert_eq!(read_exactly(&mut streamed, piece.len()).await, piece);
        sent = cut;
    }
    exchange.write(&STREAM.as_bytes()[sent..]).await;
    exchange.close().await;
    let (rest, broken) = streamed.read_to_break().await;
    assert_eq!((rest.as_slice(), broken), (&b"\n"[..], false));
}

#[tokio::test]
async fn head_reaches_the_client_before_the_body() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    // Returns when the client has the head. The upstream has sent no byte of the body yet.
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(STREAM).await;
    exchange.close().await;
    assert_eq!(streamed.read_to_break().await.0, STREAM.as_bytes());
}

#[tokio::test]
async fn whole_reply_passes_piece_by_piece() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let headers = [("content-type", "application/json")];
    let body = message_request("Hello.", false).to_string();
    let opened = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
    let (mut streamed, mut exchange) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        let length = format!("content-length: {}\r\n", REPLY.len());
        exchange.write(ok_head("application/json", &length)).await;
        exchange
    });
    let (first, second) = REPLY.as_bytes().split_at(20);
    exchange.write(first).await;
    assert_eq!(read_exactly(&mut streamed, 20).await, first);
    exchange.write(second).await;
    exchange.close().await;
    assert_eq!(streamed.read_to_break().await, (second.to_vec(), false));
    // The length was known, so the header stays.
    assert_eq!(streamed.headers["content-length"].to_str().unwrap(), REPLY.len().to_string());
}

/// What the provider reports about the request's thinking comes with the reply.
#[tokio::test]
async fn whole_reply_has_the_losses_that_it_reports_in_its_header() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let block = json!({"type": "thinking", "thinking": "Hm.", "signature": "b2xk"});
    let body = request_after(&block, false);
    let dropped = r#""input_transformations":[{"type":"thinking_dropped","path":"messages.1.content.0","reason":"prefix_binding_mismatch"}]}"#;
    let reply = format!("{},{dropped}", REPLY.strip_suffix('}').unwrap());
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        upstream.next().await.answer(&ok_reply("application/json", "", &reply)).await;
    });
    assert_eq!(answer.text(), reply);
    assert_eq!(answer.header("content-length"), reply.len().to_string());
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=prefix");
    let turn = gateway.turn_of(&answer).await;
    assert_eq!(turn["losses"][0]["count"], 1, "{turn}");
}

/// The gateway reads ahead by 1 MiB at most.
#[tokio::test]
async fn long_whole_reply_passes_before_it_is_complete() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let block = json!({"type": "thinking", "thinking": "Hm.", "signature": "b2xk"});
    let body = request_after(&block, false).to_string();
    let headers = [("content-type", "application/json")];
    let text = "a".repeat(2 << 20);
    let reply = REPLY.replace("Yes.", &text);
    let (first, rest) = reply.as_bytes().split_at(3 << 19);
    let opened = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
    let (mut streamed, mut exchange) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        let length = format!("content-length: {}\r\n", reply.len());
        exchange.write(ok_head("application/json", &length)).await;
        exchange.write(first).await;
        exchange
    });
    assert_eq!(read_exactly(&mut streamed, first.len()).await, first);
    exchange.write(rest).await;
    exchange.close().await;
    let (read, broken) = streamed.read_to_break().await;
    assert!(read == rest && !broken, "{} bytes, broken: {broken}", read.len());
    assert_eq!(streamed.headers["content-length"].to_str().unwrap(), reply.len().to_string());
}

/// A reply that breaks while it is read ahead breaks for the client too, after the bytes that came.
#[tokio::test]
async fn whole_reply_that_breaks_while_it_is_read_ahead_breaks_for_the_client() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let block = json!({"type": "thinking", "thinking": "Hm.", "signature": "b2xk"});
    let body = request_after(&block, false).to_string();
    let headers = [("content-type", "application/json")];
    let opened = gateway.client.open(Method::POST, "/v1/messages", &headers, body);
    let (mut streamed, ()) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        let length = format!("content-length: {}\r\n", REPLY.len());
        exchange.write(ok_head("application/json", &length)).await;
        exchange.write(&REPLY[..40]).await;
        exchange.close().await;
    });
    let (read, broken) = streamed.read_to_break().await;
    assert!(broken && REPLY.as_bytes().starts_with(&read), "{read:?}");
    wait_until("the turn records the failure", async || gateway.turns().await[0]["end"] == "cut")
        .await;
}

#[tokio::test]
async fn disconnected_client_ends_the_upstream_request() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(&STREAM[..300]).await;
    read_exactly(&mut streamed, 300).await;
    drop(streamed);
    exchange.wait_until_closed().await;
    wait_until_metric(&gateway, "throughline_streams_active", 0).await;
    wait_until("the turn records the disconnect", async || {
        gateway.turns().await[0]["end"] == "client_gone"
    })
    .await;
}

#[tokio::test]
async fn client_disconnected_before_the_head_ends_the_upstream_request() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let client = gateway.client.clone();
    let asking = tokio::spawn(async move {
        client.post("/v1/messages", &[], &message_request("Hello.", true)).await
    });
    let exchange = upstream.next().await;
    asking.abort();
    exchange.wait_until_closed().await;
    wait_until_metric(&gateway, "throughline_streams_active", 0).await;
}

/// A switch affects later requests only.
#[tokio::test]
async fn switch_does_not_affect_a_stream_in_progress() {
    let (upstream, b) =
        (throughline_testkit::RawUpstream::start().await, Simulator::start("b").await);
    let config =
        [crate::support::backend("a", &upstream.url, ""), crate::support::backend("b", &b.url, "")];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let (first, second) = STREAM.as_bytes().split_at(500);
    exchange.write(first).await;
    assert_eq!(read_exactly(&mut streamed, first.len()).await, first);
    gateway.switch("b").await;
    let other = gateway
        .client
        .post("/v1/messages", &[], &message_request("Other.", true))
        .await
        .expect_ok();
    assert_eq!(other.header("x-throughline-backend"), "b");
    exchange.write(second).await;
    exchange.close().await;
    assert_eq!(streamed.read_to_break().await, (second.to_vec(), false));
    assert_eq!(streamed.headers["x-throughline-backend"], "a");
    // The block belongs to the backend that sent it.
    let turns = gateway.turns().await;
    let turn = turns.iter().find(|turn| turn["backend"] == "a").unwrap();
    assert_eq!(turn["end"], "completed");
    assert_eq!(gateway.statistics().await["total"], 2);
}
