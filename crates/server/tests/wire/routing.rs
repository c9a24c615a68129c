//! Which backend a request goes to, and how that changes while the gateway runs.

use http::Method;
use serde_json::json;
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::support::{BINARY, ask, backend, own_error};

struct Three {
    gateway: Gateway,
    _simulators: [Simulator; 3],
}

async fn three(settings: &str) -> Three {
    let simulators =
        [Simulator::start("a").await, Simulator::start("b").await, Simulator::start("c").await];
    let [a, b, c] = &simulators;
    let gateway = Gateway::over(BINARY, &[("a", a), ("b", b), ("c", c)], settings).await;
    Three { gateway, _simulators: simulators }
}

impl Three {
    async fn ask(&self, path: &str, headers: &[(&str, &str)], model: &str) -> Answer {
        let mut body = ask("Hello.", false);
        body["model"] = model.into();
        self.gateway.client.post(path, headers, &body).await
    }

    async fn goes_to(&self, path: &str, headers: &[(&str, &str)], model: &str) -> String {
        let answer = self.ask(path, headers, model).await;
        answer.good().header("x-throughline-backend").to_owned()
    }
}

const MODEL: &str = "claude-sonnet-4-5";

#[tokio::test]
async fn a_request_goes_where_it_is_pinned() {
    let three = three("").await;
    let pin = [("x-throughline-backend", "b")];
    assert_eq!(three.goes_to("/v1/messages", &[], MODEL).await, "a");
    assert_eq!(three.goes_to("/v1/messages", &pin, MODEL).await, "b");
    assert_eq!(three.goes_to("/b/c/v1/messages", &[], MODEL).await, "c");
    // The path was written by whoever set the client up; it stands closer.
    assert_eq!(three.goes_to("/b/c/v1/messages", &pin, MODEL).await, "c");
    let version = [("anthropic-version", "2023-06-01")];
    let client = &three.gateway.client;
    let models = client.send(Method::GET, "/b/b/v1/models", &version, "");
    let models = models.await.good();
    assert_eq!(models.header("x-throughline-backend"), "b");
    // A pin moves nothing.
    assert_eq!(three.goes_to("/v1/messages", &[], MODEL).await, "a");
    assert_eq!(three.gateway.statistics().await["session"], 1);
}

#[tokio::test]
async fn the_longest_literal_prefix_decides() {
    let rules = r#"
[route]
rules = [
  { model = "claude-*", backend = "b" },
  { model = "claude-opus-4-*", backend = "c" },
  { model = "claude-opus-4-1", backend = "a" },
]
"#;
    let three = three(rules).await;
    let to = async |model| three.goes_to("/v1/messages", &[], model).await;
    assert_eq!(to("claude-sonnet-4-5").await, "b");
    assert_eq!(to("claude-opus-4-5").await, "c");
    assert_eq!(to("claude-opus-4-1").await, "a");
    // A pin wins over a rule, and a switch does not touch what a rule decides.
    let pin = [("x-throughline-backend", "c")];
    assert_eq!(three.goes_to("/v1/messages", &pin, MODEL).await, "c");
    three.gateway.switch("c").await;
    assert_eq!(to("claude-sonnet-4-5").await, "b");
}

#[tokio::test]
async fn an_unknown_backend_is_refused_with_the_known_ones() {
    let three = three("").await;
    for (path, headers) in [
        ("/v1/messages", &[("x-throughline-backend", "glm")][..]),
        ("/b/glm/v1/messages", &[]),
        ("/b/A/v1/messages", &[]),
        ("/b//v1/messages", &[]),
    ] {
        let answer = three.ask(path, headers, MODEL).await;
        let message = own_error(&answer, 400, "invalid_request_error");
        assert!(message.contains("`a`, `b`, `c`"), "{message}");
    }
    let version = [("anthropic-version", "2023-06-01")];
    let client = &three.gateway.client;
    let answer = client.send(Method::GET, "/b/glm/v1/models", &version, "").await;
    let message = own_error(&answer, 400, "invalid_request_error");
    assert!(message.contains("`glm`"), "{message}");
}

#[tokio::test]
async fn the_active_backend_survives_a_restart() {
    let mut three = three("").await;
    let switched = three.gateway.switch("b").await;
    assert_eq!(switched, json!({"active": "b", "previous": "a"}));
    three.gateway.signal("TERM").await;
    assert_eq!(three.gateway.ended().await, Some(0));
    three.gateway.start_again().await;
    assert_eq!(three.goes_to("/v1/messages", &[], MODEL).await, "b");
    // After a crash as well, once the switch was answered and had a moment to be written.
    three.gateway.switch("c").await;
    three.gateway.signal("TERM").await;
    three.gateway.ended().await;
    three.gateway.start_again().await;
    let backends = three.gateway.client.get("/admin/backends").await.json();
    assert_eq!(backends["active"], "c");
}

#[tokio::test]
async fn an_active_backend_that_is_gone_gives_way_to_the_default() {
    let mut three = three("").await;
    three.gateway.switch("b").await;
    three.gateway.signal("TERM").await;
    three.gateway.ended().await;
    let [a, _, c] = &three._simulators;
    three.gateway.configure(&[backend("c", &c.url, ""), backend("a", &a.url, "")].concat());
    three.gateway.start_again().await;
    assert_eq!(three.goes_to("/v1/messages", &[], MODEL).await, "c");
}

/// Covers: X-8
#[tokio::test]
async fn a_mapped_model_is_asked_for_by_its_name_and_answered_under_the_clients() {
    let a = Simulator::start("a").await;
    let models =
        r#"models = { "claude-opus-*" = "claude-opus-4-5", "gpt-5" = "claude-sonnet-4-5" }"#;
    let gateway = Gateway::start(BINARY, &backend("a", &a.url, models)).await;
    for (asked, sent) in [
        ("claude-opus-of-tomorrow", "claude-opus-4-5"),
        ("gpt-5", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5", "claude-sonnet-4-5"),
    ] {
        for stream in [false, true] {
            let mut body = ask("Hello.", stream);
            body["model"] = asked.into();
            let answer = gateway.client.post("/v1/messages", &[], &body).await.good();
            assert_eq!(a.last().await.json()["model"], sent);
            let told = if stream {
                throughline_testkit::sse_events(&answer.text())[0].1["message"]["model"].clone()
            } else {
                answer.json()["model"].clone()
            };
            assert_eq!(told, asked);
            let turn = &gateway.turns().await[0];
            assert_eq!(turn["model"], asked);
            assert_eq!(turn["upstream_model"], sent);
        }
    }
}
