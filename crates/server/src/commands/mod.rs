//! The commands, one file each, and how they fail.

pub mod capture;
pub mod doctor;
pub mod parse;
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
        Command::Parse(options) => parse::run(&options),
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

/// Where a gateway of this configuration listens, and whether the configuration has mistakes. For
/// the address alone the rest need not hold: a key's variable is mostly set where the gateway runs,
/// not where it is asked.
pub fn listen(explicit: Option<&Path>) -> Result<(String, bool), Failure> {
    match load(explicit, Overrides::default()) {
        Ok(config) => Ok((config.listen, false)),
        Err(mistakes) => match only_listen(explicit) {
            Some(listen) => Ok((listen, true)),
            None => Err(mistakes),
        },
    }
}

/// The `listen` of a configuration with mistakes elsewhere; none if it is a mistake itself.
fn only_listen(explicit: Option<&Path>) -> Option<String> {
    let path = config::locate(explicit, std::env::vars()).ok()?;
    let mut source = match path {
        Some(path) => Source::load(&path).ok()?,
        None => Source { name: String::new(), text: String::new() },
    };
    let written: toml_edit::DocumentMut = source.text.parse().ok()?;
    let mut alone = toml_edit::DocumentMut::new();
    if let Some(listen) = written.get("listen") {
        alone.insert("listen", listen.clone());
    }
    // Its default may be a mistake as well: not every environment has a home.
    alone.insert("data_dir", toml_edit::value("."));
    source.text = alone.to_string();
    let variable = std::env::vars().filter(|(name, _)| name == "THROUGHLINE_LISTEN");
    let config = config::read(Some(&source), variable, Overrides::default()).ok()?;
    Some(config.listen)
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
