//! Stored conversations, in a SQLite file of their own.

use std::path::Path;

use sqlx::migrate::Migrator;
use throughline_gateway::thinking::store::StoreError;

use super::check::{self, DatabaseFault};
use super::database::Database;
use crate::sql::conversations::SqlConversations;

static MIGRATIONS: Migrator = sqlx::migrate!("src/sqlite/conversations/migrations");

/// Stored conversations in a SQLite file.
pub type SqliteConversations = SqlConversations<Database>;

impl SqliteConversations {
    /// Opens the file. Creates it and its tables if they are missing.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::new(Database::open(path, &MIGRATIONS).await?))
    }

    /// How many migrations were applied when the file was opened.
    pub fn applied(&self) -> usize {
        self.database.applied
    }

    /// Checks the file without changing it.
    pub async fn check(path: &Path) -> Result<(), DatabaseFault> {
        check::check(path, &MIGRATIONS).await
    }
}
