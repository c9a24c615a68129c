//! Mapped model names: the reply gets the client's name back, and nothing else is delayed.

use throughline_testkit::ok_reply;

use crate::support::{
    REPLY, STREAM, exchange, gateway_over_raw_upstream, message_request, open_stream, read_exactly,
};

const MODEL_MAP: &str = "models = { \"claude-sonnet-4-5\" = \"glm-5\" }";
const PING: &str = "event: ping\ndata: {\"type\": \"ping\"}\n\n";

/// Returns a reply as a backend with other model names sends it.
fn with_mapped_name(text: &str) -> String {
    text.replacen("claude-sonnet-4-5", "glm-5", 1)
}

#[tokio::test]
async fn events_before_the_model_name_are_not_delayed() {
    let (upstream, gateway) = gateway_over_raw_upstream("", MODEL_MAP).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let before = ": hello\n\nevent: ping\ndata: {\"type\":\"ping\",\"x\":\"message_start\"}\n\n";
    exchange.write(before).await;
    assert_eq!(read_exactly(&mut streamed, before.len()).await, before.as_bytes());
    let start = STREAM.find("\n\n").unwrap() + 2;
    exchange.write(with_mapped_name(&STREAM[..start])).await;
    assert_eq!(read_exactly(&mut streamed, start).await, &STREAM.as_bytes()[..start]);
    exchange.write(&STREAM[start..]).await;
    exchange.close().await;
    let rest = streamed.read_to_break().await;
    assert_eq!(rest, (STREAM.as_bytes()[start..].to_vec(), false));
}

#[tokio::test]
async fn ping_comes_before_and_after_a_buffered_event() {
    let (upstream, gateway) = gateway_over_raw_upstream("keep_alive = \"50ms\"\n", MODEL_MAP).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    assert_eq!(read_exactly(&mut streamed, PING.len()).await, PING.as_bytes());
    let before = "event: ping\ndata: {\"type\":\"ping\",\"of\":\"theirs\"}\n\n";
    exchange.write(before).await;
    let mut bytes = Vec::new();
    while !bytes.ends_with(format!("{before}{PING}").as_bytes()) {
        bytes.extend_from_slice(&streamed.next().await.unwrap());
        assert!(bytes.len() < 100_000);
    }
    // No ping may come inside a buffered event.
    let stream = with_mapped_name(STREAM);
    exchange.write(&stream[..60]).await;
    tokio::time::sleep(std::time::Duration::from_millis(180)).await;
    exchange.write(&stream[60..]).await;
    exchange.close().await;
    bytes.extend(streamed.read_to_break().await.0);
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.replace(PING, ""), format!("{before}{STREAM}").replace(PING, ""));
}

/// The buffered bytes come before the error.
#[tokio::test]
async fn stream_cut_inside_a_buffered_event_ends_in_an_error() {
    let (upstream, gateway) = gateway_over_raw_upstream("", MODEL_MAP).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    exchange.write(&with_mapped_name(STREAM)[..60]).await;
    exchange.close().await;
    let (bytes, broken) = streamed.read_to_break().await;
    assert!(!broken);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.starts_with(&STREAM[..60]), "{text}");
    assert!(text.contains("\nevent: error\n"), "{text}");
}

#[tokio::test]
async fn whole_reply_has_the_clients_model_name() {
    let (upstream, gateway) = gateway_over_raw_upstream("", MODEL_MAP).await;
    let reply = ok_reply("application/json", "", with_mapped_name(REPLY));
    let answer =
        exchange(&upstream, &gateway.client, &message_request("Hello.", false), &reply).await;
    assert_eq!(answer.expect_ok().text(), REPLY);
}
