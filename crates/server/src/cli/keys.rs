//! The options of `keys`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The commands about keys.
#[derive(Debug, Subcommand)]
pub enum Keys {
    /// Show the keys of the keyring, how much each has sealed, and how many projects are sealed.
    ///
    /// Reads the first bytes of each row, which name its key, and opens nothing. May run beside a
    /// server.
    #[command(after_help = "Example:\n\n  throughline keys status --config throughline.toml")]
    Status(KeysConfig),
    /// Make a new key the one that seals. Nothing is sealed again, and old keys still open.
    ///
    /// Puts the new key in front of the file `keyring` in the data directory. A running server seals
    /// with it after its next restart. Make a new recovery backup afterwards.
    #[command(after_help = ROTATE_EXAMPLES)]
    Rotate(KeysConfig),
    /// Back the keyring up under a recovery code, check such a backup, or restore it.
    ///
    /// Without its keyring a server cannot read managed projects, stored responses and the vault, and
    /// a keyring beside the database in a backup protects nothing. The backup file is sealed under a
    /// code that you write down: it can lie beside the database.
    ///
    /// This is not for users: a user who forgot the passphrase has a recovery code of his own, and the
    /// key of a sealed project is never here.
    #[command(subcommand, after_help = RECOVERY_EXAMPLES)]
    Recovery(Recovery),
    /// Open every sealed row of the databases, and report each one that is damaged.
    ///
    /// Reads projects with their titles, nodes, providers' replies, runs and their logs, stored
    /// responses and the vault. Changes nothing, does not stop at damage, and may run beside a server.
    /// Exits with 1 if a row is damaged.
    #[command(after_help = VERIFY_EXAMPLES)]
    Verify(Verify),
}

const ROTATE_EXAMPLES: &str = "\
Examples:

  throughline keys rotate
  throughline keys recovery create --out keyring-backup

With THROUGHLINE_KEYRING, which several instances share, nothing is written. The command prints two
values for the variable. Set the first one on all instances: the new key opens and does not seal yet.
When all have been restarted, set the second one: the new key seals.";

const RECOVERY_EXAMPLES: &str = "\
Examples:

  throughline keys recovery create --out keyring-backup     prints the code once: write it down
  throughline keys recovery check keyring-backup            asks for the code; changes nothing
  throughline keys recovery restore keyring-backup          puts missing keys back

The code is read from THROUGHLINE_RECOVERY_CODE, or from standard input.";

const VERIFY_EXAMPLES: &str = "\
Examples:

  throughline keys verify
  throughline keys verify --chat-keys keys.txt
  throughline keys verify --keyring restored/keyring --json

Each damaged value is one line on standard output: its table, its row, its field, and the reason.

The server has no key of a sealed project. Without it, only the outside of a row can be judged: whether
it is complete and names a key that the project has had. Such rows are counted as not judged. To judge
them too, write the chat keys of the projects into a file, one per line in base64url.";

/// The configuration of a command.
#[derive(Debug, Args)]
pub struct KeysConfig {
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The commands about backups of the keyring.
#[derive(Debug, Subcommand)]
pub enum Recovery {
    /// Write a backup of the keyring, and print the new recovery code that opens it.
    Create {
        /// The file to write. It must not exist.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
        /// The configuration file.
        #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Open a backup, and compare it with the keyring. Exits with 1 if it lacks a key.
    Check(Backup),
    /// Put the keys of a backup back into the keyring. Keys that are there stay.
    ///
    /// With THROUGHLINE_KEYRING nothing is written: the value for the variable is printed.
    Restore(Backup),
}

/// A backup of the keyring.
#[derive(Debug, Args)]
pub struct Backup {
    /// The backup.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The configuration file.
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
}

/// Options of `keys verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The configuration, and how to print.
    #[command(flatten)]
    pub config: KeysConfig,
    /// Another keyring than the configured one, such as a restored copy.
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<PathBuf>,
    /// Keys of sealed projects, in base64url, one per line. `-` reads them from stdin.
    #[arg(long, value_name = "FILE")]
    pub chat_keys: Option<PathBuf>,
}
