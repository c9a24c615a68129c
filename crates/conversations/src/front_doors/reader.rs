//! Writes the stream of a reader from the log of a run. A reader takes entries at its own pace, so a
//! slow one never slows the run.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use throughline_canonical::Fault;
use throughline_codec::dialects::resumable::{LogCursor, ResumableReply};
use throughline_gateway::upstream::BoxError;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};

use super::FrontDoors;
use crate::body::live;
use crate::runs::Runs;
use crate::runs::log::{Entry, LiveRun};

/// How many bytes are written at once.
const MAX_PIECE: usize = 64 << 10;
/// How long a reader may take nothing. If it is far behind by then, its stream ends.
const MAX_STALL: Duration = Duration::from_secs(30);

/// One reader of a run.
pub(super) struct RunReader {
    entries: Pin<Box<dyn Stream<Item = Result<Entry, Fault>> + Send>>,
    reply: ResumableReply,
    /// The run, if this process writes it.
    live: Option<Arc<LiveRun>>,
    /// The number of the last entry that was read.
    number: u64,
    /// What is written first: the rest of the event at the cursor.
    pending: Vec<u8>,
}

/// Why the stream of a reader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReaderEnd {
    /// The log has no more entries.
    Complete,
    /// The client is gone, or too slow.
    Gone,
}

impl RunReader {
    /// A reader of a run that this process writes, from its first event.
    pub(super) fn of_live(live: &Arc<LiveRun>, reply: ResumableReply) -> Self {
        let entries = Box::pin(live.follow(None).map(Ok).fuse());
        Self { entries, reply, live: Some(live.clone()), number: 0, pending: Vec::new() }
    }

    /// A reader of any run, after a cursor.
    pub(super) async fn after(
        runs: &Arc<Runs>,
        id: &str,
        reply: ResumableReply,
        cursor: Option<LogCursor>,
    ) -> Result<Self, Fault> {
        let live = runs.live(id);
        let last = match &live {
            Some(live) => live.last_number(),
            None => {
                let entries = runs.stored_entries(id, None, None).await;
                entries.map_err(crate::sealed_store::fault)?.last().map(|entry| entry.number)
            }
        };
        let entries: Pin<Box<dyn Stream<Item = _> + Send>> = match &live {
            Some(live) => Box::pin(live.follow(None).map(Ok).fuse()),
            None => Box::pin(runs.follow(id, None, None).fuse()),
        };
        let mut reader = Self { entries, reply, live, number: 0, pending: Vec::new() };
        let Some(cursor) = cursor else {
            return Ok(reader);
        };
        reader.reply = reader.reply.after(cursor);
        let mut rest = Vec::new();
        // The client may have seen only what comes before the first event.
        reader.reply.begin(&mut rest);
        let last = last.unwrap_or_default();
        if cursor.number > last && reader.reply.last() < Some(cursor) {
            return Err(LogCursor::unknown(cursor));
        }
        while reader.number < cursor.number.min(last) {
            match reader.entries.next().await {
                Some(entry) => reader.write(&entry?, &mut rest),
                None => break,
            }
        }
        if !reader.reply.knows_cursor() {
            return Err(LogCursor::unknown(cursor));
        }
        reader.pending = rest;
        Ok(reader)
    }

    fn write(&mut self, entry: &Entry, out: &mut Vec<u8>) {
        self.number = entry.number;
        // Entries of a newer version are left out.
        if let Ok(event) = serde_json::from_str(&entry.text) {
            self.reply.push(entry.number, &event, out);
        }
    }
}

impl RunReader {
    /// Waits for entries and writes them. Returns `None` after the last one.
    async fn next(&mut self) -> Option<Vec<u8>> {
        let mut out = std::mem::take(&mut self.pending);
        while out.is_empty() {
            // A store that failed has been logged. The reader resumes.
            let entry = self.entries.next().await?.ok()?;
            self.write(&entry, &mut out);
        }
        while out.len() < MAX_PIECE
            && let Some(Some(Ok(entry))) = self.entries.next().now_or_never()
        {
            self.write(&entry, &mut out);
        }
        Some(out)
    }

    /// What is known now about how far the reader is behind.
    fn lag(&self) -> Lag {
        Lag { live: self.live.clone(), number: self.number }
    }
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
pub(super) struct Outlet {
    pieces: mpsc::Sender<Bytes>,
    /// When the client last got something of a run.
    last_data: Instant,
}

/// The result of sending bytes to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The client gets them.
    Yes,
    /// The client is gone.
    Gone,
    /// The client takes nothing.
    TooSlow,
}

impl Outlet {
    /// An outlet, and the body that it fills.
    pub(super) fn new() -> (Self, UnsyncBoxBody<Bytes, BoxError>) {
        let (pieces, receiver) = mpsc::channel(1);
        let frames = futures_util::stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (Ok(Frame::data(piece)), receiver))
        });
        (Self { pieces, last_data: Instant::now() }, live(frames))
    }

    /// Waits until the client is gone.
    pub(super) async fn closed(&self) {
        self.pieces.closed().await;
    }

    /// Sends bytes. `may_wait` says whether a client that takes nothing may have more time.
    pub(super) async fn send(&self, bytes: Vec<u8>, may_wait: impl Fn() -> bool) -> Sent {
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

impl FrontDoors {
    /// The stream of a reader, as a body.
    pub(super) fn body_of(self: Arc<Self>, reader: RunReader) -> UnsyncBoxBody<Bytes, BoxError> {
        let (mut outlet, body) = Outlet::new();
        tokio::spawn(async move { self.forward(reader, &mut outlet).await });
        body
    }

    /// Sends the stream of a reader, with keep-alives while the model is silent.
    pub(super) async fn forward(&self, mut reader: RunReader, outlet: &mut Outlet) -> ReaderEnd {
        loop {
            let keep_alive = self.gateway.settings().keep_alive;
            let bytes = tokio::select! {
                biased;
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
            let (lag, max) = (reader.lag(), self.settings.reader_queue);
            match outlet.send(bytes, || lag.entries() <= max).await {
                Sent::Yes => {}
                Sent::Gone => return ReaderEnd::Gone,
                Sent::TooSlow => {
                    tracing::info!("ending the stream of a reader that takes nothing");
                    self.gateway.metrics.detached_readers.increment();
                    return ReaderEnd::Gone;
                }
            }
        }
    }
}
