//! Rows of the thinking memory and the vault, read from any database.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::{ColumnIndex, Database, Decode, Executor, IntoArguments, Pool, Row, Type};
use throughline_canonical::{BlockKey, Origin, Prefix};
use throughline_gateway::thinking::store::{BlockStatus, Snapshot, StoredBlock, StoredSession};
use throughline_gateway::thinking::vault::{Record, VaultKey};
use throughline_gateway::thinking::{LineageId, SessionTag};

use super::unsigned;

/// Bytes of a name in the vault.
const NAME_LENGTH: usize = 16;

/// The kinds of values in our tables. `None` is NULL.
pub(crate) trait ReadRow {
    fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error>;
    fn optional_text(&self, column: &str) -> Result<Option<String>, sqlx::Error>;
    fn optional_number(&self, column: &str) -> Result<Option<u64>, sqlx::Error>;
    fn flag(&self, column: &str) -> Result<bool, sqlx::Error>;

    fn bytes(&self, column: &str) -> Result<Vec<u8>, sqlx::Error> {
        self.optional_bytes(column)?.ok_or_else(|| missing(column))
    }

    fn text(&self, column: &str) -> Result<String, sqlx::Error> {
        self.optional_text(column)?.ok_or_else(|| missing(column))
    }

    fn number(&self, column: &str) -> Result<u64, sqlx::Error> {
        self.optional_number(column)?.ok_or_else(|| missing(column))
    }

    /// Bytes of a fixed length.
    fn array<const N: usize>(&self, column: &str) -> Result<[u8; N], sqlx::Error> {
        self.bytes(column)?
            .try_into()
            .map_err(|_| sqlx::Error::Decode(format!("`{column}` does not have {N} bytes").into()))
    }
}

impl<R> ReadRow for R
where
    R: Row,
    for<'a> &'a str: ColumnIndex<R>,
    for<'a> Vec<u8>: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> String: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> i64: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> bool: Decode<'a, R::Database> + Type<R::Database>,
{
    fn optional_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, sqlx::Error> {
        self.try_get(column)
    }

    fn optional_text(&self, column: &str) -> Result<Option<String>, sqlx::Error> {
        self.try_get(column)
    }

    fn optional_number(&self, column: &str) -> Result<Option<u64>, sqlx::Error> {
        Ok(self.try_get::<Option<i64>, _>(column)?.map(unsigned))
    }

    fn flag(&self, column: &str) -> Result<bool, sqlx::Error> {
        self.try_get(column)
    }
}

fn missing(column: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("`{column}` is NULL").into())
}

/// Reads the whole thinking memory. Every database has the same tables.
pub(crate) async fn read_snapshot<DB>(from: &Pool<DB>) -> Result<Snapshot, sqlx::Error>
where
    DB: Database,
    DB::Row: ReadRow,
    DB::Arguments: IntoArguments<DB>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let mut origins = HashMap::new();
    let rows = "SELECT id, domain, backend, model, credential FROM origin";
    for row in sqlx::query(rows).fetch_all(from).await? {
        origins.insert(row.number("id")?, Arc::new(origin(&row)?));
    }
    let mut snapshot = Snapshot { facts: read_facts(from).await?, ..Snapshot::default() };
    let rows = "SELECT key, origin, cut, prefix, dropped, accepted, refused FROM block";
    for row in sqlx::query(rows).fetch_all(from).await? {
        let origin = row.optional_number("origin")?.and_then(|id| origins.get(&id).cloned());
        snapshot.blocks.push(block(&row, origin)?);
    }
    let rows = "SELECT lineage, key, session, confirmed, registered, gone FROM standing";
    for row in sqlx::query(rows).fetch_all(from).await? {
        let lineage = LineageId(row.array("lineage")?);
        snapshot.statuses.push((lineage, BlockKey(row.array("key")?), status(&row)?));
    }
    for row in sqlx::query("SELECT id, mark, used FROM lineage").fetch_all(from).await? {
        let (id, tag) = (LineageId(row.array("id")?), SessionTag(row.array("mark")?));
        snapshot.lineages.push((id, tag, row.number("used")?));
    }
    for row in sqlx::query("SELECT id, session, backend FROM mark").fetch_all(from).await? {
        snapshot.sessions.push((SessionTag(row.array("id")?), session(&row)?));
    }
    Ok(snapshot)
}

/// Reads the facts.
pub(crate) async fn read_facts<DB>(from: &Pool<DB>) -> Result<HashMap<String, String>, sqlx::Error>
where
    DB: Database,
    DB::Row: ReadRow,
    DB::Arguments: IntoArguments<DB>,
    for<'c> &'c mut DB::Connection: Executor<'c, Database = DB>,
{
    let rows = sqlx::query("SELECT name, value FROM fact").fetch_all(from).await?;
    rows.iter().map(|row| Ok((row.text("name")?, row.text("value")?))).collect()
}

pub(crate) fn origin(row: &impl ReadRow) -> Result<Origin, sqlx::Error> {
    Ok(Origin {
        domain: row.text("domain")?,
        backend: row.text("backend")?,
        model: row.text("model")?,
        credential: row.text("credential")?,
    })
}

pub(crate) fn block(
    row: &impl ReadRow,
    origin: Option<Arc<Origin>>,
) -> Result<StoredBlock, sqlx::Error> {
    let prefix = |column| -> Result<Option<Prefix>, sqlx::Error> {
        let bytes = row.optional_bytes(column)?;
        Ok(bytes.and_then(|bytes| Some(Prefix(bytes.try_into().ok()?))))
    };
    Ok(StoredBlock {
        key: BlockKey(row.array("key")?),
        origin,
        cut: row.flag("cut")?,
        prefix: prefix("prefix")?,
        dropped: prefix("dropped")?,
        accepted: names(&row.text("accepted")?),
        refused: names(&row.text("refused")?),
    })
}

pub(crate) fn status(row: &impl ReadRow) -> Result<BlockStatus, sqlx::Error> {
    Ok(BlockStatus {
        session: row.number("session")?,
        confirmed: row.flag("confirmed")?,
        registered: row.number("registered")?,
        gone: row.flag("gone")?,
    })
}

pub(crate) fn session(row: &impl ReadRow) -> Result<StoredSession, sqlx::Error> {
    Ok(StoredSession { session: row.number("session")?, backend: row.text("backend")?.into() })
}

/// A record of the vault.
pub(crate) fn record(row: &impl ReadRow) -> Result<Record, sqlx::Error> {
    let names = row.bytes("names")?;
    let (names, rest) = names.as_chunks::<NAME_LENGTH>();
    if !rest.is_empty() {
        return Err(sqlx::Error::Decode(
            "the length of `names` is not a multiple of a name's length".into(),
        ));
    }
    Ok(Record { keys: names.iter().copied().map(VaultKey).collect(), sealed: row.bytes("sealed")? })
}

/// The names of a record as one value.
pub(crate) fn joined_names(record: &Record) -> Vec<u8> {
    record.keys.iter().flat_map(|name| name.0).collect()
}

/// Splits names of backends, which are stored one per line.
fn names(lines: &str) -> Vec<Arc<str>> {
    lines.lines().map(Into::into).collect()
}
