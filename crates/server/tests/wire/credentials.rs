//! Credentials: each backend gets the right one, no other backend sees it, and no log contains it.

use futures_util::future::join_all;
use http::Method;
use throughline_simulator::Options;
use throughline_testkit::{Gateway, ReceivedRequest, Simulator};

use crate::support::{BINARY, backend, message_request};

/// Checks the credentials the upstream receives from a backend with this `auth`.
async fn check_credentials(auth: &str, sent: &[(&str, &str)], expected: &[(&str, &str)]) {
    let simulator = Simulator::start("a").await;
    let gateway = Gateway::start(BINARY, &backend("a", &simulator.url, auth)).await;
    let client = &gateway.client;
    client.post("/v1/messages", sent, &message_request("Hello.", false)).await.expect_ok();
    client.post("/v1/messages/count_tokens", sent, &message_request("Hello.", false)).await;
    let mut models = vec![("anthropic-version", "2023-06-01")];
    models.extend_from_slice(sent);
    client.send(Method::GET, "/v1/models", &models, "").await.expect_ok();
    let all = simulator.received().await;
    assert_eq!(all.len(), 3);
    for seen in &all {
        assert_eq!(credentials(seen), expected, "{} with {auth}", seen.path);
        for (_, value) in sent {
            let kept = expected.iter().any(|(_, expected)| expected == value);
            let all = format!("{seen:?}");
            assert_eq!(all.contains(value), kept, "{all}");
        }
    }
}

fn credentials(seen: &ReceivedRequest) -> Vec<(&str, &str)> {
    let mut found: Vec<_> = seen
        .headers
        .iter()
        .filter(|(name, _)| name == "x-api-key" || name == "authorization")
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    found.sort_unstable();
    found
}

const KEY: (&str, &str) = ("x-api-key", "sk-caller-key");
const BEARER: (&str, &str) = ("authorization", "Bearer sk-caller-token");

#[tokio::test]
async fn backend_key_replaces_the_callers_key() {
    let own = "api_key = \"sk-of-backend\"";
    let expected = [("x-api-key", "sk-of-backend")];
    check_credentials(own, &[KEY], &expected).await;
    check_credentials(own, &[BEARER], &expected).await;
    check_credentials(own, &[KEY, BEARER], &expected).await;
    check_credentials(own, &[], &expected).await;
}

#[tokio::test]
async fn callers_key_passes_in_its_own_form() {
    let through = "auth = \"passthrough\"";
    check_credentials(through, &[KEY], &[KEY]).await;
    check_credentials(through, &[BEARER], &[BEARER]).await;
    check_credentials(through, &[KEY, BEARER], &[BEARER, KEY]).await;
    check_credentials(through, &[], &[]).await;
}

#[tokio::test]
async fn backend_without_auth_gets_no_key() {
    check_credentials("", &[KEY], &[]).await;
    check_credentials("", &[BEARER], &[]).await;
    check_credentials("", &[], &[]).await;
}

///
#[tokio::test]
async fn keys_of_two_callers_never_mix() {
    let simulator = Simulator::with(Options { require_key: true, ..Options::default() }).await;
    let auth = "auth = \"passthrough\"";
    let gateway = Gateway::start(BINARY, &backend("a", &simulator.url, auth)).await;
    let turns = (0..60).map(|turn| {
        let client = gateway.client.clone();
        async move {
            let caller = turn % 3;
            let key = format!("sk-caller-{caller}");
            let text = format!("I am caller {caller}.");
            let form = if turn % 2 == 0 {
                ("x-api-key", key.clone())
            } else {
                ("authorization", format!("Bearer {key}"))
            };
            let headers = [(form.0, form.1.as_str())];
            client.post("/v1/messages", &headers, &message_request(&text, true)).await.expect_ok();
        }
    });
    join_all(turns).await;
    // A caller without a key does not get the key of another caller.
    let without =
        gateway.client.post("/v1/messages", &[], &message_request("I am nobody.", true)).await;
    assert_eq!(without.status, 401, "{}", without.text());
    let all = simulator.received().await;
    assert_eq!(all.len(), 61);
    for seen in &all[..60] {
        let (_, caller) = seen.body.split_once("I am caller ").unwrap();
        let key = format!("sk-caller-{}", &caller[..1]);
        let found = credentials(seen);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].1.ends_with(&key), "{found:?} is not {key}");
    }
}

#[tokio::test]
async fn callers_key_is_not_sent_to_another_site_after_a_switch() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let through = "auth = \"passthrough\"";
    let config = |shared: &str| {
        let second = format!("{through}\n{shared}");
        [
            backend("a", &a.url, through),
            backend("b", &b.url, &second),
            // The same site as the first backend, under another name.
            backend("a2", &a.url, through),
            backend("own", &b.url, "api_key = \"sk-own\""),
        ]
        .concat()
    };
    let gateway = Gateway::start(BINARY, &config("")).await;
    let asked = serde_json::json!({"backend": "b"});
    let refused = gateway.client.post("/admin/switch", &[], &asked).await;
    assert_eq!(refused.status, 409, "{}", refused.text());
    let message = refused.json()["error"]["message"].to_string();
    assert!(message.contains("share_caller_key = true"), "{message}");
    assert!(message.contains("`b`"), "{message}");
    let active = gateway.client.get("/admin/backends").await.json()["active"].clone();
    assert_eq!(active, "a");
    gateway.switch("a2").await;
    gateway.switch("own").await;

    let gateway = Gateway::start(BINARY, &config("share_caller_key = true")).await;
    assert_eq!(gateway.switch("b").await["active"], "b");
    gateway
        .client
        .post("/v1/messages", &[KEY], &message_request("Hello.", false))
        .await
        .expect_ok();
    assert_eq!(credentials(&b.last_received().await), [KEY]);
}

#[tokio::test]
async fn callers_key_is_not_sent_to_another_site_by_a_fallback() {
    let b = Simulator::start("b").await;
    let through = "auth = \"passthrough\"";
    let config = |shared: &str| {
        let second = format!("{through}\n{shared}");
        [
            "[route]\nfallback = [\"b\"]\n".to_owned(),
            backend("a", "http://127.0.0.1:1", through),
            backend("b", &b.url, &second),
        ]
        .concat()
    };
    let gateway = Gateway::start(BINARY, &config("")).await;
    let body = message_request("Hello.", false);
    let refused = gateway.client.post("/v1/messages", &[KEY], &body).await;
    assert_eq!(refused.status, 502, "{}", refused.text());
    assert!(b.received().await.is_empty());

    let gateway = Gateway::start(BINARY, &config("share_caller_key = true")).await;
    let answer = gateway.client.post("/v1/messages", &[KEY], &body).await;
    assert_eq!(answer.expect_ok().header("x-throughline-backend"), "b");
    assert_eq!(credentials(&b.last_received().await), [KEY]);
}

///
#[tokio::test]
async fn keys_prompts_and_thinking_never_appear_in_logs_or_reports() {
    let a = Simulator::start("a").await;
    let config = [
        "log = { level = \"trace\" }\n[debug_log]\nenabled = true\n".to_owned(),
        backend("a", &a.url, "api_key = \"sk-secret-of-backend\""),
        backend("b", &a.url, "auth = \"passthrough\""),
        backend("gone", "http://127.0.0.1:1", "auth = \"passthrough\""),
    ];
    let mut gateway = Gateway::start(BINARY, &config.concat()).await;
    let sent = [
        ("x-api-key", "sk-secret-of-caller"),
        ("authorization", "Bearer sk-secret-token"),
        ("x-throughline-key", "sk-secret-gateway"),
    ];
    let mut thought = String::new();
    for path in ["/v1/messages", "/b/b/v1/messages", "/b/gone/v1/messages"] {
        let asked = message_request("The password is xyzzy-prompt.", false);
        let answer = gateway.client.post(path, &sent, &asked).await;
        if answer.status == 200 {
            thought = answer.json()["content"][0]["thinking"].to_string();
        }
    }
    gateway.client.post_bytes("/v1/messages", &sent, "{\"model\": xyzzy-prompt").await;
    let thought = thought.trim_matches('"');
    assert!(thought.len() > 20, "{thought}");
    let mut reports = vec![
        gateway.client.get("/admin/turns").await.text(),
        gateway.client.get("/admin/backends").await.text(),
        gateway.client.get("/admin/thinking").await.text(),
        gateway.client.get("/metrics").await.text(),
    ];
    gateway.signal("TERM").await;
    assert_eq!(gateway.wait_for_exit().await, Some(0));
    let log = gateway.log();
    assert!(log.contains("Turn ended"), "{log}");
    assert!(log.contains("Registered new thinking block"), "{log}");
    reports.push(log);
    // The stored data contains only hashes and origins.
    for entry in std::fs::read_dir(gateway.folder().join("data")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        reports.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for report in reports {
        for secret in ["sk-secret", "xyzzy-prompt", &thought[..20]] {
            assert!(!report.contains(secret), "{secret} in\n{report}");
        }
    }
}
