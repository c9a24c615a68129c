//! `capture`: records a provider's reply so that a simulator can replay it.

use std::path::Path;

use tempfile::TempDir;
use throughline_testkit::{Answer, Conversation, Gateway, Simulator};

use crate::support::{BINARY, folder, run, start};

const RECORD_CONTENTS: &str = "[debug_log]\nenabled = true\nfull_body = true\n";
const KEY: &str = "sk-ant-never-in-a-file";

struct CaptureSetup {
    gateway: Gateway,
    simulator: Simulator,
    folder: TempDir,
}

impl CaptureSetup {
    async fn start(settings: &str) -> Self {
        let simulator = Simulator::start("a").await;
        let config = format!(
            "{settings}\n[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\n\
             auth = \"passthrough\"\nbase_url = \"{}\"\n",
            simulator.url
        );
        Self { gateway: Gateway::start(BINARY, &config).await, simulator, folder: folder() }
    }

    async fn ask(&self, text: &str, stream: bool) -> Answer {
        let answer = conversation_with_key(text, stream).send(&self.gateway.client).await;
        // The turn is listed after its last byte.
        while self.gateway.turns().await[0]["end"] == "" {
            tokio::task::yield_now().await;
        }
        answer
    }

    async fn capture(&self, arguments: &[&str]) -> crate::support::CommandOutput {
        let url = ["--url", &self.gateway.url];
        let all = [&["capture"], arguments, &url].concat();
        run(self.folder.path(), &all, &[]).await
    }

    fn file(&self, name: &str) -> Vec<u8> {
        read_file(self.folder.path(), name)
    }
}

fn conversation_with_key(text: &str, stream: bool) -> Conversation {
    let mut conversation = Conversation::new("s");
    conversation.headers.push(("x-api-key".into(), KEY.into()));
    conversation.stream = stream;
    conversation.push_user(text);
    conversation
}

fn read_file(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The capture has the provider's own bytes. Without a mapped name the gateway's reply is the same.
///
///
#[tokio::test]
async fn captured_reply_is_replayed_byte_for_byte() {
    let setup = CaptureSetup::start(RECORD_CONTENTS).await;
    let streamed = setup.ask("Think of café ☕.", true).await.expect_ok().body;
    setup.capture(&["--last", "--out", "stream"]).await.expect_ok();
    let whole = setup.ask("Think again.", false).await.expect_ok().body;
    let id = setup.gateway.turns().await[0]["id"].clone();
    let by_id = ["--turn", id.as_str().unwrap(), "--out", "whole"];
    let output = setup.capture(&by_id).await.expect_ok();
    assert!(output.contains("whole.json") && output.contains("whole.about.toml"), "{output}");
    assert_eq!(setup.file("stream.sse"), streamed);
    assert_eq!(setup.file("whole.json"), whole);

    let scenario = "[[step]]\nreplay = \"stream.sse\"\n[[step]]\nreplay = \"whole.json\"\n";
    std::fs::write(setup.folder.path().join("scenario.toml"), scenario).unwrap();
    let arguments = ["simulate", "--listen", "127.0.0.1:0", "--scenario", "scenario.toml"];
    let replaying = start(setup.folder.path(), &arguments, &[]).await;
    let again = conversation_with_key("Something else.", true).send(&replaying.client).await;
    assert_eq!(again.expect_ok().body, streamed);
    let again = conversation_with_key("Something else.", false).send(&replaying.client).await;
    assert_eq!(again.expect_ok().body, whole);
}

#[tokio::test]
async fn about_file_describes_the_capture_without_keys() {
    let setup = CaptureSetup::start(RECORD_CONTENTS).await;
    setup.ask("Hello.", true).await.expect_ok();
    let seen = setup.simulator.last_received().await;
    assert_eq!(seen.header("x-api-key"), Some(KEY));
    setup.capture(&["--out", "a.b"]).await.expect_ok();
    let about = String::from_utf8(setup.file("a.b.about.toml")).unwrap();
    for line in [
        "special = \"\"",
        "backend = \"a\"",
        "model = \"claude-sonnet-4-5\"",
        "path = \"/v1/messages\"",
        "status = 200",
        "end = \"completed\"",
    ] {
        assert!(about.lines().any(|found| found == line), "{about}\nlacks {line}");
    }
    assert!(about.contains("time = \"20"), "{about}");
    for name in ["a.b.sse", "a.b.about.toml"] {
        let text = String::from_utf8(setup.file(name)).unwrap();
        assert!(!text.contains(KEY), "{name}");
    }
}

#[tokio::test]
async fn existing_files_are_overwritten_only_with_force() {
    let setup = CaptureSetup::start(RECORD_CONTENTS).await;
    setup.ask("One.", true).await.expect_ok();
    for taken in ["a.sse", "a.about.toml"] {
        let folder = setup.folder.path();
        std::fs::write(folder.join(taken), "mine").unwrap();
        let output = setup.capture(&["--last", "--out", "a"]).await;
        output.expect_error(1, &[taken, "--force"]);
        assert_eq!(setup.file(taken), b"mine");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        std::fs::remove_file(folder.join(taken)).unwrap();
    }
    std::fs::write(setup.folder.path().join("a.sse"), "mine").unwrap();
    setup.capture(&["--out", "a.sse", "--force"]).await.expect_ok();
    assert!(setup.file("a.sse").starts_with(b"event: message_start"));
    let output = setup.capture(&["--out", "no/such/folder"]).await;
    output.expect_error(1, &["cannot write", "no/such/folder.sse"]);
}

#[tokio::test]
async fn rejects_a_reply_that_was_not_recorded_whole() {
    let setup = CaptureSetup::start(RECORD_CONTENTS).await;
    let output = setup.capture(&["--out", "a"]).await;
    output.expect_error(1, &["no turn yet"]);
    let whole = setup.ask("bench 20000", true).await.expect_ok();
    assert!(whole.body.len() > 1 << 20);
    let output = setup.capture(&["--out", "a"]).await;
    output.expect_error(1, &["turn_", "1 MiB", "not be whole"]);
    let output = setup.capture(&["--turn", "turn_x", "--out", "a"]).await;
    output.expect_error(1, &["`turn_x`", "throughline turns"]);
    let mut wrong = conversation_with_key("Hello.", false);
    wrong.body["temperature"] = 7.into();
    assert_eq!(wrong.send(&setup.gateway.client).await.status, 400);
    let turns = setup.gateway.turns().await;
    let id = turns[0]["id"].as_str().unwrap();
    let output = setup.capture(&["--turn", id, "--out", "a"]).await;
    output.expect_error(1, &[id, "no stored reply", "refused"]);
    assert_eq!(std::fs::read_dir(setup.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn missing_contents_are_reported_with_the_setting() {
    for settings in ["", "[debug_log]\nenabled = true\n", "[debug_log]\nfull_body = true\n"] {
        let setup = CaptureSetup::start(settings).await;
        setup.ask("Hello.", true).await.expect_ok();
        let output = setup.capture(&["--last", "--out", "a"]).await;
        output.expect_error(1, &["`[debug_log]`", "`enabled = true`", "`full_body = true`"]);
    }
    let no_gateway = ["capture", "--out", "a", "--url", "http://127.0.0.1:1"];
    let output = run(folder().path(), &no_gateway, &[]).await;
    output.expect_error(1, &["is `throughline serve` running?"]);
}

#[tokio::test]
async fn help_explains_capture_and_replay() {
    let help = run(folder().path(), &["capture", "--help"], &[]).await.expect_ok();
    for words in [
        "--turn",
        "--last",
        "--out",
        "--force",
        "--url",
        "full_body = true",
        "replay = ",
        "throughline simulate --scenario",
    ] {
        assert!(help.contains(words), "{help}\nlacks: {words}");
    }
    let both = ["capture", "--turn", "x", "--last", "--out", "a"];
    run(folder().path(), &both, &[]).await.expect_error(2, &["--last"]);
    run(folder().path(), &["capture"], &[]).await.expect_error(2, &["--out"]);
}
