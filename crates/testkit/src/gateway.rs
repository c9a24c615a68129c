//! The real binary as a process of its own, in a temporary directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::{Answer, Client};
use crate::metrics::Metrics;
use crate::simulator::Simulator;
use crate::small_disk::{DiskKind, SmallDisk};

/// The log level of most tests.
const TRACE: &str = "warn,throughline=trace";

/// A running gateway process.
#[derive(Debug)]
pub struct Gateway {
    /// A client for this gateway.
    pub client: Client,
    /// The base URL.
    pub url: String,
    binary: PathBuf,
    log_level: Option<&'static str>,
    environment: Vec<(String, String)>,
    child: Child,
    /// The disk of the data directory, if a test may fill it. Dropped before the folder.
    disk: Option<SmallDisk>,
    folder: TempDir,
}

impl Gateway {
    /// Starts the binary with this configuration, on a free port, with its own data directory and
    /// with logging at level trace.
    pub async fn start(binary: &str, config: &str) -> Self {
        Self::start_with_env(binary, config, &[]).await
    }

    /// Like [`Gateway::start`], with additional environment variables.
    pub async fn start_with_env(binary: &str, config: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_at(binary, config, Some(TRACE), environment, None).await
    }

    /// Like [`Gateway::start`], on a disk that can be filled.
    pub async fn start_on_small_disk(binary: &str, config: &str, kind: DiskKind) -> Self {
        Self::start_at(binary, config, Some(TRACE), &[], Some(kind)).await
    }

    /// Like [`Gateway::start`], with the log level of the configuration.
    pub async fn start_with_configured_log(binary: &str, config: &str) -> Self {
        Self::start_at(binary, config, None, &[], None).await
    }

    async fn start_at(
        binary: &str,
        config: &str,
        log_level: Option<&'static str>,
        environment: &[(&str, &str)],
        disk: Option<DiskKind>,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = disk.map(|kind| SmallDisk::new(kind, &folder.path().join("data")));
        std::fs::write(folder.path().join("throughline.toml"), config).expect("a file");
        let binary = PathBuf::from(binary);
        let environment: Vec<(String, String)> = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut command = command(&binary, log_level, &environment, disk.as_ref(), &folder);
        let (child, url) = spawn(&mut command, &folder).await;
        let client = Client::new(&url);
        Self { client, url, binary, log_level, environment, child, disk, folder }
    }

    /// Fills the disk of [`Gateway::start_on_small_disk`]: every write fails.
    pub fn fill_disk(&self) {
        self.disk().fill(self.process());
    }

    /// Makes room on the disk again.
    pub fn free_disk(&self) {
        self.disk().free(self.process());
    }

    fn disk(&self) -> &SmallDisk {
        self.disk.as_ref().expect("a disk that can be filled")
    }

    fn process(&self) -> u32 {
        self.child.id().expect("a running gateway")
    }

    /// Starts the binary with one Anthropic backend for each simulator. The first one is active.
    /// `settings` comes before the backends, so it may contain any table.
    pub async fn over_simulators(
        binary: &str,
        backends: &[(&str, &Simulator)],
        settings: &str,
    ) -> Self {
        let mut config = settings.to_owned();
        for (name, simulator) in backends {
            config.push_str(&format!(
                "\n[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n",
                simulator.url
            ));
        }
        Self::start(binary, &config).await
    }

    /// Kills the process without a shutdown and waits until it has exited.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the gateway dies");
    }

    /// Sends a signal by name, such as `TERM`.
    pub async fn signal(&self, name: &str) {
        let id = self.process().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await;
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until the process exits on its own, and returns its exit code.
    pub async fn wait_for_exit(&mut self) -> Option<i32> {
        tokio::time::timeout(Duration::from_secs(40), self.child.wait())
            .await
            .expect("the gateway ends in time")
            .expect("a status")
            .code()
    }

    /// Starts the binary again in the same directory.
    pub async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    /// Like [`Gateway::restart`], with more arguments of `serve`.
    pub async fn restart_with(&mut self, arguments: &[&str]) {
        let mut command = command(
            &self.binary,
            self.log_level,
            &self.environment,
            self.disk.as_ref(),
            &self.folder,
        );
        let (child, url) = spawn(command.args(arguments), &self.folder).await;
        self.child = child;
        self.client = Client::new(&url);
        self.url = url;
    }

    /// Replaces the configuration file.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.folder.path().join("throughline.toml"), config).expect("a file");
    }

    /// Returns the directory the process runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns everything logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    /// Makes `backend` the active backend.
    pub async fn switch(&self, backend: &str) -> Value {
        let body = json!({ "backend": backend });
        self.client.post("/admin/switch", &[], &body).await.expect_ok().json()
    }

    /// Returns the statistics of `GET /admin/thinking`.
    pub async fn statistics(&self) -> Value {
        self.client.get("/admin/thinking").await.expect_ok().json()
    }

    /// Returns the metrics of `GET /metrics`.
    pub async fn metrics(&self) -> Metrics {
        Metrics::parse(&self.client.get("/metrics").await.expect_ok().text())
    }

    /// Returns the recent turns of `/admin/turns`, newest first.
    pub async fn turns(&self) -> Vec<Value> {
        let answer = self.client.get("/admin/turns?limit=1000").await.expect_ok().json();
        answer["turns"].as_array().cloned().expect("a list")
    }

    /// Returns the newest turn.
    ///
    /// # Panics
    /// If there is no turn yet.
    pub async fn last_turn(&self) -> Value {
        self.turns().await.into_iter().next().expect("a turn")
    }

    /// Returns the turn that produced an answer.
    ///
    /// # Panics
    /// If `/admin/turns` does not list it.
    pub async fn turn_of(&self, answer: &Answer) -> Value {
        let id = answer.header("x-throughline-turn");
        let found = self.turns().await.into_iter().find(|turn| turn["id"] == id);
        found.unwrap_or_else(|| panic!("no turn `{id}`"))
    }
}

/// Returns the fate of each block in a turn or a plan with its reason, such as `left_out origin`.
///
/// # Panics
/// If the report has no list of blocks.
pub fn block_fates(report: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let blocks = report["blocks"].as_array().expect("a list of blocks");
    blocks
        .iter()
        .map(|block| [text(&block["fate"]), text(&block["reason"])].join(" ").trim_end().to_owned())
        .collect()
}

/// The command that serves in a folder.
fn command(
    binary: &Path,
    log_level: Option<&str>,
    environment: &[(String, String)],
    disk: Option<&SmallDisk>,
    folder: &TempDir,
) -> Command {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("log"))
        .expect("a log");
    let mut command = match disk.and_then(SmallDisk::launcher) {
        Some([launcher, arguments @ ..]) => {
            let mut command = Command::new(launcher);
            command.args(arguments).arg(binary);
            command
        }
        None => Command::new(binary),
    };
    command
        .args(["serve", "--config", "throughline.toml", "--listen", "127.0.0.1:0"])
        .args(["--data-dir", "data"])
        .current_dir(folder.path())
        .env_remove("RUST_LOG")
        .env_remove("ANTHROPIC_API_KEY")
        .env_remove("OPENAI_API_KEY")
        .env_remove("GEMINI_API_KEY")
        .env_remove("GOOGLE_API_KEY")
        .env_remove("DEEPSEEK_API_KEY")
        .env_remove("THROUGHLINE_KEYRING")
        .envs(environment.iter().cloned())
        .stdout(Stdio::piped())
        .stderr(log)
        .kill_on_drop(true);
    if let Some(level) = log_level {
        command.env("RUST_LOG", level);
    }
    command
}

/// Starts the command and waits until it prints its address.
async fn spawn(command: &mut Command, folder: &TempDir) -> (Child, String) {
    let mut child = command.spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
    let first = tokio::time::timeout(Duration::from_secs(20), lines.next_line())
        .await
        .expect("the gateway prints its address in time")
        .expect("a line");
    let Some(url) = first.as_deref().and_then(|line| line.split("listening on ").nth(1)) else {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("the gateway did not start: {first:?}\n{log}");
    };
    let url = url.to_owned();
    (child, url)
}

/// Runs a command of the binary in a folder and waits until it exits. The environment contains
/// only `HOME` and these variables.
pub async fn run_command(
    binary: &str,
    folder: &Path,
    arguments: &[&str],
    environment: &[(&str, &str)],
) -> Output {
    let mut command = Command::new(binary);
    command
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .envs(environment.iter().copied())
        .env("HOME", folder)
        .kill_on_drop(true)
        .stdin(Stdio::null());
    tokio::time::timeout(Duration::from_secs(30), command.output())
        .await
        .expect("the command ends in time")
        .expect("the command runs")
}
