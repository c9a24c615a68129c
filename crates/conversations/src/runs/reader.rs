//! The readers of runs. Each one writes the stream of a client from the log of a run, in the client's
//! format and from its cursor on. `/api` and the front doors have the same readers.
//!
//! A reader reads the log at its own pace, so a slow one never slows the run. The entries that it has
//! not read are its queue, and they cost nothing: the log has them anyway. A client that takes nothing
//! for some time while its queue has become longer than `limits.reader_queue` is detached: its stream
//! ends, and it can resume at its cursor.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use serde_json::{Map, Value};
use throughline_canonical::{EndReason, Event, Fault, FaultKind};
use throughline_codec::dialects::resumable::{LogCursor, ReplyFormat, ResumableReply};
use throughline_gateway::Gateway;
use throughline_gateway::upstream::BoxError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::event_log::EMPTY_REPLY;
use super::log::{Entry, LiveRun};
use super::{Runs, server_died};
use crate::body::live;
use crate::chat_seal::ChatSeal;
use crate::sealed_store::{UNREADABLE, fault};
use crate::store::RunStatus;

/// How many bytes are written at once.
const MAX_PIECE: usize = 64 << 10;
/// How long a client may take nothing. If its queue is too long by then, it is detached.
const MAX_STALL: Duration = Duration::from_secs(30);

/// The end of a stream whose key may not be used any more.
const LEASE_ENDED: &str =
    "the lease of the chat key has ended; make a new one, and read on after the last event";

/// Opens readers, and sends their streams.
#[derive(Debug)]
pub struct Readers {
    gateway: Arc<Gateway>,
    runs: Arc<Runs>,
    /// How many entries a client that takes nothing may be behind.
    queue: u64,
}

/// How a log ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndOfLog {
    /// The reason.
    pub reason: EndReason,
    /// Whether the provider returned nothing.
    pub is_empty: bool,
}

/// The facts in the last line of a stream of JSON lines that its format does not know.
pub trait EndFacts: Send {
    /// The members of the line. They replace those of the format.
    fn facts<'a>(
        &'a self,
        end: EndOfLog,
    ) -> Pin<Box<dyn Future<Output = Map<String, Value>> + Send + 'a>>;
}

/// How far a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Reading,
    /// The log in memory had no end, and its rest is read from the store.
    Reopened,
    Ended,
}

/// One reader of a run.
pub struct RunReader {
    runs: Arc<Runs>,
    id: String,
    /// Opens the log, if the run belongs to a project.
    seal: Option<Arc<ChatSeal>>,
    entries: BoxStream<'static, Result<Entry, Fault>>,
    reply: ResumableReply,
    end_facts: Option<Box<dyn EndFacts>>,
    /// Why the stream ends early, when this is ready.
    ended_by: Option<BoxFuture<'static, Fault>>,
    /// The run, if this process writes it.
    live: Option<Arc<LiveRun>>,
    /// The number of the last entry that was read.
    number: u64,
    /// What is written first: the rest of the event at the cursor.
    pending: Vec<u8>,
    progress: Progress,
    /// Whether the provider returned nothing.
    is_empty: bool,
    /// How the log ended, and where the frames of that event begin in what was written last.
    end: Option<(EndOfLog, usize)>,
}

/// Why the stream of a reader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReaderEnd {
    /// The log has no more entries.
    Complete,
    /// The client is gone, or detached.
    Gone,
}

impl RunReader {
    /// A reader of a run that this process writes, from its first event.
    pub(crate) fn of_live(runs: &Arc<Runs>, live: &Arc<LiveRun>, reply: ResumableReply) -> Self {
        let entries = live.follow(None).map(Ok).fuse().boxed();
        Self::new(runs, &live.id, reply, entries, Some(live.clone()))
    }

    fn new(
        runs: &Arc<Runs>,
        id: &str,
        reply: ResumableReply,
        entries: BoxStream<'static, Result<Entry, Fault>>,
        live: Option<Arc<LiveRun>>,
    ) -> Self {
        Self {
            runs: runs.clone(),
            id: id.to_owned(),
            seal: None,
            entries,
            reply,
            end_facts: None,
            ended_by: None,
            live,
            number: 0,
            pending: Vec::new(),
            progress: Progress::Reading,
            is_empty: false,
            end: None,
        }
    }

    /// A reader of any run, after a cursor.
    pub(crate) async fn after(
        runs: &Arc<Runs>,
        id: &str,
        seal: Option<Arc<ChatSeal>>,
        reply: ResumableReply,
        cursor: Option<LogCursor>,
    ) -> Result<Self, Fault> {
        let live = runs.live(id);
        let (outline, after, last) = match (&live, cursor) {
            (_, None) => (Vec::new(), None, None),
            (Some(live), Some(_)) => (Vec::new(), None, live.last_number()),
            (None, Some(cursor)) => {
                let outline = runs.outline(id, cursor.number, seal.as_deref()).await;
                let last = runs.sealed_store.store.last_logged(id).await;
                let after = cursor.number.checked_sub(1);
                (outline.map_err(fault)?, after, last.map_err(fault)?)
            }
        };
        let entries = match &live {
            Some(live) => live.follow(None).map(Ok).fuse().boxed(),
            None => runs.follow(id, after, seal.clone()).fuse().boxed(),
        };
        let mut reader = Self { seal, ..Self::new(runs, id, reply, entries, live) };
        if let Some(cursor) = cursor {
            reader.reply = reader.reply.after(cursor);
            reader.skip_to(cursor, &outline, last.unwrap_or_default()).await?;
        }
        Ok(reader)
    }

    /// Reads up to the cursor of the reply, and keeps what follows it in its event. The outline has the
    /// entries before the cursor that are not read otherwise.
    async fn skip_to(
        &mut self,
        cursor: LogCursor,
        outline: &[Entry],
        last: u64,
    ) -> Result<(), Fault> {
        let mut rest = Vec::new();
        // The client may have seen only what comes before the first event.
        self.reply.begin(&mut rest);
        for entry in outline {
            self.take(entry, &mut rest);
        }
        if cursor.number > last && self.reply.last() < Some(cursor) {
            return Err(LogCursor::unknown(cursor));
        }
        while self.number < cursor.number.min(last) {
            match self.entries.next().await {
                Some(entry) => self.take(&entry?, &mut rest),
                None => break,
            }
        }
        self.pending = rest;
        if self.reply.knows_cursor() { Ok(()) } else { Err(LogCursor::unknown(cursor)) }
    }

    /// Adds facts to the last line. For JSON lines only.
    #[must_use]
    pub fn with_end_facts(mut self, facts: impl EndFacts + 'static) -> Self {
        self.end_facts = Some(Box::new(facts));
        self
    }

    /// Ends the stream with an error as soon as this is ready, whatever the run does.
    #[must_use]
    pub fn until(mut self, ended_by: BoxFuture<'static, Fault>) -> Self {
        self.ended_by = Some(ended_by);
        self
    }

    fn take(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        self.number = entry.number;
        // Entries of a newer version are left out.
        if let Ok(event) = serde_json::from_str(&entry.text) {
            self.write(entry.number, &event, out);
        }
    }

    fn write(&mut self, number: u64, event: &Event<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        self.reply.push(number, event, out);
        match event {
            // For the client the run ends here. It reads on when a person has decided.
            Event::ApprovalNeeded { .. }
                if self.reply.format() == ReplyFormat::AgUi && out.len() > start =>
            {
                self.progress = Progress::Ended;
            }
            Event::Fault(fault) => self.is_empty = fault.code.as_deref() == Some(EMPTY_REPLY),
            Event::Ended { reason } => {
                self.progress = Progress::Ended;
                let end = EndOfLog { reason: reason.clone(), is_empty: self.is_empty };
                self.end = Some((end, start));
            }
            _ => {}
        }
    }

    /// Adds the facts to the last line, if it was written last. This may wait for the store, and must
    /// not be cancelled.
    async fn complete(&mut self, mut written: Vec<u8>) -> Vec<u8> {
        if let Some((end, start)) = self.end.take()
            && let Some(end_facts) = &self.end_facts
        {
            let line = written.split_off(start);
            written.extend(complete_end(&line, end_facts.facts(end).await));
        }
        written
    }

    /// Waits for entries and writes them. Returns `None` after the last one. Nothing is lost if this
    /// is cancelled.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = std::mem::take(&mut self.pending);
        while out.is_empty() {
            if self.progress == Progress::Ended {
                return None;
            }
            match self.entries.next().await {
                Some(Ok(entry)) => self.take(&entry, &mut out),
                Some(Err(fault)) if fault.code.as_deref() == Some(UNREADABLE) => {
                    self.write_end(fault, EndReason::Failed, &mut out);
                }
                // A store that failed has been logged. The run may go on, so the reader resumes.
                Some(Err(_)) => return None,
                // Another process has taken the run over, so its rest is in the store.
                None if self.progress == Progress::Reading => {
                    self.progress = Progress::Reopened;
                    let (after, seal) = (Some(self.number), self.seal.clone());
                    self.entries = self.runs.follow(&self.id, after, seal).fuse().boxed();
                }
                None => self.write_missing_end(&mut out).await,
            }
        }
        while out.len() < MAX_PIECE
            && self.progress != Progress::Ended
            && let Some(Some(Ok(entry))) = self.entries.next().now_or_never()
        {
            self.take(&entry, &mut out);
        }
        Some(out)
    }

    /// Ends the stream of a run whose log has no end: its server died, and no request has had the key of its
    /// project, or the run was removed.
    async fn write_missing_end(&mut self, out: &mut Vec<u8>) {
        let run = self.runs.sealed_store.store.run(&self.id).await.ok().flatten();
        let (fault, reason) = match run.map(|run| run.status) {
            Some(RunStatus::Interrupted) => (server_died(), EndReason::Cut),
            _ => {
                let what = "the log of this run is incomplete";
                (Fault::new(FaultKind::Internal, what), EndReason::Failed)
            }
        };
        self.write_end(fault, reason, out);
    }

    fn write_end(&mut self, fault: Fault, reason: EndReason, out: &mut Vec<u8>) {
        self.write(self.number + 1, &Event::Fault(fault), out);
        self.write(self.number + 2, &Event::Ended { reason }, out);
    }

    /// What is known now about how far the reader is behind.
    fn lag(&self) -> Lag {
        Lag { live: self.live.clone(), number: self.number }
    }
}

/// Adds facts to the last line. Its number stays its last member.
fn complete_end(written: &[u8], facts: Map<String, Value>) -> Vec<u8> {
    let Ok(mut line) = serde_json::from_slice::<Map<String, Value>>(written) else {
        return written.to_vec();
    };
    let number = line.shift_remove("seq");
    line.extend(facts);
    line.extend(number.map(|number| ("seq".to_owned(), number)));
    let mut out = Value::Object(line).to_string().into_bytes();
    out.push(b'\n');
    out
}

/// How far a reader is behind its run.
struct Lag {
    live: Option<Arc<LiveRun>>,
    number: u64,
}

impl Lag {
    /// How many entries the reader has not read. They are known if this process writes the run.
    fn entries(&self) -> u64 {
        let last = self.live.as_ref().and_then(|live| live.last_number());
        last.unwrap_or_default().saturating_sub(self.number)
    }
}

/// The way to the client of a reader.
pub(crate) struct Outlet {
    pieces: mpsc::Sender<Bytes>,
    /// When the client last got something of a run.
    last_data: Instant,
}

/// The result of sending bytes to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The client gets them.
    Yes,
    /// The client is gone.
    Gone,
    /// The client takes nothing.
    TooSlow,
}

impl Outlet {
    /// An outlet, and the body that it fills.
    pub(crate) fn new() -> (Self, UnsyncBoxBody<Bytes, BoxError>) {
        let (pieces, receiver) = mpsc::channel(1);
        let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (Ok(Frame::data(piece)), receiver))
        });
        (Self { pieces, last_data: Instant::now() }, live(frames))
    }

    /// Waits until the client is gone.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Sends bytes. `may_wait` says whether a client that takes nothing may have more time.
    pub(crate) async fn send(&self, bytes: Vec<u8>, may_wait: impl Fn() -> bool) -> Sent {
        loop {
            match timeout(MAX_STALL, self.pieces.reserve()).await {
                Ok(Ok(permit)) => {
                    permit.send(bytes.into());
                    return Sent::Yes;
                }
                Ok(Err(_)) => return Sent::Gone,
                Err(_) if may_wait() => {}
                Err(_) => return Sent::TooSlow,
            }
        }
    }
}

impl Readers {
    /// Readers of these runs. `queue` is how many entries a client that takes nothing may be behind.
    pub fn new(gateway: Arc<Gateway>, runs: Arc<Runs>, queue: u64) -> Self {
        Self { gateway, runs, queue }
    }

    /// A reader of a run that may go on, or may have ended. `seal` is that of its project, if it has
    /// one.
    pub async fn open(
        &self,
        id: &str,
        seal: Option<Arc<ChatSeal>>,
        reply: ResumableReply,
        cursor: Option<LogCursor>,
    ) -> Result<RunReader, Fault> {
        RunReader::after(&self.runs, id, seal, reply, cursor).await
    }

    /// The same for a client that comes back.
    pub async fn resume(
        &self,
        id: &str,
        seal: Option<Arc<ChatSeal>>,
        reply: ResumableReply,
        cursor: Option<LogCursor>,
    ) -> Result<RunReader, Fault> {
        let reader = self.open(id, seal, reply, cursor).await?;
        self.gateway.metrics.resumes.increment();
        Ok(reader)
    }

    /// The stream of a reader, as a body.
    pub fn body_of(self: &Arc<Self>, reader: RunReader) -> UnsyncBoxBody<Bytes, BoxError> {
        let (mut outlet, body) = Outlet::new();
        let this = self.clone();
        tokio::spawn(async move { this.forward(reader, &mut outlet).await });
        body
    }

    /// Sends the stream of a reader, with keep-alives while the model is silent.
    pub(crate) async fn forward(&self, mut reader: RunReader, outlet: &mut Outlet) -> ReaderEnd {
        let seal = reader.seal.clone();
        let revoked = async {
            match &seal {
                Some(seal) => seal.revoked().await,
                None => pending().await,
            }
        };
        let ended_by = reader.ended_by.take().unwrap_or_else(|| pending().boxed());
        let ended = async {
            tokio::select! {
                biased;
                () = revoked => Fault::new(FaultKind::Forbidden, LEASE_ENDED),
                fault = ended_by => fault,
            }
        };
        tokio::pin!(ended);
        loop {
            let keep_alive = self.gateway.settings().keep_alive;
            let bytes = tokio::select! {
                biased;
                fault = &mut ended => {
                    let mut bytes = Vec::new();
                    reader.write_end(fault, EndReason::Failed, &mut bytes);
                    let bytes = reader.complete(bytes).await;
                    outlet.send(bytes, || false).await;
                    return ReaderEnd::Gone;
                }
                next = reader.next() => match next {
                    Some(bytes) => {
                        outlet.last_data = Instant::now();
                        bytes
                    }
                    None => return ReaderEnd::Complete,
                },
                () = outlet.closed() => return ReaderEnd::Gone,
                () = sleep(keep_alive) => {
                    let mut bytes = Vec::new();
                    reader.reply.wait(outlet.last_data.elapsed(), &mut bytes);
                    self.gateway.metrics.keep_alives.increment();
                    bytes
                }
            };
            let bytes = reader.complete(bytes).await;
            let lag = reader.lag();
            // A client that takes nothing must not keep what it may not read any more.
            let sent = tokio::select! {
                biased;
                _ = &mut ended => return ReaderEnd::Gone,
                sent = outlet.send(bytes, || lag.entries() <= self.queue) => sent,
            };
            match sent {
                Sent::Yes => {}
                Sent::Gone => return ReaderEnd::Gone,
                Sent::TooSlow => {
                    tracing::info!(run = reader.id, "detaching a reader that takes nothing");
                    self.gateway.metrics.detached_readers.increment();
                    return ReaderEnd::Gone;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use throughline_canonical::{BlockStart, Delta, Request};
    use throughline_codec::dialects::ReplyIdentity;
    use throughline_codec::dialects::resumable::ReplyFormat;
    use throughline_sealing::Keyring;

    use super::*;
    use crate::in_memory::InMemory;
    use crate::runs::Appended;
    use crate::sealed_store::SealedStore;
    use crate::store::{Commit, LogPiece, NodeStore, Piece, Run, RunEnd, RunStatus};
    use crate::test_gateway::gateway;

    const ID: &str = "run_1";
    const QUEUE: u64 = 5;

    /// Readers, and a run in progress.
    async fn begin() -> (Arc<Readers>, Arc<LiveRun>, crate::runs::RunGuard) {
        let store = Arc::new(InMemory::default());
        let start = Run {
            id: ID.to_owned(),
            owner: "ada".to_owned(),
            scope: "test".to_owned(),
            name: None,
            reference: None,
            instance: "one".to_owned(),
            epoch: 1,
            status: RunStatus::Running,
            created: 0,
            expires: None,
            sealed: Vec::new(),
        };
        store.commit(Commit { start: Some(start), ..Commit::default() }).await.unwrap();
        let keyring = Arc::new(Keyring::new([7; 32]));
        let sealed_store = SealedStore::new(store, keyring.clone(), 1 << 30);
        let runs = Arc::new(Runs::new(Arc::new(sealed_store)));
        let live = Arc::new(LiveRun::new(ID, 1));
        let guard = runs.register(live.clone());
        let readers = Readers::new(gateway(keyring), runs, QUEUE);
        (Arc::new(readers), live, guard)
    }

    fn reply() -> ResumableReply {
        let format = ReplyFormat::NdJson;
        let identity = ReplyIdentity::new("x", 0);
        let writer = format.dialect().session().reply_writer(&Request::default(), &identity);
        ResumableReply::new(writer, format)
    }

    fn entry(number: u64, event: &Event<'_>) -> Entry {
        Entry::new(number, serde_json::to_string(event).unwrap())
    }

    fn text_started() -> Entry {
        let block = BlockStart::Text { text: "".into() };
        entry(1, &Event::BlockStarted { index: 0, block })
    }

    /// Each entry is a piece of its own.
    fn long_text(number: u64) -> Entry {
        let text = format!("{number} {}", "-".repeat(MAX_PIECE));
        entry(number, &Event::BlockDelta { index: 0, delta: Delta::Text(text.into()) })
    }

    async fn read(body: UnsyncBoxBody<Bytes, BoxError>) -> String {
        let body = body.collect().await.unwrap().to_bytes();
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_takes_nothing_is_detached_and_resumes_at_its_cursor() {
        let (readers, live, guard) = begin().await;
        let slow = readers.body_of(readers.open(ID, None, reply(), None).await.unwrap());
        let began = Instant::now();
        let mut entries = vec![text_started()];
        entries.extend((2..30).map(long_text));
        entries.push(entry(30, &Event::Ended { reason: EndReason::Stop }));
        for entry in entries {
            assert_eq!(readers.runs.append(&live, vec![entry]).await, Appended::Yes);
        }
        assert_eq!(began.elapsed(), Duration::ZERO, "the run did not wait for its reader");
        let detached = &readers.gateway.metrics.detached_readers;
        assert_eq!(detached.get(), 0);
        while detached.get() == 0 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(began.elapsed() < 2 * MAX_STALL, "the reader is detached");
        }
        let seen = read(slow).await;
        let last: Value = serde_json::from_str(seen.lines().last().unwrap()).unwrap();
        let cursor = LogCursor::read(&last["seq"].to_string()).unwrap();
        assert!(cursor.number < 30 - QUEUE, "{cursor}");
        let whole =
            read(readers.body_of(readers.open(ID, None, reply(), None).await.unwrap())).await;
        let rest = readers.resume(ID, None, reply(), Some(cursor)).await.unwrap();
        assert_eq!(format!("{seen}{}", read(readers.body_of(rest)).await), whole);
        assert_eq!(whole.lines().count(), 29);
        drop(guard);
    }

    /// A client that is behind by a few entries may take its time.
    #[tokio::test(start_paused = true)]
    async fn slow_client_with_a_short_queue_stays() {
        let (readers, live, guard) = begin().await;
        let slow = readers.body_of(readers.open(ID, None, reply(), None).await.unwrap());
        readers.runs.append(&live, vec![text_started()]).await;
        for number in 2..=QUEUE {
            readers.runs.append(&live, vec![long_text(number)]).await;
        }
        for _ in 0..100 {
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(readers.gateway.metrics.detached_readers.get(), 0);
        let end = entry(QUEUE + 1, &Event::Ended { reason: EndReason::Stop });
        readers.runs.append(&live, vec![end]).await;
        assert_eq!(read(slow).await.lines().count() as u64, QUEUE);
        drop(guard);
    }

    /// The texts before the cursor cannot be opened, so who reads them fails.
    #[tokio::test]
    async fn reader_that_resumes_reads_no_text_before_its_cursor() {
        let (readers, live, guard) = begin().await;
        let text = |number| Entry { continues: number > 2, ..long_text(number) };
        let store = &readers.runs.sealed_store.store;
        assert_eq!(readers.runs.append(&live, vec![text_started()]).await, Appended::Yes);
        assert_eq!(readers.runs.append(&live, vec![text(2)]).await, Appended::Yes);
        for number in 3..=40 {
            let (first, last, continues) = (number, number, true);
            let piece = Piece { first, last, continues, sealed: b"damaged".to_vec() };
            let run = ID.to_owned();
            assert_eq!(store.log(vec![LogPiece { run, epoch: 1, piece }]).await.unwrap(), [true]);
        }
        for number in 41..=50 {
            assert_eq!(readers.runs.append(&live, vec![text(number)]).await, Appended::Yes);
        }
        let end = entry(51, &Event::Ended { reason: EndReason::Stop });
        assert_eq!(readers.runs.append(&live, vec![end]).await, Appended::Yes);
        let whole =
            read(readers.body_of(readers.open(ID, None, reply(), None).await.unwrap())).await;
        drop(guard);
        let (run, sealed, expires) = (ID.to_owned(), Vec::new(), None);
        let end = RunEnd { run, epoch: 1, status: RunStatus::Completed, expires, sealed };
        store.commit(Commit { end: Some(end), ..Commit::default() }).await.unwrap();
        let after = |number| readers.resume(ID, None, reply(), Some(cursor_at(number)));
        for (number, lines) in [(41, 10), (45, 6), (50, 1), (51, 0)] {
            let rest = read(readers.body_of(after(number).await.unwrap())).await;
            assert!(whole.ends_with(&rest), "{number}");
            assert_eq!(rest.lines().count(), lines, "{number}");
        }
        assert!(after(39).await.is_err());
        assert!(after(52).await.is_err());
    }

    fn cursor_at(number: u64) -> LogCursor {
        LogCursor { number, part: 0 }
    }
}
