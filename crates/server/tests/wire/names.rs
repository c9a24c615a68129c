//! Model names that were mapped: put back in the one place that tells them, without holding up
//! anything else.

use crate::support::{
    REPLY, STREAM, ask, exchange, open_stream, over_upstream, read_exactly, read_to_end,
};
use crate::upstream::whole;

const MAP: &str = "models = { \"claude-sonnet-4-5\" = \"glm-5\" }";
const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// What a backend with names of its own says.
fn theirs(text: &str) -> String {
    text.replacen("claude-sonnet-4-5", "glm-5", 1)
}

#[tokio::test]
async fn events_before_the_name_are_not_held() {
    let (upstream, gateway) = over_upstream("", MAP).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let before = ": hello\n\nevent: ping\ndata: {\"type\":\"ping\",\"x\":\"message_start\"}\n\n";
    exchange.write(before).await;
    assert_eq!(read_exactly(&mut streamed, before.len()).await, before.as_bytes());
    let start = STREAM.find("\n\n").unwrap() + 2;
    exchange.write(theirs(&STREAM[..start])).await;
    assert_eq!(read_exactly(&mut streamed, start).await, &STREAM.as_bytes()[..start]);
    exchange.write(&STREAM[start..]).await;
    exchange.close().await;
    let rest = read_to_end(&mut streamed).await;
    assert_eq!(rest, (STREAM.as_bytes()[start..].to_vec(), false));
}

#[tokio::test]
async fn a_sign_of_life_comes_before_and_after_an_event_that_is_held() {
    let (upstream, gateway) = over_upstream("keep_alive = \"50ms\"\n", MAP).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    assert_eq!(read_exactly(&mut streamed, PING.len()).await, PING.as_bytes());
    let before = "event: ping\ndata: {\"type\":\"ping\",\"of\":\"theirs\"}\n\n";
    exchange.write(before).await;
    let mut bytes = Vec::new();
    while !bytes.ends_with(format!("{before}{PING}").as_bytes()) {
        bytes.extend_from_slice(&streamed.next().await.unwrap());
        assert!(bytes.len() < 100_000);
    }
    // Inside the event that is held none may stand.
    let stream = theirs(STREAM);
    exchange.write(&stream[..60]).await;
    tokio::time::sleep(std::time::Duration::from_millis(180)).await;
    exchange.write(&stream[60..]).await;
    exchange.close().await;
    bytes.extend(read_to_end(&mut streamed).await.0);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.replace(PING, ""), format!("{before}{STREAM}").replace(PING, ""));
}

/// What is held is told before the error.
#[tokio::test]
async fn a_stream_that_ends_in_the_event_that_is_held_ends_in_an_error() {
    let (upstream, gateway) = over_upstream("", MAP).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(&theirs(STREAM)[..60]).await;
    exchange.close().await;
    let (bytes, broken) = read_to_end(&mut streamed).await;
    assert!(!broken);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with(&STREAM[..60]), "{text}");
    assert!(text.contains("\nevent: error\n"), "{text}");
}

#[tokio::test]
async fn a_whole_reply_gets_the_clients_name() {
    let (upstream, gateway) = over_upstream("", MAP).await;
    let reply = whole("application/json", "", theirs(REPLY));
    let answer = exchange(&upstream, &gateway.client, &ask("Hello.", false), &reply).await;
    assert_eq!(answer.good().text(), REPLY);
}
