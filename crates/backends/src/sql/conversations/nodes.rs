//! Nodes and references.

use throughline_conversations::store::{Commit, Detail, Node, NodeStore, Outcome, Page, Reference};
use throughline_gateway::thinking::store::StoreFuture;

use super::paths::ABOVE;
use super::rows::{self, NODE, REFERENCE};
use super::{SqlConversations, read_error, write_error};
use crate::sql::{Database, Statements, WriteTransaction, signed, values};

/// How many of the oldest nodes are read at a time when space is freed.
const BATCH: usize = 100;

impl<D: Database> SqlConversations<D> {
    /// Removes expired nodes, references, runs and sessions, then the oldest nodes until the rest fits
    /// into `bytes`.
    async fn remove_old(&self, now: u64, bytes: u64) -> Result<u64, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        let mut removed = 0;
        for statement in [
            "DELETE FROM node WHERE open = 0 AND project IS NULL AND expires <= $1",
            "DELETE FROM reference WHERE expires <= $1",
            "DELETE FROM run WHERE status <> 'running' AND expires <= $1",
            "DELETE FROM session WHERE expires <= $1",
        ] {
            removed += transaction.execute(statement, values![now]).await?;
        }
        let total = transaction.fetch("SELECT bytes FROM total", values![]).await?;
        let total = total.into_iter().next().map_or(Ok(0), |mut row| row.number())?;
        let mut excess = signed(total).saturating_sub(signed(bytes));
        while excess > 0 {
            let oldest = "SELECT id, size FROM node WHERE open = 0 AND project IS NULL
                 ORDER BY created, id LIMIT $1";
            let oldest = transaction.fetch(oldest, values![BATCH]).await?;
            if oldest.is_empty() {
                break;
            }
            for mut row in oldest {
                if excess <= 0 {
                    break;
                }
                let (id, size) = (row.text()?, row.number()?);
                excess -= signed(size);
                transaction.execute("DELETE FROM node WHERE id = $1", values![id]).await?;
                removed += 1;
            }
        }
        transaction.commit().await?;
        Ok(removed)
    }

    /// Runs a statement about one id. Returns whether it changed anything.
    pub(super) async fn changes(&self, statement: &str, id: &str) -> Result<bool, sqlx::Error> {
        Ok(self.database.run(statement, values![id]).await? > 0)
    }
}

impl<D: Database> NodeStore for SqlConversations<D> {
    fn commit(&self, commit: Commit) -> StoreFuture<'_, Outcome> {
        Box::pin(async move { self.write_commit(&commit).await.map_err(write_error) })
    }

    fn node(&self, id: &str) -> StoreFuture<'_, Option<Node>> {
        let values = values![id];
        Box::pin(async move {
            let statement = format!("SELECT {NODE} FROM node WHERE id = $1");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::first(found, rows::node).map_err(read_error)
        })
    }

    fn named(&self, owner: &str, name: &str) -> StoreFuture<'_, Option<Node>> {
        let values = values![name, owner];
        Box::pin(async move {
            let statement = format!(
                "SELECT {NODE} FROM node
                 WHERE id IN (SELECT node FROM node_name WHERE name = $1)
                 ORDER BY CASE WHEN owner = $2 THEN 0 ELSE 1 END, created DESC LIMIT 1"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::first(found, rows::node).map_err(read_error)
        })
    }

    fn path(&self, id: &str, most: usize, detail: Detail) -> StoreFuture<'_, Vec<Node>> {
        let id = id.to_owned();
        Box::pin(async move { self.read_path(&id, most, detail).await.map_err(read_error) })
    }

    fn path_ids(&self, id: &str, most: usize) -> StoreFuture<'_, Vec<String>> {
        let values = values![id, most];
        Box::pin(async move {
            let statement = format!("{ABOVE} SELECT id FROM above ORDER BY depth DESC");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, |mut row| row.text()).map_err(read_error)
        })
    }

    fn path_page(
        &self,
        id: &str,
        page: Page,
        detail: Detail,
    ) -> StoreFuture<'_, Option<Vec<Node>>> {
        let id = id.to_owned();
        Box::pin(async move { self.read_path_page(&id, page, detail).await.map_err(read_error) })
    }

    fn raw(&self, id: &str) -> StoreFuture<'_, Option<Vec<u8>>> {
        let values = values![id];
        Box::pin(async move {
            let statement = "SELECT raw_response FROM raw_response WHERE node = $1";
            let found = self.database.read(statement, values).await.map_err(read_error)?;
            rows::first(found, |mut row| row.bytes()).map_err(read_error)
        })
    }

    fn remove(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move {
            let removed = self.changes("DELETE FROM node WHERE id = $1", &id).await;
            removed.map_err(write_error)
        })
    }

    fn put_reference(&self, reference: Reference) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            let statement = "INSERT INTO reference (id, owner, head, created, expires, sealed)
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (id) DO UPDATE SET sealed = $6";
            let values = values![
                reference.id,
                reference.owner,
                reference.head,
                reference.created,
                reference.expires,
                reference.sealed,
            ];
            self.database.run(statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn reference(&self, id: &str) -> StoreFuture<'_, Option<Reference>> {
        let values = values![id];
        Box::pin(async move {
            let statement = format!("SELECT {REFERENCE} FROM reference WHERE id = $1");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::first(found, rows::reference).map_err(read_error)
        })
    }

    fn remove_reference(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move {
            let removed = self.changes("DELETE FROM reference WHERE id = $1", &id).await;
            removed.map_err(write_error)
        })
    }

    fn trim(&self, now: u64, bytes: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { self.remove_old(now, bytes).await.map_err(write_error) })
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(async { self.database.check_write().await.map_err(write_error) })
    }
}
