//! Signs of life: after the head, between events, and nowhere else.

use http::Method;

use crate::support::{
    REPLY, STREAM, ask, metric, open_stream, over_upstream, read_exactly, read_to_end, until_metric,
};
use crate::upstream::head;

const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";
const OFTEN: &str = "keep_alive = \"50ms\"\n";
const COUNT: &str = "throughline_keep_alives_total";

#[tokio::test]
async fn a_silent_upstream_gets_its_client_a_ping_between_events() {
    let (upstream, gateway) = over_upstream(OFTEN, "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    // The head is here, no event yet.
    assert_eq!(read_exactly(&mut streamed, PING.len()).await, PING.as_bytes());
    let first = STREAM.find("event: content_block_start").unwrap();
    exchange.write(&STREAM[..first]).await;
    let mut bytes = Vec::new();
    // Two pings after the events have come.
    while !bytes.ends_with(format!("{}{PING}{PING}", &STREAM[..first]).as_bytes()) {
        bytes.extend_from_slice(&streamed.next().await.unwrap());
        assert!(bytes.len() < 100_000);
    }
    exchange.write(&STREAM[first..]).await;
    exchange.close().await;
    bytes.extend(read_to_end(&mut streamed).await.0);
    let text = String::from_utf8(bytes).unwrap();
    // Without what we added, the stream is what it was.
    let own = STREAM.matches(PING).count();
    assert!(text.matches(PING).count() >= own + 2);
    assert_eq!(text.replace(PING, ""), STREAM.replace(PING, ""));
    let added = metric(&gateway, COUNT).await as usize;
    assert_eq!(added, 1 + text.matches(PING).count() - own);
}

/// Silence in mid-event is silence: the clock runs, and no byte is put there.
#[tokio::test]
async fn no_ping_stands_inside_an_event() {
    let (upstream, gateway) = over_upstream(OFTEN, "").await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let start = STREAM.find("event: content_block_start").unwrap();
    let mut places =
        vec![5, "event: message_start\n".len(), 100, start - 1, start + 30, start + 60];
    places.push(STREAM.len() - 1);
    let (mut sent, mut received) = (0, Vec::new());
    for place in places {
        exchange.write(&STREAM[sent..place]).await;
        sent = place;
        let wanted = STREAM[..sent].replace(PING, "");
        while String::from_utf8_lossy(&received).replace(PING, "") != wanted {
            received.extend_from_slice(&streamed.next().await.unwrap());
        }
        // Several times the keep-alive passes while the event stands open. There is no event to
        // wait on for something that must not happen.
        let before = metric(&gateway, COUNT).await;
        tokio::time::sleep(std::time::Duration::from_millis(180)).await;
        assert_eq!(metric(&gateway, COUNT).await, before, "at {place}");
    }
    exchange.write(&STREAM[sent..]).await;
    exchange.close().await;
    received.extend(read_to_end(&mut streamed).await.0);
    let received = String::from_utf8(received).unwrap();
    assert_eq!(received.replace(PING, ""), STREAM.replace(PING, ""));
}

#[tokio::test]
async fn no_ping_comes_before_the_head() {
    let (upstream, gateway) = over_upstream(OFTEN, "timeouts = { first_byte = \"400ms\" }").await;
    let body = ask("Hello.", true);
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        upstream.next().await.closed().await;
    });
    // The status is still free to say what happened.
    assert_eq!(answer.status, 504);
    assert_eq!(metric(&gateway, COUNT).await, 0);
}

/// JSON has no room for a ping.
#[tokio::test]
async fn a_whole_reply_gets_no_ping() {
    let (upstream, gateway) = over_upstream(OFTEN, "").await;
    let headers = [("content-type", "application/json")];
    let body = ask("Hello.", false).to_string();
    let client = &gateway.client;
    let opened = client.open(Method::POST, "/v1/messages", &headers, body);
    let (mut streamed, mut exchange) = tokio::join!(opened, async {
        let mut exchange = upstream.next().await;
        exchange.write(head("application/json", "")).await;
        exchange
    });
    exchange.write(&REPLY[..40]).await;
    assert_eq!(read_exactly(&mut streamed, 40).await, &REPLY.as_bytes()[..40]);
    // Several times the keep-alive.
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    exchange.write(&REPLY[40..]).await;
    exchange.close().await;
    assert_eq!(read_to_end(&mut streamed).await.0, &REPLY.as_bytes()[40..]);
    assert_eq!(metric(&gateway, COUNT).await, 0);
}

/// A ping tells that the gateway lives, not that the provider does.
#[tokio::test]
async fn pings_do_not_put_off_the_idle_time_out() {
    let more = "timeouts = { idle = \"300ms\" }";
    let (upstream, gateway) = over_upstream(OFTEN, more).await;
    let (mut streamed, exchange) = open_stream(&upstream, &gateway.client).await;
    let (bytes, broken) = read_to_end(&mut streamed).await;
    assert!(!broken);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with(PING), "{text}");
    assert!(text.contains("event: error\n"), "{text}");
    exchange.closed().await;
    until_metric(&gateway, "throughline_streams_active", 0).await;
}
