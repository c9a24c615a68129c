//! Stored conversations, in a SQLite file of their own.

use std::path::Path;

use sqlx::migrate::Migrator;
use throughline_conversations::store::{SealedRows, SealedTable};
use throughline_gateway::thinking::store::StoreError;

use super::check::{self, DatabaseFault};
use super::database::Database;
use crate::sql::conversations::SqlConversations;
use crate::sql::sealed_rows::SqlSealedRows;

static MIGRATIONS: Migrator = sqlx::migrate!("src/sqlite/conversations/migrations");

/// Stored conversations in a SQLite file.
pub type SqliteConversations = SqlConversations<Database>;

impl SqliteConversations {
    /// Opens the file. Creates it and its tables if they are missing.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self::new(Database::open(path, &MIGRATIONS).await?))
    }

    /// The sealed values of the file, read without changing it.
    pub async fn sealed_rows(path: &Path) -> Result<impl SealedRows + 'static, StoreError> {
        let database = Database::open_read_only(path).await?;
        Ok(SqlSealedRows { database, tables: &SealedTable::CONVERSATIONS })
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
