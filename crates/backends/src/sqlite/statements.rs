//! Statements for many rows.
//!
//! Each statement is handed over to the thread of the database connection. That costs more than
//! the statement itself, so the number of statements must not grow with the number of changes.

use sqlx::query_builder::Separated;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};
use throughline_canonical::Origin;
use throughline_gateway::thinking::store::StoredBlock;

use crate::sql::batch::Batch;
use crate::sql::signed;

/// How many rows one statement writes or deletes. SQLite allows 32,766 values in a statement.
const MAX_ROWS: usize = 1000;

/// The values of one row.
pub(super) type RowValues<'a> = Separated<'a, Sqlite, &'static str>;

/// Statements, each for many rows.
#[derive(Default)]
pub(super) struct Statements(Vec<QueryBuilder<Sqlite>>);

impl Statements {
    /// The statements that write a batch.
    pub(super) fn of_batch(batch: &Batch) -> Self {
        let (deleted, written) = (batch.deleted(), batch.written());
        let mut statements = Self::default();
        let statuses = deleted.statuses.into_iter();
        statements.delete("standing WHERE lineage", statuses.map(|id| &id.0[..]));
        let lineages = deleted.lineages.into_iter();
        statements.delete("lineage WHERE id", lineages.map(|id| &id.0[..]));
        let sessions = deleted.sessions.into_iter();
        statements.delete("mark WHERE id", sessions.map(|tag| &tag.0[..]));
        let blocks = deleted.blocks.into_iter();
        statements.delete("block WHERE key", blocks.map(|key| &key.0[..]));
        statements.delete("fact WHERE name", deleted.facts.into_iter());

        statements.write_blocks(&written.origins, &written.blocks);
        let columns = "standing (lineage, key, session, confirmed, registered, gone)";
        let statuses = written.statuses.into_iter();
        statements.replace(columns, statuses, |row, (lineage, key, status)| {
            row.push_bind(&lineage.0[..])
                .push_bind(&key.0[..])
                .push_bind(signed(status.session))
                .push_bind(status.confirmed)
                .push_bind(signed(status.registered))
                .push_bind(status.gone);
        });
        let lineages = written.lineages.into_iter();
        statements.replace("lineage (id, mark, used)", lineages, |row, (id, (tag, used))| {
            row.push_bind(&id.0[..]).push_bind(&tag.0[..]).push_bind(signed(*used));
        });
        let sessions = written.sessions.into_iter();
        statements.replace("mark (id, session, backend)", sessions, |row, (tag, session)| {
            row.push_bind(&tag.0[..])
                .push_bind(signed(session.session))
                .push_bind(&*session.backend);
        });
        let facts = written.facts.into_iter();
        statements.replace("fact (name, value)", facts, |row, (name, value)| {
            row.push_bind(name).push_bind(value);
        });
        statements
    }

    /// Writes blocks, and their origins if those are new.
    fn write_blocks(&mut self, origins: &[&Origin], blocks: &[&StoredBlock]) {
        let columns = "INSERT OR IGNORE INTO origin (domain, backend, model, credential)";
        self.write(columns, origins.iter(), |row, origin| {
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
