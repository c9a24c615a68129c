//! Loads the keyring from the environment, or from a file in the data directory that the first start
//! creates. A data directory with sealed data has seen its first start: without the key that sealed
//! them, the keyring is lost.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use throughline_codec::dialects::timestamp;
use throughline_gateway::thinking::random::{self, NoRandomness};
use throughline_gateway::unix_ms;
use throughline_sealing::{KeyId, Keyring, KeyringParseError};
use zeroize::Zeroizing;

use crate::data_dir::is_open_to_others;

/// The environment variable for a keyring that several instances share.
pub const VARIABLE: &str = "THROUGHLINE_KEYRING";

/// The name of the file in the data directory.
pub const FILE: &str = "keyring";

/// The stored fact that names the newest key, so that its loss is noticed.
pub const FACT: &str = "sealing_key";

/// The start of the comment that says when a key was made.
const MADE: &str = "made";

/// Where a keyring was found.
#[derive(Debug)]
pub enum Found {
    /// In the environment; then no file is read or created.
    InEnvironment(Keyring),
    /// In the file.
    InFile {
        /// The keyring.
        keyring: Keyring,
        /// The file.
        path: PathBuf,
        /// Whether other users may read or write the file.
        is_open_to_others: bool,
    },
    /// There is none yet.
    Missing,
}

/// Why the keyring cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum KeyringError {
    /// The variable does not hold a keyring.
    #[error(
        "the variable `{VARIABLE}` is not a valid keyring: {0}; set it to 32 bytes in base64 (`openssl rand -base64 32`), or to several such keys separated by commas, newest first"
    )]
    Variable(KeyringParseError),
    /// The file does not hold a keyring.
    #[error(
        "`{path}` is not a valid keyring: {cause}; restore it from a backup. Without a backup, move the file away and start once with `--new-keyring`: this creates a new keyring, which cannot read what was sealed with the old one (stored responses, turns in the vault, envelopes that clients send back)"
    )]
    Malformed {
        /// The file.
        path: String,
        /// What is wrong with the file.
        cause: String,
    },
    /// The file cannot be read.
    #[error(
        "cannot read the keyring `{path}`: {cause}; allow the user that runs throughline to read it, or set the variable `{VARIABLE}`"
    )]
    Unreadable {
        /// The file.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// There is sealed data, and the key that sealed it is not there.
    #[error(
        "{what}, and the data in {location} is sealed with it (stored responses, turns in the vault); restore the keyring from a backup, or set the variable `{VARIABLE}`. If it is lost, start once with `--new-keyring`: clients then have to send their conversations again, and thinking that was sealed stays unreadable"
    )]
    Lost {
        /// What is missing.
        what: String,
        /// Where the data is.
        location: String,
    },
    /// The file cannot be created.
    #[error(
        "cannot create the keyring `{path}`: {cause}; make the data directory writable, or set the variable `{VARIABLE}`"
    )]
    NotCreated {
        /// The file.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
}

impl Found {
    /// Why this is not the keyring of the data. `last` is the key that sealed the data in `location`.
    pub fn check_lost(
        &self,
        data_dir: &Path,
        location: &str,
        last: Option<KeyId>,
    ) -> Result<(), KeyringError> {
        let Some(last) = last else {
            return Ok(());
        };
        let file = data_dir.join(FILE);
        let file = file.display();
        let what = match self {
            Self::InEnvironment(keyring) | Self::InFile { keyring, .. }
                if keyring.contains(last) =>
            {
                return Ok(());
            }
            Self::InEnvironment(_) => format!("the variable `{VARIABLE}` lacks the last key"),
            Self::InFile { .. } => format!("the keyring `{file}` lacks the last key"),
            Self::Missing => format!("the keyring `{file}` is missing"),
        };
        Err(KeyringError::Lost { what, location: location.to_owned() })
    }
}

/// Writes the id of a key as text.
pub fn write_id(id: KeyId) -> String {
    format!("{:08x}", u32::from_be_bytes(id))
}

/// Reads the id of a key.
pub fn read_id(text: &str) -> Option<KeyId> {
    u32::from_str_radix(text, 16).ok().map(u32::to_be_bytes)
}

/// Loads the keyring. Creates the file if there is none. Fails if the data in a location is sealed with a
/// key that is not there, unless the operator says so with `accept_loss`.
pub fn load_or_create(
    data_dir: &Path,
    variable: Option<&OsStr>,
    accept_loss: bool,
    (location, last): (&str, Option<KeyId>),
) -> Result<Keyring, KeyringError> {
    let found = find(data_dir, variable)?;
    match found.check_lost(data_dir, location, last) {
        Err(lost) if accept_loss => tracing::warn!("continuing without the lost keyring: {lost}"),
        checked => checked?,
    }
    match found {
        Found::InEnvironment(keyring) => {
            tracing::debug!("keyring loaded from {VARIABLE}");
            Ok(keyring)
        }
        Found::InFile { keyring, path, is_open_to_others } => {
            if is_open_to_others {
                let path = path.display();
                tracing::warn!(
                    "other users of this machine can read the keyring `{path}`; run `chmod 600 {path}`"
                );
            }
            Ok(keyring)
        }
        Found::Missing => {
            let path = data_dir.join(FILE);
            let keyring = create(&path).map_err(|cause| KeyringError::NotCreated {
                path: path.display().to_string(),
                cause,
            })?;
            tracing::info!(
                "keyring created: `{}`; include it in backups of the data directory",
                path.display()
            );
            Ok(keyring)
        }
    }
}

/// Looks for the keyring and creates nothing.
pub fn find(data_dir: &Path, variable: Option<&OsStr>) -> Result<Found, KeyringError> {
    if let Some(value) = variable {
        // Bytes that are not UTF-8 are not base64 either, so the replacement loses nothing.
        let keyring = Keyring::read(&value.to_string_lossy()).map_err(KeyringError::Variable)?;
        return Ok(Found::InEnvironment(keyring));
    }
    let path = data_dir.join(FILE);
    match read_file(&path)? {
        Some((_, keyring)) => {
            Ok(Found::InFile { keyring, is_open_to_others: is_open_to_others(&path), path })
        }
        None => Ok(Found::Missing),
    }
}

/// Reads a file with a keyring: its text, and its keys. `None` if there is no such file.
pub fn read_file(path: &Path) -> Result<Option<(Zeroizing<String>, Keyring)>, KeyringError> {
    let shown = || path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(cause) => match cause.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => return Ok(None),
            ErrorKind::InvalidData => {
                return Err(KeyringError::Malformed {
                    path: shown(),
                    cause: "not UTF-8 text".into(),
                });
            }
            _ => {
                return Err(KeyringError::Unreadable { path: shown(), cause });
            }
        },
    };
    let keyring = Keyring::read(&text)
        .map_err(|cause| KeyringError::Malformed { path: shown(), cause: cause.to_string() })?;
    Ok(Some((text, keyring)))
}

/// When each key of a text was made, by the comments of its lines. The same order as the keys.
pub fn made(text: &str) -> Vec<Option<String>> {
    let lines = text.lines().map(|line| line.split_once('#').unwrap_or((line, "")));
    let times = lines.flat_map(|(keys, comment)| {
        let keys = keys.split(',').filter(|key| !key.trim().is_empty());
        keys.map(|_| comment.trim().strip_prefix(MADE).map(|time| time.trim().to_owned()))
    });
    times.collect()
}

/// A line with a new key.
pub fn new_line() -> Result<Zeroizing<String>, NoRandomness> {
    let key = Keyring::new(random::secret()?).write();
    let time = timestamp::write(unix_ms() / 1000);
    Ok(Zeroizing::new(format!("{} # {MADE} {time}\n", key.trim())))
}

/// Replaces the file, all or nothing. Fails if another process is doing the same.
pub fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    write_new(&new, text)?;
    std::fs::rename(&new, path)?;
    sync_folder(path);
    Ok(())
}

/// Creates the file. It is complete and on disk before anything is sealed with it.
fn create(path: &Path) -> std::io::Result<Keyring> {
    let line = new_line().map_err(std::io::Error::other)?;
    write_new(path, &line)?;
    sync_folder(path);
    Keyring::read(&line).map_err(std::io::Error::other)
}

/// Writes a file that does not exist yet, readable for its owner only.
pub fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(path)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if written.is_err() {
        // Nothing was sealed with it yet, so the next try may write another one.
        let _ = std::fs::remove_file(path);
    }
    written
}

fn sync_folder(path: &Path) {
    if let Some(folder) = path.parent() {
        // Not every system can sync a directory. The file itself is on disk.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
    }
}
