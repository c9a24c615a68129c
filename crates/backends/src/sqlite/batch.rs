//! A batch of changes of the thinking memory, written with one statement per table.
//!
//! Each statement is handed over to the thread of the database connection. That costs more than
//! the statement itself, so the number of statements must not grow with the number of changes.

use std::collections::{BTreeMap, HashSet};

use sqlx::query_builder::Separated;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};
use throughline_canonical::{BlockKey, Origin};
use throughline_gateway::thinking::store::{BlockStatus, Change, StoredBlock, StoredSession};
use throughline_gateway::thinking::{LineageId, SessionTag};

use crate::sql::signed;

/// How many rows one statement writes or deletes. SQLite allows 32,766 values in a statement.
const MAX_ROWS: usize = 1000;

/// The last change of every row. `None` deletes the row.
#[derive(Default)]
pub(super) struct Batch {
    blocks: BTreeMap<BlockKey, Option<StoredBlock>>,
    statuses: BTreeMap<LineageId, BTreeMap<BlockKey, BlockStatus>>,
    lineages: BTreeMap<LineageId, Option<(SessionTag, u64)>>,
    sessions: BTreeMap<SessionTag, Option<StoredSession>>,
    facts: BTreeMap<String, Option<String>>,
    /// Lineages whose earlier block statuses are deleted.
    forgotten: HashSet<LineageId>,
}

impl Batch {
    pub(super) fn new(changes: Vec<Change>) -> Self {
        let mut batch = Self::default();
        for change in changes {
            batch.add(change);
        }
        batch
    }

    fn add(&mut self, change: Change) {
        match change {
            Change::Block(block) => drop(self.blocks.insert(block.key, Some(block))),
            Change::ForgetBlock(key) => drop(self.blocks.insert(key, None)),
            Change::BlockStatus(lineage, key, status) => {
                self.statuses.entry(lineage).or_default().insert(key, status);
            }
            Change::Lineage(lineage, tag, used) => {
                self.lineages.insert(lineage, Some((tag, used)));
            }
            Change::ForgetLineage(lineage) => {
                self.lineages.insert(lineage, None);
                self.statuses.remove(&lineage);
                self.forgotten.insert(lineage);
            }
            Change::Session(tag, session) => drop(self.sessions.insert(tag, Some(session))),
            Change::ForgetSession(tag) => drop(self.sessions.insert(tag, None)),
            Change::Fact(name, value) => drop(self.facts.insert(name, value)),
        }
    }

    /// The statements that write the batch.
    pub(super) fn statements(&self) -> Statements {
        let (blocks, forgotten_blocks) = split(&self.blocks);
        let (lineages, forgotten_lineages) = split(&self.lineages);
        let (sessions, forgotten_sessions) = split(&self.sessions);
        let (facts, forgotten_facts) = split(&self.facts);
        let forgotten_statuses = self.forgotten.iter();
        let mut statements = Statements::default();
        statements.delete("standing WHERE lineage", forgotten_statuses.map(|id| &id.0[..]));
        statements.delete("lineage WHERE id", forgotten_lineages.map(|id| &id.0[..]));
        statements.delete("mark WHERE id", forgotten_sessions.map(|tag| &tag.0[..]));
        statements.delete("block WHERE key", forgotten_blocks.map(|key| &key.0[..]));
        statements.delete("fact WHERE name", forgotten_facts);

        statements.write_blocks(&blocks.map(|(_, block)| block).collect::<Vec<_>>());
        let statuses = self.statuses.iter().flat_map(|(lineage, statuses)| {
            statuses.iter().map(move |(key, status)| (lineage, key, status))
        });
        let columns = "standing (lineage, key, session, confirmed, registered, gone)";
        statements.replace(columns, statuses, |row, (lineage, key, status)| {
            row.push_bind(&lineage.0[..])
                .push_bind(&key.0[..])
                .push_bind(signed(status.session))
                .push_bind(status.confirmed)
                .push_bind(signed(status.registered))
                .push_bind(status.gone);
        });
        statements.replace("lineage (id, mark, used)", lineages, |row, (id, (tag, used))| {
            row.push_bind(&id.0[..]).push_bind(&tag.0[..]).push_bind(signed(*used));
        });
        statements.replace("mark (id, session, backend)", sessions, |row, (tag, session)| {
            row.push_bind(&tag.0[..])
                .push_bind(signed(session.session))
                .push_bind(&*session.backend);
        });
        statements.replace("fact (name, value)", facts, |row, (name, value)| {
            row.push_bind(name).push_bind(value);
        });
        statements
    }
}

/// The rows to write, and the keys of the rows to delete.
fn split<K, V>(
    rows: &BTreeMap<K, Option<V>>,
) -> (impl Iterator<Item = (&K, &V)>, impl Iterator<Item = &K>) {
    let written = rows.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
    let deleted = rows.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key);
    (written, deleted)
}

/// The values of one row.
pub(super) type RowValues<'a> = Separated<'a, Sqlite, &'static str>;

/// Statements, each for many rows.
#[derive(Default)]
pub(super) struct Statements(Vec<QueryBuilder<Sqlite>>);

impl Statements {
    /// Writes blocks, and their origins if those are new.
    fn write_blocks(&mut self, blocks: &[&StoredBlock]) {
        let origins = blocks.iter().filter_map(|block| block.origin.as_deref());
        let origins: HashSet<&Origin> = origins.collect();
        let columns = "INSERT OR IGNORE INTO origin (domain, backend, model, credential)";
        self.write(columns, origins.into_iter(), |row, origin| {
            row.push_bind(&origin.domain)
                .push_bind(&origin.backend)
                .push_bind(&origin.model)
                .push_bind(&origin.credential);
        });
        let columns = "block (key, origin, cut, prefix, dropped, accepted, refused)";
        self.replace(columns, blocks.iter(), |row, block| {
            let origin = block.origin.as_deref();
            row.push_bind(&block.key.0[..])
                .push("(SELECT id FROM origin WHERE domain = ")
                .push_bind_unseparated(origin.map(|origin| &*origin.domain))
                .push_unseparated(" AND backend = ")
                .push_bind_unseparated(origin.map(|origin| &*origin.backend))
                .push_unseparated(" AND model = ")
                .push_bind_unseparated(origin.map(|origin| &*origin.model))
                .push_unseparated(" AND credential = ")
                .push_bind_unseparated(origin.map(|origin| &*origin.credential))
                .push_unseparated(")")
                .push_bind(block.cut)
                .push_bind(block.prefix.map(|prefix| prefix.0.to_vec()))
                .push_bind(block.dropped.map(|prefix| prefix.0.to_vec()))
                .push_bind(block.accepted.join("\n"))
                .push_bind(block.refused.join("\n"));
        });
    }

    /// Inserts rows. They replace rows with the same key.
    pub(super) fn replace<T>(
        &mut self,
        columns: &str,
        rows: impl Iterator<Item = T>,
        bind: impl FnMut(&mut RowValues<'_>, T),
    ) {
        self.write(&format!("REPLACE INTO {columns}"), rows, bind);
    }

    fn write<T>(
        &mut self,
        columns: &str,
        rows: impl Iterator<Item = T>,
        mut bind: impl FnMut(&mut RowValues<'_>, T),
    ) {
        let mut rows = rows.peekable();
        while rows.peek().is_some() {
            let mut query = QueryBuilder::new(format!("{columns} "));
            let rows = rows.by_ref().take(MAX_ROWS);
            query.push_values(rows, |mut values, row| bind(&mut values, row));
            self.0.push(query);
        }
    }

    /// Deletes rows. `column` names the table and the column that has one of the values.
    pub(super) fn delete<'a, T>(&mut self, column: &str, values: impl Iterator<Item = T>)
    where
        T: sqlx::Encode<'a, Sqlite> + sqlx::Type<Sqlite>,
    {
        let mut values = values.peekable();
        while values.peek().is_some() {
            let mut query = QueryBuilder::new(format!("DELETE FROM {column} IN "));
            let values = values.by_ref().take(MAX_ROWS);
            query.push_tuples(values, |mut row, value| {
                row.push_bind(value);
            });
            self.0.push(query);
        }
    }

    /// Runs the statements. They are not kept prepared, because their text depends on the number
    /// of rows.
    pub(super) async fn execute(self, on: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for mut statement in self.0 {
            statement.build().persistent(false).execute(&mut *on).await?;
        }
        Ok(())
    }
}
