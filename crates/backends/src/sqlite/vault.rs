//! The vault, in the file of the thinking memory: sealed records, and the names by which they are found.

use std::sync::Arc;

use sqlx::{Row, Sqlite, Transaction};
use throughline_gateway::thinking::store::StoreFuture;
use throughline_gateway::thinking::vault::{Record, VaultKey, VaultStore};

use super::{BEGIN, SqliteStore, error, signed};

/// Bytes of a name.
const NAME_LENGTH: usize = 16;

impl SqliteStore {
    async fn insert(&self, records: Vec<Arc<Record>>) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin_with(BEGIN).await?;
        for record in records {
            insert(&mut transaction, &record).await?;
        }
        transaction.commit().await
    }

    async fn find(&self, name: VaultKey) -> Result<Option<Record>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT names, sealed FROM vault_name JOIN vault_record ON id = record WHERE name = ?",
        )
        .bind(name.0.to_vec())
        .fetch_optional(&self.pool)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let (names, rest) = row.try_get::<&[u8], _>("names")?.as_chunks::<NAME_LENGTH>();
        if !rest.is_empty() {
            return Err(sqlx::Error::Decode(
                "the length of `names` is not a multiple of a name's length".into(),
            ));
        }
        Ok(Some(Record {
            keys: names.iter().copied().map(VaultKey).collect(),
            sealed: row.try_get("sealed")?,
        }))
    }

    async fn remove_oldest(&self, bytes: i64, records: i64) -> Result<(), sqlx::Error> {
        let mut transaction = self.pool.begin_with(BEGIN).await?;
        let total = sqlx::query("SELECT records, bytes FROM vault_total")
            .fetch_one(&mut *transaction)
            .await?;
        let mut excess_records = total.try_get::<i64, _>("records")? - records;
        let mut excess_bytes = total.try_get::<i64, _>("bytes")? - bytes;
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
        transaction.commit().await
    }
}

impl VaultStore for SqliteStore {
    fn write(&self, records: Vec<Arc<Record>>) -> StoreFuture<'_, ()> {
        Box::pin(async {
            self.insert(records).await.map_err(|cause| error("cannot write the vault", cause))
        })
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

/// Inserts a record and moves its names to it.
async fn insert(
    transaction: &mut Transaction<'_, Sqlite>,
    record: &Record,
) -> Result<(), sqlx::Error> {
    let names: Vec<u8> = record.keys.iter().flat_map(|name| name.0).collect();
    let id = sqlx::query("INSERT INTO vault_record (names, size, sealed) VALUES (?, ?, ?)")
        .bind(names)
        .bind(signed(record.size() as u64))
        .bind(&record.sealed)
        .execute(&mut **transaction)
        .await?
        .last_insert_rowid();
    for name in &record.keys {
        let name = name.0.to_vec();
        let previous = sqlx::query("SELECT record FROM vault_name WHERE name = ?")
            .bind(name.clone())
            .fetch_optional(&mut **transaction)
            .await?;
        sqlx::query("REPLACE INTO vault_name (name, record) VALUES (?, ?)")
            .bind(name)
            .bind(id)
            .execute(&mut **transaction)
            .await?;
        let Some(previous) = previous else { continue };
        // A record without names can no longer be found.
        sqlx::query(
            "DELETE FROM vault_record WHERE id = ?
             AND NOT EXISTS (SELECT 1 FROM vault_name WHERE record = vault_record.id)",
        )
        .bind(previous.try_get::<i64, _>("record")?)
        .execute(&mut **transaction)
        .await?;
    }
    Ok(())
}
