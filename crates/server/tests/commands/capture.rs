//! `capture`: from a provider's reply to a simulator that says it again.

use std::path::Path;

use tempfile::TempDir;
use throughline_testkit::{Answer, Conversation, Gateway, Simulator};

use crate::support::{BINARY, folder, run, start};

const CONTENTS: &str = "[debug_log]\nenabled = true\nfull_body = true\n";
const KEY: &str = "sk-ant-never-in-a-file";

struct Served {
    gateway: Gateway,
    simulator: Simulator,
    folder: TempDir,
}

impl Served {
    async fn start(settings: &str) -> Self {
        let simulator = Simulator::start("a").await;
        let config = format!(
            "{settings}\n[[backend]]\nname = \"a\"\ndialect = \"anthropic\"\n\
             auth = \"passthrough\"\nbase_url = \"{}\"\n",
            simulator.url
        );
        Self { gateway: Gateway::start(BINARY, &config).await, simulator, folder: folder() }
    }

    async fn say(&self, text: &str, stream: bool) -> Answer {
        let answer = asking(text, stream).send(&self.gateway.client).await;
        // A turn is told after its last byte.
        while self.gateway.turns().await[0]["end"] == "" {
            tokio::task::yield_now().await;
        }
        answer
    }

    async fn capture(&self, arguments: &[&str]) -> crate::support::Ended {
        let url = ["--url", &self.gateway.url];
        let all = [&["capture"], arguments, &url].concat();
        run(self.folder.path(), &all, &[]).await
    }

    fn file(&self, name: &str) -> Vec<u8> {
        read(self.folder.path(), name)
    }
}

fn asking(text: &str, stream: bool) -> Conversation {
    let mut talk = Conversation::new("s");
    talk.headers.push(("x-api-key".into(), KEY.into()));
    talk.stream = stream;
    talk.user(text);
    talk
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The provider's own bytes: the gateway's reply is the same where no name is mapped.
///
///
#[tokio::test]
async fn a_captured_reply_is_replayed_byte_for_byte() {
    let served = Served::start(CONTENTS).await;
    let streamed = served.say("Think of café ☕.", true).await.good().body;
    served.capture(&["--last", "--out", "stream"]).await.good();
    let whole = served.say("Think again.", false).await.good().body;
    let id = served.gateway.turns().await[0]["id"].clone();
    let by_id = ["--turn", id.as_str().unwrap(), "--out", "whole"];
    let said = served.capture(&by_id).await.good();
    assert!(said.contains("whole.json") && said.contains("whole.about.toml"), "{said}");
    assert_eq!(served.file("stream.sse"), streamed);
    assert_eq!(served.file("whole.json"), whole);

    let scenario = "[[step]]\nreplay = \"stream.sse\"\n[[step]]\nreplay = \"whole.json\"\n";
    std::fs::write(served.folder.path().join("scenario.toml"), scenario).unwrap();
    let arguments = ["simulate", "--listen", "127.0.0.1:0", "--scenario", "scenario.toml"];
    let replaying = start(served.folder.path(), &arguments, &[]).await;
    let again = asking("Something else.", true).send(&replaying.client).await;
    assert_eq!(again.good().body, streamed);
    let again = asking("Something else.", false).send(&replaying.client).await;
    assert_eq!(again.good().body, whole);
}

#[tokio::test]
async fn what_is_known_about_it_stands_beside_it_and_no_key_does() {
    let served = Served::start(CONTENTS).await;
    served.say("Hello.", true).await.good();
    let seen = served.simulator.last().await;
    assert_eq!(seen.header("x-api-key"), Some(KEY));
    served.capture(&["--out", "a.b"]).await.good();
    let about = String::from_utf8(served.file("a.b.about.toml")).unwrap();
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
        let text = String::from_utf8(served.file(name)).unwrap();
        assert!(!text.contains(KEY), "{name}");
    }
}

#[tokio::test]
async fn nothing_is_written_over_unasked() {
    let served = Served::start(CONTENTS).await;
    served.say("One.", true).await.good();
    for taken in ["a.sse", "a.about.toml"] {
        let folder = served.folder.path();
        std::fs::write(folder.join(taken), "mine").unwrap();
        let told = served.capture(&["--last", "--out", "a"]).await;
        told.bad(1, &[taken, "--force"]);
        assert_eq!(served.file(taken), b"mine");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
        std::fs::remove_file(folder.join(taken)).unwrap();
    }
    std::fs::write(served.folder.path().join("a.sse"), "mine").unwrap();
    served.capture(&["--out", "a.sse", "--force"]).await.good();
    assert!(served.file("a.sse").starts_with(b"event: message_start"));
    let told = served.capture(&["--out", "no/such/folder"]).await;
    told.bad(1, &["cannot write", "no/such/folder.sse"]);
}

#[tokio::test]
async fn a_reply_that_is_not_whole_is_refused() {
    let served = Served::start(CONTENTS).await;
    let told = served.capture(&["--out", "a"]).await;
    told.bad(1, &["no turn yet"]);
    let whole = served.say("bench 20000", true).await.good();
    assert!(whole.body.len() > 1 << 20);
    let told = served.capture(&["--out", "a"]).await;
    told.bad(1, &["turn_", "1 MiB", "not be whole"]);
    let told = served.capture(&["--turn", "turn_x", "--out", "a"]).await;
    told.bad(1, &["`turn_x`", "throughline turns"]);
    let mut wrong = asking("Hello.", false);
    wrong.body["temperature"] = 7.into();
    assert_eq!(wrong.send(&served.gateway.client).await.status, 400);
    let turns = served.gateway.turns().await;
    let id = turns[0]["id"].as_str().unwrap();
    let told = served.capture(&["--turn", id, "--out", "a"]).await;
    told.bad(1, &[id, "no stored reply", "refused"]);
    assert_eq!(std::fs::read_dir(served.folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn without_contents_it_says_what_to_set() {
    for settings in ["", "[debug_log]\nenabled = true\n", "[debug_log]\nfull_body = true\n"] {
        let served = Served::start(settings).await;
        served.say("Hello.", true).await.good();
        let told = served.capture(&["--last", "--out", "a"]).await;
        told.bad(1, &["`[debug_log]`", "`enabled = true`", "`full_body = true`"]);
    }
    let nobody = ["capture", "--out", "a", "--url", "http://127.0.0.1:1"];
    let told = run(folder().path(), &nobody, &[]).await;
    told.bad(1, &["is `throughline serve` running?"]);
}

#[tokio::test]
async fn the_help_teaches_the_round_trip() {
    let help = run(folder().path(), &["capture", "--help"], &[]).await.good();
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
    run(folder().path(), &both, &[]).await.bad(2, &["--last"]);
    run(folder().path(), &["capture"], &[]).await.bad(2, &["--out"]);
}
