//! Backends that are not there, do not speak, or stop in the middle.

use http::Method;
use throughline_testkit::{Simulator, sse_events};

use crate::support::{
    STREAM, ask, gateway_over, metric, open_stream, over_upstream, own_error, read_exactly,
    read_to_end, until_metric,
};
use crate::upstream::Upstream;

/// A message to a backend at this address ends in this error, which names the backend.
async fn check(url: &str, timeouts: &str, status: u16, kind: &str) {
    let more = format!("timeouts = {{ {timeouts} }}");
    let gateway = gateway_over(url, "", &more).await;
    for stream in [false, true] {
        let answer = gateway.client.post("/v1/messages", &[], &ask("Hello.", stream)).await;
        let message = own_error(&answer, status, kind);
        assert!(message.contains("backend `a`"), "{message}");
        assert_eq!(answer.header("x-throughline-backend"), "a");
    }
    let turn = &gateway.turns().await[0];
    assert_eq!(turn["status"], status);
    assert_eq!(turn["end"], "failed");
    assert_eq!(turn["backend"], "a");
    let backends = gateway.client.get("/admin/backends").await.json();
    assert_eq!(backends["backends"][0]["healthy"], false);
    assert_eq!(metric(&gateway, "throughline_turns_failed_total").await, 2);
    assert_eq!(metric(&gateway, "throughline_streams_active").await, 0);
    // Other paths tell it in the same way.
    let version = [("anthropic-version", "2023-06-01")];
    let answer = gateway.client.send(Method::GET, "/v1/models", &version, "").await;
    own_error(&answer, status, kind);
}

#[tokio::test]
async fn a_closed_port_is_a_bad_gateway() {
    check("http://127.0.0.1:1", "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_a_bad_gateway() {
    check("http://nobody.invalid", "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn tls_to_a_port_without_it_is_a_bad_gateway() {
    let plain = Simulator::start("a").await;
    let url = plain.url.replace("http://", "https://");
    check(&url, "first_byte = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn an_upstream_that_speaks_no_http_is_a_bad_gateway() {
    let url = Upstream::always("SSH-2.0-OpenSSH_9.6\r\n").await;
    check(&url, "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn an_upstream_that_closes_without_a_word_is_a_bad_gateway() {
    let url = Upstream::always("").await;
    check(&url, "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn no_head_in_time_is_a_gateway_time_out() {
    let (upstream, gateway) = over_upstream("", "timeouts = { first_byte = \"100ms\" }").await;
    let body = ask("Hello.", true);
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        // Nobody waits for it any more.
        upstream.next().await.closed().await;
    });
    let message = own_error(&answer, 504, "timeout_error");
    assert!(message.contains("backend `a`"), "{message}");
    assert!(message.contains("0.1 s"), "{message}");
    assert_eq!(answer.header("x-throughline-backend"), "a");
}

/// The head of an error came, its body does not.
#[tokio::test]
async fn an_error_that_does_not_end_is_not_waited_for() {
    let (upstream, gateway) = over_upstream("", "timeouts = { idle = \"100ms\" }").await;
    let body = ask("Hello.", true);
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        let mut exchange = upstream.next().await;
        exchange.write("HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\n{\"type\":").await;
        exchange.closed().await;
    });
    let message = own_error(&answer, 504, "timeout_error");
    assert!(message.contains("backend `a`"), "{message}");
}

/// After these timeouts a stream that stopped in mid-event ends in an error event.
async fn check_stall(timeouts: &str, words: &str) {
    let more = format!("timeouts = {{ {timeouts} }}");
    let (upstream, gateway) = over_upstream("", &more).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let cut = STREAM.find("Hm ").unwrap();
    exchange.write(&STREAM[..cut]).await;
    let mut bytes = read_exactly(&mut streamed, cut).await;
    let (rest, broken) = read_to_end(&mut streamed).await;
    assert!(!broken, "the stream ends as a stream does");
    bytes.extend(rest);
    let events = sse_events(&String::from_utf8(bytes).unwrap());
    let (name, data) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(data["error"]["type"], "timeout_error");
    let message = data["error"]["message"].as_str().unwrap();
    assert!(message.contains("backend `a`"), "{message}");
    assert!(message.contains(words), "{message}");
    exchange.closed().await;
    until_metric(&gateway, "throughline_streams_active", 0).await;
    let turn = &gateway.turns().await[0];
    assert_eq!(turn["end"], "cut");
    assert!(turn["error"].as_str().unwrap().contains(words));
    assert_eq!(metric(&gateway, "throughline_replies_cut_total").await, 1);
}

#[tokio::test]
async fn silence_in_mid_stream_ends_in_an_error_event() {
    check_stall("idle = \"100ms\"", "sent nothing for 0.1 s").await;
}

#[tokio::test]
async fn a_stream_that_takes_too_long_ends_in_an_error_event() {
    check_stall("total = \"300ms\"", "took too long").await;
}
