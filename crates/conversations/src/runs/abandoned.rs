//! Ends the runs of processes that died. Each process records every second that it is alive. If one
//! is silent for too long, another takes its runs over and ends them with what had arrived. The
//! same task stops the runs of this process that were stopped at another one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use throughline_gateway::thinking::store::StoreError;
use throughline_sealing::SealError;

use super::Runs;
use crate::store::Run;

/// How often a process records that it is alive.
const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// How long a process may be silent before its runs are taken over.
const MAX_SILENCE: Duration = Duration::from_secs(5);

/// Ends runs of one kind.
pub trait CloseRun: Send + Sync {
    /// Whether runs of this scope are of its kind.
    fn handles(&self, scope: &str) -> bool;
    /// Ends a run that its process has left, with what had arrived. This process writes it now.
    fn close(
        self: Arc<Self>,
        run: Run,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;
}

impl Runs {
    /// Asks the writer of a run to stop, whichever process that is. Returns whether the run is in
    /// progress.
    pub async fn stop(&self, id: &str) -> Result<bool, StoreError> {
        match self.live(id) {
            Some(run) => {
                run.stop();
                Ok(true)
            }
            None => self.sealed_store.store.ask_stop(id).await,
        }
    }

    /// Ends the runs that an earlier process on this store has left. Call this before any run
    /// starts.
    pub async fn close_left_runs(&self, closers: &[Arc<dyn CloseRun>]) {
        // No other instance uses a store that is not shared, so all its runs were left.
        let silent = match self.sealed_store.store.is_shared() {
            true => MAX_SILENCE,
            false => Duration::ZERO,
        };
        self.close_abandoned(silent, closers).await;
    }

    /// Records that this process is alive, and ends the runs of dead ones. Run this as a task.
    pub async fn watch_instances(self: Arc<Self>, closers: Vec<Arc<dyn CloseRun>>) {
        let store = &self.sealed_store.store;
        if !store.is_shared() {
            return;
        }
        let mut ticks = tokio::time::interval(BEAT_INTERVAL);
        loop {
            ticks.tick().await;
            // The store records and logs a failure.
            let _ = store.beat(&self.instance).await;
            for id in store.asked_stops(&self.instance).await.unwrap_or_default() {
                if let Some(run) = self.live(&id) {
                    run.stop();
                }
            }
            self.close_abandoned(MAX_SILENCE, &closers).await;
        }
    }

    async fn close_abandoned(&self, silent: Duration, closers: &[Arc<dyn CloseRun>]) {
        let store = &self.sealed_store.store;
        let Ok(runs) = store.abandoned(&self.instance, silent).await.inspect_err(log_error) else {
            return;
        };
        for run in runs {
            let taken = store.take_over(&run.id, run.epoch, &self.instance).await;
            // Another process may have been faster.
            let Ok(Some(epoch)) = taken.inspect_err(log_error) else {
                continue;
            };
            tracing::info!(run = run.id, "ending a run whose server has stopped");
            let Some(closer) = closers.iter().find(|closer| closer.handles(&run.scope)) else {
                continue;
            };
            let id = run.id.clone();
            let closed = closer.clone().close(Run { epoch, ..run }).await.inspect_err(log_error);
            if closed.is_err_and(|error| error.cause.is::<SealError>()) {
                // It can never be read, and the next start should not try again.
                let _ = store.remove_run(&id).await;
            }
        }
    }
}

fn log_error(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "{error}");
}
