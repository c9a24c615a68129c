//! The thinking memory in Postgres.
//!
//! A batch is written with one statement per table. Each takes its rows as arrays, so its text never
//! changes and it stays prepared.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::{PgConnection, Postgres, Transaction};
use throughline_canonical::{BlockKey, Origin};
use throughline_gateway::thinking::store::{
    Change, Found, FoundBlock, Search, Snapshot, Store, StoreFuture, StoredBlock,
};

use super::PostgresStore;
use super::database::text;
use crate::sql::batch::{Batch, Deleted, Written};
use crate::sql::memory_rows::{self as rows, ReadRow};
use crate::sql::signed;

/// How far back changes of other instances are read again, in milliseconds: a transaction that began
/// earlier may have ended later.
const OVERLAP_MS: u64 = 10_000;

const READ: &str = "cannot read the thinking memory";
const WRITE: &str = "cannot write the thinking memory";

/// The blocks that a request asks about, and those whose status others have changed. `$3` is NULL if
/// the conversation is not known yet.
const FIND_BLOCKS: &str = "
    SELECT block.key, cut, prefix, dropped, accepted, refused,
        origin.id IS NOT NULL AS has_origin, domain, backend, model, credential,
        standing.key IS NOT NULL AS has_status, session, confirmed, registered, gone
    FROM (
        SELECT unnest($1::bytea[]) AS key
        UNION SELECT key FROM standing
        WHERE lineage = $2 AND ($3::bigint IS NULL OR (changed >= $3 AND writer <> $4))
    ) AS wanted
    JOIN block ON block.key = wanted.key
    LEFT JOIN origin ON origin.id = block.origin
    LEFT JOIN standing ON standing.lineage = $2 AND standing.key = wanted.key";

const FIND_SESSION: &str = "
    SELECT unix_ms() AS now, session, backend
    FROM (SELECT 1) AS one LEFT JOIN mark ON mark.id = $1";

const WRITE_ORIGINS: &str = "
    INSERT INTO origin (domain, backend, model, credential)
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
    ON CONFLICT DO NOTHING";

/// The maker of a block is never forgotten: another instance may know less.
const WRITE_BLOCKS: &str = "
    INSERT INTO block (key, origin, cut, prefix, dropped, accepted, refused, changed)
    SELECT row.key, origin.id, row.cut, row.prefix, row.dropped, row.accepted, row.refused, unix_ms()
    FROM unnest($1::bytea[], $2::text[], $3::text[], $4::text[], $5::text[],
        $6::bool[], $7::bytea[], $8::bytea[], $9::text[], $10::text[])
        AS row (key, domain, backend, model, credential, cut, prefix, dropped, accepted, refused)
    LEFT JOIN origin USING (domain, backend, model, credential)
    ORDER BY row.key
    ON CONFLICT (key) DO UPDATE SET origin = coalesce(excluded.origin, block.origin),
        cut = excluded.cut, prefix = coalesce(excluded.prefix, block.prefix),
        dropped = excluded.dropped, accepted = excluded.accepted, refused = excluded.refused,
        changed = excluded.changed";

const WRITE_STATUSES: &str = "
    INSERT INTO standing (lineage, key, session, confirmed, registered, gone, writer, changed)
    SELECT row.*, $7, unix_ms()
    FROM unnest($1::bytea[], $2::bytea[], $3::bigint[], $4::bool[], $5::bigint[], $6::bool[]) AS row
    ON CONFLICT (lineage, key) DO UPDATE SET session = excluded.session,
        confirmed = excluded.confirmed, registered = excluded.registered, gone = excluded.gone,
        writer = excluded.writer, changed = excluded.changed";

const WRITE_LINEAGES: &str = "
    INSERT INTO lineage (id, mark, used)
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bigint[])
    ON CONFLICT (id) DO UPDATE SET mark = excluded.mark, used = excluded.used";

/// An instance that has not seen the last switch does not undo it.
const WRITE_SESSIONS: &str = "
    INSERT INTO mark (id, session, backend)
    SELECT * FROM unnest($1::bytea[], $2::bigint[], $3::text[])
    ON CONFLICT (id) DO UPDATE SET session = excluded.session, backend = excluded.backend
    WHERE excluded.session >= mark.session";

const WRITE_FACTS: &str = "
    INSERT INTO fact (name, value)
    SELECT * FROM unnest($1::text[], $2::text[])
    ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl PostgresStore {
    async fn apply(&self, changes: Vec<Change>) -> Result<(), sqlx::Error> {
        let batch = Batch::new(changes);
        let mut transaction = self.database.pool.begin().await?;
        delete(&mut transaction, &batch.deleted()).await?;
        let written = batch.written();
        write_blocks(&mut transaction, &written).await?;
        write_conversations(&mut transaction, &written, &self.writer).await?;
        transaction.commit().await
    }

    async fn search(&self, search: Search) -> Result<Found, sqlx::Error> {
        let keys: Vec<&[u8]> = search.keys.iter().map(|key| &key.0[..]).collect();
        let since = search.since.map(|since| signed(since.saturating_sub(OVERLAP_MS)));
        let blocks = sqlx::query(FIND_BLOCKS)
            .bind(keys)
            .bind(&search.lineage.id.0[..])
            .bind(since)
            .bind(self.writer.as_bytes())
            .fetch_all(&self.database.pool);
        let session = sqlx::query(FIND_SESSION)
            .bind(&search.lineage.tag.0[..])
            .fetch_one(&self.database.pool);
        let (blocks, session) = tokio::try_join!(blocks, session)?;
        let mut found = Found {
            at: session.number("now")?,
            session: match session.optional_number("session")? {
                Some(_) => Some(rows::session(&session)?),
                None => None,
            },
            blocks: Vec::with_capacity(blocks.len()),
        };
        let mut origins: HashMap<Origin, Arc<Origin>> = HashMap::new();
        for row in &blocks {
            let origin = match row.flag("has_origin")? {
                true => {
                    let origin = rows::origin(row)?;
                    let shared = || Arc::new(origin.clone());
                    Some(origins.entry(origin.clone()).or_insert_with(shared).clone())
                }
                false => None,
            };
            let status = match row.flag("has_status")? {
                true => Some(rows::status(row)?),
                false => None,
            };
            found.blocks.push(FoundBlock { stored: rows::block(row, origin)?, status });
        }
        Ok(found)
    }

    /// Removes conversations that were not used since `before`, and what only they held.
    async fn remove_unused(&self, before: i64) -> Result<u64, sqlx::Error> {
        let mut transaction = self.database.pool.begin().await?;
        let removed = sqlx::query(
            "WITH old AS (DELETE FROM lineage WHERE used < $1 RETURNING id),
             statuses AS (DELETE FROM standing WHERE lineage IN (SELECT id FROM old))
             SELECT id FROM old",
        )
        .bind(before)
        .fetch_all(&mut *transaction)
        .await?;
        sqlx::query(
            "DELETE FROM mark WHERE NOT EXISTS (SELECT 1 FROM lineage WHERE lineage.mark = mark.id)",
        )
        .execute(&mut *transaction)
        .await?;
        sqlx::query(
            "DELETE FROM block WHERE changed < $1
             AND NOT EXISTS (SELECT 1 FROM standing WHERE standing.key = block.key)",
        )
        .bind(before)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(removed.len() as u64)
    }
}

impl Store for PostgresStore {
    fn load(&self) -> StoreFuture<'_, Snapshot> {
        Box::pin(self.database.within(READ, rows::read_snapshot(&self.database.pool)))
    }

    fn write(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        Box::pin(self.database.within(WRITE, self.apply(changes)))
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(self.database.within(WRITE, self.database.check_write()))
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn facts(&self) -> StoreFuture<'_, HashMap<String, String>> {
        Box::pin(self.database.within(READ, rows::read_facts(&self.database.pool)))
    }

    fn find(&self, search: Search) -> StoreFuture<'_, Found> {
        Box::pin(self.database.within(READ, self.search(search)))
    }

    fn forget_unused(&self, before: u64) -> StoreFuture<'_, u64> {
        Box::pin(self.database.within(WRITE, self.remove_unused(signed(before))))
    }
}

async fn delete(
    on: &mut Transaction<'_, Postgres>,
    deleted: &Deleted<'_>,
) -> Result<(), sqlx::Error> {
    let keys: Vec<&[u8]> = deleted.statuses.iter().map(|id| &id.0[..]).collect();
    delete_keys(on, "DELETE FROM standing WHERE lineage = ANY($1)", keys).await?;
    let keys: Vec<&[u8]> = deleted.lineages.iter().map(|id| &id.0[..]).collect();
    delete_keys(on, "DELETE FROM lineage WHERE id = ANY($1)", keys).await?;
    let keys: Vec<&[u8]> = deleted.sessions.iter().map(|tag| &tag.0[..]).collect();
    delete_keys(on, "DELETE FROM mark WHERE id = ANY($1)", keys).await?;
    let keys: Vec<&[u8]> = deleted.blocks.iter().map(|key| &key.0[..]).collect();
    delete_keys(on, "DELETE FROM block WHERE key = ANY($1)", keys).await?;
    if !deleted.facts.is_empty() {
        let names: Vec<String> = deleted.facts.iter().map(|name| text(name)).collect();
        let statement = sqlx::query("DELETE FROM fact WHERE name = ANY($1)").bind(names);
        statement.execute(&mut **on).await?;
    }
    Ok(())
}

async fn delete_keys(
    on: &mut PgConnection,
    statement: &'static str,
    keys: Vec<&[u8]>,
) -> Result<(), sqlx::Error> {
    if !keys.is_empty() {
        sqlx::query(statement).bind(keys).execute(on).await?;
    }
    Ok(())
}

/// Writes blocks, and their origins if those are new.
async fn write_blocks(on: &mut PgConnection, written: &Written<'_>) -> Result<(), sqlx::Error> {
    let origins = &written.origins;
    let column = |part: fn(&Origin) -> &str| -> Vec<String> {
        origins.iter().map(|origin| text(part(origin))).collect()
    };
    if !origins.is_empty() {
        sqlx::query(WRITE_ORIGINS)
            .bind(column(|origin| &origin.domain))
            .bind(column(|origin| &origin.backend))
            .bind(column(|origin| &origin.model))
            .bind(column(|origin| &origin.credential))
            .execute(&mut *on)
            .await?;
    }
    let blocks = &written.blocks;
    if blocks.is_empty() {
        return Ok(());
    }
    let column = |part: fn(&Origin) -> &str| -> Vec<Option<String>> {
        let origin = |block: &&StoredBlock| Some(text(part(block.origin.as_deref()?)));
        blocks.iter().map(origin).collect()
    };
    let key = |BlockKey(key): &BlockKey| key.to_vec();
    sqlx::query(WRITE_BLOCKS)
        .bind(blocks.iter().map(|block| key(&block.key)).collect::<Vec<_>>())
        .bind(column(|origin| &origin.domain))
        .bind(column(|origin| &origin.backend))
        .bind(column(|origin| &origin.model))
        .bind(column(|origin| &origin.credential))
        .bind(blocks.iter().map(|block| block.cut).collect::<Vec<_>>())
        .bind(blocks.iter().map(|block| Some(block.prefix?.0.to_vec())).collect::<Vec<_>>())
        .bind(blocks.iter().map(|block| Some(block.dropped?.0.to_vec())).collect::<Vec<_>>())
        .bind(blocks.iter().map(|block| text(&block.accepted.join("\n"))).collect::<Vec<_>>())
        .bind(blocks.iter().map(|block| text(&block.refused.join("\n"))).collect::<Vec<_>>())
        .execute(on)
        .await
        .map(drop)
}

/// Writes statuses, lineages, sessions and facts.
async fn write_conversations(
    on: &mut PgConnection,
    written: &Written<'_>,
    writer: &str,
) -> Result<(), sqlx::Error> {
    let statuses = &written.statuses;
    if !statuses.is_empty() {
        sqlx::query(WRITE_STATUSES)
            .bind(statuses.iter().map(|(lineage, ..)| lineage.0.to_vec()).collect::<Vec<_>>())
            .bind(statuses.iter().map(|(_, key, _)| key.0.to_vec()).collect::<Vec<_>>())
            .bind(statuses.iter().map(|(.., of)| signed(of.session)).collect::<Vec<_>>())
            .bind(statuses.iter().map(|(.., of)| of.confirmed).collect::<Vec<_>>())
            .bind(statuses.iter().map(|(.., of)| signed(of.registered)).collect::<Vec<_>>())
            .bind(statuses.iter().map(|(.., of)| of.gone).collect::<Vec<_>>())
            .bind(writer.as_bytes())
            .execute(&mut *on)
            .await?;
    }
    let lineages = &written.lineages;
    if !lineages.is_empty() {
        sqlx::query(WRITE_LINEAGES)
            .bind(lineages.iter().map(|(id, _)| id.0.to_vec()).collect::<Vec<_>>())
            .bind(lineages.iter().map(|(_, (tag, _))| tag.0.to_vec()).collect::<Vec<_>>())
            .bind(lineages.iter().map(|(_, (_, used))| signed(*used)).collect::<Vec<_>>())
            .execute(&mut *on)
            .await?;
    }
    let sessions = &written.sessions;
    if !sessions.is_empty() {
        sqlx::query(WRITE_SESSIONS)
            .bind(sessions.iter().map(|(tag, _)| tag.0.to_vec()).collect::<Vec<_>>())
            .bind(sessions.iter().map(|(_, of)| signed(of.session)).collect::<Vec<_>>())
            .bind(sessions.iter().map(|(_, of)| text(&of.backend)).collect::<Vec<_>>())
            .execute(&mut *on)
            .await?;
    }
    let facts = &written.facts;
    if !facts.is_empty() {
        sqlx::query(WRITE_FACTS)
            .bind(facts.iter().map(|(name, _)| text(name)).collect::<Vec<_>>())
            .bind(facts.iter().map(|(_, value)| text(value)).collect::<Vec<_>>())
            .execute(on)
            .await?;
    }
    Ok(())
}
