//! The log of a run in memory, and the readers that follow it.

use std::sync::Arc;

use futures_util::Stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::bus::chat_stream::{ChatMessage, ChatStream};
use crate::chat_seal::ChatSeal;

/// How many bytes of entries a run may have.
const MAX_RUN_BYTES: usize = 64 << 20;

/// A numbered entry of a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The number. Numbers rise by one.
    pub number: u64,
    /// The text. Logs of earlier versions call it `event`.
    #[serde(alias = "event")]
    pub text: Arc<str>,
    /// Whether it only continues a text. A reader that resumes after it does not need it.
    #[serde(skip)]
    pub continues: bool,
}

impl Entry {
    /// An entry that every reader needs.
    pub fn new(number: u64, text: impl Into<Arc<str>>) -> Self {
        Self { number, text: text.into(), continues: false }
    }
}

/// A run that this process writes.
#[derive(Debug)]
pub struct LiveRun {
    /// The id.
    pub id: String,
    /// The epoch under which this process writes.
    pub epoch: u64,
    /// Seals the log, if the run belongs to a project.
    pub seal: Option<Arc<ChatSeal>>,
    /// Writes what other programs get of it.
    chat_stream: Option<Mutex<ChatStream>>,
    log: Mutex<Log>,
    /// The number of entries that readers may see. Changes also when the log is closed.
    visible: watch::Sender<usize>,
    stop: watch::Sender<bool>,
    /// The number of readers that follow it.
    readers: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Log {
    entries: Vec<Entry>,
    bytes: usize,
    /// How many entries are in the store.
    stored: usize,
    /// How many entries other programs know.
    told: usize,
    closed: bool,
}

impl LiveRun {
    /// A run without entries.
    pub fn new(id: impl Into<String>, epoch: u64) -> Self {
        Self {
            id: id.into(),
            epoch,
            seal: None,
            chat_stream: None,
            log: Mutex::default(),
            visible: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            readers: watch::Sender::new(0),
        }
    }

    /// The same run with the seal of its project.
    #[must_use]
    pub fn with_seal(self, seal: Arc<ChatSeal>) -> Self {
        Self { seal: Some(seal), ..self }
    }

    /// The same run with what other programs get of it.
    #[must_use]
    pub fn with_chat_stream(self, chat_stream: ChatStream) -> Self {
        Self { chat_stream: Some(Mutex::new(chat_stream)), ..self }
    }

    /// Adds entries that readers do not see yet. Returns false if the run is too long.
    pub(super) fn push(&self, entries: impl IntoIterator<Item = Entry>) -> bool {
        let mut log = self.log.lock();
        for entry in entries {
            log.bytes += entry.text.len();
            log.entries.push(entry);
        }
        log.bytes <= MAX_RUN_BYTES
    }

    /// Adds entries that are in the store already. Their writer has told other programs about them.
    pub fn restore(&self, entries: impl IntoIterator<Item = Entry>) {
        self.push(entries);
        let mut log = self.log.lock();
        log.stored = log.entries.len();
        log.told = log.entries.len();
        if let Some(chat_stream) = &self.chat_stream {
            chat_stream.lock().write(&log.entries);
        }
    }

    /// Shows all entries to readers. Returns the messages for other programs.
    pub(super) fn publish(&self) -> Vec<ChatMessage> {
        let mut log = self.log.lock();
        let count = log.entries.len();
        self.visible.send_replace(count);
        let Some(chat_stream) = &self.chat_stream else {
            return Vec::new();
        };
        let told = std::mem::replace(&mut log.told, count);
        chat_stream.lock().write(&log.entries[told..])
    }

    /// All entries, also those that readers do not see.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.log.lock().entries.clone()
    }

    /// The entries that are not in the store.
    pub(super) fn unstored(&self) -> Vec<Entry> {
        let log = self.log.lock();
        log.entries.get(log.stored..).unwrap_or_default().to_vec()
    }

    /// Records that this many more entries are in the store.
    pub(super) fn record_stored(&self, count: usize) {
        self.log.lock().stored += count;
    }

    /// The number of the last entry.
    pub fn last_number(&self) -> Option<u64> {
        self.log.lock().entries.last().map(|entry| entry.number)
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.log.lock().entries.is_empty()
    }

    /// Ends the log: readers get what is left, and then the end.
    pub fn close(&self) {
        self.log.lock().closed = true;
        self.visible.send_modify(|_| {});
    }

    /// Whether no more entries will come.
    pub fn is_closed(&self) -> bool {
        self.log.lock().closed
    }

    /// Waits until the log is closed.
    pub async fn closed(&self) {
        let mut visible = self.visible.subscribe();
        let _ = visible.wait_for(|_| self.is_closed()).await;
    }

    /// Asks the writer to stop.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until a client asks the writer to stop.
    pub async fn stopped(&self) {
        let mut stop = self.stop.subscribe();
        if stop.wait_for(|stop| *stop).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Watches the number of readers.
    pub fn watch_readers(&self) -> watch::Receiver<usize> {
        self.readers.subscribe()
    }

    /// The entries after this number, those so far and those to come. Readers read the log at their
    /// own pace, so a slow one costs no memory and never slows the run.
    pub fn follow(self: &Arc<Self>, after: Option<u64>) -> impl Stream<Item = Entry> + use<> {
        let reader = Reader::new(Arc::clone(self), after);
        futures_util::stream::unfold(reader, |mut reader| async move {
            reader.next().await.map(|entry| (entry, reader))
        })
    }
}

/// A reader of a log. It counts as a reader until it is dropped.
struct Reader {
    run: Arc<LiveRun>,
    visible: watch::Receiver<usize>,
    next: usize,
}

impl Reader {
    fn new(run: Arc<LiveRun>, after: Option<u64>) -> Self {
        run.readers.send_modify(|readers| *readers += 1);
        let next = {
            let log = run.log.lock();
            log.entries.partition_point(|entry| after.is_some_and(|after| entry.number <= after))
        };
        Self { visible: run.visible.subscribe(), run, next }
    }

    async fn next(&mut self) -> Option<Entry> {
        loop {
            {
                let visible = *self.visible.borrow_and_update();
                let log = self.run.log.lock();
                if self.next < visible {
                    let entry = log.entries.get(self.next).cloned();
                    self.next += 1;
                    return entry;
                }
                if log.closed {
                    return None;
                }
            }
            self.visible.changed().await.ok()?;
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.run.readers.send_modify(|readers| *readers -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;

    use super::*;

    fn entries(numbers: std::ops::Range<u64>) -> Vec<Entry> {
        numbers.map(|number| Entry::new(number, format!("entry {number}"))).collect()
    }

    #[tokio::test]
    async fn reader_gets_every_entry_after_its_cursor_once() {
        let run = Arc::new(LiveRun::new("r", 1));
        run.push(entries(1..4));
        run.publish();
        let late = run.follow(Some(2));
        let early = run.follow(None);
        assert_eq!(*run.watch_readers().borrow(), 2);
        // Readers do not see entries that are not published.
        run.push(entries(4..6));
        let writer = run.clone();
        let rest = tokio::spawn(async move { late.collect::<Vec<_>>().await });
        let all = tokio::spawn(async move { early.collect::<Vec<_>>().await });
        tokio::task::yield_now().await;
        writer.publish();
        writer.close();
        assert_eq!(rest.await.unwrap(), entries(3..6));
        assert_eq!(all.await.unwrap(), entries(1..6));
        assert_eq!(*run.watch_readers().borrow(), 0);
    }

    #[tokio::test]
    async fn unpublished_entries_are_not_shown_after_a_close() {
        let run = Arc::new(LiveRun::new("r", 1));
        run.push(entries(1..3));
        run.close();
        assert_eq!(run.follow(None).collect::<Vec<_>>().await, []);
        run.publish();
        assert_eq!(run.follow(None).collect::<Vec<_>>().await, entries(1..3));
    }
}
