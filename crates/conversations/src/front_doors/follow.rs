//! Stays with a thread over several runs: the run in progress, and every later one.

use std::sync::Arc;
use std::time::Duration;

use throughline_canonical::Fault;
use throughline_codec::dialects::resumable::{Kinds, LogCursor, ReplyFormat};
use throughline_gateway::thinking::store::StoreError;
use tokio::time::{Instant, sleep};

use super::{FrontDoors, is_kept};
use crate::runs::reader::{Outlet, ReaderEnd, RunReader, Sent};
use crate::store::{Run, RunStatus};

/// How often the store is asked for a new run.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How many runs of a thread are looked at.
const MAX_LISTED_RUNS: usize = 100;
/// What an idle stream sends.
const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// A thread of a caller.
#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) owner: String,
    pub(super) scope: String,
}

/// What a follower reads.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) thread: Thread,
    /// The kinds of blocks that it wants.
    pub(super) kinds: Kinds,
}

/// Where a follower is.
#[derive(Debug)]
pub(super) enum Position {
    /// In this run, which was not read yet.
    In(Box<Run>),
    /// After this run, or before every run.
    After(Option<Box<Run>>),
}

impl FrontDoors {
    /// The kept runs of a thread, newest first.
    pub(super) async fn runs_of(&self, thread: &Thread) -> Result<Vec<Run>, StoreError> {
        let store = &self.runs.sealed_store.store;
        let mut runs = store.runs(&thread.owner, &thread.scope, MAX_LISTED_RUNS).await?;
        runs.retain(is_kept);
        Ok(runs)
    }

    /// Where a follower without a cursor begins: the active run, or the next one.
    pub(super) async fn first_position(&self, thread: &Thread) -> Result<Position, StoreError> {
        let runs = self.runs_of(thread).await?;
        let newest = runs.first().cloned().map(Box::new);
        let active = runs.into_iter().find(|run| run.status == RunStatus::Running);
        Ok(active.map_or(Position::After(newest), |run| Position::In(Box::new(run))))
    }

    /// Sends the runs of a thread until the client is gone or the server stops. `first` is the reader
    /// of the run that the follower is in.
    pub(super) async fn follow(
        self: Arc<Self>,
        followed: Followed,
        mut position: Position,
        mut first: Option<RunReader>,
        mut outlet: Outlet,
    ) {
        let mut stopping = self.stopping.clone();
        let runs = async {
            loop {
                position = match position {
                    Position::In(run) => {
                        let reader = match first.take() {
                            Some(reader) => Ok(reader),
                            None => self.followed(&run, followed.kinds, None).await,
                        };
                        // A run that cannot be read is passed over.
                        if let Ok(reader) = reader
                            && self.readers.forward(reader, &mut outlet).await == ReaderEnd::Gone
                        {
                            return;
                        }
                        Position::After(Some(run))
                    }
                    Position::After(last) => {
                        match self.wait_for_run(&followed.thread, last, &outlet).await {
                            Some(next) => Position::In(next),
                            None => return,
                        }
                    }
                };
            }
        };
        tokio::select! {
            () = runs => {}
            _ = stopping.wait_for(|stop| *stop) => {}
        }
    }

    /// A reader of one run of a thread.
    pub(super) async fn followed(
        &self,
        run: &Run,
        kinds: Kinds,
        cursor: Option<LogCursor>,
    ) -> Result<RunReader, Fault> {
        let reply = self.record(run)?.reply(run, ReplyFormat::AgUi)?;
        self.readers.open(&run.id, None, reply.with_kinds(kinds).in_run(&run.id), cursor).await
    }

    /// Waits for the run after this one. Returns `None` if the client is gone.
    async fn wait_for_run(
        &self,
        thread: &Thread,
        last: Option<Box<Run>>,
        outlet: &Outlet,
    ) -> Option<Box<Run>> {
        let mut silent_since = Instant::now();
        loop {
            // A store that failed has been logged. It may work again.
            let runs = self.runs_of(thread).await.unwrap_or_default();
            if let Some(next) = next_run(runs, last.as_deref()) {
                return Some(Box::new(next));
            }
            tokio::select! {
                () = sleep(POLL_INTERVAL) => {}
                () = outlet.closed() => return None,
            }
            if silent_since.elapsed() >= self.gateway.settings().keep_alive {
                silent_since = Instant::now();
                self.gateway.metrics.keep_alives.increment();
                if outlet.send(KEEP_ALIVE.to_vec(), || true).await != Sent::Yes {
                    return None;
                }
            }
        }
    }
}

/// The oldest run after this one. The runs are listed newest first.
fn next_run(runs: Vec<Run>, last: Option<&Run>) -> Option<Run> {
    let is_later =
        |run: &Run| last.is_none_or(|last| run.id != last.id && run.created >= last.created);
    runs.into_iter().take_while(is_later).last()
}
