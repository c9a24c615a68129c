//! What the tests of the commands share.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use throughline_testkit::{Client, run_command};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// A folder of one's own.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A folder with this configuration in it.
pub(crate) fn configured(config: &str) -> TempDir {
    let folder = folder();
    std::fs::write(folder.path().join("throughline.toml"), config).unwrap();
    folder
}

/// How a command ended, and what it said where.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// It ended well and had nothing to tell people.
    pub(crate) fn good(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// It ended badly, with these words for people and nothing for machines.
    pub(crate) fn bad(self, code: i32, words: &[&str]) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        for words in words {
            assert!(self.err.contains(words), "{}\nlacks: {words}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

/// Runs a command in a folder, with these variables alone.
pub(crate) async fn run(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Ended {
    let output = run_command(BINARY, folder, arguments, environment).await;
    Ended {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A command that runs until it is dropped, and the address it told.
pub(crate) struct Running {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) first_line: String,
    pub(crate) child: Child,
}

/// Starts a command that tells where it listens.
pub(crate) async fn start(
    folder: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Running {
    let mut child = Command::new(BINARY)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(environment.iter().copied())
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line());
    let line = line.await.expect("a line in time").unwrap();
    let first_line = line.expect("it starts");
    let (_, url) = first_line.split_once("listening on ").unwrap();
    Running { url: url.to_owned(), client: Client::new(url), first_line, child }
}

impl Running {
    /// Asks it to stop, and gives its exit code and what it told people.
    pub(crate) async fn stop(self) -> (Option<i32>, String) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").arg(id).status().await.unwrap();
        assert!(sent.success());
        let ended = self.child.wait_with_output();
        let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
        let ended = ended.expect("it ends in time").unwrap();
        let told = String::from_utf8(ended.stderr).unwrap();
        (ended.status.code(), told)
    }
}
