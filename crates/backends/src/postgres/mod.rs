//! A Postgres database for everything: the thinking memory, the vault and conversations. Several
//! instances may share it.

mod database;
mod memory;
mod vault;

use std::sync::Arc;

use database::Database;
pub use database::Migrated;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;

use crate::sql::conversations::SqlConversations;

/// Stored conversations in a Postgres database.
pub type PostgresConversations = SqlConversations<Database>;

/// All stores in a Postgres database.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    database: Database,
    /// Tells what this instance wrote from what others wrote.
    writer: Arc<str>,
}

impl PostgresStore {
    /// Connects to the database. Creates the tables if they are missing.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Ok(Self::migrate(url).await?.0)
    }

    /// Like [`PostgresStore::open`], and says what has changed.
    pub async fn migrate(url: &str) -> Result<(Self, Migrated), StoreError> {
        let (database, migrated) = Database::open(url).await?;
        Ok((Self { database, writer: random::id().into() }, migrated))
    }

    /// The stored conversations in the same database.
    pub fn conversations(&self) -> PostgresConversations {
        SqlConversations::new(self.database.clone())
    }
}
