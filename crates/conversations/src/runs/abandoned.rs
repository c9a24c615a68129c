//! Ends the runs of processes that died. Each process records every second that it is alive. If one
//! is silent for too long, another takes its runs over and ends them with what had arrived. The
//! same task stops the runs of this process that were stopped at another one.
//!
//! A run that was taken over and cannot be ended, because the store fails, is tried again every second.

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
        // A close may wait for the store, and a process that does not beat counts as dead.
        tokio::join!(self.beat(), self.close_others(&closers));
    }

    /// Records every second that this process is alive, and stops runs that another instance was asked to stop.
    async fn beat(&self) {
        let store = &self.sealed_store.store;
        let mut ticks = tokio::time::interval(BEAT_INTERVAL);
        while store.is_shared() {
            ticks.tick().await;
            // The store records and logs a failure.
            let _ = store.beat(&self.instance).await;
            for id in store.asked_stops(&self.instance).await.unwrap_or_default() {
                if let Some(run) = self.live(&id) {
                    run.stop();
                }
            }
        }
    }

    /// Ends the runs of dead processes, and tries again those that could not be ended.
    async fn close_others(&self, closers: &[Arc<dyn CloseRun>]) {
        let is_shared = self.sealed_store.store.is_shared();
        let mut ticks = tokio::time::interval(BEAT_INTERVAL);
        while is_shared || !self.unclosed.lock().is_empty() {
            ticks.tick().await;
            match is_shared {
                true => self.close_abandoned(MAX_SILENCE, closers).await,
                false => self.close_taken(closers).await,
            }
        }
    }

    async fn close_abandoned(&self, silent: Duration, closers: &[Arc<dyn CloseRun>]) {
        let store = &self.sealed_store.store;
        let found = store.abandoned(&self.instance, silent).await.inspect_err(log_error);
        for run in found.unwrap_or_default() {
            let taken = store.take_over(&run.id, run.epoch, &self.instance).await;
            // Another process may have been faster.
            if let Ok(Some(epoch)) = taken.inspect_err(log_error) {
                self.unclosed.lock().push(Run { epoch, ..run });
            }
        }
        self.close_taken(closers).await;
    }

    /// Ends the runs that this process has taken over. Those that cannot be ended now stay in the
    /// list: no other process would find them while this one is alive.
    async fn close_taken(&self, closers: &[Arc<dyn CloseRun>]) {
        let taken = std::mem::take(&mut *self.unclosed.lock());
        for run in taken {
            let Some(closer) = closers.iter().find(|closer| closer.handles(&run.scope)) else {
                continue;
            };
            tracing::info!(run = run.id, "ending a run whose server has stopped");
            let closed = closer.clone().close(run.clone()).await.inspect_err(log_error);
            match closed {
                Ok(()) => {}
                Err(error) if error.cause.is::<SealError>() => {
                    // It can never be read, and the next start should not try again.
                    let _ = self.sealed_store.store.remove_run(&run.id).await;
                }
                Err(_) => self.unclosed.lock().push(run),
            }
        }
    }
}

fn log_error(error: &StoreError) {
    tracing::error!(error = error as &dyn std::error::Error, "{error}");
}

#[cfg(test)]
mod tests {
    use throughline_canonical::{Fault, FaultKind};
    use throughline_codec::pacing::Pacing;
    use throughline_gateway::thinking::store::StoreFuture;
    use throughline_sealing::Keyring;

    use super::*;
    use crate::in_memory::InMemory;
    use crate::runs::canonical::{CanonicalRun, Driven, StoreEnd};
    use crate::runs::log::LiveRun;
    use crate::sealed_store::SealedStore;
    use crate::store::{Commit, NodeStore, Outcome, RunEnd, RunStatus, RunStore};

    const ID: &str = "run_1";

    /// Ends every run with nothing but its status.
    struct Closer(Arc<Runs>);

    struct End(Arc<Runs>, u64);

    impl StoreEnd for End {
        fn store_end<'a>(&'a self, driven: &'a Driven) -> StoreFuture<'a, Outcome> {
            let end = RunEnd {
                run: ID.to_owned(),
                epoch: self.1,
                status: driven.status,
                expires: None,
                sealed: Vec::new(),
            };
            self.0.sealed_store.store.commit(Commit { end: Some(end), ..Commit::default() })
        }
    }

    impl CloseRun for Closer {
        fn handles(&self, _: &str) -> bool {
            true
        }

        fn close(
            self: Arc<Self>,
            run: Run,
        ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
            Box::pin(async move {
                let live = Arc::new(LiveRun::new(&*run.id, run.epoch));
                let runs = self.0.clone();
                let canonical =
                    CanonicalRun { runs, live, pacing: Pacing::IMMEDIATE, needs_content: true };
                let fault = Fault::new(FaultKind::Unreachable, "the server was stopped");
                let end = End(self.0.clone(), run.epoch);
                canonical.close_left(fault, &end).await.map(drop)
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn run_that_could_not_be_ended_is_ended_later() {
        let store = Arc::new(InMemory::default());
        let start = Run {
            id: ID.to_owned(),
            owner: "ada".to_owned(),
            scope: "test".to_owned(),
            name: None,
            reference: Some("branch".to_owned()),
            instance: "dead".to_owned(),
            epoch: 1,
            status: RunStatus::Running,
            created: 0,
            expires: None,
            sealed: Vec::new(),
        };
        store.commit(Commit { start: Some(start), ..Commit::default() }).await.unwrap();
        let keyring = Arc::new(Keyring::new([7; 32]));
        let sealed_store = Arc::new(SealedStore::new(store.clone(), keyring, 1 << 20));
        let runs = Arc::new(Runs::new(sealed_store));
        let closers: Vec<Arc<dyn CloseRun>> = vec![Arc::new(Closer(runs.clone()))];
        store.fail_next_reads_of_logs(2);
        runs.close_left_runs(&closers).await;
        assert_eq!(store.run(ID).await.unwrap().unwrap().status, RunStatus::Running);
        // It returns when nothing is left to do.
        runs.clone().watch_instances(closers).await;
        assert_eq!(store.run(ID).await.unwrap().unwrap().status, RunStatus::Interrupted);
        assert_eq!(store.active_runs(&["branch".to_owned()]).await.unwrap(), []);
    }
}
