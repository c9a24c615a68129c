//! The real binary as a process of its own, with a directory of its own.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::client::Client;
use crate::simulator::Simulator;

/// A running gateway.
#[derive(Debug)]
pub struct Gateway {
    /// A client of it.
    pub client: Client,
    /// Its address.
    pub url: String,
    binary: PathBuf,
    log_level: Option<&'static str>,
    environment: Vec<(String, String)>,
    child: Child,
    folder: TempDir,
}

impl Gateway {
    /// Starts the binary with this configuration; `listen`, `data_dir` and a log at level trace
    /// are added.
    pub async fn start(binary: &str, config: &str) -> Self {
        Self::start_in(binary, config, &[]).await
    }

    /// As [`Gateway::start`], with these variables besides.
    pub async fn start_in(binary: &str, config: &str, environment: &[(&str, &str)]) -> Self {
        Self::start_at(binary, config, Some("warn,throughline=trace"), environment).await
    }

    /// As [`Gateway::start`], with the log at the level the configuration says.
    pub async fn start_as_configured(binary: &str, config: &str) -> Self {
        Self::start_at(binary, config, None, &[]).await
    }

    async fn start_at(
        binary: &str,
        config: &str,
        log_level: Option<&'static str>,
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("throughline.toml"), config).expect("a file");
        let binary = PathBuf::from(binary);
        let environment: Vec<(String, String)> = environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let (child, url) = spawn(&binary, log_level, &environment, &folder).await;
        Self { client: Client::new(&url), url, binary, log_level, environment, child, folder }
    }

    /// Starts the binary in front of simulators, each a backend of the given name, the first one
    /// active. `settings` comes before the backends, so it may hold any table.
    pub async fn over(binary: &str, backends: &[(&str, &Simulator)], settings: &str) -> Self {
        let mut config = settings.to_owned();
        for (name, simulator) in backends {
            config.push_str(&format!(
                "\n[[backend]]\nname = \"{name}\"\ndialect = \"anthropic\"\nbase_url = \"{}\"\n",
                simulator.url
            ));
        }
        Self::start(binary, &config).await
    }

    /// Kills it as a crash would, and waits until it is gone.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("the gateway dies");
    }

    /// Sends a signal by name, such as `TERM`.
    pub async fn signal(&self, name: &str) {
        let id = self.child.id().expect("a running gateway").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await;
        assert!(sent.expect("kill runs").success());
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> Option<i32> {
        tokio::time::timeout(Duration::from_secs(40), self.child.wait())
            .await
            .expect("the gateway ends in time")
            .expect("a status")
            .code()
    }

    /// Starts it again on the same directory.
    pub async fn start_again(&mut self) {
        let (child, url) =
            spawn(&self.binary, self.log_level, &self.environment, &self.folder).await;
        self.child = child;
        self.client = Client::new(&url);
        self.url = url;
    }

    /// Replaces the configuration file.
    pub fn configure(&self, config: &str) {
        std::fs::write(self.folder.path().join("throughline.toml"), config).expect("a file");
    }

    /// The directory it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).expect("a log")
    }

    /// Makes another backend the active one.
    pub async fn switch(&self, backend: &str) -> Value {
        let body = json!({ "backend": backend });
        self.client.post("/admin/switch", &[], &body).await.good().json()
    }

    /// `GET /admin/thinking`
    pub async fn statistics(&self) -> Value {
        self.client.get("/admin/thinking").await.good().json()
    }

    /// The recent turns, newest first.
    pub async fn turns(&self) -> Vec<Value> {
        let answer = self.client.get("/admin/turns?limit=1000").await.good().json();
        answer["turns"].as_array().cloned().expect("a list")
    }
}

async fn spawn(
    binary: &Path,
    log_level: Option<&str>,
    environment: &[(String, String)],
    folder: &TempDir,
) -> (Child, String) {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("log"))
        .expect("a log");
    let mut command = Command::new(binary);
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
    let mut child = command.spawn().expect("the binary starts");
    let mut lines = BufReader::new(child.stdout.take().expect("an output")).lines();
    let first = tokio::time::timeout(Duration::from_secs(20), lines.next_line())
        .await
        .expect("the gateway says in time where it listens")
        .expect("a line");
    let Some(url) = first.as_deref().and_then(|line| line.split("listening on ").nth(1)) else {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("the gateway did not start: {first:?}\n{log}");
    };
    let url = url.to_owned();
    (child, url)
}

/// Runs a command of the binary to its end, in a folder, with an environment of these variables
/// alone.
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
