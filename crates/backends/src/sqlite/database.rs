//! A SQLite file: its connections, its write transactions, and the check that it can be written.

use std::ops::{Deref, DerefMut};
use std::path::Path;

use sqlx::migrate::Migrator;
use sqlx::pool::PoolConnection;
use sqlx::query::Query;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteQueryResult,
    SqliteSynchronous,
};
use sqlx::{
    AssertSqlSafe, Column, Row as _, Sqlite, SqliteConnection, SqlitePool, TypeInfo, ValueRef,
};
use throughline_gateway::thinking::store::StoreError;

use crate::sql::{self, Row, Statements, Value, WriteTransaction, error};

/// Connections for reading.
const MAX_READERS: u32 = 3;

/// Rows that a connection reads ahead. Its thread sleeps when they are full, and waking it is slower than
/// reading many rows.
const ROW_BUFFER: usize = 1_000;

/// Starts a transaction that reads and then writes. With a plain `BEGIN`, SQLite rejects the write if
/// another process wrote in between.
const BEGIN: &str = "BEGIN IMMEDIATE";

/// Writes as many bytes as a turn with a long answer needs. With less, a disk with room for a few
/// bytes would look as if it could be used.
const CHECK_WRITE: &str = "REPLACE INTO write_check (id, filler) VALUES (1, zeroblob(65536))";

/// A SQLite file.
#[derive(Clone, Debug)]
pub struct Database {
    /// Connections for reading. At least one stays open: when the last connection closes, SQLite
    /// removes files that it needs for reading, and on a full disk it cannot create them again.
    pub(super) readers: SqlitePool,
    /// The connection for writing. SQLite has one writer at a time.
    writer: SqlitePool,
    /// How many migrations were applied when it was opened.
    pub(super) applied: usize,
}

impl Database {
    /// Opens a file. Creates it and its tables if they are missing.
    pub(super) async fn open(path: &Path, migrations: &Migrator) -> Result<Self, StoreError> {
        let cannot_open = |cause| error(format!("cannot open `{}`", path.display()), cause);
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            // A killed process loses no committed data; a machine crash may lose the last commits.
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .row_buffer_size(ROW_BUFFER);
        let connections = || {
            SqlitePoolOptions::new()
                // A file does not disconnect, and each test costs a change of threads.
                .test_before_acquire(false)
                .idle_timeout(None)
                .max_lifetime(None)
        };
        let writer = connections().max_connections(1).connect_with(options.clone()).await;
        let writer = writer.map_err(cannot_open)?;
        let applied = migrate(&writer, migrations)
            .await
            .map_err(|cause| error(format!("cannot prepare `{}`", path.display()), cause))?;
        let readers = connections().min_connections(1).max_connections(MAX_READERS);
        let readers = readers.connect_with(options).await.map_err(cannot_open)?;
        Ok(Self { readers, writer, applied })
    }

    /// Opens a file that exists, and changes nothing in it.
    pub(super) async fn open_read_only(path: &Path) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new().filename(path).read_only(true);
        let readers = SqlitePoolOptions::new().max_connections(1).connect_with(options).await;
        let readers =
            readers.map_err(|cause| error(format!("cannot open `{}`", path.display()), cause))?;
        Ok(Self { writer: readers.clone(), readers, applied: 0 })
    }

    /// Starts a transaction that writes.
    pub(super) async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        let connection = self.writer.acquire().await?;
        let mut transaction = Transaction { connection, ended: false };
        sqlx::query(BEGIN).execute(&mut *transaction).await?;
        Ok(transaction)
    }

    /// Runs one statement that writes.
    pub(super) async fn execute(
        &self,
        statement: Query<'_, Sqlite, SqliteArguments>,
    ) -> Result<SqliteQueryResult, sqlx::Error> {
        statement.execute(&self.writer).await
    }

    /// Checks that the file can be written now.
    pub(super) async fn check_write(&self) -> Result<(), sqlx::Error> {
        self.execute(sqlx::query(CHECK_WRITE)).await.map(drop)
    }
}

/// Applies the migrations that are missing. Returns how many those were.
async fn migrate(pool: &SqlitePool, migrations: &Migrator) -> Result<usize, sqlx::Error> {
    let before = applied(pool).await?;
    migrations.run(pool).await?;
    Ok(applied(pool).await?.saturating_sub(before))
}

async fn applied(pool: &SqlitePool) -> Result<usize, sqlx::Error> {
    let table = "SELECT 1 FROM sqlite_master WHERE name = '_sqlx_migrations'";
    if sqlx::query(table).fetch_optional(pool).await?.is_none() {
        return Ok(0);
    }
    let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM _sqlx_migrations");
    Ok(usize::try_from(count.fetch_one(pool).await?).unwrap_or_default())
}

/// A transaction that writes. Unless it has ended, its connection is closed when it is dropped.
///
/// SQLite itself rolls a transaction back if the disk is full or fails. A later `ROLLBACK` is then
/// an error, and sqlx's own transactions, which count on it, make the connection unusable.
pub(super) struct Transaction {
    connection: PoolConnection<Sqlite>,
    ended: bool,
}

impl Transaction {
    /// Writes everything.
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    async fn end(mut self, statement: &'static str) -> Result<(), sqlx::Error> {
        sqlx::query(statement).execute(&mut *self).await?;
        self.ended = true;
        Ok(())
    }
}

impl Deref for Transaction {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for Transaction {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}

impl sql::Database for Database {
    const NOW: &'static str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";
    const HOLD: &'static str = "";
    const IS_SHARED: bool = false;

    async fn begin(&self) -> Result<impl WriteTransaction, sqlx::Error> {
        Self::begin(self).await
    }

    async fn read(&self, statement: &str, values: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = query(statement, values).fetch_all(&self.readers).await?;
        rows.iter().map(row).collect()
    }

    async fn run(&self, statement: &str, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        Ok(self.execute(query(statement, values)).await?.rows_affected())
    }

    async fn check_write(&self) -> Result<(), sqlx::Error> {
        Self::check_write(self).await
    }
}

impl Statements for Transaction {
    async fn fetch(
        &mut self,
        statement: &str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let rows = query(statement, values).fetch_all(&mut *self.connection).await?;
        rows.iter().map(row).collect()
    }

    async fn execute(&mut self, statement: &str, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let done = query(statement, values).execute(&mut *self.connection).await?;
        Ok(done.rows_affected())
    }
}

impl WriteTransaction for Transaction {
    async fn commit(self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    async fn roll_back(self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }
}

fn query(statement: &str, values: Vec<Value>) -> Query<'static, Sqlite, SqliteArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(text) => query.bind(text),
        Value::Integer(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

/// Reads a row. The type of an empty value is that of its column.
fn row(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    let value = |column: usize| -> Result<Value, sqlx::Error> {
        let raw = row.try_get_raw(column)?;
        let info = raw.type_info();
        let is_null = raw.is_null();
        let name = if is_null { row.column(column).type_info().name() } else { info.name() };
        Ok(match name {
            "INTEGER" => Value::Integer(row.try_get_unchecked(column)?),
            "BLOB" => Value::Bytes(row.try_get_unchecked(column)?),
            _ => Value::Text(row.try_get_unchecked(column)?),
        })
    };
    let values: Result<Vec<Value>, _> = (0..row.len()).map(value).collect();
    Ok(Row(values?.into_iter()))
}
