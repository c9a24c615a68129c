//! Runs and their logs.

use std::time::Duration;

use throughline_conversations::store::{LogPiece, Piece, Run, RunStore};
use throughline_gateway::thinking::store::StoreFuture;

use super::rows::{self, PIECE, RUN};
use super::{SqlConversations, read_error, write_error};
use crate::sql::{Database, Statements, Value, WriteTransaction, values};

impl<D: Database> SqlConversations<D> {
    async fn find_runs(&self, rest: &str, values: Vec<Value>) -> Result<Vec<Run>, sqlx::Error> {
        let statement = format!("SELECT {RUN} FROM run {rest}");
        rows::all(self.database.read(&statement, values).await?, rows::run)
    }

    async fn write_log(&self, pieces: Vec<LogPiece>) -> Result<Vec<bool>, sqlx::Error> {
        // A piece is written only if its run is in progress under its epoch.
        let insert = "INSERT INTO log (run, first, last, sealed)
             SELECT $1, $2, $3, $4 FROM run WHERE id = $1 AND epoch = $5 AND status = 'running'";
        let mut transaction = self.database.begin().await?;
        let mut written = Vec::with_capacity(pieces.len());
        for LogPiece { run, epoch, piece } in pieces {
            let values = values![run, piece.first, piece.last, piece.sealed, epoch];
            written.push(transaction.execute(insert, values).await? > 0);
        }
        transaction.commit().await?;
        Ok(written)
    }

    async fn read_abandoned(
        &self,
        instance: &str,
        silent: Duration,
    ) -> Result<Vec<Run>, sqlx::Error> {
        let silent = u64::try_from(silent.as_millis()).unwrap_or(u64::MAX);
        let rest = format!(
            "WHERE status = 'running' AND instance <> $1 AND NOT EXISTS (
                SELECT 1 FROM instance WHERE instance.id = run.instance
                AND instance.seen > {} - $2
             ) ORDER BY created, id",
            D::NOW
        );
        self.find_runs(&rest, values![instance, silent]).await
    }
}

impl<D: Database> RunStore for SqlConversations<D> {
    fn run(&self, id: &str) -> StoreFuture<'_, Option<Run>> {
        let values = values![id];
        Box::pin(async move {
            let found = self.find_runs("WHERE id = $1", values).await.map_err(read_error)?;
            Ok(found.into_iter().next())
        })
    }

    fn named_run(&self, owner: &str, scope: &str, name: &str) -> StoreFuture<'_, Option<Run>> {
        let values = values![owner, scope, name];
        Box::pin(async move {
            let rest = "WHERE owner = $1 AND scope = $2 AND name = $3";
            let found = self.find_runs(rest, values).await.map_err(read_error)?;
            Ok(found.into_iter().next())
        })
    }

    fn runs(&self, owner: &str, scope: &str, limit: usize) -> StoreFuture<'_, Vec<Run>> {
        let values = values![owner, scope, limit];
        Box::pin(async move {
            let rest = "WHERE owner = $1 AND scope = $2 ORDER BY created DESC, id DESC LIMIT $3";
            self.find_runs(rest, values).await.map_err(read_error)
        })
    }

    fn active_runs(&self, references: &[String]) -> StoreFuture<'_, Vec<Run>> {
        let references = references.to_vec();
        Box::pin(async move {
            let mut active = Vec::new();
            for reference in references {
                let rest = "WHERE reference = $1 AND status = 'running'";
                let found = self.find_runs(rest, values![reference]).await.map_err(read_error)?;
                active.extend(found);
            }
            Ok(active)
        })
    }

    fn beat(&self, instance: &str) -> StoreFuture<'_, ()> {
        let values = values![instance];
        Box::pin(async move {
            let now = D::NOW;
            let statement = format!(
                "INSERT INTO instance (id, seen) VALUES ($1, {now})
                 ON CONFLICT (id) DO UPDATE SET seen = {now}"
            );
            self.database.run(&statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn abandoned(&self, instance: &str, silent: Duration) -> StoreFuture<'_, Vec<Run>> {
        let instance = instance.to_owned();
        Box::pin(async move { self.read_abandoned(&instance, silent).await.map_err(read_error) })
    }

    fn take_over(&self, id: &str, epoch: u64, instance: &str) -> StoreFuture<'_, Option<u64>> {
        let values = values![id, epoch, instance];
        Box::pin(async move {
            let statement = "UPDATE run SET epoch = epoch + 1, instance = $3
                 WHERE id = $1 AND epoch = $2 AND status = 'running'";
            let taken = self.database.run(statement, values).await.map_err(write_error)?;
            Ok((taken > 0).then_some(epoch + 1))
        })
    }

    fn log(&self, pieces: Vec<LogPiece>) -> StoreFuture<'_, Vec<bool>> {
        Box::pin(async move { self.write_log(pieces).await.map_err(write_error) })
    }

    fn logged(&self, run: &str, after: Option<u64>) -> StoreFuture<'_, Vec<Piece>> {
        let after = Value::Integer(Some(after.map_or(-1, crate::sql::signed)));
        let values = vec![run.into(), after];
        Box::pin(async move {
            let statement =
                format!("SELECT {PIECE} FROM log WHERE run = $1 AND last > $2 ORDER BY first");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::piece).map_err(read_error)
        })
    }

    fn ask_stop(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move {
            let statement = "UPDATE run SET stop = 1 WHERE id = $1 AND status = 'running'";
            self.changes(statement, &id).await.map_err(write_error)
        })
    }

    fn asked_stops(&self, instance: &str) -> StoreFuture<'_, Vec<String>> {
        let values = values![instance];
        Box::pin(async move {
            let statement =
                "SELECT id FROM run WHERE instance = $1 AND stop = 1 AND status = 'running'";
            let found = self.database.read(statement, values).await.map_err(read_error)?;
            rows::all(found, |mut row| row.text()).map_err(read_error)
        })
    }

    fn remove_run(&self, id: &str) -> StoreFuture<'_, bool> {
        let id = id.to_owned();
        Box::pin(async move {
            let removed = self.changes("DELETE FROM run WHERE id = $1", &id).await;
            removed.map_err(write_error)
        })
    }

    fn is_shared(&self) -> bool {
        D::IS_SHARED
    }
}
