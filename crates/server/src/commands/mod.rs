//! The commands, one file each, and their exit codes.

pub mod capture;
pub mod doctor;
pub mod keys;
pub mod migrate;
pub mod parse;
pub mod plan;
pub mod remote;
pub mod serve;
pub mod simulate;
mod turn_table;

use std::io::Write;
use std::path::Path;

use crate::cli::Command;
use crate::config::{self, Config, Overrides, Source};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Wrong configuration or arguments; exit code 2.
    #[error("{0}")]
    Usage(String),
    /// The command could not do its work; exit code 1.
    #[error("{0}")]
    Failed(String),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Failed(_) => 1,
        }
    }
}

/// Runs one command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(options) => serve::run(options).await,
        Command::Simulate(options) => simulate::run(options).await,
        Command::SimulateMcp(options) => simulate::run_mcp(options).await,
        Command::Backends(remote) => remote::backends(&remote).await,
        Command::Switch { name, remote } => remote::switch(&remote, &name).await,
        Command::Stats { lineage, remote } => remote::stats(&remote, lineage.as_deref()).await,
        Command::Turns { limit, blocks, remote } => remote::turns(&remote, limit, blocks).await,
        Command::Plan(options) => plan::run(options).await,
        Command::Capture(options) => capture::run(options).await,
        Command::Parse(options) => parse::run(&options),
        Command::Migrate { config } => migrate::run(config.as_deref()).await,
        Command::Keys(command) => keys::run(&command).await,
        Command::Doctor { config } => doctor::run(config.as_deref()).await,
    }
}

/// Loads the configuration as `serve` does.
pub fn load(explicit: Option<&Path>, overrides: Overrides) -> Result<Config, Failure> {
    let environment = || std::env::vars();
    let path = config::locate(explicit, environment())
        .map_err(|error| Failure::Usage(error.to_string()))?;
    let source = match path {
        Some(path) => Some(Source::load(&path).map_err(|error| Failure::Usage(error.to_string()))?),
        None => None,
    };
    config::read(source.as_ref(), environment(), overrides)
        .map_err(|mistakes| Failure::Usage(mistakes.to_string()))
}

/// The address of a gateway with this configuration, and whether the configuration has mistakes. Some
/// mistakes are expected here: the variables with API keys are usually set only for the gateway.
pub fn listen(explicit: Option<&Path>) -> Result<(String, bool), Failure> {
    match load(explicit, Overrides::default()) {
        Ok(config) => Ok((config.listen, false)),
        Err(mistakes) => match read_listen_only(explicit) {
            Some(listen) => Ok((listen, true)),
            None => Err(mistakes),
        },
    }
}

/// The `listen` of a configuration with other mistakes; `None` if `listen` itself is wrong.
fn read_listen_only(explicit: Option<&Path>) -> Option<String> {
    let path = config::locate(explicit, std::env::vars()).ok()?;
    let mut source = match path {
        Some(path) => Source::load(&path).ok()?,
        None => Source { name: String::new(), text: String::new() },
    };
    let document: toml_edit::DocumentMut = source.text.parse().ok()?;
    let mut reduced = toml_edit::DocumentMut::new();
    if let Some(listen) = document.get("listen") {
        reduced.insert("listen", listen.clone());
    }
    // Its default can fail too: not every environment has a home directory.
    reduced.insert("data_dir", toml_edit::value("."));
    source.text = reduced.to_string();
    let variable = std::env::vars().filter(|(name, _)| name == "THROUGHLINE_LISTEN");
    let config = config::read(Some(&source), variable, Overrides::default()).ok()?;
    Some(config.listen)
}

/// Prints a message for people to stderr.
pub fn print_note(text: &str) {
    // A closed stderr is not an error.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Prints output to stdout.
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
