//! `simulate`: the strict simulator as a command.

use serde_json::json;
use tokio::net::TcpListener;

use crate::support::{folder, run, start};

const SIMULATE_ON_FREE_PORT: [&str; 3] = ["simulate", "--listen", "127.0.0.1:0"];

#[tokio::test]
async fn simulator_follows_its_scenario() {
    let folder = folder();
    let scenario = "[[step]]\nsay = [{ text = \"Scripted.\" }]\n";
    std::fs::write(folder.path().join("s.toml"), scenario).unwrap();
    let more = ["--identity", "glm", "--scenario", "s.toml", "--require-key"];
    let simulator = start(folder.path(), &[&SIMULATE_ON_FREE_PORT[..], &more].concat(), &[]).await;
    assert!(
        simulator.first_line.starts_with("simulator `glm` listening on http://127.0.0.1:"),
        "{}",
        simulator.first_line
    );
    let body = json!({
        "model": "claude-sonnet-4-5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hello."}],
    });
    let key = [("x-api-key", "k")];
    let answer = simulator.client.post("/v1/messages", &key, &body).await;
    assert_eq!(answer.expect_ok().json()["content"][0]["text"], "Scripted.");
    let answer = simulator.client.post("/v1/messages", &[], &body).await;
    assert_eq!(answer.status, 401);
    assert_eq!(simulator.stop().await.0, Some(0));
}

#[tokio::test]
async fn invalid_scenario_is_reported_with_its_line_and_key() {
    let folder = folder();
    for (scenario, words) in [
        ("[[step]]\nsay = [{ thinkin = \"x\" }]\n", &["line 2", "`say`", "thinkin"][..]),
        ("[[step]]\nfault = \"cot:event=1\"\n", &["line 2", "fault", "cot"]),
        ("[[step]]\nsay = []\n\n[[stp]]\n", &["line 4", "stp"]),
        ("signature = \"wavy\"\n", &["line 1", "signature", "wavy"]),
        ("not toml", &["line 1"]),
    ] {
        std::fs::write(folder.path().join("s.toml"), scenario).unwrap();
        let arguments = [&SIMULATE_ON_FREE_PORT[..], &["--scenario", "s.toml"]].concat();
        let stderr = run(folder.path(), &arguments, &[]).await.expect_error(2, &["s.toml"]);
        for words in words {
            assert!(stderr.contains(words), "{scenario}\n{stderr}\nlacks: {words}");
        }
    }
    let arguments = [&SIMULATE_ON_FREE_PORT[..], &["--scenario", "nowhere.toml"]].concat();
    run(folder.path(), &arguments, &[]).await.expect_error(2, &["nowhere.toml"]);
}

#[tokio::test]
async fn address_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    run(folder().path(), &["simulate", "--listen", &address], &[])
        .await
        .expect_error(1, &["cannot listen on", &address]);
}
