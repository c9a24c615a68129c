//! Where the keys come from: the environment, or a file of the data directory that the first start
//! makes. What is sealed with them lives elsewhere.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use throughline_sealing::{Keyring, KeyringParseError};

/// The variable that holds the keys of several instances.
pub const VARIABLE: &str = "THROUGHLINE_KEYRING";

/// The file's name in the data directory.
pub const FILE: &str = "keyring";

/// What there is.
#[derive(Debug)]
pub enum Found {
    /// The keys are in the environment; no file is read or made.
    InEnvironment(Keyring),
    /// They are in the file.
    InFile {
        /// The keys.
        keyring: Keyring,
        /// The file.
        path: PathBuf,
        /// Others than its owner may read or write it.
        open_to_others: bool,
    },
    /// There are none yet.
    Nowhere,
}

/// Why there are no keys.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The variable holds something else.
    #[error(
        "the variable {VARIABLE} holds no keyring: {0}; it takes 32 bytes in base64 (`openssl rand -base64 32` makes some), several separated by commas, the newest first"
    )]
    Variable(KeyringParseError),
    /// The file holds something else.
    #[error(
        "`{path}` holds no keyring: {cause}; put its backup in its place. If there is none, move the file away and the next start makes a new one; what was sealed with the old one stays unreadable then (turns in the vault, envelopes that clients send back)"
    )]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with it.
        cause: String,
    },
    /// The file cannot be read.
    #[error(
        "cannot read the keyring `{path}`: {cause}; let the user that runs throughline read it, or give the keys in the variable {VARIABLE}"
    )]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file cannot be made.
    #[error(
        "cannot make the keyring `{path}`: {cause}; see that the data directory can be written, or give the keys in the variable {VARIABLE}"
    )]
    NotMade {
        /// The file.
        path: String,
        /// What the system said.
        cause: std::io::Error,
    },
}

/// The keys to run with. Makes the file if there are none.
pub fn take(data_dir: &Path, variable: Option<&OsStr>) -> Result<Keyring, Trouble> {
    match look(data_dir, variable)? {
        Found::InEnvironment(keyring) => {
            tracing::debug!("keyring read from {VARIABLE}");
            Ok(keyring)
        }
        Found::InFile { keyring, path, open_to_others } => {
            if open_to_others {
                let path = path.display();
                tracing::warn!(
                    "the keyring `{path}` is open to other users of this machine; `chmod 600 {path}` closes it"
                );
            }
            Ok(keyring)
        }
        Found::Nowhere => {
            let path = data_dir.join(FILE);
            let keyring = make(&path)
                .map_err(|cause| Trouble::NotMade { path: path.display().to_string(), cause })?;
            tracing::info!(
                "keyring made: `{}`; a backup of the data directory needs it",
                path.display()
            );
            Ok(keyring)
        }
    }
}

/// Looks for the keys and makes nothing.
pub fn look(data_dir: &Path, variable: Option<&OsStr>) -> Result<Found, Trouble> {
    if let Some(value) = variable {
        // Characters that are no text are no base64 either.
        let keyring = Keyring::read(&value.to_string_lossy()).map_err(Trouble::Variable)?;
        return Ok(Found::InEnvironment(keyring));
    }
    let path = data_dir.join(FILE);
    let shown = || path.display().to_string();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(cause) => match cause.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => return Ok(Found::Nowhere),
            ErrorKind::InvalidData => {
                return Err(Trouble::Malformed { path: shown(), cause: "it is not text".into() });
            }
            _ => {
                return Err(Trouble::Unreadable { path: shown(), cause });
            }
        },
    };
    let keyring = Keyring::read(&text)
        .map_err(|cause| Trouble::Malformed { path: shown(), cause: cause.to_string() })?;
    Ok(Found::InFile { keyring, open_to_others: open_to_others(&path), path })
}

/// Makes a file that was not there, for its owner alone. It is whole and on the disk before
/// anything is sealed with it.
fn make(path: &Path) -> std::io::Result<Keyring> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| std::io::Error::other(error.to_string()))?;
    let keyring = Keyring::new(secret);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    let written = file.write_all(keyring.write().as_bytes()).and_then(|()| file.sync_all());
    if let Err(error) = written {
        // Nothing was sealed with it yet, so the next start may begin anew.
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    if let Some(folder) = path.parent() {
        // Not every system can do this to a folder; the file itself is safe.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
    Ok(keyring)
}

#[cfg(unix)]
fn open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn open_to_others(_path: &Path) -> bool {
    false
}
