//! Stored conversations, in a SQLite file of their own.

use std::path::Path;

use sqlx::Row;
use sqlx::SqliteConnection;
use sqlx::migrate::Migrator;
use sqlx::sqlite::SqliteRow;
use throughline_conversations::store::{Move, Node, Piece, Reference, Store};
use throughline_gateway::thinking::store::{StoreError, StoreFuture};

use super::check::{self, DatabaseFault};
use super::database::Database;
use crate::rows::{error, signed, unsigned};

/// The columns of a node.
const NODE_COLUMNS: &str = "id, parent, owner, created, expires, open, sealed, \
    (SELECT group_concat(name, char(10)) FROM node_name WHERE node = node.id) AS names";

/// How many of the oldest nodes are read at a time when space is freed.
const BATCH: usize = 100;

static MIGRATIONS: Migrator = sqlx::migrate!("src/sqlite/conversations/migrations");

/// Stored conversations in a SQLite file.
#[derive(Clone, Debug)]
pub struct SqliteConversations {
    database: Database,
}

impl SqliteConversations {
    /// Opens the file. Creates it and its tables if they are missing.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Ok(Self { database: Database::open(path, &MIGRATIONS).await? })
    }

    /// Checks the file without changing it.
    pub async fn check(path: &Path) -> Result<(), DatabaseFault> {
        check::check(path, &MIGRATIONS).await
    }

    async fn write(&self, node: Node, moves: Option<Move>) -> Result<bool, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        if let Some(moves) = moves {
            // A reference without an expiry keeps none: `max` with NULL is NULL.
            let moved = sqlx::query(
                "UPDATE reference SET head = ?, expires = max(expires, ?) WHERE id = ? AND head IS ?",
            )
            .bind(&node.id)
            .bind(node.expires.map(signed))
            .bind(moves.reference)
            .bind(moves.from)
            .execute(&mut *transaction)
            .await?;
            if moved.rows_affected() == 0 {
                transaction.roll_back().await?;
                return Ok(false);
            }
        }
        insert(&mut transaction, &node).await?;
        // The nodes above it must live at least as long.
        let expires = node.expires.map(signed);
        sqlx::query(
            "WITH RECURSIVE above (id) AS (
                SELECT ?1 UNION SELECT parent FROM node JOIN above USING (id) WHERE parent IS NOT NULL
             ) UPDATE node SET expires = CASE WHEN ?2 IS NULL THEN NULL ELSE max(expires, ?2) END
             WHERE id IN above AND id <> ?1 AND expires IS NOT NULL",
        )
        .bind(&node.id)
        .bind(expires)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(true)
    }

    async fn find_node(
        &self,
        condition: &str,
        binds: &[&str],
    ) -> Result<Option<Node>, sqlx::Error> {
        let text = format!("SELECT {NODE_COLUMNS} FROM node WHERE {condition}");
        let mut query = sqlx::query(sqlx::AssertSqlSafe(text));
        for bind in binds {
            query = query.bind(*bind);
        }
        let row = query.fetch_optional(&self.database.readers).await?;
        row.as_ref().map(node).transpose()
    }

    /// A node and its ancestors, root first, at most `limit` of them.
    async fn read_path(&self, id: &str, limit: usize) -> Result<Vec<Node>, sqlx::Error> {
        let text = format!(
            "WITH RECURSIVE above (id, depth) AS (
                SELECT ?1, 0 UNION ALL
                SELECT parent, depth + 1 FROM node JOIN above USING (id)
                WHERE parent IS NOT NULL AND depth + 1 < ?2
             ) SELECT {NODE_COLUMNS} FROM node JOIN above USING (id) ORDER BY depth DESC"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(text))
            .bind(id)
            .bind(signed(limit as u64))
            .fetch_all(&self.database.readers)
            .await?;
        rows.iter().map(node).collect()
    }

    /// Removes expired nodes and references, then the oldest nodes until the rest fits into `bytes`.
    async fn remove_old(&self, now: u64, bytes: u64) -> Result<u64, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        let expired = sqlx::query("DELETE FROM node WHERE open = 0 AND expires <= ?")
            .bind(signed(now))
            .execute(&mut *transaction)
            .await?;
        let expired_references = sqlx::query("DELETE FROM reference WHERE expires <= ?")
            .bind(signed(now))
            .execute(&mut *transaction)
            .await?;
        let mut removed = expired.rows_affected() + expired_references.rows_affected();
        let total = sqlx::query("SELECT bytes FROM total").fetch_one(&mut *transaction).await?;
        let mut excess = total.try_get::<i64, _>("bytes")? - signed(bytes);
        while excess > 0 {
            let oldest = sqlx::query(
                "SELECT id, size FROM node WHERE open = 0 ORDER BY created, id LIMIT ?",
            )
            .bind(signed(BATCH as u64))
            .fetch_all(&mut *transaction)
            .await?;
            if oldest.is_empty() {
                break;
            }
            for row in oldest {
                if excess <= 0 {
                    break;
                }
                excess -= row.try_get::<i64, _>("size")?;
                sqlx::query("DELETE FROM node WHERE id = ?")
                    .bind(row.try_get::<&str, _>("id")?)
                    .execute(&mut *transaction)
                    .await?;
                removed += 1;
            }
        }
        transaction.commit().await?;
        Ok(removed)
    }

    /// Runs a statement about one id and returns the number of changed rows.
    async fn execute(&self, text: &'static str, id: &str) -> Result<u64, sqlx::Error> {
        let done = self.database.execute(sqlx::query(text).bind(id)).await?;
        Ok(done.rows_affected())
    }
}

/// Inserts or replaces a node and its names.
async fn insert(to: &mut SqliteConnection, node: &Node) -> Result<(), sqlx::Error> {
    sqlx::query(
        "INSERT INTO node (id, parent, owner, created, expires, open, size, sealed)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
         ON CONFLICT (id) DO UPDATE SET parent = ?2, owner = ?3, created = ?4, expires = ?5, open = ?6,
         size = size - length(sealed) + ?7, sealed = ?8",
    )
    .bind(&node.id)
    .bind(&node.parent)
    .bind(&node.owner)
    .bind(signed(node.created))
    .bind(node.expires.map(signed))
    .bind(node.open)
    .bind(signed(node.sealed.len() as u64))
    .bind(&node.sealed)
    .execute(&mut *to)
    .await?;
    sqlx::query("DELETE FROM node_name WHERE node = ?").bind(&node.id).execute(&mut *to).await?;
    for name in &node.names {
        sqlx::query("INSERT OR IGNORE INTO node_name (node, name) VALUES (?, ?)")
            .bind(&node.id)
            .bind(name)
            .execute(&mut *to)
            .await?;
    }
    Ok(())
}

fn node(row: &SqliteRow) -> Result<Node, sqlx::Error> {
    let names: Option<String> = row.try_get("names")?;
    let expires: Option<i64> = row.try_get("expires")?;
    Ok(Node {
        id: row.try_get("id")?,
        parent: row.try_get("parent")?,
        owner: row.try_get("owner")?,
        created: unsigned(row.try_get("created")?),
        expires: expires.map(unsigned),
        open: row.try_get("open")?,
        names: names.iter().flat_map(|names| names.lines()).map(str::to_owned).collect(),
        sealed: row.try_get("sealed")?,
    })
}

fn reference(row: &SqliteRow) -> Result<Reference, sqlx::Error> {
    let expires: Option<i64> = row.try_get("expires")?;
    Ok(Reference {
        id: row.try_get("id")?,
        owner: row.try_get("owner")?,
        head: row.try_get("head")?,
        created: unsigned(row.try_get("created")?),
        expires: expires.map(unsigned),
        sealed: row.try_get("sealed")?,
    })
}

fn piece(row: &SqliteRow) -> Result<Piece, sqlx::Error> {
    Ok(Piece {
        first: unsigned(row.try_get("first")?),
        last: unsigned(row.try_get("last")?),
        sealed: row.try_get("sealed")?,
    })
}

fn read_error(cause: sqlx::Error) -> StoreError {
    error("cannot read stored conversations", cause)
}

fn write_error(cause: sqlx::Error) -> StoreError {
    error("cannot write stored conversations", cause)
}

impl Store for SqliteConversations {
    fn put(&self, node: Node, moves: Option<Move>) -> StoreFuture<'_, bool> {
        Box::pin(async { self.write(node, moves).await.map_err(write_error) })
    }

    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>> {
        let id = id.to_owned();
        Box::pin(async move { self.find_node("id = ?", &[&id]).await.map_err(read_error) })
    }

    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        Box::pin(async move {
            let newest = "id IN (SELECT node FROM node_name WHERE name = ?) \
                          ORDER BY owner = ? DESC, created DESC LIMIT 1";
            self.find_node(newest, &[&name, &owner]).await.map_err(read_error)
        })
    }

    fn path(&self, id: &str, limit: usize) -> StoreFuture<'_, Vec<Node>> {
        let id = id.to_owned();
        Box::pin(async move { self.read_path(&id, limit).await.map_err(read_error) })
    }

    fn remove(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move {
            let removed = self.execute("DELETE FROM node WHERE id = ?", &id).await;
            removed.map(|rows| rows > 0).map_err(write_error)
        })
    }

    fn open_nodes(&self) -> StoreFuture<'_, Vec<Node>> {
        Box::pin(async {
            let text = format!("SELECT {NODE_COLUMNS} FROM node WHERE open = 1 ORDER BY created");
            let rows = sqlx::query(sqlx::AssertSqlSafe(text))
                .fetch_all(&self.database.readers)
                .await
                .map_err(read_error)?;
            let nodes: Result<_, _> = rows.iter().map(node).collect();
            nodes.map_err(read_error)
        })
    }

    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let statement = sqlx::query(
                "INSERT INTO reference (id, owner, head, created, expires, sealed)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                 ON CONFLICT (id) DO UPDATE SET sealed = ?6",
            )
            .bind(reference.id)
            .bind(reference.owner)
            .bind(reference.head)
            .bind(signed(reference.created))
            .bind(reference.expires.map(signed))
            .bind(reference.sealed);
            self.database.execute(statement).await.map(drop).map_err(write_error)
        })
    }

    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>> {
        let id = id.to_owned();
        Box::pin(async move {
            let row = sqlx::query(
                "SELECT id, owner, head, created, expires, sealed FROM reference WHERE id = ?",
            )
            .bind(&id)
            .fetch_optional(&self.database.readers)
            .await
            .map_err(read_error)?;
            row.as_ref().map(reference).transpose().map_err(read_error)
        })
    }

    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move {
            let removed = self.execute("DELETE FROM reference WHERE id = ?", &id).await;
            removed.map(|rows| rows > 0).map_err(write_error)
        })
    }

    fn log(&self, node: &str, piece: Piece) -> StoreFuture<'_, ()> {
        let node = node.to_owned();
        Box::pin(async move {
            let insert = "INSERT INTO log (node, first, last, sealed) VALUES (?, ?, ?, ?)";
            let statement = sqlx::query(insert)
                .bind(&node)
                .bind(signed(piece.first))
                .bind(signed(piece.last))
                .bind(piece.sealed);
            self.database.execute(statement).await.map(drop).map_err(write_error)
        })
    }

    fn logged(&self, node: &str, after: Option<u64>) -> StoreFuture<'_, Vec<Piece>> {
        let node = node.to_owned();
        Box::pin(async move {
            let after = after.map_or(-1, signed);
            let rows = sqlx::query(
                "SELECT first, last, sealed FROM log WHERE node = ? AND last > ? ORDER BY first",
            )
            .bind(&node)
            .bind(after)
            .fetch_all(&self.database.readers)
            .await
            .map_err(read_error)?;
            let pieces: Result<_, _> = rows.iter().map(piece).collect();
            pieces.map_err(read_error)
        })
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.database.check_write().await.map_err(write_error) })
    }

    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.remove_old(now, bytes).await.map_err(write_error) })
    }
}
