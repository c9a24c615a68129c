//! Runs and their logs.

use std::collections::HashMap;
use std::time::Duration;

use throughline_conversations::store::{CostSum, LogPiece, Piece, Run, RunStore};
use throughline_gateway::thinking::store::StoreFuture;

use super::rows::{self, PIECE, RUN};
use super::{SqlConversations, read_error, write_error};
use crate::sql::many_rows::{self, MAX_ROWS};
use crate::sql::{Database, Statements, Value, WriteTransaction, values};

/// The shortest time between two records of readers of a run.
const MIN_READ_INTERVAL_MS: u64 = 250;

impl<D: Database> SqlConversations<D> {
    async fn find_runs(&self, rest: &str, values: Vec<Value>) -> Result<Vec<Run>, sqlx::Error> {
        let statement = format!("SELECT {RUN} FROM run {rest}");
        rows::all(self.database.read(&statement, values).await?, rows::run)
    }

    async fn write_log(&self, pieces: Vec<LogPiece>) -> Result<Vec<bool>, sqlx::Error> {
        let mut runs: Vec<String> = pieces.iter().map(|piece| piece.run.clone()).collect();
        // Two processes that lock the same runs do not wait for each other in a circle.
        runs.sort_unstable();
        runs.dedup();
        let mut transaction = self.database.begin().await?;
        let mut epochs = HashMap::with_capacity(runs.len());
        for runs in runs.chunks(MAX_ROWS) {
            let (runs, values) = many_rows::one_of(runs);
            // No process may take a run over or end it until the pieces are written.
            let statement = format!(
                "SELECT id, epoch FROM run WHERE id IN {runs} AND status = 'running' ORDER BY id {}",
                D::HOLD
            );
            for mut row in transaction.fetch(&statement, values).await? {
                epochs.insert(row.text()?, row.number()?);
            }
        }
        let is_writable = |piece: &LogPiece| epochs.get(&piece.run) == Some(&piece.epoch);
        let written: Vec<bool> = pieces.iter().map(is_writable).collect();
        let writable = pieces.into_iter().filter(is_writable);
        let rows = writable.map(|LogPiece { run, piece, .. }| {
            let Piece { first, last, continues, sealed } = piece;
            [run.into(), first.into(), last.into(), continues.into(), sealed.into()]
        });
        let table = "log (run, first, last, continues, sealed)";
        many_rows::insert(&mut transaction, table, rows.collect()).await?;
        transaction.commit().await?;
        Ok(written)
    }

    async fn read_active_runs(&self, references: &[String]) -> Result<Vec<Run>, sqlx::Error> {
        let mut active = Vec::new();
        for references in references.chunks(MAX_ROWS) {
            let (references, values) = many_rows::one_of(references);
            let rest = format!("WHERE reference IN {references} AND status = 'running'");
            active.extend(self.find_runs(&rest, values).await?);
        }
        Ok(active)
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
        Box::pin(async move { self.read_active_runs(&references).await.map_err(read_error) })
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

    fn logged(&self, run: &str, after: Option<u64>, limit: usize) -> StoreFuture<'_, Vec<Piece>> {
        let next = after.map_or(0, |after| after.saturating_add(1));
        let values = values![run, next, limit];
        Box::pin(async move {
            // The piece that has the next entry may begin before it.
            let statement = format!(
                "SELECT {PIECE} FROM log WHERE run = $1 AND last >= $2 AND first >= coalesce(
                    (SELECT max(first) FROM log WHERE run = $1 AND first <= $2), 0)
                 ORDER BY first LIMIT $3"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::piece).map_err(read_error)
        })
    }

    fn log_outline(&self, run: &str, before: u64) -> StoreFuture<'_, Vec<Piece>> {
        let values = values![run, before];
        Box::pin(async move {
            let statement = format!(
                "SELECT {PIECE} FROM log WHERE run = $1 AND first < $2 AND continues = 0
                 ORDER BY first"
            );
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            rows::all(found, rows::piece).map_err(read_error)
        })
    }

    fn last_logged(&self, run: &str) -> StoreFuture<'_, Option<u64>> {
        let values = values![run];
        Box::pin(async move {
            let statement = "SELECT last FROM log WHERE run = $1 ORDER BY first DESC LIMIT 1";
            let found = self.database.read(statement, values).await.map_err(read_error)?;
            rows::first(found, |mut row| row.number()).map_err(read_error)
        })
    }

    fn costs(&self, project: &str, room: Option<&str>) -> StoreFuture<'_, Vec<CostSum>> {
        let values = values![project, room.map(str::to_owned)];
        Box::pin(async move {
            let statement = "SELECT channel, count(*),
                    CAST(sum(CASE WHEN picodollars IS NULL OR unpriced_tokens > 0 THEN 1 ELSE 0 END)
                        AS BIGINT),
                    CAST(coalesce(sum(picodollars), 0) AS BIGINT),
                    CAST(sum(unpriced_tokens) AS BIGINT)
                 FROM run_cost WHERE project = $1 AND ($2 IS NULL OR room = $2)
                 GROUP BY channel ORDER BY channel";
            let found = self.database.read(statement, values).await.map_err(read_error)?;
            rows::all(found, rows::cost_sum).map_err(read_error)
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

    fn record_reader(&self, id: &str) -> StoreFuture<'_, ()> {
        let values = values![id, MIN_READ_INTERVAL_MS];
        Box::pin(async move {
            let now = D::NOW;
            // Many readers cost as many writes as one.
            let statement = format!(
                "UPDATE run SET read_at = {now} WHERE id = $1 AND status = 'running'
                 AND coalesce(read_at, 0) < {now} - $2"
            );
            self.database.run(&statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn last_read(&self, id: &str) -> StoreFuture<'_, Option<Duration>> {
        let values = values![id];
        Box::pin(async move {
            let now = D::NOW;
            let statement =
                format!("SELECT {now} - read_at FROM run WHERE id = $1 AND read_at IS NOT NULL");
            let found = self.database.read(&statement, values).await.map_err(read_error)?;
            let ages = rows::all(found, |mut row| row.number()).map_err(read_error)?;
            Ok(ages.first().map(|age| Duration::from_millis(*age)))
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
