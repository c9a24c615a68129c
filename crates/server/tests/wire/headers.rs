//! Request and reply headers.

use http::Method;
use throughline_testkit::{Exchange, ok_reply};

use crate::support::{
    REPLY, exchange, expect_gateway_error, gateway_over_raw_upstream, message_request,
};

/// Returns the upstream request for a message with these headers.
async fn received_with(headers: &[(&str, &str)]) -> Exchange {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let body = message_request("Hello.", false).to_string();
    let sent = gateway.client.send(Method::POST, "/v1/messages", headers, body);
    let (answer, seen) = tokio::join!(sent, async {
        let mut seen = upstream.next().await;
        seen.write(ok_reply("application/json", "", REPLY)).await;
        seen
    });
    answer.expect_ok();
    seen
}

#[tokio::test]
async fn dialect_headers_and_unknown_headers_are_sent() {
    let sent = [
        ("content-type", "application/json; charset=utf-8"),
        ("anthropic-version", "2026-10-21"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14, of-tomorrow-2027-01-01"),
        ("anthropic-beta", "context-management-2025-06-27"),
        ("anthropic-dangerous-direct-browser-access", "true"),
        ("x-claude-code-session-id", "s"),
        ("x-stainless-retry-count", "0"),
        ("user-agent", "claude-cli/2.0"),
        ("accept", "application/json"),
        ("x-of-somebody", "a, b; c=\"d\""),
    ];
    let seen = received_with(&sent).await;
    for (name, value) in sent {
        assert!(seen.headers_named(name).contains(&value), "{name}: {:?}", seen.headers);
    }
    assert_eq!(seen.headers_named("anthropic-beta").len(), 2);
    assert_eq!(seen.headers_named("host").len(), 1);
    // The gateway reads the reply too, so it asks for an uncompressed one.
    assert_eq!(seen.headers_named("accept-encoding"), ["identity"]);
}

#[tokio::test]
async fn header_that_the_provider_requires_is_added() {
    let seen = received_with(&[("content-type", "application/json")]).await;
    assert_eq!(seen.headers_named("anthropic-version"), ["2023-06-01"]);
    let own = [("content-type", "application/json"), ("anthropic-version", "2026-10-21")];
    assert_eq!(received_with(&own).await.headers_named("anthropic-version"), ["2026-10-21"]);
}

#[tokio::test]
async fn hop_by_hop_headers_and_gateway_headers_are_not_sent() {
    let seen = received_with(&[
        ("content-type", "application/json"),
        ("connection", "keep-alive, x-private"),
        ("keep-alive", "timeout=5"),
        ("x-private", "1"),
        ("te", "trailers"),
        ("proxy-authorization", "Basic c2VjcmV0"),
        ("proxy-connection", "keep-alive"),
        ("accept-encoding", "gzip, br"),
        ("x-throughline-backend", "a"),
        ("x-throughline-conversation", "c"),
        ("x-throughline-key", "secret"),
    ])
    .await;
    for (name, _) in &seen.headers {
        assert!(!name.starts_with("x-throughline-"), "{name}");
        assert!(
            !["keep-alive", "x-private", "te", "proxy-authorization", "proxy-connection"]
                .contains(&name.as_str()),
            "{name}"
        );
    }
    assert_ne!(seen.header("connection"), Some("keep-alive, x-private"));
    assert_eq!(seen.headers_named("accept-encoding"), ["identity"]);
}

/// The page promises what the gateway does, and names what the client's contract asks for.
#[tokio::test]
async fn protocol_page_tells_which_headers_are_forwarded() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let page = gateway.client.get("/protocol").await.expect_ok().json();
    let names = |list: &str| -> Vec<String> {
        let list = page["request_headers"][list].as_array().expect("a list").iter();
        list.map(|name| name.as_str().expect("a name").replace('*', "conversation")).collect()
    };
    let forwarded = [names("forward_unchanged"), names("read_and_forward")].concat();
    for name in ["anthropic-beta", "anthropic-version", "x-claude-code-session-id"] {
        assert!(forwarded.iter().any(|known| known == name), "{name}");
    }
    // A client cannot choose the values of these.
    let framing =
        ["host", "content-length", "expect", "connection", "transfer-encoding", "upgrade"];
    let consumed = [names("consume"), names("consume_if_the_backend_has_its_own_key")].concat();
    let consumed: Vec<_> =
        consumed.into_iter().filter(|name| !framing.contains(&name.as_str())).collect();
    assert!(consumed.len() > 8, "{consumed:?}");
    let value = "planted-2026-08-12, other; x=1";
    let sent: Vec<_> =
        forwarded.iter().chain(&consumed).map(|name| (name.as_str(), value)).collect();
    let seen = received_with(&sent).await;
    for name in &forwarded {
        assert_eq!(seen.headers_named(name), [value], "{name}");
    }
    for name in &consumed {
        assert!(!seen.headers_named(name).contains(&value), "{name}");
    }
    let body = page["request_body"].as_object().expect("an object");
    assert_eq!(body["consume"][0]["member"], "thread");
    let paths: Vec<_> = page["formats"][0]["endpoints"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|endpoint| endpoint["path"].as_str().expect("a path"))
        .collect();
    assert_eq!(paths, ["/v1/messages", "/v1/messages/count_tokens", "/v1/models"]);
}

#[tokio::test]
async fn reply_headers_are_returned_without_hop_by_hop_headers() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let more = "request-id: req_1\r\nanthropic-ratelimit-tokens-limit: 5\r\n\
        set-cookie: a=1\r\nset-cookie: b=2\r\nx-of-somebody: yes\r\nkeep-alive: timeout=5\r\n\
        x-throughline-turn: forged\r\nx-throughline-backend: forged\r\nx-throughline-loss: forged\r\n\
        x-throughline-anything: forged\r\n";
    let reply = ok_reply("application/json", more, REPLY);
    let answer = exchange(&upstream, &gateway.client, &message_request("Hello.", false), &reply)
        .await
        .expect_ok();
    assert_eq!(answer.header("request-id"), "req_1");
    assert_eq!(answer.header("anthropic-ratelimit-tokens-limit"), "5");
    assert_eq!(answer.header("x-of-somebody"), "yes");
    assert_eq!(answer.headers.get_all("set-cookie").iter().count(), 2);
    assert!(answer.headers.get("keep-alive").is_none());
    assert!(answer.headers.get("connection").is_none());
    assert!(answer.header("x-throughline-turn").starts_with("turn_"));
    assert_eq!(answer.header("x-throughline-backend"), "a");
    assert!(answer.headers.get("x-throughline-loss").is_none());
    assert!(answer.headers.get("x-throughline-anything").is_none());
}

#[tokio::test]
async fn every_reply_names_its_turn_and_its_backend() {
    let url =
        throughline_testkit::RawUpstream::always_answering(ok_reply("application/json", "", REPLY))
            .await;
    let config = [
        crate::support::backend("a", &url, ""),
        crate::support::backend("gone", "http://127.0.0.1:1", ""),
    ];
    let gateway =
        throughline_testkit::Gateway::start(crate::support::BINARY, &config.concat()).await;
    let client = &gateway.client;
    let good =
        client.post("/v1/messages", &[], &message_request("Hello.", false)).await.expect_ok();
    let own = [("x-throughline-backend", "a"), ("anthropic-version", "2023-06-01")];
    let models = client.send(Method::GET, "/v1/models", &own, "").await.expect_ok();
    let plan = client.post("/v1/plan", &[], &message_request("Hello.", false)).await.expect_ok();
    let elsewhere = client
        .post("/v1/plan?backend=gone", &[], &message_request("Hello.", false))
        .await
        .expect_ok();
    let pinned = [("x-throughline-backend", "gone")];
    let gone = client.post("/v1/messages", &pinned, &message_request("Hello.", false)).await;
    expect_gateway_error(&gone, 502, "api_error");
    let pinned = [pinned[0], own[1]];
    let gone_models = client.send(Method::GET, "/v1/models", &pinned, "").await;
    expect_gateway_error(&gone_models, 502, "api_error");
    let mut ids = Vec::new();
    for (answer, backend) in [
        (&good, "a"),
        (&models, "a"),
        (&plan, "a"),
        (&elsewhere, "gone"),
        (&gone, "gone"),
        (&gone_models, "gone"),
    ] {
        assert_eq!(answer.header("x-throughline-backend"), backend);
        ids.push(answer.header("x-throughline-turn").to_owned());
    }
    // Turn ids are unique and increasing.
    assert!(ids.iter().all(|id| id.starts_with("turn_")), "{ids:?}");
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    // Before a backend is chosen there is no name to report.
    let broken = client.post_bytes("/v1/messages", &[], "{").await;
    expect_gateway_error(&broken, 400, "invalid_request_error");
    assert_eq!(broken.header("x-throughline-backend"), "");
}
