//! Cross-origin requests: which origins may use this server, and which CORS headers they get.

use http::Method;
use throughline_testkit::{Answer, Gateway, Simulator, ok_reply, wait_until};

use crate::support::{BINARY, backend, gateway_over_raw_upstream, message_request};

const ALLOWED_ORIGIN: &str = "https://app.example";

/// Sends the preflight request of a browser for a JSON request.
async fn preflight(gateway: &Gateway, path: &str, origin: &str) -> Answer {
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
async fn allowed_origin_may_use_every_client_endpoint() {
    let a = Simulator::start("a").await;
    let config = format!("cors_origins = [\"{ALLOWED_ORIGIN}\"]\n{}", backend("a", &a.url, ""));
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
        let reported = preflight(&gateway, path, ALLOWED_ORIGIN).await;
        assert_eq!(reported.status, 204, "{path}");
        for (name, value) in [
            ("access-control-allow-origin", ALLOWED_ORIGIN),
            ("access-control-allow-methods", "GET, HEAD, POST, PATCH, DELETE, OPTIONS"),
            ("access-control-allow-headers", "authorization,content-type"),
            ("access-control-allow-private-network", "true"),
            ("access-control-max-age", "7200"),
            ("vary", "origin"),
        ] {
            assert_eq!(reported.header(name), value, "{path}: {name}");
        }
    }
    assert!(a.received().await.is_empty(), "what a browser asks stays here");
    for path in paths {
        // A page may read every reply with all headers, also an error.
        let headers = [("origin", ALLOWED_ORIGIN), ("content-type", "application/json")];
        let client = &gateway.client;
        let answer = client.send(Method::POST, path, &headers, "{}").await;
        assert_eq!(answer.header("access-control-allow-origin"), ALLOWED_ORIGIN, "{path}");
        assert_eq!(answer.header("access-control-expose-headers"), "*");
        assert!(!answer.header("x-throughline-turn").is_empty(), "{path}");
    }
    // The admin API is for the gateway's own pages only.
    for path in ["/admin/switch", "/metrics", "/healthz", "/readyz"] {
        let answer = preflight(&gateway, path, ALLOWED_ORIGIN).await;
        assert_eq!(answer.status, 403, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "", "{path}");
    }
}

/// The page of docs/front-ends.md works when it is opened as a file, and from any static server.
#[tokio::test]
async fn configuration_of_the_front_end_page_allows_a_page_opened_as_a_file() {
    let guide = include_str!("../../../../docs/front-ends.md");
    let config = guide.split("<<'TOML'\n").nth(1).and_then(|rest| rest.split("\nTOML\n").next());
    let a = Simulator::start("a").await;
    let config = config.expect("a configuration").replace("http://127.0.0.1:9090", &a.url);
    let gateway = Gateway::start(BINARY, &format!("{config}\n")).await;
    for origin in ["null", "http://127.0.0.1:8000", "http://localhost:5173"] {
        let reported = preflight(&gateway, "/ndjson/chat", origin).await;
        assert_eq!(reported.header("access-control-allow-origin"), origin);
        let headers = [("origin", origin), ("content-type", "application/json")];
        let body = r#"{"thinking":"on","messages":[{"role":"user","content":"ponder this"}]}"#;
        let client = &gateway.client;
        let answer = client.send(Method::POST, "/ndjson/chat", &headers, body).await.expect_ok();
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert!(answer.text().contains(r#""type":"thinking""#), "{}", answer.text());
    }
}

#[tokio::test]
async fn page_opened_as_a_file_is_allowed_by_name() {
    let a = Simulator::start("a").await;
    let config = format!("cors_origins = [\"null\"]\n{}", backend("a", &a.url, ""));
    let gateway = Gateway::start(BINARY, &config).await;
    for (origin, allowed) in [("null", "null"), ("https://evil.example", "")] {
        let reported = preflight(&gateway, "/ndjson/chat", origin).await;
        assert_eq!(reported.header("access-control-allow-origin"), allowed);
    }
}

#[tokio::test]
async fn other_origins_get_no_cors_headers() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    for settings in ["", "cors_origins = [\"http://localhost:3000\"]\n"] {
        let gateway = Gateway::start(BINARY, &format!("{settings}{config}")).await;
        for origin in
            ["https://evil.example", "http://localhost:30000", "https://localhost:3000", "null"]
        {
            for path in ["/ag-ui", "/ui/chat", "/healthz"] {
                let reported = preflight(&gateway, path, origin).await;
                assert_eq!(reported.header("access-control-allow-origin"), "", "{origin}");
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
async fn reload_adds_an_allowed_origin() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    let gateway = Gateway::start(BINARY, &config).await;
    let reported = preflight(&gateway, "/ag-ui", ALLOWED_ORIGIN).await;
    assert_eq!(reported.header("access-control-allow-origin"), "");
    gateway.configure(&format!("cors_origins = [\"*\"]\n{config}"));
    gateway.signal("HUP").await;
    wait_until("the origin is allowed", async || {
        let reported = preflight(&gateway, "/ag-ui", ALLOWED_ORIGIN).await;
        reported.header("access-control-allow-origin") == ALLOWED_ORIGIN
    })
    .await;
}

/// With the gateway's own key, the provider's headers would allow every page.
#[tokio::test]
async fn provider_cors_headers_pass_only_with_the_callers_key() {
    let allowed = "access-control-allow-origin: *\r\naccess-control-expose-headers: x\r\n";
    let reply = ok_reply("application/json", allowed, crate::support::REPLY);
    for (more, passes) in [("api_key = \"k\"", ""), ("auth = \"passthrough\"", "*")] {
        let (upstream, gateway) = gateway_over_raw_upstream("", more).await;
        for (method, path) in [
            (Method::OPTIONS, "/v1/messages"),
            (Method::POST, "/v1/messages"),
            (Method::POST, "/v1/files"),
        ] {
            let headers =
                [("origin", "https://evil.example"), ("content-type", "application/json")];
            let body = message_request("Hello.", false).to_string();
            let client = &gateway.client;
            let sent = client.send(method.clone(), path, &headers, body);
            let (answer, ()) = tokio::join!(sent, async {
                upstream.next().await.answer(&reply).await;
            });
            let reported = answer.header("access-control-allow-origin");
            assert_eq!(reported, passes, "{method} {path} {more}");
        }
    }
}

/// Browsers send forms without a preflight, so the gateway checks the request itself.
#[tokio::test]
async fn simple_cross_origin_requests_are_rejected() {
    let a = Simulator::start("a").await;
    let config = format!("cors_origins = [\"{ALLOWED_ORIGIN}\"]\n{}", backend("a", &a.url, ""));
    let gateway = Gateway::start(BINARY, &config).await;
    let client = &gateway.client;
    let body = message_request("Hello.", false).to_string();
    let version = ("anthropic-version", "2023-06-01");
    for kind in [
        None,
        Some(""),
        Some("text/plain"),
        Some("Text/Plain; charset=UTF-8"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=b"),
    ] {
        for origin in ["https://evil.example", "null", "http://localhost:3000"] {
            for path in ["/v1/messages", "/b/a/v1/messages", "/v1/files"] {
                let mut headers = vec![("origin", origin), version];
                headers.extend(kind.map(|kind| ("content-type", kind)));
                let answer = client.send(Method::POST, path, &headers, body.clone()).await;
                assert_eq!(answer.status, 403, "{path} {kind:?} {origin}");
                assert!(answer.text().contains("cors_origins"));
            }
        }
        // A client without an origin, or with an allowed one, may send any content type.
        for origin in [None, Some(ALLOWED_ORIGIN), Some(gateway.url.as_str())] {
            let mut headers = vec![version];
            headers.extend(kind.map(|kind| ("content-type", kind)));
            headers.extend(origin.map(|origin| ("origin", origin)));
            let path = "/v1/messages";
            let answer = client.send(Method::POST, path, &headers, body.clone()).await;
            assert_eq!(answer.status, 200, "{kind:?} {origin:?} {}", answer.text());
        }
    }
    assert_eq!(a.received().await.len(), 18, "nothing else was sent on");
    // Browsers send a preflight for these types, and desktop applications may have any origin.
    for kind in ["application/json", "application/json; charset=utf-8"] {
        let headers = [("origin", "app://desktop"), ("content-type", kind), version];
        let path = "/v1/messages";
        client.send(Method::POST, path, &headers, body.clone()).await.expect_ok();
    }
}

/// A browser tells its user little, so the operator must be able to see it.
#[tokio::test]
async fn refused_origin_is_logged_once_with_the_setting() {
    let a = Simulator::start("a").await;
    let gateway = Gateway::start(BINARY, &backend("a", &a.url, "")).await;
    let client = &gateway.client;
    for _ in 0..3 {
        preflight(&gateway, "/ag-ui", "http://localhost:5173").await;
        let form = [("origin", "https://form.example"), ("content-type", "text/plain")];
        assert_eq!(client.send(Method::POST, "/v1/messages", &form, "{}").await.status, 403);
        let page = [("origin", "https://page.example")];
        assert_eq!(client.send(Method::GET, "/metrics", &page, "").await.status, 403);
    }
    let log = gateway.log();
    for (origin, hint) in [
        ("http://localhost:5173", "`cors_origins`"),
        ("https://form.example", "`cors_origins`"),
        ("https://page.example", "operators"),
    ] {
        let lines: Vec<&str> = log.lines().filter(|line| line.contains(origin)).collect();
        assert_eq!(lines.len(), 1, "{log}");
        assert!(lines[0].contains(" WARN ") && lines[0].contains(hint), "{}", lines[0]);
    }
}
