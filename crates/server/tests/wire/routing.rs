//! Which backend a request goes to, and how that changes while the gateway runs.

use http::Method;
use serde_json::json;
use throughline_testkit::{Answer, Gateway, Simulator};

use crate::support::{BINARY, backend, expect_gateway_error, message_request};

struct ThreeBackends {
    gateway: Gateway,
    _simulators: [Simulator; 3],
}

async fn three_backends(settings: &str) -> ThreeBackends {
    let simulators =
        [Simulator::start("a").await, Simulator::start("b").await, Simulator::start("c").await];
    let [a, b, c] = &simulators;
    let gateway = Gateway::over_simulators(BINARY, &[("a", a), ("b", b), ("c", c)], settings).await;
    ThreeBackends { gateway, _simulators: simulators }
}

impl ThreeBackends {
    async fn ask(&self, path: &str, headers: &[(&str, &str)], model: &str) -> Answer {
        let mut body = message_request("Hello.", false);
        body["model"] = model.into();
        self.gateway.client.post(path, headers, &body).await
    }

    async fn goes_to(&self, path: &str, headers: &[(&str, &str)], model: &str) -> String {
        let answer = self.ask(path, headers, model).await;
        answer.expect_ok().header("x-throughline-backend").to_owned()
    }
}

const MODEL: &str = "claude-sonnet-4-5";

#[tokio::test]
async fn pinned_request_goes_to_its_backend() {
    let three_backends = three_backends("").await;
    let pin = [("x-throughline-backend", "b")];
    assert_eq!(three_backends.goes_to("/v1/messages", &[], MODEL).await, "a");
    assert_eq!(three_backends.goes_to("/v1/messages", &pin, MODEL).await, "b");
    assert_eq!(three_backends.goes_to("/b/c/v1/messages", &[], MODEL).await, "c");
    // The path comes from the configuration of the client, so it wins over the header.
    assert_eq!(three_backends.goes_to("/b/c/v1/messages", &pin, MODEL).await, "c");
    let version = [("anthropic-version", "2023-06-01")];
    let client = &three_backends.gateway.client;
    let models = client.send(Method::GET, "/b/b/v1/models", &version, "");
    let models = models.await.expect_ok();
    assert_eq!(models.header("x-throughline-backend"), "b");
    // A pin does not change the active backend.
    assert_eq!(three_backends.goes_to("/v1/messages", &[], MODEL).await, "a");
    assert_eq!(three_backends.gateway.statistics().await["session"], 1);
}

#[tokio::test]
async fn longest_literal_prefix_wins() {
    let rules = r#"
[route]
rules = [
  { model = "claude-*", backend = "b" },
  { model = "claude-opus-4-*", backend = "c" },
  { model = "claude-opus-4-1", backend = "a" },
]
"#;
    let three_backends = three_backends(rules).await;
    let to = async |model| three_backends.goes_to("/v1/messages", &[], model).await;
    assert_eq!(to("claude-sonnet-4-5").await, "b");
    assert_eq!(to("claude-opus-4-5").await, "c");
    assert_eq!(to("claude-opus-4-1").await, "a");
    // A pin wins over a rule, and a switch does not affect a rule.
    let pin = [("x-throughline-backend", "c")];
    assert_eq!(three_backends.goes_to("/v1/messages", &pin, MODEL).await, "c");
    three_backends.gateway.switch("c").await;
    assert_eq!(to("claude-sonnet-4-5").await, "b");
}

#[tokio::test]
async fn rejects_an_unknown_backend_with_the_known_ones() {
    let three_backends = three_backends("").await;
    for (path, headers) in [
        ("/v1/messages", &[("x-throughline-backend", "glm")][..]),
        ("/b/glm/v1/messages", &[]),
        ("/b/A/v1/messages", &[]),
        ("/b//v1/messages", &[]),
    ] {
        let answer = three_backends.ask(path, headers, MODEL).await;
        let message = expect_gateway_error(&answer, 400, "invalid_request_error");
        assert!(message.contains("`a`, `b`, `c`"), "{message}");
    }
    let version = [("anthropic-version", "2023-06-01")];
    let client = &three_backends.gateway.client;
    let answer = client.send(Method::GET, "/b/glm/v1/models", &version, "").await;
    let message = expect_gateway_error(&answer, 400, "invalid_request_error");
    assert!(message.contains("`glm`"), "{message}");
}

#[tokio::test]
async fn active_backend_survives_a_restart() {
    let mut three_backends = three_backends("").await;
    let switched = three_backends.gateway.switch("b").await;
    assert_eq!(switched, json!({"active": "b", "previous": "a"}));
    three_backends.gateway.signal("TERM").await;
    assert_eq!(three_backends.gateway.wait_for_exit().await, Some(0));
    three_backends.gateway.restart().await;
    assert_eq!(three_backends.goes_to("/v1/messages", &[], MODEL).await, "b");
    // Also after a crash, once the switch was answered and written.
    three_backends.gateway.switch("c").await;
    three_backends.gateway.signal("TERM").await;
    three_backends.gateway.wait_for_exit().await;
    three_backends.gateway.restart().await;
    let backends = three_backends.gateway.client.get("/admin/backends").await.json();
    assert_eq!(backends["active"], "c");
}

#[tokio::test]
async fn removed_active_backend_is_replaced_by_the_default() {
    let mut three_backends = three_backends("").await;
    three_backends.gateway.switch("b").await;
    three_backends.gateway.signal("TERM").await;
    three_backends.gateway.wait_for_exit().await;
    let [a, _, c] = &three_backends._simulators;
    three_backends
        .gateway
        .configure(&[backend("c", &c.url, ""), backend("a", &a.url, "")].concat());
    three_backends.gateway.restart().await;
    assert_eq!(three_backends.goes_to("/v1/messages", &[], MODEL).await, "c");
}

/// Covers: X-8
#[tokio::test]
async fn mapped_model_name_is_reversed_in_the_reply() {
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
            let mut body = message_request("Hello.", stream);
            body["model"] = asked.into();
            let answer = gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
            assert_eq!(a.last_received().await.json()["model"], sent);
            let reported = if stream {
                throughline_testkit::sse_events(&answer.text())[0].1["message"]["model"].clone()
            } else {
                answer.json()["model"].clone()
            };
            assert_eq!(reported, asked);
            let turn = &gateway.turns().await[0];
            assert_eq!(turn["model"], asked);
            assert_eq!(turn["upstream_model"], sent);
        }
    }
}

#[tokio::test]
async fn backend_without_its_key_is_off_and_the_others_work() {
    let a = Simulator::start("a").await;
    let missing = "api_key_env = \"NO_SUCH_KEY\"";
    let config = [
        backend("a", &a.url, ""),
        backend("b", &a.url, missing),
        "[route]\nfallback = [\"b\"]\nrules = [{ model = \"b-*\", backend = \"b\" }, \
            { model = \"either-*\", backend = \"b\", fallback = [\"a\"] }]\n"
            .to_owned(),
    ];
    let gateway = Gateway::start(BINARY, &config.concat()).await;
    let client = &gateway.client;
    let backends = client.get("/admin/backends").await.expect_ok().json();
    assert_eq!(backends["backends"][0].get("off"), None);
    assert_eq!(backends["backends"][1]["off"], "set NO_SUCH_KEY");
    assert_eq!(backends["backends"][1]["healthy"], false);
    client.post("/v1/messages", &[], &message_request("Hello.", false)).await.expect_ok();
    client.get("/readyz").await.expect_ok();

    let mut by_rule = message_request("Hello.", false);
    by_rule["model"] = "b-1".into();
    let pinned = client.post("/b/b/v1/messages", &[], &message_request("Hello.", false)).await;
    let by_rule = client.post("/v1/messages", &[], &by_rule).await;
    let switch = client.post("/admin/switch", &[], &json!({"backend": "b"})).await;
    for answer in [pinned, by_rule, switch] {
        assert_eq!(answer.status, 400, "{}", answer.text());
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("`b` is off") && message.contains("set NO_SUCH_KEY"), "{message}");
    }
    assert_eq!(client.get("/admin/backends").await.json()["active"], "a");
    // Its fallback answers for it, and the reports say so.
    let mut either = message_request("Hello.", false);
    either["model"] = "either-1".into();
    let answer = client.post("/v1/messages", &[], &either).await.expect_ok();
    assert_eq!(answer.header("x-throughline-fallback"), "a");
    let turn = gateway.turn_of(&answer).await;
    assert_eq!(turn["passed_over"][0]["reason"], "off: set NO_SUCH_KEY");
    // The list of models does not ask it.
    client.send(Method::GET, "/v1/models", &[], "").await.expect_ok();
}
