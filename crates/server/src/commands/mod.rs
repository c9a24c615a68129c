//! The commands, one file each, and how they fail.

pub mod capture;
pub mod doctor;
pub mod remote;
pub mod serve;
pub mod simulate;

use std::io::Write;
use std::path::Path;

use crate::cli::Command;
use crate::config::{self, Config, Overrides, Source};

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration or the arguments are wrong.
    #[error("{0}")]
    Usage(String),
    /// It could not be done.
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
        Command::Backends(remote) => remote::backends(&remote).await,
        Command::Switch { name, remote } => remote::switch(&remote, &name).await,
        Command::Stats { lineage, remote } => remote::stats(&remote, lineage.as_deref()).await,
        Command::Turns { limit, remote } => remote::turns(&remote, limit).await,
        Command::Capture(options) => capture::run(options).await,
        Command::Doctor { config } => doctor::run(config.as_deref()).await,
    }
}

/// Reads the configuration as `serve` would.
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

/// A message for people.
pub fn say(text: &str) {
    // Nobody reading is no error.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Output for machines, or for a person's pager.
pub fn print(text: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{text}");
    let _ = out.flush();
}
