//! The vault, in the file of the thinking memory: sealed records, and the names by which they are found.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use sqlx::{QueryBuilder, Row, SqliteConnection, SqlitePool};
use throughline_gateway::thinking::store::StoreFuture;
use throughline_gateway::thinking::vault::{Record, VaultKey, VaultStore};

use super::SqliteStore;
use super::statements::Statements;
use crate::sql::{error, memory_rows, signed};

/// How many records are inserted together.
const MAX_RECORDS: usize = 200;
/// How many names are kept in RAM for each record that the vault may hold. Above this, most are
/// names of removed records.
const MAX_NAMES_PER_RECORD: i64 = 4;
/// How many names are read together.
const NAMES_PER_READ: i64 = 5000;

/// All names in the table, by their first half. Most lookups are for turns that were never stored;
/// they need no query. Names of removed records stay in the set until it is loaded again.
#[derive(Clone, Debug, Default)]
pub(super) struct VaultNames(Arc<Mutex<HashSet<u64>>>);

impl VaultNames {
    pub(super) async fn load(&self, pool: &SqlitePool) -> Result<(), sqlx::Error> {
        let mut names = HashSet::new();
        let mut last: Vec<u8> = Vec::new();
        loop {
            let page = "SELECT name FROM vault_name WHERE name > ? ORDER BY name LIMIT ?";
            let page = sqlx::query_scalar::<_, Vec<u8>>(page).bind(&last).bind(NAMES_PER_READ);
            let page = page.fetch_all(pool).await?;
            names.extend(page.iter().filter_map(|name| half(name)));
            let Some(end) = page.last() else { break };
            last.clone_from(end);
        }
        *self.0.lock() = names;
        Ok(())
    }

    fn add<'a>(&self, added: impl Iterator<Item = &'a VaultKey>) {
        self.0.lock().extend(added.filter_map(|name| half(&name.0)));
    }

    fn has(&self, name: &VaultKey) -> bool {
        half(&name.0).is_some_and(|half| self.0.lock().contains(&half))
    }
}

fn half(name: &[u8]) -> Option<u64> {
    name.first_chunk().copied().map(u64::from_ne_bytes)
}

impl SqliteStore {
    async fn insert(&self, records: Vec<Arc<Record>>) -> Result<(), sqlx::Error> {
        self.vault_names.add(records.iter().flat_map(|record| &record.keys));
        let mut transaction = self.database.begin().await?;
        for records in records.chunks(MAX_RECORDS) {
            insert(&mut transaction, records).await?;
        }
        transaction.commit().await
    }

    async fn find(&self, name: VaultKey) -> Result<Option<Record>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT names, sealed FROM vault_name JOIN vault_record ON id = record WHERE name = ?",
        )
        .bind(&name.0[..])
        .fetch_optional(&self.database.readers)
        .await?;
        row.as_ref().map(memory_rows::record).transpose()
    }

    async fn remove_oldest(&self, bytes: i64, records: i64) -> Result<(), sqlx::Error> {
        let excess = "SELECT records - ?, bytes - ? FROM vault_total";
        let excess = sqlx::query_as::<_, (i64, i64)>(excess).bind(records).bind(bytes);
        let (mut excess_records, mut excess_bytes) =
            excess.fetch_one(&self.database.readers).await?;
        if excess_records <= 0 && excess_bytes <= 0 {
            return Ok(());
        }
        let mut transaction = self.database.begin().await?;
        while excess_records > 0 || excess_bytes > 0 {
            let oldest = sqlx::query("SELECT id, size FROM vault_record ORDER BY id LIMIT 100")
                .fetch_all(&mut *transaction)
                .await?;
            let mut last = None;
            for row in &oldest {
                if excess_records <= 0 && excess_bytes <= 0 {
                    break;
                }
                last = Some(row.try_get::<i64, _>("id")?);
                excess_records -= 1;
                excess_bytes -= row.try_get::<i64, _>("size")?;
            }
            let Some(last) = last else { break };
            sqlx::query("DELETE FROM vault_record WHERE id <= ?")
                .bind(last)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        let names = self.vault_names.0.lock().len() as i64;
        match names > records.saturating_mul(MAX_NAMES_PER_RECORD) {
            true => self.vault_names.load(&self.database.readers).await,
            false => Ok(()),
        }
    }
}

impl VaultStore for SqliteStore {
    fn write(&self, records: Vec<Arc<Record>>) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.insert(records).await.map_err(|cause| error("cannot write the vault", cause))
        })
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(async {
            let written = self.database.check_write().await;
            written.map_err(|cause| error("cannot write the vault", cause))
        })
    }

    fn may_have(&self, name: &VaultKey) -> bool {
        self.vault_names.has(name)
    }

    fn read(&self, name: VaultKey) -> StoreFuture<'_, Option<Record>> {
        Box::pin(async move {
            self.find(name).await.map_err(|cause| error("cannot read the vault", cause))
        })
    }

    fn trim(&self, bytes: usize, records: usize) -> StoreFuture<'_, ()> {
        let (bytes, records) = (signed(bytes as u64), signed(records as u64));
        Box::pin(async move {
            self.remove_oldest(bytes, records)
                .await
                .map_err(|cause| error("cannot remove old records from the vault", cause))
        })
    }
}

/// Inserts records and moves their names to them.
async fn insert(to: &mut SqliteConnection, records: &[Arc<Record>]) -> Result<(), sqlx::Error> {
    // Ids rise, so that the lowest is the oldest.
    let last = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'vault_record'";
    let last: i64 = sqlx::query_scalar(last).fetch_one(&mut *to).await?;
    let names: BTreeMap<VaultKey, i64> = (last + 1..)
        .zip(records)
        .flat_map(|(id, record)| record.keys.iter().map(move |name| (*name, id)))
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let mut previous = QueryBuilder::new("SELECT DISTINCT record FROM vault_name WHERE name IN ");
    previous.push_tuples(names.keys(), |mut row, name| {
        row.push_bind(&name.0[..]);
    });
    let previous = previous.build_query_scalar().persistent(false);
    let previous: Vec<i64> = previous.fetch_all(&mut *to).await?;
    insert_statements(last, records, &names, &previous).execute(to).await
}

fn insert_statements(
    last: i64,
    records: &[Arc<Record>],
    names: &BTreeMap<VaultKey, i64>,
    previous: &[i64],
) -> Statements {
    let mut statements = Statements::default();
    // A record without names can no longer be found.
    let has_name =
        |id: i64, record: &Record| record.keys.iter().any(|name| names.get(name) == Some(&id));
    let records = (last + 1..).zip(records).filter(|(id, record)| has_name(*id, record));
    statements.replace("vault_record (id, names, size, sealed)", records, |row, (id, record)| {
        row.push_bind(id)
            .push_bind(memory_rows::joined_names(record))
            .push_bind(signed(record.size() as u64))
            .push_bind(&record.sealed);
    });
    statements.replace("vault_name (name, record)", names.iter(), |row, (name, id)| {
        row.push_bind(&name.0[..]).push_bind(*id);
    });
    let unnamed = "vault_record WHERE NOT EXISTS \
                   (SELECT 1 FROM vault_name WHERE record = vault_record.id) AND id";
    statements.delete(unnamed, previous.iter().copied());
    statements
}
