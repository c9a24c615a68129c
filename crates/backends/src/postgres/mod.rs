//! A Postgres database for everything: the thinking memory, the vault and conversations. Several
//! instances may share it.

mod database;
mod memory;
mod vault;

use std::sync::Arc;

use database::Database;
pub use database::Migrated;
use throughline_conversations::store::{SealedRows, SealedTable};
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;

use crate::sql::conversations::SqlConversations;
use crate::sql::sealed_rows::SqlSealedRows;

/// Stored conversations in a Postgres database.
pub type PostgresConversations = SqlConversations<Database>;

/// All stores in a Postgres database.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    database: Database,
    /// Distinguishes the writes of this instance from those of others.
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

    /// Connects and checks that this version can use the tables, without changing anything. Returns
    /// host and database.
    pub async fn check(url: &str) -> Result<String, StoreError> {
        database::check(url).await
    }

    /// Host and database, and the value of a stored fact, read without changing anything.
    pub async fn read_fact(url: &str, fact: &str) -> Result<(String, Option<String>), StoreError> {
        database::read_fact(url, fact).await
    }

    /// The first bytes of the newest sealed value: a turn in the vault, or a stored response.
    pub async fn newest_sealed(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let newest = sqlx::query_scalar(
            "SELECT substr(sealed, 1, 16) FROM (
                (SELECT sealed, 0 AS place FROM vault_record ORDER BY id DESC LIMIT 1) UNION ALL
                (SELECT sealed, 1 AS place FROM node ORDER BY created DESC LIMIT 1)
             ) AS newest ORDER BY place LIMIT 1",
        );
        let newest = newest.fetch_optional(&self.database.pool);
        self.database.within("cannot find out which key sealed the data", newest).await
    }

    /// The sealed values of all stores, read without changing anything.
    pub async fn sealed_rows(url: &str) -> Result<impl SealedRows + 'static, StoreError> {
        const TABLES: [SealedTable; 11] = {
            let mut tables = [SealedTable::VaultRecord; 11];
            let (first, _) = tables.split_at_mut(SealedTable::CONVERSATIONS.len());
            first.copy_from_slice(&SealedTable::CONVERSATIONS);
            tables
        };
        let database = Database::connect(url).await?;
        Ok(SqlSealedRows { database, tables: &TABLES })
    }

    /// The stored conversations in the same database.
    pub fn conversations(&self) -> PostgresConversations {
        SqlConversations::new(self.database.clone())
    }
}
