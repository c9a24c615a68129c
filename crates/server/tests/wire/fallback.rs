//! Fallback to another backend: only before the first byte.

use serde_json::{Value, json};
use throughline_testkit::{Answer, Gateway, RawUpstream, Simulator, sse_events, wait_until};

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
    let refusal = error_answer("529").replace("retry-after: 3\r\n", "").into_bytes();
    let answer = crate::support::exchange(&a, &gateway.client, &body, &refusal).await.expect_ok();
    assert_eq!(answer.header("x-throughline-backend"), "b");
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
    assert!(b.last_received().await.thinking().is_empty());
    // The conversation still belongs to `a`, which gets its own block back once it is tried again.
    assert_eq!(gateway.turns().await[0]["session"], 1);
    let plain = tokio::select! {
        plain = answer_of(&gateway, "a", &body) => plain,
        () = async {
            a.next().await.answer(&reply).await;
            std::future::pending::<()>().await;
        } => unreachable!("the upstream answers once"),
    };
    assert_eq!(plain.header("x-throughline-loss"), "");
}

/// Sends a request until this backend answers it. Others answer while it cools down.
async fn answer_of(gateway: &Gateway, backend: &str, body: &Value) -> Answer {
    let mut answer = gateway.client.post("/v1/messages", &[], body).await.expect_ok();
    wait_until("the backend is tried again", async || {
        if answer.header("x-throughline-backend") != backend {
            answer = gateway.client.post("/v1/messages", &[], body).await.expect_ok();
        }
        answer.header("x-throughline-backend") == backend
    })
    .await;
    answer
}

/// Everything an operator or a client can see of a fallback.
#[tokio::test]
async fn fallback_is_visible_in_header_turn_metrics_and_log() {
    let b = Simulator::start("b").await;
    let overloaded = RawUpstream::always_answering(error_answer("503")).await;
    for (a, reason) in [(overloaded.as_str(), "status 503"), (CLOSED_PORT, "unreachable")] {
        let gateway = gateway_with_chain(a, &b.url, CLOSED_PORT).await;
        let body = message_request("Hello.", false);
        let first = gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
        let second = gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
        for (answer, cooling) in [(&first, false), (&second, true)] {
            assert_eq!(answer.header("x-throughline-fallback"), "b");
            let turn = gateway.turn_of(answer).await;
            assert_eq!(turn["fallback"], "b");
            let passed_over = json!([{"backend": "a", "reason": reason, "cooling": cooling}]);
            assert_eq!(turn["passed_over"], passed_over);
        }
        let metrics = gateway.metrics().await;
        let labels = [("backend", "a"), ("fallback", "b")];
        assert_eq!(metrics.sum("throughline_fallbacks_total", &labels), 2.0);
        let cooling = metrics.by_label("throughline_backend_cooling_down", "backend");
        assert_eq!(cooling.into_values().collect::<Vec<_>>(), [1.0, 0.0, 0.0]);
        let backends = gateway.client.get("/admin/backends").await.json();
        let [shown] = backends["backends"][0]["cool_down"].as_array().unwrap().as_slice() else {
            panic!("{backends}");
        };
        assert_eq!((&shown["reason"], &shown["failures"]), (&json!(reason), &json!(1)));
        assert!((1..=3).contains(&shown["seconds"].as_u64().unwrap()), "{shown}");
        assert_eq!(backends["backends"][1].get("cool_down"), None);
        assert!(gateway.log().contains("trying the next backend"));
        // The client asks for `a`, so there is no fallback.
        let pinned = gateway.client.post("/b/a/v1/messages", &[], &body).await;
        assert_eq!(pinned.header("x-throughline-fallback"), "");
        assert!(pinned.status >= 500, "{}", pinned.status);
    }
}

/// Only the first of many requests waits for a backend that does not answer.
#[tokio::test]
async fn stalled_backend_is_waited_for_once() {
    let (a, b) = (RawUpstream::start().await, Simulator::start("b").await);
    let timeouts = "timeouts = { first_byte = \"300ms\" }";
    let config = [
        "[route]\nfallback = [\"b\"]\ncool_down = \"1h\"\n".to_owned(),
        backend("a", &a.url, timeouts),
        backend("b", &b.url, ""),
    ];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let body = message_request("Hello.", false);
    for _ in 0..5 {
        gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    }
    let metrics = gateway.metrics().await;
    let tried = [("backend", "a"), ("status", "timeout")];
    assert_eq!(metrics.sum("throughline_upstream_requests_total", &tried), 1.0);
    // Another model may still work there.
    let mut other = body.clone();
    other["model"] = "claude-opus-5".into();
    let answer = gateway.client.post("/v1/messages", &[], &other);
    let reply = throughline_testkit::ok_reply("application/json", "", crate::support::REPLY);
    let (answer, ()) = tokio::join!(answer, async {
        // The first connection is the one without an answer.
        drop(a.next().await);
        a.next().await.answer(&reply).await;
    });
    assert_eq!(answer.header("x-throughline-backend"), "a");
}

#[tokio::test]
async fn pause_that_a_backend_asks_for_is_kept() {
    let limited = error_answer("429").replace("retry-after: 3", "retry-after: 1800");
    let limited = RawUpstream::always_answering(limited).await;
    let b = Simulator::start("b").await;
    let gateway = gateway_with_chain(&limited, &b.url, CLOSED_PORT).await;
    gateway.client.post("/v1/messages", &[], &message_request("Hello.", false)).await.expect_ok();
    let backends = gateway.client.get("/admin/backends").await.json();
    let shown = &backends["backends"][0]["cool_down"][0];
    assert!((1790..=1800).contains(&shown["seconds"].as_u64().unwrap()), "{shown}");
    assert_eq!(shown["model"], "claude-sonnet-4-5");
    assert_eq!(backends["backends"][0]["healthy"], true, "a rate limit is not a failure");
}

#[tokio::test]
async fn backend_that_recovers_is_used_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let b = Simulator::start("b").await;
    let config = [
        "[route]\nfallback = [\"b\"]\ncool_down = \"100ms\"\n".to_owned(),
        backend("a", &format!("http://{address}"), ""),
        backend("b", &b.url, ""),
    ];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let body = message_request("Hello.", false);
    let answer = gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    assert_eq!(answer.header("x-throughline-fallback"), "b");
    let a = tokio::net::TcpListener::bind(address).await.unwrap();
    let options = throughline_simulator::Options::default();
    tokio::spawn(throughline_simulator::serve(a, options, std::future::pending()));
    let answer = answer_of(&gateway, "a", &body).await;
    assert_eq!(answer.header("x-throughline-fallback"), "");
    let backends = gateway.client.get("/admin/backends").await.json();
    assert_eq!(backends["backends"][0]["healthy"], true);
    assert_eq!(backends["backends"][0].get("cool_down"), None);
    assert!(gateway.log().contains("the backend answers again"));
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
