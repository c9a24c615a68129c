//! Host names the server answers to, and pages of other origins.

use http::Method;
use throughline_testkit::ok_reply;

use crate::support::{exchange, gateway_over_raw_upstream, message_request};

#[tokio::test]
async fn foreign_host_gets_421() {
    let (_upstream, gateway) = gateway_over_raw_upstream("", "").await;
    for path in ["/v1/messages", "/admin/backends", "/healthz", "/", "/metrics"] {
        for host in ["evil.example", "evil.example:8484", "10.1.2.3", "localhost.evil.example"] {
            let method = if path == "/v1/messages" { Method::POST } else { Method::GET };
            let body = message_request("Hello.", false).to_string();
            let client = &gateway.client;
            let answer = client.send(method, path, &[("host", host)], body).await;
            assert_eq!(answer.status, 421, "{path} {host}");
            assert!(answer.text().contains("allowed_hosts"), "{}", answer.text());
        }
    }
    assert!(gateway.turns().await.is_empty());
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80"] {
        let client = &gateway.client;
        let answer = client.send(Method::GET, "/healthz", &[("host", host)], "").await;
        assert_eq!(answer.status, 200, "{host}");
    }
}

#[tokio::test]
async fn allowed_host_is_served_and_not_sent_upstream() {
    let settings = "allowed_hosts = [\"gateway.lan\"]\n";
    let (upstream, gateway) = gateway_over_raw_upstream(settings, "").await;
    let headers = [("host", "gateway.lan:8080"), ("content-type", "application/json")];
    let body = message_request("Hello.", false).to_string();
    let client = &gateway.client;
    let sent = client.send(Method::POST, "/v1/messages", &headers, body);
    let (answer, ()) = tokio::join!(sent, async {
        let seen = upstream.next().await;
        // The upstream gets its own host name.
        let own = upstream.url.trim_start_matches("http://");
        assert_eq!(seen.headers_named("host"), [own]);
        seen.answer(&ok_reply("application/json", "", crate::support::REPLY)).await;
    });
    answer.expect_ok();
    let other = client.send(Method::GET, "/healthz", &[("host", "other.lan")], "").await;
    assert_eq!(other.status, 421);
}

#[tokio::test]
async fn cross_origin_page_may_not_use_the_admin_api() {
    let (upstream, gateway) = gateway_over_raw_upstream("", "").await;
    let client = &gateway.client;
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        // Another server on this machine.
        "http://127.0.0.1:1",
        "http://localhost:3000",
    ] {
        let headers = [("origin", origin), ("content-type", "text/plain")];
        for (method, path, body) in [
            (Method::POST, "/admin/switch", "{\"backend\":\"a\"}"),
            (Method::GET, "/admin/turns", ""),
            (Method::GET, "/admin/turns/stream", ""),
            (Method::GET, "/admin/backends", ""),
            (Method::GET, "/metrics", ""),
            (Method::GET, "/healthz", ""),
            (Method::GET, "/readyz", ""),
        ] {
            let answer = client.send(method, path, &headers, body).await;
            assert_eq!(answer.status, 403, "{path} {origin}");
        }
    }
    let headers = [("origin", gateway.url.as_str())];
    let body = "{\"backend\":\"a\"}";
    client.send(Method::POST, "/admin/switch", &headers, body).await.expect_ok();
    // Browser clients use a model with their own key, and the provider decides about that.
    let reply = ok_reply("application/json", "", crate::support::REPLY);
    exchange(&upstream, client, &message_request("Hello.", false), &reply).await.expect_ok();
}
