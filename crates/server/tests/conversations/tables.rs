//! The database behind a gateway, for tests that damage or search it.

use std::process::Command;

use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, SqliteConnection};

use crate::support::Api;

/// A connection to the tables of a gateway.
pub(crate) enum Tables {
    /// The file of conversations, and that of the vault as `memory`.
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Tables {
    pub(crate) async fn of(api: &Api) -> Self {
        if let Some(database) = &api.database {
            let options: PgConnectOptions = database.url.parse().expect("an address");
            let mut connection = options.connect().await.expect("Postgres answers");
            // A thief or a broken disk does not care about foreign keys either.
            let statement = "SET session_replication_role = replica";
            sqlx::query(statement).execute(&mut connection).await.expect("a superuser");
            return Self::Postgres(connection);
        }
        let data = api.gateway.folder().join("data");
        let options = SqliteConnectOptions::new().filename(data.join("throughline.db"));
        let mut connection = options.connect().await.expect("a file");
        let attach = format!("ATTACH '{}' AS memory", data.join("memory.db").display());
        sqlx::query(AssertSqlSafe(attach)).execute(&mut connection).await.expect("a file");
        Self::Sqlite(connection)
    }

    pub(crate) async fn execute(&mut self, statement: &str) {
        let query = AssertSqlSafe(statement.to_owned());
        let rows = match self {
            Self::Sqlite(to) => {
                sqlx::query(query).execute(to).await.map(|done| done.rows_affected())
            }
            Self::Postgres(to) => {
                sqlx::query(query).execute(to).await.map(|done| done.rows_affected())
            }
        };
        assert_ne!(rows.expect("the statement works"), 0, "{statement}");
    }

    /// The texts of a query with one column.
    pub(crate) async fn texts(&mut self, query: &str) -> Vec<String> {
        let query = AssertSqlSafe(query.to_owned());
        let texts = match self {
            Self::Sqlite(to) => sqlx::query_scalar(query).fetch_all(to).await,
            Self::Postgres(to) => sqlx::query_scalar(query).fetch_all(to).await,
        };
        texts.expect("texts")
    }

    /// The bytes of a column. `row` is a condition.
    pub(crate) async fn bytes(&mut self, column: &str, table: &str, row: &str) -> Vec<u8> {
        let query = AssertSqlSafe(format!("SELECT {column} FROM {table} WHERE {row}"));
        let bytes = match self {
            Self::Sqlite(to) => sqlx::query_scalar(query).fetch_one(to).await,
            Self::Postgres(to) => sqlx::query_scalar(query).fetch_one(to).await,
        };
        bytes.expect("bytes")
    }

    pub(crate) async fn set(&mut self, column: &str, table: &str, row: &str, bytes: &[u8]) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let value = match self {
            Self::Sqlite(_) => format!("x'{hex}'"),
            Self::Postgres(_) => format!("'\\x{hex}'::bytea"),
        };
        self.execute(&format!("UPDATE {table} SET {column} = {value} WHERE {row}")).await;
    }

    /// Changes bytes of a column.
    pub(crate) async fn change(
        &mut self,
        column: &str,
        table: &str,
        row: &str,
        change: impl FnOnce(&mut Vec<u8>),
    ) {
        let mut bytes = self.bytes(column, table, row).await;
        change(&mut bytes);
        self.set(column, table, row, &bytes).await;
    }

    /// Swaps a column of two rows.
    pub(crate) async fn swap(&mut self, column: &str, table: &str, rows: [&str; 2]) {
        let one = self.bytes(column, table, rows[0]).await;
        let other = self.bytes(column, table, rows[1]).await;
        self.set(column, table, rows[0], &other).await;
        self.set(column, table, rows[1], &one).await;
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(connection) => connection.close().await,
            Self::Postgres(connection) => connection.close().await,
        }
        .expect("the connection closes");
    }
}

/// Everything that `pg_dump` writes about a database.
pub(crate) fn dump(url: &str) -> String {
    let output = Command::new("pg_dump").arg(url).output().expect("pg_dump runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a text")
}
