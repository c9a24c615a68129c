//! Checks database files without changing them, for `throughline doctor`.

use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, Row, SqliteConnection};

/// SQLite's error codes for a damaged file: `SQLITE_CORRUPT` and `SQLITE_NOTADB`.
const DAMAGED: [u32; 2] = [11, 26];

/// What is wrong with a database file.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseFault {
    /// The file is damaged.
    #[error("it is damaged: {0}")]
    Corrupt(String),
    /// A newer version of the program wrote it.
    #[error("a newer version of throughline wrote it (format {found}, this version knows {known})")]
    Newer {
        /// The format of the file.
        found: i64,
        /// The newest format that this version knows.
        known: i64,
    },
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(sqlx::Error),
}

impl From<sqlx::Error> for DatabaseFault {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        // Only the lowest byte is the kind of error.
        let code = code.and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff);
        match code {
            Some(code) if DAMAGED.contains(&code) => Self::Corrupt(error.to_string()),
            _ => Self::Unreadable(error),
        }
    }
}

/// Checks a file whose tables these migrations create.
pub(super) async fn check(path: &Path, migrations: &Migrator) -> Result<(), DatabaseFault> {
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = options.connect().await?;
    let result = check_connection(&mut connection, migrations).await;
    connection.close().await?;
    result
}

async fn check_connection(
    connection: &mut SqliteConnection,
    migrations: &Migrator,
) -> Result<(), DatabaseFault> {
    let found = sqlx::query("PRAGMA quick_check(1)").fetch_one(&mut *connection).await?;
    let found: String = found.try_get(0)?;
    if found != "ok" {
        return Err(DatabaseFault::Corrupt(found));
    }
    let table = "SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'";
    if sqlx::query(table).fetch_optional(&mut *connection).await?.is_none() {
        return Ok(());
    }
    let found = sqlx::query("SELECT max(version) FROM _sqlx_migrations").fetch_one(connection);
    let found: Option<i64> = found.await?.try_get(0)?;
    let known = migrations.iter().map(|migration| migration.version).max().unwrap_or_default();
    match found {
        Some(found) if found > known => Err(DatabaseFault::Newer { found, known }),
        _ => Ok(()),
    }
}
