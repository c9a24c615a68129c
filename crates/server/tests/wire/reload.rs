//! `SIGHUP`: a new configuration without a restart, and without harm if it is wrong.

use http::Method;
use throughline_testkit::{Gateway, Simulator};

use crate::support::{BINARY, STREAM, ask, backend, open_stream, read_exactly, read_to_end, until};
use crate::upstream::Upstream;

async fn names(gateway: &Gateway) -> Vec<String> {
    let answer = gateway.client.get("/admin/backends").await.good().json();
    let backends = answer["backends"].as_array().unwrap();
    backends.iter().map(|backend| backend["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_new_backend_appears_without_a_restart() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let gateway = Gateway::start(BINARY, &backend("a", &a.url, "")).await;
    let first = gateway.client.post("/v1/messages", &[], &ask("First.", false)).await.good();
    gateway.configure(&[backend("a", &a.url, ""), backend("b", &b.url, "")].concat());
    gateway.signal("HUP").await;
    until("`b` is there", async || names(&gateway).await == ["a", "b"]).await;
    gateway.switch("b").await;
    let body = crate::support::ask_after(&first.json()["content"][0], false);
    let answer = gateway.client.post("/v1/messages", &[], &body).await.good();
    assert_eq!(answer.header("x-throughline-backend"), "b");
    // What was remembered under the old configuration is known under the new one.
    assert_eq!(answer.header("x-throughline-loss"), "thinking_omitted=1;reason=origin");
}

#[tokio::test]
async fn a_broken_file_leaves_the_old_configuration() {
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
        until("the mistake is told", async || {
            gateway.log().matches("the old one stays").count() > before
        })
        .await;
        assert!(gateway.log().contains("throughline.toml:1:"), "{broken}");
        assert_eq!(names(&gateway).await, ["a"]);
        gateway.client.post("/v1/messages", &[], &ask("Hello.", false)).await.good();
    }
}

#[tokio::test]
async fn new_names_are_answered_to_without_a_restart() {
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
    until("the new name is answered", async || status("new.lan").await == 200).await;
    assert_eq!(status("old.lan").await, 421);
    assert!(!gateway.log().contains("until a restart"));
}

#[tokio::test]
async fn what_needs_a_restart_is_told() {
    let a = Simulator::start("a").await;
    let config = backend("a", &a.url, "");
    let gateway = Gateway::start(BINARY, &config).await;
    let changed = format!("log = {{ level = \"debug\" }}\n[limits]\nstreams = 7\n{config}");
    for (times, config) in [(1, &changed), (2, &changed), (2, &config)] {
        let before = gateway.log().matches("configuration reloaded").count();
        gateway.configure(config);
        gateway.signal("HUP").await;
        until("it is read", async || {
            gateway.log().matches("configuration reloaded").count() > before
        })
        .await;
        let log = gateway.log();
        let told = log.lines().filter(|line| line.contains("until a restart"));
        let told: Vec<&str> = told.collect();
        assert_eq!(told.len(), times, "{log}");
        assert!(told[0].contains("WARN"), "{}", told[0]);
        assert!(told[0].ends_with(": log, limits.streams"), "{}", told[0]);
    }
}

#[tokio::test]
async fn a_stream_in_progress_goes_on_over_a_reload() {
    let upstream = Upstream::start().await;
    let b = Simulator::start("b").await;
    let gateway = Gateway::start(BINARY, &backend("a", &upstream.url, "")).await;
    let (mut streamed, mut exchange) = open_stream(&upstream, &gateway.client).await;
    let (first, second) = STREAM.as_bytes().split_at(700);
    exchange.write(first).await;
    read_exactly(&mut streamed, first.len()).await;
    // The backend the stream comes from is taken away.
    gateway.configure(&backend("b", &b.url, ""));
    gateway.signal("HUP").await;
    until("only `b` is there", async || names(&gateway).await == ["b"]).await;
    exchange.write(second).await;
    exchange.close().await;
    assert_eq!(read_to_end(&mut streamed).await, (second.to_vec(), false));
    let next = gateway.client.post("/v1/messages", &[], &ask("Hello.", false)).await.good();
    assert_eq!(next.header("x-throughline-backend"), "b");
}

/// The backend that got the callers' own keys goes away, or elsewhere.
#[tokio::test]
async fn a_reload_takes_no_callers_key_to_another_place() {
    let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
    let key = ("x-api-key", "sk-of-the-caller");
    let through = "auth = \"passthrough\"";
    let shared = "auth = \"passthrough\"\nshare_caller_key = true";
    let before = backend("a", &a.url, through);
    let gateway = Gateway::start(BINARY, &before).await;
    let answered_by = async || {
        let body = ask("Hello.", false);
        let answer = gateway.client.post("/v1/messages", &[key], &body).await;
        answer.good().header("x-throughline-backend").to_owned()
    };
    assert_eq!(answered_by().await, "a");
    for after in [backend("b", &b.url, through), backend("a", &b.url, through)] {
        let stays = gateway.log().matches("the old one stays").count();
        gateway.configure(&after);
        gateway.signal("HUP").await;
        until("it is told", async || gateway.log().matches("the old one stays").count() > stays)
            .await;
        assert!(gateway.log().contains("share_caller_key = true"));
        assert_eq!(answered_by().await, "a");
    }
    assert!(b.seen().await.is_empty());

    // A backend with a key of its own may take over at once, and so may one that is trusted.
    let own = backend("own", &b.url, "api_key = \"sk-own\"");
    for (after, name) in [(own, "own"), (backend("b", &b.url, shared), "b")] {
        gateway.configure(&after);
        gateway.signal("HUP").await;
        until("it takes over", async || names(&gateway).await == [name]).await;
        assert_eq!(answered_by().await, name);
    }
    // From there the key has gone to that place, and does not come back unasked.
    let stays = gateway.log().matches("the old one stays").count();
    gateway.configure(&before);
    gateway.signal("HUP").await;
    until("it is told", async || gateway.log().matches("the old one stays").count() > stays).await;
}
