//! A Postgres database: its connections, its migrations, and how long an operation may take.

use std::fmt;
use std::future::Future;
use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection, PgConnection, PgPool};
use throughline_gateway::thinking::store::StoreError;
use tokio::time::timeout;

use crate::rows::error;

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
pub(super) struct Database {
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
        Ok((Self { pool, name: name.clone() }, Migrated { name, applied }))
    }

    /// Runs an operation. It fails if it takes too long.
    pub(super) async fn run<T>(
        &self,
        what: &'static str,
        operation: impl Future<Output = Result<T, sqlx::Error>> + Send,
    ) -> Result<T, StoreError> {
        let no_answer = || error(what, NoAnswer { name: self.name.clone() });
        match timeout(MAX_WAIT, operation).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(sqlx::Error::PoolTimedOut)) | Err(_) => Err(no_answer()),
            Ok(Err(cause)) => Err(error(what, cause)),
        }
    }

    /// Checks that the database can be written now.
    pub(super) async fn check_write(&self) -> Result<(), sqlx::Error> {
        sqlx::query(CHECK_WRITE).execute(&self.pool).await.map(drop)
    }
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
