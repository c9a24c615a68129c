//! Drives a turn into the log of a run: its canonical events, numbered from 1. Front doors and
//! conversations use the same log, and every reply format is written from it.
//!
//! A log ends with exactly one [`Event::Ended`], and a fault comes before an end that is a failure.
//! A block that the log does not end was cut: it is never sent to a provider.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use throughline_canonical::{EndReason, Event, Fault, FaultKind, Reply};
use throughline_codec::pacing::Pacing;
use throughline_gateway::reply::events::{TurnEvent, TurnEvents};
use throughline_gateway::thinking::store::{StoreError, StoreFuture};
use throughline_gateway::turn::turn_reply::{FinishedReply, UnreadReply};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

pub use super::event_log::{EMPTY_REPLY, FinishedRound};
use super::event_log::{EventLog, PacedLog};
use super::log::{Entry, LiveRun};
use super::{Appended, Runs, Written, catch_panic};
use crate::store::{Outcome, RunStatus};

/// How long readers wait for the end of a run that cannot be stored.
const MAX_END_WAIT: Duration = Duration::from_secs(5);
/// The pause before an end that could not be stored is stored again.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// The fault of a run whose task panicked.
const PANICKED: &str = "the server failed while it wrote this answer; see its log";

/// A run whose log has canonical events.
#[derive(Clone, Debug)]
pub struct CanonicalRun {
    /// All runs.
    pub runs: Arc<Runs>,
    /// The run. It is registered, and its record says that it is in progress.
    pub live: Arc<LiveRun>,
    /// How deltas are joined.
    pub pacing: Pacing,
    /// Whether a reply without content is a fault.
    pub needs_content: bool,
}

/// The result of a run.
#[derive(Debug)]
pub struct Driven {
    /// The reply, folded. It has a reason, and a fault if the turn failed.
    pub reply: Reply,
    /// The positions in the content of blocks that were cut.
    pub cut_blocks: Vec<usize>,
    /// How the run ended.
    pub status: RunStatus,
    /// The rounds of a tool loop after which the server ran calls.
    pub rounds: Vec<FinishedRound>,
}

/// Stores the end of a run.
pub trait StoreEnd: Send + Sync {
    /// Writes the end of the run, and what belongs to it, in one commit. The log is complete by
    /// then, and readers do not see its last entry yet. This is called again if the store fails.
    fn store_end<'a>(&'a self, driven: &'a Driven) -> StoreFuture<'a, Outcome>;
}

/// Why no more events are read.
#[derive(Debug, PartialEq, Eq)]
enum Pumped {
    /// The reply has ended.
    Ended,
    /// A client has stopped the run.
    Stopped,
    /// The log is too long.
    TooLong,
    /// Another process writes the run now.
    Fenced,
}

impl CanonicalRun {
    /// Writes a reply to its end. Returns `None` if the run is not this process's any more.
    pub async fn drive_reply(
        &self,
        reply: UnreadReply,
        store_end: &dyn StoreEnd,
    ) -> Option<Driven> {
        let (head, events) = reply.into_events();
        self.drive_events(stream_of(events), store_end).instrument(head.span()).await
    }

    /// Does the work of this run. If it panics, the run ends as an error, with what had arrived: no other
    /// task would end it, and its branch would stay busy.
    pub async fn guard(&self, work: impl Future<Output = ()>, store_end: &dyn StoreEnd) {
        if catch_panic(work).await.is_ok() {
            return;
        }
        let mut log = EventLog::restored(&self.live.entries());
        if !log.has_ended {
            log.add(&Event::Fault(Fault::new(FaultKind::Internal, PANICKED)));
            log.end(EndReason::Failed);
        }
        if catch_panic(self.finish(log, store_end)).await.is_err() {
            // The answer cannot be stored.
            self.runs.end_without_content(&self.live).await;
            self.runs.show_end(&self.live);
        }
    }

    /// Ends a run whose turn failed before its reply began.
    pub async fn fail(&self, fault: Fault, store_end: &dyn StoreEnd) -> Option<Driven> {
        let mut log = EventLog::default();
        log.add(&Event::Fault(fault));
        log.end(EndReason::Failed);
        self.finish(log, store_end).await
    }

    /// Ends a run that was stopped before its reply began.
    pub async fn cancel(&self, store_end: &dyn StoreEnd) -> Option<Driven> {
        let mut log = EventLog::default();
        log.end(EndReason::cancelled());
        self.finish(log, store_end).await
    }

    /// Ends a run whose process died, with the events that had arrived. `fault` is used if they do
    /// not say how it ended.
    pub async fn close_left(
        &self,
        fault: Fault,
        store_end: &dyn StoreEnd,
    ) -> Result<Option<Driven>, StoreError> {
        let entries =
            self.runs.stored_entries(&self.live.id, None, self.live.seal.as_deref()).await?;
        let log = left_log(&entries, fault);
        self.live.restore(entries);
        Ok(self.finish(log, store_end).await)
    }

    /// Writes events into the log, to their end.
    pub(crate) async fn drive_events(
        &self,
        events: impl Stream<Item = Vec<TurnEvent>>,
        store_end: &dyn StoreEnd,
    ) -> Option<Driven> {
        let mut events = Box::pin(events);
        let mut paced = PacedLog::new(self.pacing, self.needs_content);
        let pumped = self.pump(&mut paced, &mut events).await;
        match pumped {
            Pumped::Ended => {}
            Pumped::Stopped => paced.end(EndReason::cancelled()),
            Pumped::TooLong => {
                let what = "the reply is too long for the log of a run";
                paced.push(Event::Fault(Fault::new(FaultKind::TooLarge, what)));
                paced.end(EndReason::Failed);
            }
            Pumped::Fenced => return None,
        }
        let driven = self.finish(paced.log, store_end).await;
        if pumped == Pumped::Ended {
            // The provider may say more after the last event. The turn is recorded when it is done.
            while events.next().await.is_some() {}
        }
        driven
    }

    /// Reads events into the log until the reply ends.
    async fn pump(
        &self,
        paced: &mut PacedLog,
        events: &mut (impl Stream<Item = Vec<TurnEvent>> + Unpin),
    ) -> Pumped {
        let stopped = self.live.stopped();
        tokio::pin!(stopped);
        loop {
            let due = paced.deadline();
            let wait = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut stopped => return Pumped::Stopped,
                next = events.next() => match next {
                    Some(batch) => batch.into_iter().for_each(|event| paced.take(event)),
                    None => paced.end(EndReason::Cut),
                },
                () = wait => paced.tick(),
            }
            if paced.log.has_ended {
                return Pumped::Ended;
            }
            match self.runs.append(&self.live, paced.log.take_entries().0).await {
                Appended::Yes => {}
                Appended::TooLong => return Pumped::TooLong,
                Appended::Fenced => return Pumped::Fenced,
            }
        }
    }

    /// Shows what came before the end, stores the end, and then shows it.
    async fn finish(&self, mut log: EventLog, store_end: &dyn StoreEnd) -> Option<Driven> {
        let (entries, end) = log.take_entries();
        // A log that is too long has been ended for that.
        if self.runs.append(&self.live, entries).await == Appended::Fenced {
            return None;
        }
        let driven = log.into_driven();
        self.live.push(end);
        let shown = Instant::now() + MAX_END_WAIT;
        while !self.try_store_end(&driven, store_end).await? {
            if Instant::now() >= shown && !self.live.is_closed() {
                tracing::error!(run = self.live.id, "cannot store the end of a run; retrying");
                self.runs.show(&self.live);
                self.live.close();
            }
            sleep(RETRY_PAUSE).await;
        }
        self.runs.show_end(&self.live);
        Some(driven)
    }

    /// Returns whether the end is stored. `None` if the run is not this process's any more.
    async fn try_store_end(&self, driven: &Driven, store_end: &dyn StoreEnd) -> Option<bool> {
        match self.runs.store_entries(&self.live).await {
            Written::Yes => {}
            Written::Fenced => return None,
            Written::Failed => return Some(false),
        }
        match store_end.store_end(driven).await {
            Ok(Outcome::Written) => Some(true),
            Ok(outcome) => {
                tracing::warn!(run = self.live.id, ?outcome, "cannot end a run");
                None
            }
            // The store has logged and counted that.
            Err(_) => Some(false),
        }
    }
}

/// The result of a run whose process died, from the events that had arrived.
pub fn left_reply(entries: &[Entry], fault: Fault) -> Driven {
    left_log(entries, fault).into_driven()
}

/// The log of a run whose process died. `fault` is used if it does not say how it ended.
fn left_log(entries: &[Entry], fault: Fault) -> EventLog {
    let mut log = EventLog::restored(entries);
    if !log.has_ended {
        log.add(&Event::Fault(fault));
        log.end(EndReason::Cut);
    }
    log
}

fn stream_of(events: TurnEvents) -> impl Stream<Item = Vec<TurnEvent>> {
    futures_util::stream::unfold(events, |mut events| async move {
        events.next().await.map(|batch| (batch, events))
    })
}

/// The fault of a turn whose reply never began.
pub(crate) fn fault_of(finished: FinishedReply) -> Fault {
    let status = finished.reply.status().as_u16();
    finished.fault.unwrap_or_else(|| {
        let what = format!("the backend refused the request with status {status}");
        Fault::new(FaultKind::Unreachable, what)
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use futures_util::{FutureExt, stream};
    use parking_lot::Mutex;
    use throughline_canonical::{Block, BlockStart, Delta};
    use throughline_codec::pacing::Pace;
    use throughline_sealing::Keyring;

    use super::*;
    use crate::in_memory::InMemory;
    use crate::runs::RunGuard;
    use crate::sealed_store::SealedStore;
    use crate::store::{Commit, NodeStore, Run, RunEnd, RunStore};

    const ID: &str = "run_1";

    /// A run in progress, and what was visible when its end was stored.
    struct Trial {
        run: CanonicalRun,
        visible: Mutex<Vec<Event<'static>>>,
        _guard: RunGuard,
    }

    impl Trial {
        /// A run that its process writes under this epoch. The first one starts it, on the reference
        /// `branch`.
        async fn begin(store: &Arc<InMemory>, epoch: u64, pacing: Pacing) -> Self {
            let keyring = Arc::new(Keyring::new([7; 32]));
            let sealed_store = SealedStore::new(store.clone(), keyring, 1 << 20);
            let runs = Arc::new(Runs::new(Arc::new(sealed_store)));
            let start = Run {
                id: ID.to_owned(),
                owner: "ada".to_owned(),
                scope: "test".to_owned(),
                name: None,
                reference: Some("branch".to_owned()),
                instance: "one".to_owned(),
                epoch,
                status: RunStatus::Running,
                created: 0,
                expires: None,
                sealed: Vec::new(),
            };
            if epoch == 1 {
                let commit = Commit { start: Some(start), ..Commit::default() };
                store.commit(commit).await.unwrap();
            }
            let live = Arc::new(LiveRun::new(ID, epoch));
            let guard = runs.register(live.clone());
            let run = CanonicalRun { runs, live, pacing, needs_content: true };
            Self { run, visible: Mutex::default(), _guard: guard }
        }

        /// The events that readers see now.
        fn shown(&self) -> Vec<Event<'static>> {
            let mut entries = Box::pin(self.run.live.follow(None));
            let mut events = Vec::new();
            while let Some(Some(entry)) = entries.next().now_or_never() {
                events.push(serde_json::from_str::<Event<'_>>(&entry.text).unwrap());
                assert_eq!(entry.number, events.len() as u64);
            }
            events.iter().map(Event::to_owned_event).collect()
        }

        async fn drive(&self, batches: Vec<Vec<Event<'static>>>) -> Driven {
            let batches = batches
                .into_iter()
                .map(|batch| batch.into_iter().map(TurnEvent::Event).collect::<Vec<TurnEvent>>());
            self.run.drive_events(stream::iter(batches), self).await.unwrap()
        }
    }

    impl StoreEnd for Trial {
        fn store_end<'a>(&'a self, driven: &'a Driven) -> StoreFuture<'a, Outcome> {
            *self.visible.lock() = self.shown();
            let end = RunEnd {
                run: ID.to_owned(),
                epoch: self.run.live.epoch,
                status: driven.status,
                expires: None,
                sealed: Vec::new(),
            };
            let commit = Commit { end: Some(end), ..Commit::default() };
            self.run.runs.sealed_store.store.commit(commit)
        }
    }

    fn started() -> Event<'static> {
        Event::MessageStarted { id: "m".into(), model: "x".into() }
    }

    fn text_started(index: u32) -> Event<'static> {
        Event::BlockStarted { index, block: BlockStart::Text { text: "".into() } }
    }

    fn text(index: u32, text: &'static str) -> Event<'static> {
        Event::BlockDelta { index, delta: Delta::Text(text.into()) }
    }

    fn ended(reason: EndReason) -> Event<'static> {
        Event::Ended { reason }
    }

    #[tokio::test]
    async fn end_is_stored_before_readers_see_it() {
        let store = Arc::new(InMemory::default());
        let trial = Trial::begin(&store, 1, Pacing::IMMEDIATE).await;
        let events = vec![started(), text_started(0), text(0, "Hi"), ended(EndReason::Stop)];
        let driven = trial.drive(vec![events]).await;
        let completed = [
            started(),
            text_started(0),
            text(0, "Hi"),
            Event::BlockEnded { index: 0 },
            ended(EndReason::Stop),
        ];
        assert_eq!(*trial.visible.lock(), completed[..4]);
        assert_eq!(trial.shown(), completed);
        assert_eq!(driven.status, RunStatus::Completed);
        assert_eq!((driven.reply.content, driven.cut_blocks), (vec![Block::text("Hi")], vec![]));
        assert_eq!(store.run(ID).await.unwrap().unwrap().status, RunStatus::Completed);
    }

    #[tokio::test]
    async fn every_broken_end_has_a_fault_and_keeps_cut_blocks_open() {
        for (batch, status) in [
            (vec![], RunStatus::Interrupted),
            (vec![ended(EndReason::Cut)], RunStatus::Interrupted),
            (
                vec![
                    Event::Fault(Fault::new(FaultKind::Overloaded, "busy")),
                    ended(EndReason::Failed),
                    ended(EndReason::Stop),
                ],
                RunStatus::Error,
            ),
        ] {
            let store = Arc::new(InMemory::default());
            let trial = Trial::begin(&store, 1, Pacing::default()).await;
            // The second block has the index of the first, which is ended for it.
            let begun = vec![text_started(0), text_started(0)];
            let driven = trial.drive(vec![begun, batch]).await;
            let shown = trial.shown();
            assert_eq!((driven.status, &*driven.cut_blocks), (status, &[1][..]));
            assert!(matches!(shown[3..], [Event::Fault(_), Event::Ended { .. }]), "{shown:?}");
            assert!(driven.reply.fault.is_some());
        }
    }

    #[tokio::test]
    async fn stopped_run_shows_held_text_and_ends_as_cancelled() {
        let store = Arc::new(InMemory::default());
        let pacing = Pacing { text: Pace::Sentence, ..Pacing::default() };
        let trial = Trial::begin(&store, 1, pacing).await;
        let first = vec![text_started(0), text(0, "No full"), text(0, " stop")];
        let first = first.into_iter().map(TurnEvent::Event).collect();
        let live = trial.run.live.clone();
        // The stop comes after the first events.
        let events = stream::once(async { first }).chain(stream::once(async move {
            live.stop();
            pending().await
        }));
        let driven = trial.run.drive_events(events, &trial).await.unwrap();
        let shown = [text_started(0), text(0, "No full stop"), ended(EndReason::cancelled())];
        assert_eq!(trial.shown(), shown);
        assert_eq!((driven.status, driven.cut_blocks), (RunStatus::Cancelled, vec![0]));
    }

    #[tokio::test]
    async fn held_text_is_released_at_the_deadline() {
        let store = Arc::new(InMemory::default());
        let window = Pace::Window { after: Duration::from_millis(80), bytes: 100 };
        let pacing = Pacing { text: window, ..Pacing::default() };
        let trial = Trial::begin(&store, 1, pacing).await;
        let first = vec![TurnEvent::Event(text_started(0)), TurnEvent::Event(text(0, "Hi"))];
        let events = stream::once(async { first }).chain(stream::pending());
        let mut entries = Box::pin(trial.run.live.follow(None).skip(1));
        tokio::select! {
            _ = trial.run.drive_events(events, &trial) => unreachable!(),
            entry = entries.next() => assert!(entry.unwrap().text.contains("Hi")),
        }
    }

    #[tokio::test]
    async fn abandoned_run_ends_with_the_received_events() {
        let store = Arc::new(InMemory::default());
        let trial = Trial::begin(&store, 1, Pacing::IMMEDIATE).await;
        let events = vec![TurnEvent::Event(text_started(0)), TurnEvent::Event(text(0, "Hi"))];
        let events = stream::once(async { events }).chain(stream::pending());
        let mut entries = Box::pin(trial.run.live.follow(None).skip(1));
        tokio::select! {
            _ = trial.run.drive_events(events, &trial) => unreachable!(),
            entry = entries.next() => assert!(entry.is_some()),
        }
        // The process is gone. Another one takes the run over.
        let epoch = store.take_over(ID, 1, "two").await.unwrap().unwrap();
        let next = Trial::begin(&store, epoch, Pacing::IMMEDIATE).await;
        let fault = Fault::new(FaultKind::Internal, "the server was stopped");
        let driven = next.run.close_left(fault.clone(), &next).await.unwrap().unwrap();
        let events = [text_started(0), text(0, "Hi"), Event::Fault(fault), ended(EndReason::Cut)];
        assert_eq!(next.shown(), events);
        assert_eq!((driven.status, driven.cut_blocks), (RunStatus::Interrupted, vec![0]));
        // The first one cannot write any more.
        assert!(trial.run.cancel(&trial).await.is_none());
    }

    /// Events that a task gets before it panics.
    pub(crate) fn panicking() -> impl Stream<Item = Vec<TurnEvent>> {
        let first = vec![TurnEvent::Event(text_started(0)), TurnEvent::Event(text(0, "Hi"))];
        stream::once(async { first }).chain(stream::once(async { panic!("a mistake in our code") }))
    }

    #[tokio::test]
    async fn panic_ends_the_run_as_an_error_with_the_received_events() {
        let store = Arc::new(InMemory::default());
        let trial = Trial::begin(&store, 1, Pacing::IMMEDIATE).await;
        let work = async {
            trial.run.drive_events(panicking(), &trial).await;
        };
        trial.run.guard(work, &trial).await;
        let fault = Fault::new(FaultKind::Internal, PANICKED);
        let events =
            [text_started(0), text(0, "Hi"), Event::Fault(fault), ended(EndReason::Failed)];
        assert_eq!(trial.shown(), events);
        assert_eq!(trial.visible.lock().len(), 3, "the end is stored before readers see it");
        assert_eq!(store.run(ID).await.unwrap().unwrap().status, RunStatus::Error);
        assert_eq!(store.active_runs(&["branch".to_owned()]).await.unwrap(), []);
    }

    #[tokio::test]
    async fn panic_while_the_end_is_stored_frees_the_branch() {
        struct Panicking;
        impl StoreEnd for Panicking {
            fn store_end<'a>(&'a self, _: &'a Driven) -> StoreFuture<'a, Outcome> {
                panic!("a mistake in our code")
            }
        }
        let store = Arc::new(InMemory::default());
        let trial = Trial::begin(&store, 1, Pacing::IMMEDIATE).await;
        let work = async {
            trial.run.drive_events(panicking(), &trial).await;
        };
        trial.run.guard(work, &Panicking).await;
        assert!(matches!(trial.shown().last(), Some(Event::Ended { reason: EndReason::Failed })));
        assert_eq!(store.run(ID).await.unwrap().unwrap().status, RunStatus::Error);
        assert_eq!(store.active_runs(&["branch".to_owned()]).await.unwrap(), []);
    }
}
