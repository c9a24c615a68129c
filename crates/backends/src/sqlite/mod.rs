//! SQLite stores: one file for the thinking memory and the vault, one file for conversations.

mod check;
mod conversations;
mod database;
mod sealed;
mod statements;
mod vault;

use std::path::Path;

use sqlx::migrate::Migrator;
use throughline_conversations::store::{SealedRows, SealedTable};
use throughline_gateway::thinking::store::{Change, Snapshot, Store, StoreError, StoreFuture};

use crate::sql::batch::Batch;
use crate::sql::sealed_rows::SqlSealedRows;
use crate::sql::{error, memory_rows};
pub use check::DatabaseFault;
pub use conversations::SqliteConversations;
use database::Database;
pub use sealed::{newest_sealed, read_fact};
use statements::Statements;
use vault::VaultNames;

static MIGRATIONS: Migrator = sqlx::migrate!("src/sqlite/migrations");

/// The thinking memory and the vault in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteStore {
    database: Database,
    vault_names: VaultNames,
}

impl SqliteStore {
    /// Opens the file. Creates it and its tables if they are missing.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let database = Database::open(path, &MIGRATIONS).await?;
        let vault_names = VaultNames::default();
        vault_names
            .load(&database.readers)
            .await
            .map_err(|cause| error("cannot read the names of the vault", cause))?;
        Ok(Self { database, vault_names })
    }

    /// How many migrations were applied when the file was opened.
    pub fn applied(&self) -> usize {
        self.database.applied
    }

    /// Checks the file without changing it.
    pub async fn check(path: &Path) -> Result<(), DatabaseFault> {
        check::check(path, &MIGRATIONS).await
    }

    /// The sealed values of the vault, read without changing the file.
    pub async fn sealed_rows(path: &Path) -> Result<impl SealedRows + 'static, StoreError> {
        let database = Database::open_read_only(path).await?;
        Ok(SqlSealedRows { database, tables: &[SealedTable::VaultRecord] })
    }

    async fn apply(&self, changes: Vec<Change>) -> Result<(), sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        Statements::of_batch(&Batch::new(changes)).execute(&mut transaction).await?;
        transaction.commit().await
    }
}

impl Store for SqliteStore {
    fn load(&self) -> StoreFuture<'_, Snapshot> {
        Box::pin(async {
            memory_rows::read_snapshot(&self.database.readers)
                .await
                .map_err(|cause| error("cannot read the thinking memory", cause))
        })
    }

    fn write(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.apply(changes)
                .await
                .map_err(|cause| error("cannot write the thinking memory", cause))
        })
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            let written = self.database.check_write().await;
            written.map_err(|cause| error("cannot write the thinking memory", cause))
        })
    }
}
