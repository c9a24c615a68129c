//! Headers, both ways.

use http::Method;

use crate::support::{REPLY, ask, exchange, over_upstream, own_error};
use crate::upstream::{Exchange, whole};

/// What the upstream sees of a message sent with these headers.
async fn seen(headers: &[(&str, &str)]) -> Exchange {
    let (upstream, gateway) = over_upstream("", "").await;
    let body = ask("Hello.", false).to_string();
    let sent = gateway.client.send(Method::POST, "/v1/messages", headers, body);
    let (answer, seen) = tokio::join!(sent, async {
        let mut seen = upstream.next().await;
        seen.write(whole("application/json", "", REPLY)).await;
        seen
    });
    answer.good();
    seen
}

#[tokio::test]
async fn headers_of_the_dialect_and_unknown_ones_go_up() {
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
    let seen = seen(&sent).await;
    for (name, value) in sent {
        assert!(seen.all(name).contains(&value), "{name}: {:?}", seen.headers);
    }
    assert_eq!(seen.all("anthropic-beta").len(), 2);
    assert_eq!(seen.all("host").len(), 1);
    // What we read beside the stream must be readable.
    assert_eq!(seen.all("accept-encoding"), ["identity"]);
}

#[tokio::test]
async fn headers_of_one_connection_and_our_own_do_not_go_up() {
    let seen = seen(&[
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
    assert_eq!(seen.all("accept-encoding"), ["identity"]);
}

#[tokio::test]
async fn headers_of_the_reply_come_down_but_for_the_connections_own() {
    let (upstream, gateway) = over_upstream("", "").await;
    let more = "request-id: req_1\r\nanthropic-ratelimit-tokens-limit: 5\r\n\
        set-cookie: a=1\r\nset-cookie: b=2\r\nx-of-somebody: yes\r\nkeep-alive: timeout=5\r\n\
        x-throughline-turn: forged\r\nx-throughline-backend: forged\r\nx-throughline-loss: forged\r\n\
        x-throughline-anything: forged\r\n";
    let reply = whole("application/json", more, REPLY);
    let answer = exchange(&upstream, &gateway.client, &ask("Hello.", false), &reply).await.good();
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
    let url = crate::upstream::Upstream::always(whole("application/json", "", REPLY)).await;
    let config = [
        crate::support::backend("a", &url, ""),
        crate::support::backend("gone", "http://127.0.0.1:1", ""),
    ];
    let gateway =
        throughline_testkit::Gateway::start(crate::support::BINARY, &config.concat()).await;
    let client = &gateway.client;
    let good = client.post("/v1/messages", &[], &ask("Hello.", false)).await.good();
    let own = [("x-throughline-backend", "a"), ("anthropic-version", "2023-06-01")];
    let models = client.send(Method::GET, "/v1/models", &own, "").await.good();
    let plan = client.post("/v1/plan", &[], &ask("Hello.", false)).await.good();
    let elsewhere = client.post("/v1/plan?backend=gone", &[], &ask("Hello.", false)).await.good();
    let pinned = [("x-throughline-backend", "gone")];
    let gone = client.post("/v1/messages", &pinned, &ask("Hello.", false)).await;
    own_error(&gone, 502, "api_error");
    let pinned = [pinned[0], own[1]];
    let gone_models = client.send(Method::GET, "/v1/models", &pinned, "").await;
    own_error(&gone_models, 502, "api_error");
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
    // Ids are unique and grow.
    assert!(ids.iter().all(|id| id.starts_with("turn_")), "{ids:?}");
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    // Before a backend is chosen there is none to name.
    let broken = client.post_bytes("/v1/messages", &[], "{").await;
    own_error(&broken, 400, "invalid_request_error");
    assert_eq!(broken.header("x-throughline-backend"), "");
}
