//! SQLite stores: one file for the thinking memory and the vault, one file for conversations.

mod batch;
mod check;
mod conversations;
mod database;
mod sealed;
mod vault;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sqlx::Row;
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteRow;
use throughline_canonical::{BlockKey, Origin, Prefix};
use throughline_gateway::thinking::store::{
    BlockStatus, Change, Snapshot, Store, StoreError, StoreFuture, StoredBlock, StoredSession,
};
use throughline_gateway::thinking::{LineageId, SessionTag};

use crate::sql::{error, unsigned};
use batch::Batch;
pub use check::DatabaseFault;
pub use conversations::SqliteConversations;
use database::Database;
pub use sealed::{newest_sealed, read_fact};
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

    /// Checks the file without changing it.
    pub async fn check(path: &Path) -> Result<(), DatabaseFault> {
        check::check(path, &MIGRATIONS).await
    }

    async fn read(&self) -> Result<Snapshot, sqlx::Error> {
        let origins = self.read_origins().await?;
        let mut snapshot =
            Snapshot { blocks: self.read_blocks(&origins).await?, ..Snapshot::default() };
        self.read_lineages(&mut snapshot).await?;
        for row in
            sqlx::query("SELECT name, value FROM fact").fetch_all(&self.database.readers).await?
        {
            snapshot.facts.insert(row.try_get("name")?, row.try_get("value")?);
        }
        Ok(snapshot)
    }

    async fn read_origins(&self) -> Result<HashMap<i64, Arc<Origin>>, sqlx::Error> {
        let mut origins = HashMap::new();
        for row in sqlx::query("SELECT id, domain, backend, model, credential FROM origin")
            .fetch_all(&self.database.readers)
            .await?
        {
            let origin = Origin {
                domain: row.try_get("domain")?,
                backend: row.try_get("backend")?,
                model: row.try_get("model")?,
                credential: row.try_get("credential")?,
            };
            origins.insert(row.try_get("id")?, Arc::new(origin));
        }
        Ok(origins)
    }

    async fn read_blocks(
        &self,
        origins: &HashMap<i64, Arc<Origin>>,
    ) -> Result<Vec<StoredBlock>, sqlx::Error> {
        let mut blocks = Vec::new();
        for row in
            sqlx::query("SELECT key, origin, cut, prefix, dropped, accepted, refused FROM block")
                .fetch_all(&self.database.readers)
                .await?
        {
            let origin: Option<i64> = row.try_get("origin")?;
            blocks.push(StoredBlock {
                key: BlockKey(bytes(&row, "key")?),
                origin: origin.and_then(|id| origins.get(&id).cloned()),
                cut: row.try_get("cut")?,
                prefix: prefix(&row, "prefix")?,
                dropped: prefix(&row, "dropped")?,
                accepted: names(row.try_get::<&str, _>("accepted")?),
                refused: names(row.try_get::<&str, _>("refused")?),
            });
        }
        Ok(blocks)
    }

    /// Reads the lineages, their sessions, and the blocks of each lineage.
    async fn read_lineages(&self, snapshot: &mut Snapshot) -> Result<(), sqlx::Error> {
        for row in
            sqlx::query("SELECT lineage, key, session, confirmed, registered, gone FROM standing")
                .fetch_all(&self.database.readers)
                .await?
        {
            let standing = BlockStatus {
                session: unsigned(row.try_get("session")?),
                confirmed: row.try_get("confirmed")?,
                registered: unsigned(row.try_get("registered")?),
                gone: row.try_get("gone")?,
            };
            snapshot.statuses.push((
                LineageId(bytes(&row, "lineage")?),
                BlockKey(bytes(&row, "key")?),
                standing,
            ));
        }
        for row in sqlx::query("SELECT id, mark, used FROM lineage")
            .fetch_all(&self.database.readers)
            .await?
        {
            snapshot.lineages.push((
                LineageId(bytes(&row, "id")?),
                SessionTag(bytes(&row, "mark")?),
                unsigned(row.try_get("used")?),
            ));
        }
        for row in sqlx::query("SELECT id, session, backend FROM mark")
            .fetch_all(&self.database.readers)
            .await?
        {
            let backend: String = row.try_get("backend")?;
            let session = StoredSession {
                session: unsigned(row.try_get("session")?),
                backend: backend.into(),
            };
            snapshot.sessions.push((SessionTag(bytes(&row, "id")?), session));
        }
        Ok(())
    }

    async fn apply(&self, changes: Vec<Change>) -> Result<(), sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        Batch::new(changes).statements().execute(&mut transaction).await?;
        transaction.commit().await
    }
}

impl Store for SqliteStore {
    fn load(&self) -> StoreFuture<'_, Snapshot> {
        Box::pin(async {
            self.read().await.map_err(|cause| error("cannot read the thinking memory", cause))
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

fn bytes<const N: usize>(row: &SqliteRow, column: &str) -> Result<[u8; N], sqlx::Error> {
    let bytes: Vec<u8> = row.try_get(column)?;
    bytes
        .try_into()
        .map_err(|_| sqlx::Error::Decode(format!("`{column}` does not have {N} bytes").into()))
}

fn prefix(row: &SqliteRow, column: &str) -> Result<Option<Prefix>, sqlx::Error> {
    let bytes: Option<Vec<u8>> = row.try_get(column)?;
    Ok(bytes.and_then(|bytes| Some(Prefix(bytes.try_into().ok()?))))
}

/// Splits backend names, which are stored one per line.
fn names(lines: &str) -> Vec<Arc<str>> {
    lines.lines().map(Into::into).collect()
}
