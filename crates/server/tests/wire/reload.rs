//! `SIGHUP` loads a new configuration without a restart. An invalid one changes nothing.

use http::Method;
use throughline_testkit::{Gateway, RawUpstream, Simulator};

use crate::support::{
    BINARY, STREAM, backend, message_request, open_stream, read_exactly, wait_until,
};

async fn backend_names(gateway: &Gateway) -> Vec<String> {
    let answer = gateway.client.get("/admin/backends").await.expect_ok().json();
    let backends = answer["backends"].as_array().unwrap();
    backends.iter().map(|backend| backend["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn reload_adds_a_backend() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::start(BINARY, &backend("a", &a.url, "")).await;
    let first = gateway
        .client
        .post("/v1/messages", &[], &message_request("First.", false))
        .await
        .expect_ok();
    gateway.configure(&[backend("a", &a.url, ""), backend("b", &b.url, "")].concat());
    gateway.signal("HUP").await;
    wait_until("`b` is there", async || backend_names(&gateway).await == ["a", "b"]).await;
    gateway.switch("b").await;
    let body = crate::support::request_after(&first.json()["content"][0], false);
    let answer = gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    assert_eq!(answer.header("x-throughline-backend"), "b");
    // Blocks remembered under the old configuration are still known.
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
}

#[tokio::test]
async fn invalid_file_keeps_the_old_configuration() {
    let a = Simulator::start("a").await;
    let gateway = Gateway::start(BINARY, &backend("a", &a.url, "")).await;
    for broken in [
        "this is = = not toml",
        "keep_alive = 15",
        "[[backend]]\nname = \"x\"\ndialect = \"anthropic\"\nbase_url = \"nowhere\"",
    ] {
        let before = gateway.log().matches("the old one stays").count();
        gateway.configure(broken);
        gateway.signal("HUP").await;
        wait_until("the mistake is logged", async || {
            gateway.log().matches("the old one stays").count() > before
        })
        .await;
        assert!(gateway.log().contains("throughline.toml:1:"), "{broken}");
        assert_eq!(backend_names(&gateway).await, ["a"]);
        gateway
            .client
            .post("/v1/messages", &[], &message_request("Hello.", false))
            .await
            .expect_ok();
    }
}

#[tokio::test]
async fn reload_adds_an_allowed_host() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    let gateway = Gateway::start(BINARY, &format!("allowed_hosts = [\"old.lan\"]\n{config}")).await;
    let status = async |host: &str| {
        let headers = [("host", host)];
        let answer = gateway.client.send(Method::GET, "/healthz", &headers, "");
        answer.await.status
    };
    assert_eq!((status("old.lan").await, status("new.lan").await), (200, 421));
    gateway.configure(&format!("allowed_hosts = [\"new.lan\"]\n{config}"));
    gateway.signal("HUP").await;
    wait_until("the new name is answered", async || status("new.lan").await == 200).await;
    assert_eq!(status("old.lan").await, 421);
    assert!(!gateway.log().contains("until a restart"));
}

#[tokio::test]
async fn settings_that_need_a_restart_are_logged() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    let gateway = Gateway::start(BINARY, &config).await;
    let changed = format!("log = {{ level = \"debug\" }}\n[limits]\nstreams = 7\n{config}");
    for (times, config) in [(1, &changed), (2, &changed), (2, &config)] {
        let before = gateway.log().matches("configuration reloaded").count();
        gateway.configure(config);
        gateway.signal("HUP").await;
        wait_until("it is read", async || {
            gateway.log().matches("configuration reloaded").count() > before
        })
        .await;
        let log = gateway.log();
        let reported = log.lines().filter(|line| line.contains("until a restart"));
        let reported: Vec<&str> = reported.collect();
        assert_eq!(reported.len(), times, "{log}");
        assert!(reported[0].contains("WARN"), "{}", reported[0]);
        assert!(reported[0].ends_with(": log, limits.streams"), "{}", reported[0]);
    }
}

#[tokio::test]
async fn stream_in_progress_survives_a_reload() {
    let upstream = RawUpstream::start().await;
    let b = Simulator::start("b").await;
    let gateway = Gateway::start(BINARY, &backend("a", &upstream.url, "")).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let (first, second) = STREAM.as_bytes().split_at(700);
    exchange.write(first).await;
    read_exactly(&mut streamed, first.len()).await;
    // The backend of the open stream is removed.
    gateway.configure(&backend("b", &b.url, ""));
    gateway.signal("HUP").await;
    wait_until("only `b` is there", async || backend_names(&gateway).await == ["b"]).await;
    exchange.write(second).await;
    exchange.close().await;
    assert_eq!(streamed.read_to_break().await, (second.to_vec(), false));
    let next = gateway
        .client
        .post("/v1/messages", &[], &message_request("Hello.", false))
        .await
        .expect_ok();
    assert_eq!(next.header("x-throughline-backend"), "b");
}

/// The backend that got the callers' keys is removed or gets another address.
#[tokio::test]
async fn reload_does_not_send_a_callers_key_to_another_site() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let key = ("x-api-key", "sk-of-the-caller");
    let through = "auth = \"passthrough\"";
    let shared = "auth = \"passthrough\"\nshare_caller_key = true";
    let before = backend("a", &a.url, through);
    let gateway = Gateway::start(BINARY, &before).await;
    let answered_by = async || {
        let body = message_request("Hello.", false);
        let answer = gateway.client.post("/v1/messages", &[key], &body).await;
        answer.expect_ok().header("x-throughline-backend").to_owned()
    };
    assert_eq!(answered_by().await, "a");
    for after in [backend("b", &b.url, through), backend("a", &b.url, through)] {
        let stays = gateway.log().matches("the old one stays").count();
        gateway.configure(&after);
        gateway.signal("HUP").await;
        wait_until("the change is logged", async || {
            gateway.log().matches("the old one stays").count() > stays
        })
        .await;
        assert!(gateway.log().contains("share_caller_key = true"));
        assert_eq!(answered_by().await, "a");
    }
    assert!(b.received().await.is_empty());

    // A backend with its own key may take over at once, and so may a trusted one.
    let own = backend("own", &b.url, "api_key = \"sk-own\"");
    for (after, name) in [(own, "own"), (backend("b", &b.url, shared), "b")] {
        gateway.configure(&after);
        gateway.signal("HUP").await;
        wait_until("it takes over", async || backend_names(&gateway).await == [name]).await;
        assert_eq!(answered_by().await, name);
    }
    // The key has gone to that site now, and does not return to the first one.
    let stays = gateway.log().matches("the old one stays").count();
    gateway.configure(&before);
    gateway.signal("HUP").await;
    wait_until("the change is logged", async || {
        gateway.log().matches("the old one stays").count() > stays
    })
    .await;
}
