//! Reads which key sealed the data of a file, without changing the file. The keyring is checked before
//! anything else is read, and by `throughline doctor`.

use std::path::Path;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection};

use super::DatabaseFault;

/// How many of the first sealed bytes are read. They name the key.
const HEAD: &str = "substr(sealed, 1, 16)";

/// The value of a stored fact in the file of the thinking memory.
pub async fn read_fact(path: &Path, name: &str) -> Result<Option<String>, DatabaseFault> {
    read_one(path, "fact", "SELECT value FROM fact WHERE name = ?", Some(name)).await
}

/// The first bytes of the newest sealed value in a file of ours: a turn in the vault, or a stored
/// response.
pub async fn newest_sealed(path: &Path) -> Result<Option<Vec<u8>>, DatabaseFault> {
    let turn = format!("SELECT {HEAD} FROM vault_record ORDER BY id DESC LIMIT 1");
    if let Some(found) = read_one(path, "vault_record", &turn, None).await? {
        return Ok(Some(found));
    }
    let response = format!("SELECT {HEAD} FROM node ORDER BY created DESC LIMIT 1");
    read_one(path, "node", &response, None).await
}

/// Reads one value. `None` if there is no such file, table or row.
async fn read_one<T>(
    path: &Path,
    table: &str,
    query: &str,
    bind: Option<&str>,
) -> Result<Option<T>, DatabaseFault>
where
    T: for<'r> sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite> + Send + Unpin,
{
    if !path.exists() {
        return Ok(None);
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = options.connect().await?;
    let exists = sqlx::query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?")
        .bind(table)
        .fetch_optional(&mut connection)
        .await?;
    let found = match exists {
        Some(_) => {
            let mut query = sqlx::query_scalar(sqlx::AssertSqlSafe(query.to_owned()));
            if let Some(bind) = bind {
                query = query.bind(bind.to_owned());
            }
            query.fetch_optional(&mut connection).await?
        }
        None => None,
    };
    connection.close().await?;
    Ok(found)
}
