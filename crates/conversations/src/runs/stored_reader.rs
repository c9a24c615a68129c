//! Reads a run that another process writes. The bus brings new entries as soon as they are stored; the store
//! says what the run is, how it ended, and has every entry that the bus did not bring.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use throughline_canonical::Fault;
use throughline_gateway::thinking::store::StoreError;
use tokio::time::{Instant, timeout_at};

use super::Runs;
use super::event_log::is_end;
use super::log::Entry;
use crate::bus::hub::Listener;
use crate::bus::{News, Topic};
use crate::chat_seal::ChatSeal;
use crate::sealed_store::fault;
use crate::store::{Piece, RunStatus};

/// How often the store is asked for new entries while no bus brings them.
const POLL_INTERVAL: Duration = Duration::from_millis(150);
/// How often it is asked while a bus does: the bus may have lost the last of them.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How often a reader records that it reads.
const RECORD_INTERVAL: Duration = Duration::from_secs(1);

impl Runs {
    /// Reads a run from the bus and the store until it has ended.
    pub(super) fn follow_stored(
        self: Arc<Self>,
        id: String,
        after: Option<u64>,
        seal: Option<Arc<ChatSeal>>,
    ) -> impl Stream<Item = Result<Entry, Fault>> {
        let start = StoredReader {
            listener: self.bus.listen(Topic::Run(id.clone())),
            look_at: Instant::now(),
            runs: self,
            id,
            after,
            seal,
            ready: Vec::new().into_iter(),
            recorded: None,
        };
        futures_util::stream::unfold(Some(start), |reader| async move {
            let mut reader = reader?;
            match reader.next().await {
                Ok(Some(entry)) => Some((Ok(entry), Some(reader))),
                Ok(None) => None,
                Err(error) => Some((Err(fault(error)), None)),
            }
        })
    }
}

/// A reader of a run that another process writes.
struct StoredReader {
    runs: Arc<Runs>,
    id: String,
    /// The number of the last entry that was read.
    after: Option<u64>,
    seal: Option<Arc<ChatSeal>>,
    ready: std::vec::IntoIter<Entry>,
    listener: Listener,
    /// When the store is read next, whatever the bus brings.
    look_at: Instant,
    /// When this reader was last recorded in the store.
    recorded: Option<Instant>,
}

impl StoredReader {
    async fn next(&mut self) -> Result<Option<Entry>, StoreError> {
        loop {
            if let Some(entry) = self.ready.next() {
                self.after = Some(entry.number);
                return Ok(Some(entry));
            }
            if !self.hear().await && !self.look().await? {
                return Ok(None);
            }
        }
    }

    /// Waits for what the bus brings. Returns false if it is time to read the store.
    async fn hear(&mut self) -> bool {
        if Instant::now() >= self.look_at {
            return false;
        }
        match timeout_at(self.look_at, self.listener.next()).await {
            Ok(News::Piece(piece)) => self.take(&piece).await,
            Ok(News::Missed) => self.catch_up().await,
            Ok(News::Ended | News::Changed { .. }) | Err(_) => false,
        }
    }

    /// Takes a piece that the bus has brought. Returns false if only the store can help.
    async fn take(&mut self, piece: &Piece) -> bool {
        match self.after {
            Some(after) if piece.last <= after => true,
            Some(after) if piece.first <= after + 1 => self.open(vec![piece.clone()]),
            Some(_) => self.catch_up().await,
            None => false,
        }
    }

    /// Reads what the bus still has after the last entry. Returns false if that does not follow it.
    async fn catch_up(&mut self) -> bool {
        let Some(after) = self.after else {
            return false;
        };
        let mut next = after + 1;
        let mut pieces = self.runs.bus.logged(&self.id, after).await;
        let follow = |piece: &Piece| {
            let follows = piece.first <= next;
            next = piece.last + 1;
            follows
        };
        pieces.truncate(pieces.iter().map(follow).take_while(|follows| *follows).count());
        !pieces.is_empty() && self.open(pieces)
    }

    /// Opens pieces that follow the last entry. Pieces that do not open are not ours: the store has the
    /// right ones.
    fn open(&mut self, pieces: Vec<Piece>) -> bool {
        let Ok(mut entries) = self.runs.open_pieces(&self.id, pieces, self.seal.as_deref()) else {
            return false;
        };
        entries.retain(|entry| self.after.is_none_or(|after| entry.number > after));
        // The store says when what belongs to the end is there.
        if entries.last().is_some_and(is_end) {
            entries.pop();
        }
        self.ready = entries.into_iter();
        true
    }

    /// Reads the store. Returns false if the run has ended and everything was read.
    async fn look(&mut self) -> Result<bool, StoreError> {
        // The status is read first: entries are written before it changes.
        let run = self.runs.sealed_store.store.run(&self.id).await?;
        let is_running = run.is_some_and(|run| run.status == RunStatus::Running);
        if is_running {
            self.record_reading().await;
        }
        let seal = self.seal.as_deref();
        let mut entries = self.runs.stored_page(&self.id, self.after, seal).await?;
        if is_running && entries.last().is_some_and(is_end) {
            // What belongs to the end, such as the node of an answer, is not stored yet.
            entries.pop();
        }
        self.ready = entries.into_iter();
        if self.ready.len() > 0 {
            return Ok(true);
        }
        let pause = if self.listener.is_live() { CHECK_INTERVAL } else { POLL_INTERVAL };
        self.look_at = Instant::now() + pause;
        Ok(is_running)
    }

    /// Records this reader in the store, for the writer of the run.
    async fn record_reading(&mut self) {
        let store = &self.runs.sealed_store.store;
        let is_due = self.recorded.is_none_or(|recorded| recorded.elapsed() >= RECORD_INTERVAL);
        if store.is_shared() && is_due {
            self.recorded = Some(Instant::now());
            // The store records and logs a failure.
            let _ = store.record_reader(&self.id).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, StreamExt};
    use throughline_canonical::{EndReason, Event};
    use throughline_sealing::Keyring;

    use super::*;
    use crate::bus::Bus;
    use crate::bus::in_process::InProcess;
    use crate::in_memory::InMemory;
    use crate::runs::Appended;
    use crate::runs::log::LiveRun;
    use crate::sealed_store::SealedStore;
    use crate::store::{Commit, NodeStore, Run, RunEnd};
    use crate::suite;

    const ID: &str = "run_1";

    /// A run that one instance writes, and another instance with the same store and bus.
    struct Trial {
        store: Arc<InMemory>,
        bus: Arc<InProcess>,
        writer: Arc<Runs>,
        reader: Arc<Runs>,
        live: Arc<LiveRun>,
    }

    impl Trial {
        async fn begin() -> Self {
            let (store, bus) = (Arc::new(InMemory::default()), Arc::new(InProcess::default()));
            let start = Run { expires: None, ..suite::run(ID, None) };
            store.commit(Commit { start: Some(start), ..Commit::default() }).await.unwrap();
            let [writer, reader] = [(), ()].map(|()| {
                let keyring = Arc::new(Keyring::new([7; 32]));
                let sealed_store = SealedStore::new(store.clone(), keyring, 1 << 20);
                Arc::new(Runs::new(Arc::new(sealed_store)).with_bus(bus.clone()))
            });
            Self { store, bus, writer, reader, live: Arc::new(LiveRun::new(ID, 1)) }
        }

        async fn append(&self, numbers: std::ops::RangeInclusive<u64>) {
            let entries = numbers.map(|number| Entry::new(number, format!("entry {number}")));
            let appended = self.writer.append(&self.live, entries.collect()).await;
            assert_eq!(appended, Appended::Yes);
        }

        fn follow(&self) -> futures_util::stream::BoxStream<'static, Result<Entry, Fault>> {
            self.reader.follow(ID, None, None).boxed()
        }

        /// Lets every read of the log fail from now on.
        fn lose_log(&self) {
            self.store.fail_next_reads_of_logs(usize::MAX);
        }
    }

    async fn next(entries: &mut (impl Stream<Item = Result<Entry, Fault>> + Unpin)) -> u64 {
        entries.next().await.unwrap().unwrap().number
    }

    #[tokio::test(start_paused = true)]
    async fn new_entries_arrive_over_the_bus_without_the_store() {
        let trial = Trial::begin().await;
        trial.append(1..=1).await;
        let mut entries = trial.follow();
        assert_eq!(next(&mut entries).await, 1);
        assert!(entries.next().now_or_never().is_none(), "it has read the store and waits");
        trial.lose_log();
        let began = Instant::now();
        trial.append(2..=4).await;
        for number in 2..=4 {
            assert_eq!(next(&mut entries).await, number);
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_bus_has_lost_is_read_from_the_store() {
        let trial = Trial::begin().await;
        trial.append(1..=1).await;
        let mut entries = trial.follow();
        assert_eq!(next(&mut entries).await, 1);
        assert!(entries.next().now_or_never().is_none());
        // The bus brings the last piece only, then one that nobody of us has sealed, then old ones.
        let quiet = Runs::new(trial.writer.sealed_store.clone());
        let entry = |number: u64| Entry::new(number, format!("entry {number}"));
        quiet.append(&trial.live, (2..=5).map(entry).collect()).await;
        let forged = Piece { first: 2, last: 9, continues: false, sealed: b"forged".to_vec() };
        trial.bus.publish(&Topic::Run(ID.to_owned()), News::Piece(Arc::new(forged)));
        for number in 2..=5 {
            assert_eq!(next(&mut entries).await, number);
        }
        quiet.append(&trial.live, (6..=7).map(entry).collect()).await;
        trial.append(8..=8).await;
        for number in 6..=8 {
            assert_eq!(next(&mut entries).await, number, "each entry once, in order");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn end_is_shown_when_the_store_has_it() {
        let trial = Trial::begin().await;
        trial.append(1..=1).await;
        let mut entries = trial.follow();
        assert_eq!(next(&mut entries).await, 1);
        assert!(entries.next().now_or_never().is_none());
        let end = serde_json::to_string(&Event::Ended { reason: EndReason::Stop }).unwrap();
        trial.writer.append(&trial.live, vec![Entry::new(2, end)]).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(entries.next().now_or_never().is_none(), "its node may not be stored yet");
        let run = ID.to_owned();
        let (status, expires, sealed) = (RunStatus::Completed, None, Vec::new());
        let end = RunEnd { run, epoch: 1, status, expires, sealed };
        trial.store.commit(Commit { end: Some(end), ..Commit::default() }).await.unwrap();
        let began = Instant::now();
        trial.writer.show_end(&trial.live);
        assert_eq!(next(&mut entries).await, 2);
        assert_eq!(began.elapsed(), Duration::ZERO);
        assert!(entries.next().await.is_none());
    }
}
