//! Pages on other origins: which of them may use this server, and what their browsers are told.

use http::Method;
use throughline_testkit::{Answer, Gateway, Simulator, until};

use crate::support::{BINARY, ask, backend, over_upstream};
use crate::upstream::whole;

const PAGE: &str = "https://app.example";

/// What a browser asks before a page may send JSON.
async fn asked_beforehand(gateway: &Gateway, path: &str, origin: &str) -> Answer {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type"),
        ("access-control-request-private-network", "true"),
    ];
    let client = &gateway.client;
    client.send(Method::OPTIONS, path, &headers, "").await
}

#[tokio::test]
async fn a_page_that_is_named_may_use_every_front_door() {
    let a = Simulator::start("a").await;
    let config = format!("cors_origins = [\"{PAGE}\"]\n{}", backend("a", &a.url, ""));
    let gateway = Gateway::start(BINARY, &config).await;
    let paths = [
        "/ag-ui",
        "/ag-ui/a",
        "/ui/chat",
        "/ndjson/chat",
        "/v1/stream",
        "/v1/messages",
        "/v1/responses",
        "/v1/chat/completions",
        "/v1beta/models/m:generateContent",
        "/api/chat",
    ];
    for path in paths {
        let told = asked_beforehand(&gateway, path, PAGE).await;
        assert_eq!(told.status, 204, "{path}");
        for (name, value) in [
            ("access-control-allow-origin", PAGE),
            ("access-control-allow-methods", "GET, HEAD, POST, DELETE, OPTIONS"),
            ("access-control-allow-headers", "authorization,content-type"),
            ("access-control-allow-private-network", "true"),
            ("access-control-max-age", "7200"),
            ("vary", "origin"),
        ] {
            assert_eq!(told.header(name), value, "{path}: {name}");
        }
    }
    assert!(a.seen().await.is_empty(), "what a browser asks stays here");
    for path in paths {
        // A reply, also one that tells of a mistake, may be read with all its headers.
        let headers = [("origin", PAGE), ("content-type", "application/json")];
        let client = &gateway.client;
        let answer = client.send(Method::POST, path, &headers, "{}").await;
        assert_eq!(answer.header("access-control-allow-origin"), PAGE, "{path}");
        assert_eq!(answer.header("access-control-expose-headers"), "*");
        assert!(!answer.header("x-throughline-turn").is_empty(), "{path}");
    }
    // The operator's side is for our own pages.
    for path in ["/admin/switch", "/metrics", "/healthz", "/readyz"] {
        let answer = asked_beforehand(&gateway, path, PAGE).await;
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "", "{path}");
    }
}

#[tokio::test]
async fn other_pages_are_told_nothing() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    for settings in ["", "cors_origins = [\"http://localhost:3000\"]\n"] {
        let gateway = Gateway::start(BINARY, &format!("{settings}{config}")).await;
        for origin in
            ["https://evil.example", "http://localhost:30000", "https://localhost:3000", "null"]
        {
            for path in ["/ag-ui", "/ui/chat", "/healthz"] {
                let told = asked_beforehand(&gateway, path, origin).await;
                assert_eq!(told.header("access-control-allow-origin"), "", "{origin}");
                let headers = [("origin", origin)];
                let client = &gateway.client;
                let answer = client.send(Method::POST, path, &headers, "{}").await;
                assert_eq!(answer.header("access-control-allow-origin"), "", "{origin}");
            }
        }
        let plain = gateway.client.send(Method::POST, "/ag-ui", &[], "{}").await;
        assert_eq!(plain.header("vary"), "");
    }
}

#[tokio::test]
async fn pages_are_let_in_without_a_restart() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    let gateway = Gateway::start(BINARY, &config).await;
    let told = asked_beforehand(&gateway, "/ag-ui", PAGE).await;
    assert_eq!(told.header("access-control-allow-origin"), "");
    gateway.configure(&format!("cors_origins = [\"*\"]\n{config}"));
    gateway.signal("HUP").await;
    until("the page is let in", async || {
        let told = asked_beforehand(&gateway, "/ag-ui", PAGE).await;
        told.header("access-control-allow-origin") == PAGE
    })
    .await;
}

/// With a key of ours a provider would let in every page there is.
#[tokio::test]
async fn what_a_provider_allows_holds_for_the_callers_own_key_alone() {
    let allowed = "access-control-allow-origin: *\r\naccess-control-expose-headers: x\r\n";
    let reply = whole("application/json", allowed, crate::support::REPLY);
    for (more, passes) in [("api_key = \"k\"", ""), ("auth = \"passthrough\"", "*")] {
        let (upstream, gateway) = over_upstream("", more).await;
        for (method, path) in [
            (Method::OPTIONS, "/v1/messages"),
            (Method::POST, "/v1/messages"),
            (Method::POST, "/v1/files"),
        ] {
            let headers =
                [("origin", "https://evil.example"), ("content-type", "application/json")];
            let body = ask("Hello.", false).to_string();
            let client = &gateway.client;
            let sent = client.send(method.clone(), path, &headers, body);
            let (answer, ()) = tokio::join!(sent, async {
                upstream.next().await.answer(&reply).await;
            });
            let told = answer.header("access-control-allow-origin");
            assert_eq!(told, passes, "{method} {path} {more}");
        }
    }
}

/// A form needs no leave of ours to be sent, so it is looked at when it comes.
#[tokio::test]
async fn a_page_cannot_ask_blindly_as_forms_do() {
    let a = Simulator::start("a").await;
    let config = format!("cors_origins = [\"{PAGE}\"]\n{}", backend("a", &a.url, ""));
    let gateway = Gateway::start(BINARY, &config).await;
    let client = &gateway.client;
    let body = ask("Hello.", false).to_string();
    let version = ("anthropic-version", "2023-06-01");
    for kind in [
        None,
        Some(""),
        Some("text/plain"),
        Some("Text/Plain; charset=UTF-8"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=b"),
    ] {
        for origin in ["https://evil.example", "null"] {
            for path in ["/v1/messages", "/b/a/v1/messages", "/v1/files"] {
                let mut headers = vec![("origin", origin), version];
                headers.extend(kind.map(|kind| ("content-type", kind)));
                let answer = client.send(Method::POST, path, &headers, body.clone()).await;
                assert_eq!(answer.status, 403, "{path} {kind:?} {origin}");
                assert!(answer.text().contains("cors_origins"));
            }
        }
        // Whoever is no page, or one that is let in, may send what it likes.
        for origin in [None, Some(PAGE), Some("http://localhost:3000")] {
            let mut headers = vec![version];
            headers.extend(kind.map(|kind| ("content-type", kind)));
            headers.extend(origin.map(|origin| ("origin", origin)));
            let path = "/v1/messages";
            let answer = client.send(Method::POST, path, &headers, body.clone()).await;
            assert_eq!(answer.status, 200, "{kind:?} {origin:?} {}", answer.text());
        }
    }
    assert_eq!(a.seen().await.len(), 18, "nothing else was sent on");
    // Browsers ask beforehand, and applications that are no browsers may call themselves anything.
    for kind in ["application/json", "application/json; charset=utf-8"] {
        let headers = [("origin", "app://desktop"), ("content-type", kind), version];
        let path = "/v1/messages";
        client.send(Method::POST, path, &headers, body.clone()).await.good();
    }
}
