//! The floor: a table with a number and bytes, filled with as few statements as possible.

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Connection, Executor, PgConnection, Postgres, QueryBuilder, Sqlite, SqliteConnection};

use crate::is_postgres;

/// Rows of one statement.
const MAX_ROWS: usize = 500;

/// A connection to a database with a plain table.
pub(crate) enum Plain {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// Inserts rows in one transaction. The two products have no common type for this.
macro_rules! insert {
    ($connection:expr, $product:ty, $rows:expr) => {{
        let mut transaction = $connection.begin().await.unwrap();
        for rows in $rows.chunks(MAX_ROWS) {
            let mut query = QueryBuilder::<$product>::new("INSERT INTO plain (body) ");
            query.push_values(rows, |mut row, body| {
                row.push_bind(body);
            });
            query.build().execute(&mut *transaction).await.unwrap();
        }
        transaction.commit().await.unwrap();
    }};
}

impl Plain {
    /// Makes the table: in a file beside the store's file, or in the store's database.
    pub(crate) async fn open(store: &str) -> Self {
        if is_postgres(store) {
            let mut connection = PgConnection::connect(store).await.unwrap();
            let table = "CREATE TABLE plain (id BIGSERIAL PRIMARY KEY, body BYTEA NOT NULL)";
            connection.execute(table).await.unwrap();
            return Self::Postgres(connection);
        }
        // The same settings as the store.
        let options = SqliteConnectOptions::new()
            .filename(format!("{store}.plain"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal);
        let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
        let table = "CREATE TABLE plain (id INTEGER PRIMARY KEY, body BLOB NOT NULL)";
        connection.execute(table).await.unwrap();
        Self::Sqlite(connection)
    }

    /// Inserts rows in one transaction.
    pub(crate) async fn insert(&mut self, rows: &[Vec<u8>]) {
        match self {
            Self::Sqlite(connection) => insert!(connection, Sqlite, rows),
            Self::Postgres(connection) => insert!(connection, Postgres, rows),
        }
    }
}
