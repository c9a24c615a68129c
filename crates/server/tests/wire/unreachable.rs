//! Backends that are unreachable, do not speak HTTP, or stall.

use http::Method;
use throughline_testkit::{RawUpstream, Simulator, sse_events};

use crate::support::{
    STREAM, expect_gateway_error, gateway_over, gateway_over_raw_upstream, message_request, metric,
    open_stream, read_exactly, wait_until_metric,
};

/// Checks that a message to a backend at this address ends in this error, which names the backend.
async fn check_error(url: &str, timeouts: &str, status: u16, kind: &str) {
    let more = format!("timeouts = {{ {timeouts} }}");
    let gateway = gateway_over(url, "", &more).await;
    for stream in [false, true] {
        let answer =
            gateway.client.post("/v1/messages", &[], &message_request("Hello.", stream)).await;
        let message = expect_gateway_error(&answer, status, kind);
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
    // Other paths give the same error.
    let version = [("anthropic-version", "2023-06-01")];
    let answer = gateway.client.send(Method::GET, "/v1/models", &version, "").await;
    expect_gateway_error(&answer, status, kind);
}

#[tokio::test]
async fn closed_port_is_a_bad_gateway() {
    check_error("http://127.0.0.1:1", "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn unresolvable_name_is_a_bad_gateway() {
    check_error("http://nobody.invalid", "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn tls_to_a_plain_port_is_a_bad_gateway() {
    let plain = Simulator::start("a").await;
    let url = plain.url.replace("http://", "https://");
    check_error(&url, "first_byte = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn upstream_without_http_is_a_bad_gateway() {
    let url = RawUpstream::always_answering("SSH-2.0-OpenSSH_9.6\r\n").await;
    check_error(&url, "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn upstream_that_closes_without_an_answer_is_a_bad_gateway() {
    let url = RawUpstream::always_answering("").await;
    check_error(&url, "connect = \"5s\"", 502, "api_error").await;
}

#[tokio::test]
async fn missing_head_is_a_gateway_timeout() {
    let (upstream, gateway) =
        gateway_over_raw_upstream("", "timeouts = { first_byte = \"100ms\" }").await;
    let body = message_request("Hello.", true);
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        // The gateway has given up waiting.
        upstream.next().await.wait_until_closed().await;
    });
    let message = expect_gateway_error(&answer, 504, "timeout_error");
    assert!(message.contains("backend `a`"), "{message}");
    assert!(message.contains("0.1 s"), "{message}");
    assert_eq!(answer.header("x-throughline-backend"), "a");
}

/// The head of an error has arrived, but its body never ends.
#[tokio::test]
async fn gateway_does_not_wait_for_an_unfinished_error_body() {
    let (upstream, gateway) =
        gateway_over_raw_upstream("", "timeouts = { idle = \"100ms\" }").await;
    let body = message_request("Hello.", true);
    let (answer, ()) = tokio::join!(gateway.client.post("/v1/messages", &[], &body), async {
        let mut exchange = upstream.next().await;
        exchange.write("HTTP/1.1 500 Oops\r\ncontent-length: 100\r\n\r\n{\"type\":").await;
        exchange.wait_until_closed().await;
    });
    let message = expect_gateway_error(&answer, 504, "timeout_error");
    assert!(message.contains("backend `a`"), "{message}");
}

/// Checks that a stream which stalls inside an event ends in an error event after these timeouts.
async fn check_stall(timeouts: &str, words: &str) {
    let more = format!("timeouts = {{ {timeouts} }}");
    let (upstream, gateway) = gateway_over_raw_upstream("", &more).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let cut = STREAM.find("Hm ").unwrap();
    exchange.write(&STREAM[..cut]).await;
    let mut bytes = read_exactly(&mut streamed, cut).await;
    let (rest, broken) = streamed.read_to_break().await;
    assert!(!broken, "the stream ends as a stream does");
    bytes.extend(rest);
    let events = sse_events(&String::from_utf8(bytes).unwrap());
    let (name, data) = events.last().unwrap();
    assert_eq!(name, "error");
    assert_eq!(data["error"]["type"], "timeout_error");
    let message = data["error"]["message"].as_str().unwrap();
    assert!(message.contains("backend `a`"), "{message}");
    assert!(message.contains(words), "{message}");
    exchange.wait_until_closed().await;
    wait_until_metric(&gateway, "throughline_streams_active", 0).await;
    let turn = &gateway.turns().await[0];
    assert_eq!(turn["end"], "cut");
    assert!(turn["error"].as_str().unwrap().contains(words));
    assert_eq!(metric(&gateway, "throughline_replies_cut_total").await, 1);
}

#[tokio::test]
async fn idle_timeout_ends_the_stream_in_an_error_event() {
    check_stall("idle = \"100ms\"", "sent nothing for 0.1 s").await;
}

#[tokio::test]
async fn total_timeout_ends_the_stream_in_an_error_event() {
    check_stall("total = \"300ms\"", "took too long").await;
}
