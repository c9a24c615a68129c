//! Who may ask: the names this server answers to, and pages of other places.

use http::Method;

use crate::support::{ask, exchange, over_upstream};
use crate::upstream::whole;

#[tokio::test]
async fn a_foreign_host_is_misdirected() {
    let (_upstream, gateway) = over_upstream("", "").await;
    for path in ["/v1/messages", "/admin/backends", "/healthz", "/", "/metrics"] {
        for host in ["evil.example", "evil.example:8484", "10.1.2.3", "localhost.evil.example"] {
            let method = if path == "/v1/messages" { Method::POST } else { Method::GET };
            let body = ask("Hello.", false).to_string();
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
async fn an_allowed_host_is_answered_and_not_told_on() {
    let settings = "allowed_hosts = [\"gateway.lan\"]\n";
    let (upstream, gateway) = over_upstream(settings, "").await;
    let headers = [("host", "gateway.lan:8080"), ("content-type", "application/json")];
    let body = ask("Hello.", false).to_string();
    let client = &gateway.client;
    let sent = client.send(Method::POST, "/v1/messages", &headers, body);
    let (answer, ()) = tokio::join!(sent, async {
        let seen = upstream.next().await;
        // The upstream is called by its own name.
        let own = upstream.url.trim_start_matches("http://");
        assert_eq!(seen.all("host"), [own]);
        seen.answer(&whole("application/json", "", crate::support::REPLY)).await;
    });
    answer.good();
    let other = client.send(Method::GET, "/healthz", &[("host", "other.lan")], "").await;
    assert_eq!(other.status, 421);
}

#[tokio::test]
async fn a_page_from_elsewhere_may_not_use_the_operators_side() {
    let (upstream, gateway) = over_upstream("", "").await;
    let client = &gateway.client;
    for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
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
    let headers = [("origin", "http://127.0.0.1:8484")];
    let body = "{\"backend\":\"a\"}";
    client.send(Method::POST, "/admin/switch", &headers, body).await.good();
    // Clients in a browser talk to a model with their own key; that is the provider's to allow.
    let reply = whole("application/json", "", crate::support::REPLY);
    exchange(&upstream, client, &ask("Hello.", false), &reply).await.good();
}
