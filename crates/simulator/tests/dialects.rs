//! Several dialects on one port: which one answers, and which are not served.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod common;

use common::{Server, adaptive};
use throughline_simulator::{Dialect, Options};

async fn speaking(names: &[&str]) -> Server {
    let dialects = names.iter().map(|name| Dialect::named(name).unwrap());
    Server::start(Options { dialects: dialects.collect(), ..Options::default() }).await
}

#[tokio::test]
async fn unknown_path_is_rejected_in_the_callers_dialect() {
    let server = Server::strict().await;
    let anthropic =
        server.send("GET", "/nowhere", &[("anthropic-version", "2023-06-01")], b"").await;
    anthropic.assert_refused(404, "not_found_error", "Not found");
    let gemini = server.send("GET", "/nowhere", &[("x-goog-api-key", "k")], b"").await;
    assert_eq!(gemini.status, 404);
    assert_eq!(gemini.json()["error"]["code"], 404);
    assert_eq!(gemini.json()["error"]["status"], "NOT_FOUND");
    let openai = server.send("GET", "/nowhere", &[("authorization", "Bearer k")], b"").await;
    assert_eq!(openai.status, 404);
    assert_eq!(openai.json()["error"]["type"], "invalid_request_error");
    assert!(openai.json()["error"]["param"].is_null());
}

#[tokio::test]
async fn dialect_outside_the_options_is_not_served() {
    let body = adaptive("claude-opus-5-5", "hello");
    let with = speaking(&["anthropic", "gemini"]).await;
    assert_eq!(with.post(&body, &[]).await.status, 200);
    assert_eq!(with.get("/v1/models").await.status, 200);
    let without = speaking(&["gemini"]).await;
    let refused = without.post(&body, &[]).await;
    assert_eq!(refused.status, 404);
    assert_eq!(refused.json()["error"]["status"], "NOT_FOUND");
}
