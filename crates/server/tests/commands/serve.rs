//! `serve`: starts with nothing, and says why where it cannot start.

use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{configured, folder, run, start};

const ANYWHERE: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// Covers: S1-33
#[tokio::test]
async fn nothing_at_all_is_enough_to_be_answered() {
    let folder = folder();
    let data = folder.path().join("data");
    let arguments = [&ANYWHERE[..], &["--data-dir", data.to_str().unwrap()]].concat();
    let gateway = start(folder.path(), &arguments, &[]).await;
    assert!(
        gateway.first_line.starts_with("throughline listening on http://127.0.0.1:"),
        "{}",
        gateway.first_line
    );
    let body = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "messages": [{"role": "user", "content": "Hello, only think."}],
    });
    let answer = gateway.client.post("/v1/messages", &[], &body).await.good();
    assert_eq!(answer.header("x-throughline-backend"), "simulator");
    assert_eq!(answer.json()["content"][0]["type"], "thinking");
    let (code, told) = gateway.stop().await;
    assert_eq!(code, Some(0));
    // Messages for people are on the other side, one line each.
    assert!(told.contains("serving"), "{told}");
    assert!(told.contains("Turn ended"), "{told}");
    assert!(data.join("memory.db").exists());
    assert!(!folder.path().join(".local").exists());
}

#[tokio::test]
async fn its_state_is_nobody_elses_to_read() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    let arguments = [&ANYWHERE[..], &["--data-dir", "data"]].concat();
    let gateway = start(folder.path(), &arguments, &[]).await;
    let mode = std::fs::metadata(folder.path().join("data")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o700);
    gateway.stop().await;
}

#[tokio::test]
async fn the_default_places_are_used() {
    let folder = folder();
    let home = folder.path().join("config/throughline");
    std::fs::create_dir_all(&home).unwrap();
    let config = "[[backend]]\nname = \"of-home\"\ndialect = \"simulator\"\n";
    std::fs::write(home.join("config.toml"), config).unwrap();
    let place = folder.path().join("config");
    let environment = [("XDG_CONFIG_HOME", place.to_str().unwrap())];
    let active = async |arguments: &[&str]| {
        let gateway = start(folder.path(), arguments, &environment).await;
        let backends = gateway.client.get("/admin/backends").await.good().json();
        gateway.stop().await;
        backends["active"].as_str().unwrap().to_owned()
    };
    assert_eq!(active(&ANYWHERE).await, "of-home");
    assert!(folder.path().join(".local/share/throughline/lock").exists());
    // The one in the folder comes first.
    let config = config.replace("of-home", "of-folder");
    std::fs::write(folder.path().join("throughline.toml"), config).unwrap();
    assert_eq!(active(&ANYWHERE).await, "of-folder");
}

#[tokio::test]
async fn a_second_server_on_the_same_data_is_refused() {
    let folder = folder();
    let arguments = [&ANYWHERE[..], &["--data-dir", "data"]].concat();
    let first = start(folder.path(), &arguments, &[]).await;
    run(folder.path(), &arguments, &[])
        .await
        .bad(1, &["data`", "is used by another throughline", "--data-dir"]);
    first.client.get("/healthz").await.good();
    first.stop().await;
    // Once it has gone, its place is free.
    let second = start(folder.path(), &arguments, &[]).await;
    second.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_told() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--listen", &address, "--data-dir", "data"];
    run(folder().path(), &arguments, &[]).await.bad(1, &["cannot listen on", &address, "--listen"]);
}

#[tokio::test]
async fn a_data_directory_that_cannot_be_is_told() {
    let folder = folder();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let arguments = [&ANYWHERE[..], &["--data-dir", "file/data"]].concat();
    run(folder.path(), &arguments, &[])
        .await
        .bad(1, &["cannot use the data directory", "file/data"]);
}

#[tokio::test]
async fn a_new_address_or_directory_needs_a_restart() {
    let folder = configured("listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n");
    let gateway = start(folder.path(), &["serve"], &[]).await;
    let changed = "listen = \"127.0.0.1:1\"\ndata_dir = \"other\"\n\
        [[backend]]\nname = \"new\"\ndialect = \"simulator\"\n";
    std::fs::write(folder.path().join("throughline.toml"), changed).unwrap();
    let id = gateway.child.id().unwrap().to_string();
    let kill = tokio::process::Command::new("kill").args(["-HUP", &id]).status();
    assert!(kill.await.unwrap().success());
    let mut active = String::new();
    for _ in 0..500 {
        let backends = gateway.client.get("/admin/backends").await.good().json();
        active = backends["active"].as_str().unwrap().to_owned();
        if active == "new" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(active, "new");
    let (_, told) = gateway.stop().await;
    let line = told.lines().find(|line| line.contains("until a restart"));
    assert!(line.is_some_and(|line| line.ends_with(": listen, data_dir")), "{told}");
}

#[tokio::test]
async fn a_setting_without_effect_is_warned_of_once() {
    let folder = configured(
        "[[backend]]\nname = \"s\"\ndialect = \"simulator\"\napi_key = \"sk-secret\"\nfamily = \"gpt-oss\"\n",
    );
    let gateway = start(folder.path(), &ANYWHERE, &[]).await;
    let body = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hello."}],
    });
    gateway.client.post("/v1/messages", &[], &body).await.good();
    let (_, told) = gateway.stop().await;
    let told_of = "backend `s`: `family = \"gpt-oss\"` has no effect";
    let lines: Vec<&str> = told.lines().filter(|line| line.contains(told_of)).collect();
    assert_eq!(lines.len(), 1, "{told}");
    assert!(lines[0].contains("WARN"), "{told}");
    assert!(!told.contains("sk-secret"), "{told}");
}

#[tokio::test]
async fn logs_are_json_where_that_is_asked_for() {
    let folder = configured("log = { level = \"debug\", format = \"json\" }\n");
    let gateway = start(folder.path(), &ANYWHERE, &[]).await;
    let (_, told) = gateway.stop().await;
    assert!(!told.is_empty());
    for line in told.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["message"].is_string(), "{line}");
    }
}
