//! Several instances on one Postgres database: a client may come back to any of them.

use std::time::{Duration, Instant};

use serde_json::json;
use throughline_testkit::{
    Gateway, PostgresDatabase, Simulator, block_fates, run_command, wait_until,
};

use crate::support::{BINARY, POLICIES, backend, new_conversation, thinking_in};

const KEYRING: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEYRING: &str = "/wECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Two instances over the backends `a` and `b`.
struct Instances {
    a: Simulator,
    b: Simulator,
    one: Gateway,
    two: Gateway,
    database: PostgresDatabase,
}

impl Instances {
    async fn start(policy: &str, database: PostgresDatabase) -> Self {
        let (a, b) = (Simulator::start("a").await, Simulator::start("b").await);
        let config = format!(
            "[store]\nurl = \"{}\"\n[thinking]\npolicy = \"{policy}\"\n{}{}",
            database.url,
            backend("a", &a, ""),
            backend("b", &b, "")
        );
        let environment = [("THROUGHLINE_KEYRING", KEYRING)];
        let one = Gateway::start_with_env(BINARY, &config, &environment).await;
        let two = Gateway::start_with_env(BINARY, &config, &environment).await;
        Self { a, b, one, two, database }
    }

    async fn refusals(&self) -> Vec<String> {
        let mut all = self.a.received().await;
        all.extend(self.b.received().await);
        all.into_iter().map(|seen| seen.refusal).filter(|refusal| !refusal.is_empty()).collect()
    }

    /// Waits until the second instance follows a switch of the first one.
    async fn switch(&self, backend: &str) {
        self.one.switch(backend).await;
        wait_until("the other instance has switched too", async || {
            let backends = self.two.client.get("/admin/backends").await.expect_ok().json();
            backends["active"] == backend
        })
        .await;
    }
}

#[tokio::test]
async fn conversation_continues_on_any_instance() {
    for policy in POLICIES {
        let instances = Instances::start(policy, PostgresDatabase::new()).await;
        let (one, two) = (&instances.one.client, &instances.two.client);
        let mut conversation = new_conversation("round robin", true);
        let (first, _) = conversation.ask(one, "one").await;
        let (second, answer) = conversation.ask(two, "two").await;
        // The block is known, so it is sent and not tried.
        assert_eq!(block_fates(&instances.two.turn_of(&answer).await), ["sent"], "{policy}");
        let (_, answer) = conversation.ask(one, "three").await;
        assert_eq!(
            block_fates(&instances.one.turn_of(&answer).await),
            ["sent", "sent"],
            "{policy}"
        );
        let received = instances.a.last_received().await;
        assert_eq!(received.thinking(), thinking_in(&[&first, &second]), "{policy}");

        // The switch, and the session that it begins, are known to the other instance.
        instances.switch("b").await;
        let (_, answer) = conversation.ask(two, "four").await;
        assert_eq!(answer.header("x-throughline-backend"), "b");
        assert_eq!(instances.two.turn_of(&answer).await["session"], 2, "{policy}");
        let (_, answer) = conversation.ask(one, "five").await;
        let turn = instances.one.turn_of(&answer).await;
        assert_eq!(turn["session"], 2, "{policy}");
        let left_out = format!("left_out {policy}");
        assert_eq!(block_fates(&turn), [&*left_out, &left_out, &left_out, "sent"], "{policy}");
        assert_eq!(instances.refusals().await, [""; 0], "{policy}");
    }
}

/// A chat client drops thinking and signatures.
#[tokio::test]
async fn vault_of_one_instance_restores_on_the_other() {
    let instances = Instances::start("origin", PostgresDatabase::new()).await;
    let tool = json!({"type": "function", "function": {"name": "lookup", "parameters":
        {"type": "object", "properties": {"key": {"type": "string"}}}}});
    let mut messages = vec![json!({"role": "user", "content": "use one tool"})];
    let request = |messages: &[serde_json::Value]| {
        json!({"model": "claude-sonnet-4-5", "reasoning_effort": "high", "tools": [tool],
            "messages": messages})
    };
    let path = "/v1/chat/completions";
    let answer = instances.one.client.post(path, &[], &request(&messages)).await.expect_ok();
    let message = answer.json()["choices"][0]["message"].clone();
    let calls = message["tool_calls"].clone();
    messages.push(json!({"role": "assistant", "content": message["content"], "tool_calls": calls}));
    messages.push(json!({"role": "tool", "tool_call_id": calls[0]["id"], "content": "green"}));
    let answer = instances.two.client.post(path, &[], &request(&messages)).await.expect_ok();
    assert_eq!(block_fates(&instances.two.turn_of(&answer).await), ["restored"]);
    assert_eq!(instances.refusals().await, [""; 0]);
}

#[tokio::test]
async fn lost_database_is_reported_and_comes_back() {
    let instances = Instances::start("origin", PostgresDatabase::with_own_server()).await;
    let mut conversation = new_conversation("lost", true);
    let (_, _) = conversation.ask(&instances.one.client, "one").await;
    instances.database.server.stop();
    let is_ready = async || instances.one.client.get("/readyz").await.status == 200;
    wait_until("the instance is not ready", async || !is_ready().await).await;
    // Turns go on, with what is known in RAM.
    let began = Instant::now();
    let (_, answer) = conversation.ask(&instances.one.client, "two").await;
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(block_fates(&instances.one.turn_of(&answer).await), ["sent"]);
    instances.database.server.restart();
    let began = Instant::now();
    while !is_ready().await {
        assert!(began.elapsed() < Duration::from_secs(30), "the instance is ready again");
    }
    // What was learnt meanwhile is written, and the other instance finds it.
    let (_, answer) = conversation.ask(&instances.two.client, "three").await;
    assert_eq!(block_fates(&instances.two.turn_of(&answer).await), ["sent", "sent"]);
}

#[tokio::test]
async fn instance_with_another_keyring_does_not_start() {
    let database = PostgresDatabase::new();
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "data_dir = \"data\"\nlisten = \"127.0.0.1:0\"\n[store]\nurl = \"{}\"\n",
        database.url
    );
    std::fs::write(folder.path().join("throughline.toml"), &config).unwrap();
    let _first =
        Gateway::start_with_env(BINARY, &config, &[("THROUGHLINE_KEYRING", KEYRING)]).await;
    let environment = [("THROUGHLINE_KEYRING", OTHER_KEYRING)];
    let output = run_command(BINARY, folder.path(), &["serve"], &environment).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("`THROUGHLINE_KEYRING` lacks the last key"), "{error}");
    assert!(error.contains("Postgres database `test_"), "{error}");
}

#[tokio::test]
async fn unreachable_database_is_named_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        "data_dir = \"data\"\n[store]\nurl = \"postgres://ada:s3cret@127.0.0.1:1/through\"\n";
    std::fs::write(folder.path().join("throughline.toml"), config).unwrap();
    for command in ["serve", "migrate"] {
        let output = run_command(BINARY, folder.path(), &[command], &[]).await;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("`through` at `127.0.0.1:1`"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

/// Covers: S4-65
#[tokio::test]
async fn migrate_says_what_it_did() {
    let database = PostgresDatabase::new();
    let folder = tempfile::tempdir().unwrap();
    let run = async || {
        let output = run_command(BINARY, folder.path(), &["migrate"], &[]).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let file = folder.path().join("throughline.toml");
    let postgres = format!("data_dir = \"data\"\n[store]\nurl = \"{}\"\n", database.url);
    for config in [postgres.as_str(), "data_dir = \"data\"\n"] {
        std::fs::write(&file, config).unwrap();
        let first = run().await;
        assert!(first.lines().all(|line| line.ends_with(" migrations applied")), "{first}");
        let again = run().await;
        assert!(again.lines().all(|line| line.ends_with(": nothing to do")), "{again}");
        assert_eq!(first.lines().count(), again.lines().count());
    }
}
