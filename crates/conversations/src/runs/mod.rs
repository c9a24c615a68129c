//! Runs: replies that go on without their client. Each has a log of numbered entries, in memory
//! while it runs and in the store as long as the run is kept. What an entry means is up to the
//! caller: [`crate::responses`] logs events of its dialect, others log canonical events.
//!
//! - [`log`]: the log in memory, and its readers;
//! - `log_writer`: writes the entries of all runs in batches;
//! - [`canonical`]: drives a turn into a log of canonical events, `event_log`: the entries of it;
//! - [`reader`]: writes the stream of each client from such a log;
//! - `stored_reader`: the entries of a run that another process writes;
//! - [`thinking_spans`]: where thinking begins and ends in such a log;
//! - [`abandoned`]: ends the runs of processes that died.
//!
//! An entry is written to the store before readers see it. If the store fails, readers get it
//! anyway, and it is written with the next ones.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use parking_lot::Mutex;
use throughline_canonical::{Fault, FaultKind};
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;

use self::log::{Entry, LiveRun};
use self::log_writer::LogWriter;
pub(crate) use self::log_writer::Written;
use crate::bus::in_process::InProcess;
use crate::bus::{Bus, News, Topic};
use crate::chat_seal::{ChatSeal, Field};
use crate::sealed_store::{SealedKind, SealedStore, expires};
use crate::store::{Commit, LogPiece, Piece, Run, RunEnd, RunStatus};

pub mod abandoned;
pub mod canonical;
pub(crate) mod event_log;
pub mod log;
mod log_writer;
pub mod reader;
mod stored_reader;
pub mod thinking_spans;

/// How old the newest record of a reader may be while it reads.
const MAX_RECORD_AGE: Duration = Duration::from_secs(3);

/// Pieces of a log that are read at a time.
const LOG_PAGE: usize = 200;

/// The pause before a write that failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);
/// How long a run without content is kept.
const FAILED_RETENTION: Duration = Duration::from_secs(600);

/// The runs of this process, and all runs in the store.
#[derive(Debug)]
pub struct Runs {
    pub(crate) sealed_store: Arc<SealedStore>,
    /// The id of this process.
    pub instance: String,
    live: Mutex<HashMap<String, Arc<LiveRun>>>,
    log_writer: LogWriter,
    /// Tells other instances about new entries.
    pub bus: Arc<dyn Bus>,
    /// Runs of dead processes that this one has taken over and could not end yet.
    unclosed: Mutex<Vec<Run>>,
}

/// The result of writing new entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Appended {
    /// Readers can see them.
    Yes,
    /// The run has become too long.
    TooLong,
    /// Another process writes this run now. Stop.
    Fenced,
}

impl Runs {
    /// The runs of a store, in one process. Must be called inside a Tokio runtime.
    pub fn new(sealed_store: Arc<SealedStore>) -> Self {
        let log_writer = LogWriter::new(sealed_store.store.clone());
        let instance = format!("instance_{}", random::id());
        Self {
            sealed_store,
            instance,
            live: Mutex::default(),
            log_writer,
            bus: Arc::new(InProcess::default()),
            unclosed: Mutex::default(),
        }
    }

    /// The same runs with a bus to other instances.
    #[must_use]
    pub fn with_bus(self, bus: Arc<dyn Bus>) -> Self {
        Self { bus, ..self }
    }

    /// Registers a run that this process writes, for as long as the guard lives.
    pub fn register(self: &Arc<Self>, run: Arc<LiveRun>) -> RunGuard {
        self.live.lock().insert(run.id.clone(), run.clone());
        RunGuard { runs: Arc::clone(self), run }
    }

    /// A run that this process writes.
    pub fn live(&self, id: &str) -> Option<Arc<LiveRun>> {
        self.live.lock().get(id).cloned()
    }

    /// Adds entries to a run: first to the store, then for readers.
    pub async fn append(&self, run: &LiveRun, entries: Vec<Entry>) -> Appended {
        let fits = run.push(entries);
        let written = self.store_entries(run).await;
        if written == Written::Fenced {
            return Appended::Fenced;
        }
        self.show(run);
        if fits { Appended::Yes } else { Appended::TooLong }
    }

    /// Shows all entries of a run to readers, and to other programs.
    pub(crate) fn show(&self, run: &LiveRun) {
        for message in run.publish() {
            self.bus.send(message);
        }
    }

    /// Shows all entries of a run whose end is stored.
    pub(crate) fn show_end(&self, run: &LiveRun) {
        self.show(run);
        self.bus.publish(&Topic::Run(run.id.clone()), News::Ended);
    }

    /// Writes the entries of a run that are not in the store yet.
    pub(crate) async fn store_entries(&self, run: &LiveRun) -> Written {
        let new = run.unstored();
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return Written::Yes;
        };
        let sealed = match &run.seal {
            Some(seal) => seal.seal_json(Field::Log(first.number), &run.id, &new),
            None => self.sealed_store.seal(SealedKind::Log(first.number), &run.id, &new),
        };
        self.sealed_store.count_written(sealed.len());
        let continues = new.iter().all(|entry| entry.continues);
        let piece = Piece { first: first.number, last: last.number, continues, sealed };
        let topic = Topic::Run(run.id.clone());
        let told = self.bus.wants(&topic).then(|| Arc::new(piece.clone()));
        let piece = LogPiece { run: run.id.clone(), epoch: run.epoch, piece };
        let written = self.log_writer.write(piece).await;
        if written == Written::Yes {
            run.record_stored(new.len());
            if let Some(piece) = told {
                self.bus.publish(&topic, News::Piece(piece));
            }
        }
        written
    }

    /// The stored entries of a run after this number. `seal` is that of its project, if it has one.
    pub async fn stored_entries(
        &self,
        id: &str,
        mut after: Option<u64>,
        seal: Option<&ChatSeal>,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        loop {
            let page = self.stored_page(id, after, seal).await?;
            let Some(last) = page.last() else {
                return Ok(entries);
            };
            after = Some(last.number);
            entries.extend(page);
        }
    }

    /// The first of these entries.
    async fn stored_page(
        &self,
        id: &str,
        after: Option<u64>,
        seal: Option<&ChatSeal>,
    ) -> Result<Vec<Entry>, StoreError> {
        let pieces = self.sealed_store.store.logged(id, after, LOG_PAGE).await?;
        let mut entries = self.open_pieces(id, pieces, seal)?;
        entries.retain(|entry| after.is_none_or(|after| entry.number > after));
        Ok(entries)
    }

    /// What a reader needs of the stored entries before this number, if it has seen them.
    async fn outline(
        &self,
        id: &str,
        before: u64,
        seal: Option<&ChatSeal>,
    ) -> Result<Vec<Entry>, StoreError> {
        let pieces = self.sealed_store.store.log_outline(id, before).await?;
        let mut entries = self.open_pieces(id, pieces, seal)?;
        entries.retain(|entry| entry.number < before);
        Ok(entries)
    }

    fn open_pieces(
        &self,
        id: &str,
        pieces: Vec<Piece>,
        seal: Option<&ChatSeal>,
    ) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for Piece { first, sealed, .. } in pieces {
            let logged: Vec<Entry> = match seal {
                Some(seal) => seal.open_json(Field::Log(first), id, &sealed)?,
                None => self.sealed_store.open(SealedKind::Log(first), id, &sealed)?,
            };
            entries.extend(logged);
        }
        Ok(entries)
    }

    /// The entries of a run after this number, those so far and those to come, in whichever process it
    /// is written. `seal` is that of its project, if it has one.
    pub fn follow(
        self: &Arc<Self>,
        id: &str,
        after: Option<u64>,
        seal: Option<Arc<ChatSeal>>,
    ) -> impl Stream<Item = Result<Entry, Fault>> + use<> {
        match self.live(id) {
            Some(run) => run.follow(after).map(Ok).left_stream(),
            None => self.clone().follow_stored(id.to_owned(), after, seal).right_stream(),
        }
    }

    /// Waits until a run of this process has had no reader for this long, here or elsewhere.
    pub async fn detached(&self, run: &LiveRun, limit: Duration) {
        let mut readers = run.watch_readers();
        let mut wait = limit;
        loop {
            if readers.wait_for(|readers| *readers == 0).await.is_err() {
                return std::future::pending().await;
            }
            let attached = readers.wait_for(|readers| *readers > 0);
            if tokio::time::timeout(wait, attached).await.is_ok() {
                wait = limit;
                continue;
            }
            // A record may be older than the moment when its reader left.
            let until = limit + MAX_RECORD_AGE;
            match self.last_read_elsewhere(&run.id).await {
                Some(age) if age < until => wait = until - age,
                _ => return,
            }
        }
    }

    /// How long ago another instance recorded a reader of this run.
    async fn last_read_elsewhere(&self, id: &str) -> Option<Duration> {
        let store = &self.sealed_store.store;
        match store.is_shared() {
            // A store that failed has been logged; then no other instance can read, either.
            true => store.last_read(id).await.ok().flatten(),
            false => None,
        }
    }

    /// Ends a run as failed, without anything that belongs to its end. Its content stays as it is.
    pub(crate) async fn end_without_content(&self, live: &LiveRun) {
        tracing::error!(run = live.id, "ending a run without its result");
        while self.try_end_without_content(live).await.is_err() {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    async fn try_end_without_content(&self, live: &LiveRun) -> Result<(), StoreError> {
        let store = &self.sealed_store.store;
        self.store_entries(live).await;
        let Some(run) = store.run(&live.id).await? else {
            return Ok(());
        };
        let end = RunEnd {
            run: run.id,
            epoch: live.epoch,
            status: RunStatus::Error,
            expires: Some(expires(unix_ms(), FAILED_RETENTION)),
            sealed: run.sealed,
        };
        store.commit(Commit { end: Some(end), ..Commit::default() }).await.map(drop)
    }

    /// Waits until this process writes no run.
    pub async fn all_ended(&self) {
        loop {
            let next = self.live.lock().values().next().cloned();
            match next {
                Some(run) => run.closed().await,
                None => return,
            }
            // A run is removed right after its end.
            tokio::task::yield_now().await;
        }
    }

    /// Asks all runs of this process to stop.
    pub fn stop_all(&self) {
        for run in self.live.lock().values() {
            run.stop();
        }
    }
}

/// The task of a run panicked. The panic has been logged.
#[derive(Debug)]
pub(crate) struct Panicked;

/// Does the work of a run. A panic ends only this work, so that its caller can end the run.
pub(crate) async fn catch_panic<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    // What the work shares with others is behind locks that a panic releases.
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| {
        tracing::error!("the task of a run panicked");
        Panicked
    })
}

/// The fault of an answer whose server died.
pub(crate) fn server_died() -> Fault {
    let what = "the server was stopped while this answer was being written";
    Fault::new(FaultKind::Unreachable, what)
}

/// Keeps a run registered. Closes its log when it is dropped.
#[derive(Debug)]
pub struct RunGuard {
    runs: Arc<Runs>,
    /// The run.
    pub run: Arc<LiveRun>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // From now on the run is read from the store.
        self.run.close();
        self.runs.live.lock().remove(&self.run.id);
        self.runs.bus.publish(&Topic::Run(self.run.id.clone()), News::Ended);
    }
}
