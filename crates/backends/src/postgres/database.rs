//! A Postgres database: its connections, its migrations, and how long an operation may take.

use std::fmt;
use std::future::Future;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::query::Query;
use sqlx::{
    AssertSqlSafe, Column, ConnectOptions, Connection, PgConnection, PgPool, Postgres, Row as _,
    TypeInfo,
};
use throughline_gateway::thinking::store::StoreError;
use tokio::time::timeout;

use crate::sql::{self, Row, Statements, Value, WriteTransaction, error};

/// Connections of one instance.
const MAX_CONNECTIONS: u32 = 10;
/// How long an operation waits for a free connection, or for a new one.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an operation may take. A database that is lost must not hold requests up.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// How long migrations may take. They may rewrite tables, or wait for another instance.
const MAX_MIGRATION: Duration = Duration::from_secs(600);
/// A connection that was not used for this long is tested first.
const TEST_AFTER: Duration = Duration::from_secs(1);

/// The lock of Postgres that the instance which migrates holds. The number means nothing.
const MIGRATION_LOCK: i64 = 0x7468_726f_7567_6800;

static MIGRATIONS: Migrator = sqlx::migrate!("src/postgres/migrations");

/// Writes as many bytes as a turn with a long answer needs.
const CHECK_WRITE: &str = "INSERT INTO write_check (id, filler)
    VALUES (1, decode(repeat('00', 65536), 'hex'))
    ON CONFLICT (id) DO UPDATE SET filler = excluded.filler";

/// A Postgres database.
#[derive(Clone)]
pub struct Database {
    pub(super) pool: PgPool,
    /// Host and database, for messages.
    name: String,
}

impl fmt::Debug for Database {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Database({})", self.name)
    }
}

/// Why the database gave no answer.
#[derive(Debug, thiserror::Error)]
#[error("the {name} does not answer")]
struct NoAnswer {
    name: String,
}

/// What migrations have done to a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migrated {
    /// Host and database. Never the password.
    pub name: String,
    /// How many migrations were applied.
    pub applied: usize,
}

impl Database {
    /// Connects and brings the tables up to date.
    pub(super) async fn open(url: &str) -> Result<(Self, Migrated), StoreError> {
        let (mut connection, options, name) = connect(url).await?;
        let applied = timeout(MAX_MIGRATION, migrate(&mut connection))
            .await
            .map_err(|_| NoAnswer { name: name.clone() }.into())
            .and_then(|migrated| migrated.map_err(Into::into))
            .map_err(|cause| StoreError { what: format!("cannot prepare the {name}"), cause })?;
        // What happens to this connection now does not matter.
        let _ = connection.close().await;
        Ok((Self::with(options, name.clone()), Migrated { name, applied }))
    }

    /// Connects, and changes nothing.
    pub(super) async fn connect(url: &str) -> Result<Self, StoreError> {
        let (connection, options, name) = connect(url).await?;
        let _ = connection.close().await;
        Ok(Self::with(options, name))
    }

    fn with(options: PgConnectOptions, name: String) -> Self {
        let pool = PgPoolOptions::new()
            .max_connections(MAX_CONNECTIONS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A test costs a round trip, and connections in use show by themselves that they work.
            .test_before_acquire(false)
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > TEST_AFTER {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Self { pool, name }
    }

    /// Runs an operation. It fails if it takes too long.
    pub(super) async fn within<T>(
        &self,
        what: &'static str,
        operation: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        self.limited(operation).await.map_err(|cause| error(what, cause))
    }

    async fn limited<T>(
        &self,
        operation: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, sqlx::Error> {
        match timeout(MAX_WAIT, operation).await {
            Ok(Err(sqlx::Error::PoolTimedOut)) | Err(_) => {
                let no_answer = NoAnswer { name: self.name.clone() };
                Err(sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, no_answer)))
            }
            Ok(result) => result,
        }
    }

    /// Checks that the database can be written now.
    pub(super) async fn check_write(&self) -> Result<(), sqlx::Error> {
        sqlx::query(CHECK_WRITE).execute(&self.pool).await.map(drop)
    }
}

impl sql::Database for Database {
    const NOW: &'static str = "unix_ms()";
    const HOLD: &'static str = "FOR SHARE";
    const IS_SHARED: bool = true;

    async fn begin(&self) -> Result<impl WriteTransaction, sqlx::Error> {
        let transaction = self.limited(self.pool.begin()).await?;
        Ok(Transaction { transaction, database: self.clone() })
    }

    async fn read(&self, statement: &str, values: Vec<Value>) -> Result<Vec<Row>, sqlx::Error> {
        let rows = self.limited(query(statement, values).fetch_all(&self.pool)).await?;
        rows.iter().map(row).collect()
    }

    async fn run(&self, statement: &str, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let done = self.limited(query(statement, values).execute(&self.pool)).await?;
        Ok(done.rows_affected())
    }

    async fn check_write(&self) -> Result<(), sqlx::Error> {
        self.limited(Self::check_write(self)).await
    }
}

/// A transaction whose statements must not take too long.
struct Transaction {
    transaction: sqlx::Transaction<'static, Postgres>,
    database: Database,
}

impl Statements for Transaction {
    async fn fetch(
        &mut self,
        statement: &str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, sqlx::Error> {
        let fetch = query(statement, values).fetch_all(&mut *self.transaction);
        let rows = self.database.limited(fetch).await?;
        rows.iter().map(row).collect()
    }

    async fn execute(&mut self, statement: &str, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        let execute = query(statement, values).execute(&mut *self.transaction);
        Ok(self.database.limited(execute).await?.rows_affected())
    }
}

impl WriteTransaction for Transaction {
    async fn commit(self) -> Result<(), sqlx::Error> {
        self.database.limited(self.transaction.commit()).await
    }

    async fn roll_back(self) -> Result<(), sqlx::Error> {
        self.database.limited(self.transaction.rollback()).await
    }
}

fn query(statement: &str, values: Vec<Value>) -> Query<'static, Postgres, PgArguments> {
    let query = sqlx::query(AssertSqlSafe(statement.to_owned()));
    values.into_iter().fold(query, |query, value| match value {
        Value::Text(value) => query.bind(value.as_deref().map(text)),
        Value::Integer(number) => query.bind(number),
        Value::Bytes(bytes) => query.bind(bytes),
    })
}

/// Reads a row. Numbers that a statement makes itself are shorter than those of our columns.
fn row(row: &PgRow) -> Result<Row, sqlx::Error> {
    let value = |column: usize| -> Result<Value, sqlx::Error> {
        Ok(match row.column(column).type_info().name() {
            "INT8" => Value::Integer(row.try_get(column)?),
            "INT4" => Value::Integer(row.try_get::<Option<i32>, _>(column)?.map(i64::from)),
            "BYTEA" => Value::Bytes(row.try_get(column)?),
            _ => Value::Text(row.try_get(column)?),
        })
    };
    let values: Result<Vec<Value>, _> = (0..row.len()).map(value).collect();
    Ok(Row(values?.into_iter()))
}

/// Postgres cannot store the character zero, which may be in a name that a client invents.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// Connects once, so that the error is that of the database and not that of a pool.
async fn connect(url: &str) -> Result<(PgConnection, PgConnectOptions, String), StoreError> {
    let options = PgConnectOptions::from_str(url)
        .map_err(|cause| error("the address of the Postgres database is not valid", cause))?
        .application_name("throughline");
    let name = name(&options);
    let connected = timeout(MAX_WAIT, options.connect()).await;
    let connected = connected
        .map_err(|_| NoAnswer { name: name.clone() }.into())
        .and_then(|connected| connected.map_err(Into::into));
    match connected {
        Ok(connection) => Ok((connection, options, name)),
        Err(cause) => Err(StoreError { what: format!("cannot connect to the {name}"), cause }),
    }
}

/// The host and the database of an address.
fn name(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or_else(|| options.get_username());
    match options.get_socket() {
        Some(socket) => format!("Postgres database `{database}` at `{}`", socket.display()),
        None => {
            let (host, port) = (options.get_host(), options.get_port());
            format!("Postgres database `{database}` at `{host}:{port}`")
        }
    }
}

/// Checks that this version can use the tables. Returns host and database.
pub(super) async fn check(url: &str) -> Result<String, StoreError> {
    let (mut connection, _, name) = connect(url).await?;
    let failed = |cause| error(format!("cannot read the {name}"), cause);
    if applied(&mut connection).await.map_err(failed)? > 0 {
        let newest = "SELECT max(version) FROM _sqlx_migrations";
        let found: i64 =
            sqlx::query_scalar(newest).fetch_one(&mut connection).await.map_err(failed)?;
        let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or_default();
        if found > known {
            let newer = crate::sqlite::DatabaseFault::Newer { found, known };
            return Err(error(format!("cannot use the {name}"), newer));
        }
    }
    Ok(name)
}

/// Host and database, and the value of a fact. `None` if there is none, or no table yet.
pub(super) async fn read_fact(
    url: &str,
    fact: &str,
) -> Result<(String, Option<String>), StoreError> {
    let (mut connection, _, name) = connect(url).await?;
    let failed = |cause| error(format!("cannot read the {name}"), cause);
    let has_table = sqlx::query_scalar("SELECT to_regclass('fact') IS NOT NULL");
    let value = match has_table.fetch_one(&mut connection).await.map_err(failed)? {
        true => {
            let value = sqlx::query_scalar("SELECT value FROM fact WHERE name = $1").bind(fact);
            value.fetch_optional(&mut connection).await.map_err(failed)?
        }
        false => None,
    };
    Ok((name, value))
}

/// Applies the migrations that are missing. Returns how many those were. Another instance that does
/// the same waits, until this connection is closed.
async fn migrate(connection: &mut PgConnection) -> Result<usize, sqlx::Error> {
    sqlx::query("SELECT pg_advisory_lock($1)")
        .bind(MIGRATION_LOCK)
        .execute(&mut *connection)
        .await?;
    let before = applied(connection).await?;
    MIGRATIONS.run(&mut *connection).await?;
    Ok(applied(connection).await?.saturating_sub(before))
}

async fn applied(connection: &mut PgConnection) -> Result<usize, sqlx::Error> {
    let table = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";
    if !sqlx::query_scalar::<_, bool>(table).fetch_one(&mut *connection).await? {
        return Ok(0);
    }
    let count = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM _sqlx_migrations");
    Ok(usize::try_from(count.fetch_one(connection).await?).unwrap_or_default())
}
