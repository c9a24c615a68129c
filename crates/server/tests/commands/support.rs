//! Shared by the tests of commands.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tempfile::TempDir;
use throughline_testkit::{Client, run_command};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_throughline");

/// Creates a temporary folder.
pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Creates a temporary folder with this configuration.
pub(crate) fn folder_with_config(config: &str) -> TempDir {
    let folder = folder();
    std::fs::write(folder.path().join("throughline.toml"), config).unwrap();
    folder
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl CommandOutput {
    /// Checks that the command succeeded without a message on standard error. Returns its output.
    pub(crate) fn expect_ok(self) -> String {
        assert_eq!((self.code, self.err.as_str()), (0, ""), "{}", self.out);
        self.out
    }

    /// Checks the exit code, these words on standard error, and that standard output is empty.
    /// Returns standard error.
    pub(crate) fn expect_error(self, code: i32, words: &[&str]) -> String {
        assert_eq!(self.code, code, "{self:?}");
        assert_eq!(self.out, "", "{self:?}");
        for words in words {
            assert!(self.err.contains(words), "{}\nlacks: {words}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self.err
    }
}

/// Runs a command in a folder. The environment contains only these variables.
pub(crate) async fn run(
    folder: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> CommandOutput {
    let output = run_command(BINARY, folder, arguments, environment).await;
    CommandOutput {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A command that runs until it is dropped, and its address.
pub(crate) struct RunningCommand {
    pub(crate) url: String,
    pub(crate) client: Client,
    pub(crate) first_line: String,
    pub(crate) child: Child,
}

/// Starts a command that prints its address.
pub(crate) async fn start(
    folder: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> RunningCommand {
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
    RunningCommand { url: url.to_owned(), client: Client::new(url), first_line, child }
}

impl RunningCommand {
    /// Stops the command. Returns its exit code and standard error.
    pub(crate) async fn stop(self) -> (Option<i32>, String) {
        let id = self.child.id().unwrap().to_string();
        let sent = Command::new("kill").arg(id).status().await.unwrap();
        assert!(sent.success());
        let ended = self.child.wait_with_output();
        let ended = tokio::time::timeout(Duration::from_secs(20), ended).await;
        let ended = ended.expect("it ends in time").unwrap();
        let stderr = String::from_utf8(ended.stderr).unwrap();
        (ended.status.code(), stderr)
    }
}
