//! Another backend steps in, before the first byte and never after it.

use throughline_testkit::{Gateway, Simulator, sse_events};

use crate::support::{
    BINARY, STREAM, ask, ask_after, backend, open_stream, own_error, read_exactly, read_to_end,
};
use crate::upstream::Upstream;

const CHAIN: &str = "[route]\nfallback = [\"b\", \"c\"]\n";

async fn chain(a: &str, b: &str, c: &str) -> Gateway {
    let config = [CHAIN.to_owned(), backend("a", a, ""), backend("b", b, ""), backend("c", c, "")];
    Gateway::start(BINARY, &config.concat()).await
}

const NOBODY: &str = "http://127.0.0.1:1";

fn refusing(status: &str) -> String {
    let body = "{\"type\":\"error\",\"error\":{\"type\":\"x\",\"message\":\"m\"}}";
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\nretry-after: 3\r\nrequest-id: of-{status}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn the_next_backend_answers_when_one_is_down_or_overloaded() {
    let c = Simulator::start("c").await;
    for status in ["429", "500", "503", "529"] {
        let overloaded = Upstream::always(refusing(status)).await;
        let gateway = chain(NOBODY, &overloaded, &c.url).await;
        let answer = gateway.client.post("/v1/messages", &[], &ask("Hello.", true)).await.good();
        assert_eq!(answer.header("x-throughline-backend"), "c");
        assert_eq!(gateway.turns().await[0]["backend"], "c");
        // What was chosen stays chosen.
        let backends = gateway.client.get("/admin/backends").await.json();
        assert_eq!(backends["active"], "a");
        assert_eq!(backends["backends"][0]["healthy"], false);
    }
}

#[tokio::test]
async fn a_request_that_is_wrong_is_wrong_everywhere() {
    let c = Simulator::start("c").await;
    for status in ["400", "401", "403", "404", "413"] {
        let refusing_all = Upstream::always(refusing(status)).await;
        let gateway = chain(&refusing_all, &c.url, &c.url).await;
        let answer = gateway.client.post("/v1/messages", &[], &ask("Hello.", true)).await;
        assert_eq!(answer.status.to_string(), status);
        assert_eq!(answer.header("x-throughline-backend"), "a");
    }
    assert!(c.seen().await.is_empty());
}

#[tokio::test]
async fn when_all_fail_the_last_answer_passes() {
    let one = Upstream::always(refusing("500")).await;
    let two = Upstream::always(refusing("529")).await;
    let gateway = chain(NOBODY, &one, &two).await;
    let body = ask("Hello.", true);
    let answer = gateway.client.post("/v1/messages", &[], &body).await;
    assert_eq!(answer.status, 529);
    assert_eq!(answer.header("request-id"), "of-529");
    assert_eq!(answer.header("retry-after"), "3");
    assert_eq!(answer.header("x-throughline-backend"), "c");

    let gateway = chain(NOBODY, NOBODY, NOBODY).await;
    let answer = gateway.client.post("/v1/messages", &[], &body).await;
    let message = own_error(&answer, 502, "api_error");
    assert!(message.contains("`c`"), "{message}");
}

/// A pin is a wish for one backend.
#[tokio::test]
async fn a_pinned_request_does_not_fall_back() {
    let c = Simulator::start("c").await;
    let gateway = chain(NOBODY, &c.url, &c.url).await;
    let answer = gateway.client.post("/b/a/v1/messages", &[], &ask("Hello.", true)).await;
    own_error(&answer, 502, "api_error");
    assert!(c.seen().await.is_empty());
}

/// Covers: S1-2
#[tokio::test]
async fn thinking_is_made_fit_for_the_backend_that_steps_in() {
    let (a, b) = (Upstream::start().await, Simulator::start("b").await);
    let gateway = chain(&a.url, &b.url, NOBODY).await;
    let reply = crate::upstream::whole("application/json", "", crate::support::REPLY);
    let first =
        crate::support::exchange(&a, &gateway.client, &ask("First.", false), &reply).await.good();
    let body = ask_after(&first.json()["content"][0], false);
    let refusal = refusing("529").into_bytes();
    let answer = crate::support::exchange(&a, &gateway.client, &body, &refusal).await.good();
    assert_eq!(answer.header("x-throughline-backend"), "b");
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
    assert!(b.last().await.thinking().is_empty());
    // The conversation has not moved: back at `a` its block goes along.
    assert_eq!(gateway.turns().await[0]["session"], 1);
    let plain = crate::support::exchange(&a, &gateway.client, &body, &reply).await.good();
    assert_eq!(plain.header("x-throughline-loss"), "");
}

#[tokio::test]
async fn after_the_first_byte_nobody_steps_in() {
    let (a, b) = (Upstream::start().await, Simulator::start("b").await);
    let gateway = chain(&a.url, &b.url, &b.url).await;
    let (mut streamed, mut exchange) = open_stream(&a, &gateway.client).await;
    let start = STREAM.find("event: content_block_start").unwrap();
    exchange.write(&STREAM[..start]).await;
    read_exactly(&mut streamed, start).await;
    exchange.close().await;
    let (rest, broken) = read_to_end(&mut streamed).await;
    assert!(!broken);
    let events = sse_events(&String::from_utf8(rest).unwrap());
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["error"]);
    assert!(b.seen().await.is_empty());
}

#[tokio::test]
async fn a_rule_has_a_chain_of_its_own() {
    let b = Simulator::start("b").await;
    let rules =
        "[route]\nrules = [{ model = \"claude-*\", backend = \"a\", fallback = [\"b\"] }]\n";
    let config = [rules.to_owned(), backend("a", NOBODY, ""), backend("b", &b.url, "")];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let answer = gateway.client.post("/v1/messages", &[], &ask("Hello.", false)).await.good();
    assert_eq!(answer.header("x-throughline-backend"), "b");
}
