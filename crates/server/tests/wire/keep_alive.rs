//! Keep-alives: after the head, between events, and nowhere else.

use http::Method;
use throughline_testkit::ok_head;

use crate::support::{
    REPLY, STREAM, gateway_over_raw_upstream, message_request, metric, open_stream, read_exactly,
    wait_until_metric,
};

const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
const FREQUENT_KEEP_ALIVE: &str = "keep_alive = \"50ms\"\n";
const KEEP_ALIVE_COUNT: &str = "throughline_keep_alives_total";

#[tokio::test]
async fn silent_upstream_causes_pings_between_events() {
    let (upstream, gateway) = gateway_over_raw_upstream(FREQUENT_KEEP_ALIVE, "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    // The head has arrived, but no event yet.
    assert_eq!(read_exactly(&mut streamed, PING.len()).await, PING.as_bytes());
    let first = STREAM.find("event: content_block_start").unwrap();
    exchange.write(&STREAM[..first]).await;
    let mut bytes = Vec::new();
    // Wait for two pings after the events.
    while !bytes.ends_with(format!("{}{PING}{PING}", &STREAM[..first]).as_bytes()) {
        bytes.extend_from_slice(&streamed.next().await.unwrap());
        assert!(bytes.len() < 100_000);
    }
    exchange.write(&STREAM[first..]).await;
    exchange.close().await;
    bytes.extend(streamed.read_to_break().await.0);
    let text = String::from_utf8(bytes).unwrap();
    // Without the pings, the stream is unchanged.
    let own = STREAM.matches(PING).count();
    assert!(text.matches(PING).count() >= own + 2);
    assert_eq!(text.replace(PING, ""), STREAM.replace(PING, ""));
    let added = metric(&gateway, KEEP_ALIVE_COUNT).await as usize;
    assert_eq!(added, 1 + text.matches(PING).count() - own);
}

/// Inside an event the idle timeout still runs, but no byte may be added.
#[tokio::test]
async fn no_ping_inside_an_event() {
    let (upstream, gateway) = gateway_over_raw_upstream(FREQUENT_KEEP_ALIVE, "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let start = STREAM.find("event: content_block_start").unwrap();
    let mut offsets =
        vec![5, "event: message_start\n".len(), 100, start - 1, start + 30, start + 60];
    offsets.push(STREAM.len() - 1);
    let (mut sent, mut received) = (0, Vec::new());
    for offset in offsets {
        exchange.write(&STREAM[sent..offset]).await;
        sent = offset;
        let wanted = STREAM[..sent].replace(PING, "");
        while String::from_utf8_lossy(&received).replace(PING, "") != wanted {
            received.extend_from_slice(&streamed.next().await.unwrap());
        }
        // The keep-alive interval passes several times while the event is open. There is no event
        // to wait for, because nothing must happen.
        let before = metric(&gateway, KEEP_ALIVE_COUNT).await;
        tokio::time::sleep(std::time::Duration::from_millis(180)).await;
        assert_eq!(metric(&gateway, KEEP_ALIVE_COUNT).await, before, "at {offset}");
    }
    exchange.write(&STREAM[sent..]).await;
    exchange.close().await;
    received.extend(streamed.read_to_break().await.0);
    let received = String::from_utf8(received).unwrap();
    assert_eq!(received.replace(PING, ""), STREAM.replace(PING, ""));
}

#[tokio::test]
async fn no_ping_before_the_head() {
    let (upstream, gateway) =
        gateway_over_raw_upstream(FREQUENT_KEEP_ALIVE, "timeouts = { first_byte = \"400ms\" }")
            .await;
    let body = message_request("Hello.", true);
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        upstream.next().await.wait_until_closed().await;
    });
    // The status can still report what happened.
    assert_eq!(answer.status, 504);
    assert_eq!(metric(&gateway, KEEP_ALIVE_COUNT).await, 0);
}

/// JSON has no room for a ping.
#[tokio::test]
async fn whole_reply_gets_no_ping() {
    let (upstream, gateway) = gateway_over_raw_upstream(FREQUENT_KEEP_ALIVE, "").await;
    let headers = [("content-type", "application/json")];
    let body = message_request("Hello.", false).to_string();
    let client = &gateway.client;
    let opened = client.open(Method::POST, "/v1/messages", &headers, body);
    let (mut streamed, mut exchange) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        exchange.write(ok_head("application/json", "")).await;
        exchange
    });
    exchange.write(&REPLY[..40]).await;
    assert_eq!(read_exactly(&mut streamed, 40).await, &REPLY.as_bytes()[..40]);
    // Several keep-alive intervals.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    exchange.write(&REPLY[40..]).await;
    exchange.close().await;
    assert_eq!(streamed.read_to_break().await.0, &REPLY.as_bytes()[40..]);
    assert_eq!(metric(&gateway, KEEP_ALIVE_COUNT).await, 0);
}

/// A ping shows that the gateway is alive, not the provider.
#[tokio::test]
async fn pings_do_not_delay_the_idle_timeout() {
    let more = "timeouts = { idle = \"300ms\" }";
    let (upstream, gateway) = gateway_over_raw_upstream(FREQUENT_KEEP_ALIVE, more).await;
    let (mut streamed, exchange) = open_stream(&upstream, &gateway.client).await;
    let (bytes, broken) = streamed.read_to_break().await;
    assert!(!broken);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with(PING), "{text}");
    assert!(text.contains("event: error\n"), "{text}");
    exchange.wait_until_closed().await;
    wait_until_metric(&gateway, "throughline_streams_active", 0).await;
}
