//! `serve`: starts without any configuration, and reports why it cannot start.

use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{folder, folder_with_config, run, start};

const SERVE_ON_FREE_PORT: [&str; 3] = ["serve", "--listen", "127.0.0.1:0"];

/// Covers: S1-33
#[tokio::test]
async fn serves_without_any_configuration() {
    let folder = folder();
    let data = folder.path().join("data");
    let arguments = [&SERVE_ON_FREE_PORT[..], &["--data-dir", data.to_str().unwrap()]].concat();
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
    let answer = gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    assert_eq!(answer.header("x-throughline-backend"), "simulator");
    assert_eq!(answer.json()["content"][0]["type"], "thinking");
    let (code, stderr) = gateway.stop().await;
    assert_eq!(code, Some(0));
    // Messages for people are on standard error, one line each.
    assert!(stderr.contains("serving"), "{stderr}");
    assert!(stderr.contains("Turn ended"), "{stderr}");
    assert!(data.join("memory.db").exists());
    assert!(!folder.path().join(".local").exists());
}

/// A new data directory is private. The permissions of one that exists are its owner's choice.
#[tokio::test]
async fn data_directory_is_private_unless_it_exists() {
    use std::os::unix::fs::PermissionsExt;
    for (existing, expected) in
        [(None, 0o700), (Some(0o700), 0o700), (Some(0o755), 0o755), (Some(0o2775), 0o2775)]
    {
        let folder = folder();
        let data = folder.path().join("a/data");
        if let Some(mode) = existing {
            std::fs::create_dir_all(&data).unwrap();
            std::fs::set_permissions(&data, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = data.to_str().unwrap();
        let environment = [("THROUGHLINE_DATA_DIR", path), ("THROUGHLINE_LISTEN", "127.0.0.1:0")];
        let checked = run(folder.path(), &["doctor"], &environment).await.expect_ok();
        let gateway = start(folder.path(), &["serve"], &environment).await;
        let (_, stderr) = gateway.stop().await;
        let mode = std::fs::metadata(&data).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, expected, "{existing:?}");
        let is_open = expected & 0o077 != 0;
        let advice = format!("`chmod 700 {path}`");
        assert_eq!(checked.contains(&advice), is_open, "{checked}");
        assert_eq!(stderr.contains(&advice), is_open, "{stderr}");
    }
}

#[tokio::test]
async fn default_paths_are_used() {
    let folder = folder();
    let home = folder.path().join("config/throughline");
    std::fs::create_dir_all(&home).unwrap();
    let config = "[[backend]]\nname = \"of-home\"\ndialect = \"simulator\"\n";
    std::fs::write(home.join("config.toml"), config).unwrap();
    let config_home = folder.path().join("config");
    let environment = [("XDG_CONFIG_HOME", config_home.to_str().unwrap())];
    let active = async |arguments: &[&str]| {
        let gateway = start(folder.path(), arguments, &environment).await;
        let backends = gateway.client.get("/admin/backends").await.expect_ok().json();
        gateway.stop().await;
        backends["active"].as_str().unwrap().to_owned()
    };
    assert_eq!(active(&SERVE_ON_FREE_PORT).await, "of-home");
    assert!(folder.path().join(".local/share/throughline/lock").exists());
    // The file in the current folder comes first.
    let config = config.replace("of-home", "of-folder");
    std::fs::write(folder.path().join("throughline.toml"), config).unwrap();
    assert_eq!(active(&SERVE_ON_FREE_PORT).await, "of-folder");
}

#[tokio::test]
async fn rejects_a_second_server_on_the_same_data() {
    let folder = folder();
    let arguments = [&SERVE_ON_FREE_PORT[..], &["--data-dir", "data"]].concat();
    let first = start(folder.path(), &arguments, &[]).await;
    run(folder.path(), &arguments, &[])
        .await
        .expect_error(1, &["data`", "is used by another throughline", "--data-dir"]);
    first.client.get("/healthz").await.expect_ok();
    first.stop().await;
    // After the first server has stopped, the data directory is free.
    let second = start(folder.path(), &arguments, &[]).await;
    second.stop().await;
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let arguments = ["serve", "--listen", &address, "--data-dir", "data"];
    run(folder().path(), &arguments, &[])
        .await
        .expect_error(1, &["cannot listen on", &address, "--listen"]);
}

#[tokio::test]
async fn invalid_data_directory_is_reported() {
    let folder = folder();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let arguments = [&SERVE_ON_FREE_PORT[..], &["--data-dir", "file/data"]].concat();
    run(folder.path(), &arguments, &[])
        .await
        .expect_error(1, &["cannot use the data directory", "file/data"]);
}

#[tokio::test]
async fn new_address_or_directory_needs_a_restart() {
    let folder = folder_with_config("listen = \"127.0.0.1:0\"\ndata_dir = \"data\"\n");
    let gateway = start(folder.path(), &["serve"], &[]).await;
    let changed = "listen = \"127.0.0.1:1\"\ndata_dir = \"other\"\n\
        [[backend]]\nname = \"new\"\ndialect = \"simulator\"\n";
    std::fs::write(folder.path().join("throughline.toml"), changed).unwrap();
    let id = gateway.child.id().unwrap().to_string();
    let kill = tokio::process::Command::new("kill").args(["-HUP", &id]).status();
    assert!(kill.await.unwrap().success());
    let mut active = String::new();
    for _ in 0..500 {
        let backends = gateway.client.get("/admin/backends").await.expect_ok().json();
        active = backends["active"].as_str().unwrap().to_owned();
        if active == "new" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(active, "new");
    let (_, stderr) = gateway.stop().await;
    let line = stderr.lines().find(|line| line.contains("until a restart"));
    assert!(line.is_some_and(|line| line.ends_with(": listen, data_dir")), "{stderr}");
}

#[tokio::test]
async fn setting_without_effect_is_warned_about_once() {
    let folder = folder_with_config(
        "[[backend]]\nname = \"s\"\ndialect = \"simulator\"\napi_key = \"sk-secret\"\nfamily = \"gpt-oss\"\n",
    );
    let gateway = start(folder.path(), &SERVE_ON_FREE_PORT, &[]).await;
    let body = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 10,
        "messages": [{"role": "user", "content": "Hello."}],
    });
    gateway.client.post("/v1/messages", &[], &body).await.expect_ok();
    let (_, stderr) = gateway.stop().await;
    let warning = "backend `s`: `family = \"gpt-oss\"` has no effect";
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains(warning)).collect();
    assert_eq!(lines.len(), 1, "{stderr}");
    assert!(lines[0].contains("WARN"), "{stderr}");
    assert!(!stderr.contains("sk-secret"), "{stderr}");
}

#[tokio::test]
async fn logs_are_json_if_configured() {
    let folder = folder_with_config("log = { level = \"debug\", format = \"json\" }\n");
    let gateway = start(folder.path(), &SERVE_ON_FREE_PORT, &[]).await;
    let (_, stderr) = gateway.stop().await;
    assert!(!stderr.is_empty());
    for line in stderr.lines() {
        let line: serde_json::Value = serde_json::from_str(line).expect(line);
        assert!(line["message"].is_string(), "{line}");
    }
}
