//! `throughline keys`: the keys that seal what is stored.

mod progress;
mod recovery;
mod rotate;
mod status;
mod verify;

use std::path::{Path, PathBuf};

use throughline_gateway::thinking::store::StoreError;
use throughline_sealing::Keyring;
use zeroize::Zeroizing;

use super::{Failure, load};
use crate::cli::keys::Keys;
use crate::config::{Config, Overrides};
use crate::keyring::{self, KeyringError};

/// Runs one of the commands.
pub async fn run(command: &Keys) -> Result<(), Failure> {
    match command {
        Keys::Status(options) => status::run(options).await,
        Keys::Rotate(options) => rotate::run(options),
        Keys::Recovery(command) => recovery::run(command).await,
        Keys::Verify(options) => verify::run(options).await,
    }
}

/// The keyring that a server with this configuration uses.
struct PresentKeyring {
    /// The file. `None` if the keyring comes from the environment.
    path: Option<PathBuf>,
    /// The text, with comments.
    text: Zeroizing<String>,
    /// The keys.
    keyring: Keyring,
}

impl PresentKeyring {
    /// Finds the keyring. `None` if there is none yet.
    fn find(config: &Config) -> Result<Option<Self>, Failure> {
        if let Some(value) = std::env::var_os(keyring::VARIABLE) {
            let text = Zeroizing::new(value.to_string_lossy().into_owned());
            let keyring = Keyring::read(&text).map_err(KeyringError::Variable).map_err(failed)?;
            return Ok(Some(Self { path: None, text, keyring }));
        }
        let path = config.data_dir.join(keyring::FILE);
        let read = keyring::read_file(&path).map_err(failed)?;
        Ok(read.map(|(text, keyring)| Self { path: Some(path), text, keyring }))
    }

    /// Finds the keyring, or says that there is none.
    fn expect(config: &Config) -> Result<Self, Failure> {
        Self::find(config)?.ok_or_else(|| {
            let path = config.data_dir.join(keyring::FILE);
            Failure::Failed(format!(
                "there is no keyring `{}`; the first start of `throughline serve` creates it, and \
                 `throughline keys recovery restore` puts a lost one back",
                path.display()
            ))
        })
    }

    /// Where it is, for messages.
    fn location(&self) -> String {
        match &self.path {
            Some(path) => format!("`{}`", path.display()),
            None => format!("the variable `{}`", keyring::VARIABLE),
        }
    }
}

fn configuration(explicit: Option<&Path>) -> Result<Config, Failure> {
    load(explicit, Overrides::default())
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Failed(error.to_string())
}

/// A failed read. A database of an earlier version may lack columns.
fn unreadable(error: &StoreError) -> Failure {
    Failure::Failed(format!(
        "{error}: {}; if an earlier version made the database, run `throughline migrate` first",
        error.cause
    ))
}
