//! The vault in Postgres: sealed records, and the names by which they are found.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::{PgConnection, Row};
use throughline_gateway::thinking::store::StoreFuture;
use throughline_gateway::thinking::vault::{Record, VaultKey, VaultStore};

use super::PostgresStore;
use crate::sql::memory_rows as rows;
use crate::sql::signed;

const READ: &str = "cannot read the vault";
const WRITE: &str = "cannot write the vault";
const TRIM: &str = "cannot remove old records from the vault";

/// How many records are removed together.
const MAX_REMOVED: i64 = 100;

impl PostgresStore {
    async fn insert(&self, records: Vec<Arc<Record>>) -> Result<(), sqlx::Error> {
        let mut transaction = self.database.pool.begin().await?;
        insert(&mut transaction, &records).await?;
        transaction.commit().await
    }

    async fn read_record(&self, name: VaultKey) -> Result<Option<Record>, sqlx::Error> {
        let row = sqlx::query(
            "SELECT names, sealed FROM vault_name JOIN vault_record ON id = record WHERE name = $1",
        )
        .bind(&name.0[..])
        .fetch_optional(&self.database.pool)
        .await?;
        row.as_ref().map(rows::record).transpose()
    }

    /// A record that several of the keys find is sent once.
    async fn read_records(
        &self,
        keys: &[VaultKey],
    ) -> Result<Vec<(VaultKey, Record)>, sqlx::Error> {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key.0[..]).collect();
        let rows = sqlx::query(
            "SELECT array_agg(name) AS found, names, sealed
             FROM vault_name JOIN vault_record ON id = record WHERE name = ANY($1) GROUP BY id",
        )
        .bind(keys)
        .fetch_all(&self.database.pool)
        .await?;
        let mut records = Vec::with_capacity(rows.len());
        for row in &rows {
            let record = rows::record(row)?;
            let found: Vec<Vec<u8>> = row.try_get("found")?;
            let found = found.into_iter().filter_map(|key| key.try_into().ok());
            records.extend(found.map(|key| (VaultKey(key), record.clone())));
        }
        Ok(records)
    }

    async fn remove_oldest(&self, bytes: i64, records: i64) -> Result<(), sqlx::Error> {
        let excess = "SELECT records - $1, bytes - $2 FROM vault_total";
        let excess = || sqlx::query_as::<_, (i64, i64)>(excess).bind(records).bind(bytes);
        let (excess_records, excess_bytes) = excess().fetch_one(&self.database.pool).await?;
        if excess_records <= 0 && excess_bytes <= 0 {
            return Ok(());
        }
        let mut transaction = self.database.pool.begin().await?;
        // Two instances must not remove twice as much.
        sqlx::query("SELECT 1 FROM vault_total FOR UPDATE").execute(&mut *transaction).await?;
        loop {
            let (mut records, mut bytes) = excess().fetch_one(&mut *transaction).await?;
            let oldest = sqlx::query("SELECT id, size FROM vault_record ORDER BY id LIMIT $1")
                .bind(MAX_REMOVED)
                .fetch_all(&mut *transaction)
                .await?;
            let mut last = None;
            for row in &oldest {
                if records <= 0 && bytes <= 0 {
                    break;
                }
                last = Some(row.try_get::<i64, _>("id")?);
                records -= 1;
                bytes -= row.try_get::<i64, _>("size")?;
            }
            let Some(last) = last else { break };
            sqlx::query("DELETE FROM vault_record WHERE id <= $1")
                .bind(last)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await
    }
}

impl VaultStore for PostgresStore {
    fn write(&self, records: Vec<Arc<Record>>) -> StoreFuture<'_, ()> {
        Box::pin(self.database.within(WRITE, self.insert(records)))
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.database.within(WRITE, self.database.check_write()))
    }

    /// Another instance may have stored it a moment ago.
    fn may_have(&self, _: &VaultKey) -> bool {
        true
    }

    fn read(&self, name: VaultKey) -> StoreFuture<'_, Option<Record>> {
        Box::pin(self.database.within(READ, self.read_record(name)))
    }

    fn read_all<'a>(&'a self, keys: &'a [VaultKey]) -> StoreFuture<'a, Vec<(VaultKey, Record)>> {
        Box::pin(self.database.within(READ, self.read_records(keys)))
    }

    fn trim(&self, bytes: usize, records: usize) -> StoreFuture<'_, ()> {
        let (bytes, records) = (signed(bytes as u64), signed(records as u64));
        Box::pin(self.database.within(TRIM, self.remove_oldest(bytes, records)))
    }
}

/// Inserts records and moves their names to them.
async fn insert(to: &mut PgConnection, records: &[Arc<Record>]) -> Result<(), sqlx::Error> {
    // One writer at a time, so that ids rise in the order of the commits.
    sqlx::query("SELECT 1 FROM vault_total FOR UPDATE").execute(&mut *to).await?;
    let ids = "SELECT nextval(pg_get_serial_sequence('vault_record', 'id'))
               FROM generate_series(1, $1)";
    let ids = sqlx::query_scalar::<_, i64>(ids).bind(signed(records.len() as u64));
    let ids = ids.fetch_all(&mut *to).await?;
    // Of two records with the same name, the newer one gets it.
    let names: BTreeMap<VaultKey, i64> = ids
        .iter()
        .zip(records)
        .flat_map(|(id, record)| record.keys.iter().map(|name| (*name, *id)))
        .collect();
    if names.is_empty() {
        return Ok(());
    }
    let keys: Vec<&[u8]> = names.keys().map(|name| &name.0[..]).collect();
    let previous = "SELECT DISTINCT record FROM vault_name WHERE name = ANY($1)";
    let previous = sqlx::query_scalar::<_, i64>(previous).bind(&keys);
    let previous = previous.fetch_all(&mut *to).await?;
    // A record without names can no longer be found.
    let has_name =
        |id: i64, record: &Record| record.keys.iter().any(|name| names.get(name) == Some(&id));
    let added: Vec<(i64, &Record)> = ids
        .iter()
        .zip(records)
        .map(|(id, record)| (*id, &**record))
        .filter(|(id, record)| has_name(*id, record))
        .collect();
    sqlx::query(
        "INSERT INTO vault_record (id, names, size, sealed)
         SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[])",
    )
    .bind(added.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(added.iter().map(|(_, record)| rows::joined_names(record)).collect::<Vec<_>>())
    .bind(added.iter().map(|(_, record)| signed(record.size() as u64)).collect::<Vec<_>>())
    .bind(added.iter().map(|(_, record)| &record.sealed[..]).collect::<Vec<_>>())
    .execute(&mut *to)
    .await?;
    sqlx::query(
        "INSERT INTO vault_name (name, record) SELECT * FROM unnest($1::bytea[], $2::bigint[])
         ON CONFLICT (name) DO UPDATE SET record = excluded.record",
    )
    .bind(&keys)
    .bind(names.values().copied().collect::<Vec<_>>())
    .execute(&mut *to)
    .await?;
    sqlx::query(
        "DELETE FROM vault_record WHERE id = ANY($1)
         AND NOT EXISTS (SELECT 1 FROM vault_name WHERE record = vault_record.id)",
    )
    .bind(previous)
    .execute(to)
    .await
    .map(drop)
}
