//! Fallback to another backend: only before the first byte.

use throughline_testkit::{Gateway, RawUpstream, Simulator, sse_events};

use crate::support::{
    BINARY, STREAM, backend, expect_gateway_error, message_request, open_stream, read_exactly,
    request_after,
};

const CHAIN: &str = "[route]\nfallback = [\"b\", \"c\"]\n";

async fn gateway_with_chain(a: &str, b: &str, c: &str) -> Gateway {
    let config = [CHAIN.to_owned(), backend("a", a, ""), backend("b", b, ""), backend("c", c, "")];
    Gateway::start(BINARY, &config.concat()).await
}

const CLOSED_PORT: &str = "http://127.0.0.1:1";

fn error_answer(status: &str) -> String {
    let body = "{\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"m\"}}";
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 3\r\nrequest-id: of-{status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn next_backend_answers_when_one_is_down_or_overloaded() {
    let c = Simulator::start("c").await;
    for status in ["429", "500", "503", "529"] {
        let overloaded = RawUpstream::always_answering(error_answer(status)).await;
        let gateway = gateway_with_chain(CLOSED_PORT, &overloaded, &c.url).await;
        let answer = gateway
            .client
            .post("/v1/messages", &[], &message_request("Hello.", true))
            .await
            .expect_ok();
        assert_eq!(answer.header("x-throughline-backend"), "c");
        assert_eq!(gateway.turns().await[0]["backend"], "c");
        // A fallback does not change the active backend.
        let backends = gateway.client.get("/admin/backends").await.json();
        assert_eq!(backends["active"], "a");
        assert_eq!(backends["backends"][0]["healthy"], false);
    }
}

#[tokio::test]
async fn invalid_request_does_not_fall_back() {
    let c = Simulator::start("c").await;
    for status in ["400", "401", "403", "404", "413"] {
        let refusing_all = RawUpstream::always_answering(error_answer(status)).await;
        let gateway = gateway_with_chain(&refusing_all, &c.url, &c.url).await;
        let answer =
            gateway.client.post("/v1/messages", &[], &message_request("Hello.", true)).await;
        assert_eq!(answer.status.to_string(), status);
        assert_eq!(answer.header("x-throughline-backend"), "a");
    }
    assert!(c.received().await.is_empty());
}

#[tokio::test]
async fn last_answer_passes_when_all_backends_fail() {
    let one = RawUpstream::always_answering(error_answer("500")).await;
    let two = RawUpstream::always_answering(error_answer("529")).await;
    let gateway = gateway_with_chain(CLOSED_PORT, &one, &two).await;
    let body = message_request("Hello.", true);
    let answer = gateway.client.post("/v1/messages", &[], &body).await;
    assert_eq!(answer.status, 529);
    assert_eq!(answer.header("request-id"), "of-529");
    assert_eq!(answer.header("retry-after"), "3");
    assert_eq!(answer.header("x-throughline-backend"), "c");

    let gateway = gateway_with_chain(CLOSED_PORT, CLOSED_PORT, CLOSED_PORT).await;
    let answer = gateway.client.post("/v1/messages", &[], &body).await;
    let message = expect_gateway_error(&answer, 502, "api_error");
    assert!(message.contains("`c`"), "{message}");
}

/// A pinned request asks for one backend only.
#[tokio::test]
async fn pinned_request_does_not_fall_back() {
    let c = Simulator::start("c").await;
    let gateway = gateway_with_chain(CLOSED_PORT, &c.url, &c.url).await;
    let answer =
        gateway.client.post("/b/a/v1/messages", &[], &message_request("Hello.", true)).await;
    expect_gateway_error(&answer, 502, "api_error");
    assert!(c.received().await.is_empty());
}

/// Covers: S1-2
#[tokio::test]
async fn fallback_backend_gets_no_foreign_thinking() {
    let (a, b) = (RawUpstream::start().await, Simulator::start("b").await);
    let gateway = gateway_with_chain(&a.url, &b.url, CLOSED_PORT).await;
    let reply = throughline_testkit::ok_reply("application/json", "", crate::support::REPLY);
    let first =
        crate::support::exchange(&a, &gateway.client, &message_request("First.", false), &reply)
            .await
            .expect_ok();
    let body = request_after(&first.json()["content"][0], false);
    let refusal = error_answer("529").into_bytes();
    let answer = crate::support::exchange(&a, &gateway.client, &body, &refusal).await.expect_ok();
    assert_eq!(answer.header("x-throughline-backend"), "b");
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
    assert!(b.last_received().await.thinking().is_empty());
    // The conversation still belongs to `a`, which gets its own block back.
    assert_eq!(gateway.turns().await[0]["session"], 1);
    let plain = crate::support::exchange(&a, &gateway.client, &body, &reply).await.expect_ok();
    assert_eq!(plain.header("x-throughline-loss"), "");
}

#[tokio::test]
async fn no_fallback_after_the_first_byte() {
    let (a, b) = (RawUpstream::start().await, Simulator::start("b").await);
    let gateway = gateway_with_chain(&a.url, &b.url, &b.url).await;
    let (mut streamed, mut exchange) = open_stream(&a, &gateway.client).await;
    let start = STREAM.find("event: content_block_start").unwrap();
    exchange.write(&STREAM[..start]).await;
    read_exactly(&mut streamed, start).await;
    exchange.close().await;
    let (rest, broken) = streamed.read_to_break().await;
    assert!(!broken);
    let events = sse_events(&String::from_utf8(rest).unwrap());
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["error"]);
    assert!(b.received().await.is_empty());
}

#[tokio::test]
async fn route_rule_has_its_own_fallback_chain() {
    let b = Simulator::start("b").await;
    let rules =
        "[route]\nrules = [{ model = \"claude-*\", backend = \"a\", fallback = [\"b\"] }]\n";
    let config = [rules.to_owned(), backend("a", CLOSED_PORT, ""), backend("b", &b.url, "")];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let answer = gateway
        .client
        .post("/v1/messages", &[], &message_request("Hello.", false))
        .await
        .expect_ok();
    assert_eq!(answer.header("x-throughline-backend"), "b");
}
