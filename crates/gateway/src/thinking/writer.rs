//! Writes to a store in batches, in the background. The memory's changes and the vault's records
//! each have their own queue.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout};

use super::health::StoreHealth;
use super::store::{Change, Store, StoreError};

/// How long the writer pauses after a write. Items that arrive during the pause go into one write,
/// because a write costs about the same for one item as for many. After a longer silence, an item
/// is written at once. Anything older than a second must be safe.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 500 });

/// How long a check waits for what is in the queue.
const MAX_FLUSH: Duration = Duration::from_secs(3);

/// An item that can wait to be written.
pub trait Item: Clone + Send + 'static {
    /// The name of the store, for the metrics and the log.
    const STORE: &'static str;
    /// How much may wait. The oldest items are dropped above this.
    const MAX_WEIGHT: usize;

    /// How much the item counts towards [`Item::MAX_WEIGHT`].
    fn weight(&self) -> usize;
}

/// Changes of the memory are small and counted by number. If they are dropped, the memory in RAM
/// stays complete, and only a restart forgets them.
impl Item for Change {
    const STORE: &'static str = "memory";
    const MAX_WEIGHT: usize = 500_000;

    fn weight(&self) -> usize {
        1
    }
}

/// The queue of the memory's changes.
pub type Changes = Queue<Change>;

/// A queue of items for a writer.
#[derive(Debug)]
pub struct Queue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    waiting: Mutex<Waiting<T>>,
    wake: Notify,
    health: StoreHealth,
    /// How many items were added.
    pushed: AtomicU64,
    /// Items whose last write failed.
    failed: AtomicUsize,
    /// Items that the writer has taken and that are not written: their write goes on, or has failed.
    unwritten: AtomicUsize,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    weight: usize,
    flushes: Vec<oneshot::Sender<()>>,
}

impl<T: Item> Default for Queue<T> {
    fn default() -> Self {
        let waiting = Waiting { items: Vec::new(), weight: 0, flushes: Vec::new() };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(waiting),
                wake: Notify::new(),
                health: StoreHealth::new(T::STORE),
                pushed: AtomicU64::new(0),
                failed: AtomicUsize::new(0),
                unwritten: AtomicUsize::new(0),
            }),
        }
    }
}

impl<T> Clone for Queue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T: Item> Queue<T> {
    /// Adds an item. Never waits.
    pub fn push(&self, item: T) {
        self.shared.pushed.fetch_add(1, Ordering::Relaxed);
        let mut waiting = self.shared.waiting.lock();
        waiting.weight += item.weight();
        waiting.items.push(item);
        if waiting.weight > T::MAX_WEIGHT {
            waiting.weight = self.drop_oldest(&mut waiting.items, T::MAX_WEIGHT / 2);
        }
        drop(waiting);
        self.shared.wake.notify_one();
    }

    /// How many items were added so far.
    pub fn pushed(&self) -> u64 {
        self.shared.pushed.load(Ordering::Relaxed)
    }

    /// Waits until everything in the queue is written or has failed.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        self.shared.waiting.lock().flushes.push(done);
        self.shared.wake.notify_one();
        // An error means that the writer is gone, so there is nothing to wait for.
        let _ = written.await;
    }

    /// What is known about the writes.
    pub fn health(&self) -> &StoreHealth {
        &self.shared.health
    }

    /// Why the store cannot be written. What waits is written first: a store that works again is not
    /// ready as long as it lacks what was learnt meanwhile. If nothing waits, `check` tries a write.
    pub async fn check(
        &self,
        check: impl Future<Output = Result<(), StoreError>>,
    ) -> Option<String> {
        let waiting = || format!("store `{}` has changes that are not written yet", T::STORE);
        let has_failed = || self.shared.failed.load(Ordering::Relaxed) > 0;
        if !has_failed() && self.has_unwritten() && timeout(MAX_FLUSH, self.flush()).await.is_err()
        {
            return Some(waiting());
        }
        match has_failed() {
            true => Some(self.health().failure().unwrap_or_else(waiting)),
            false => self.health().check(check).await,
        }
    }

    fn has_unwritten(&self) -> bool {
        let waiting = self.shared.waiting.lock();
        !waiting.items.is_empty() || self.shared.unwritten.load(Ordering::Relaxed) > 0
    }

    /// Reports what was never written. Call this before the process ends.
    pub fn report_unwritten(&self) {
        let unwritten = self.shared.failed.swap(0, Ordering::Relaxed);
        if unwritten > 0 {
            self.health().record_dropped(unwritten, "the server stops");
        }
    }

    /// Writes the items of the queue, forever. Run this as a task.
    pub async fn write_with<Writing>(self, write: impl Fn(Vec<T>) -> Writing + Send)
    where
        Writing: Future<Output = Result<(), StoreError>> + Send,
    {
        let mut batch: Vec<T> = Vec::new();
        let mut next_write = Instant::now();
        // How many items are written together. After a failure it is halved, so that a store with
        // little room gets what fits.
        let mut part = usize::MAX;
        loop {
            self.shared.wake.notified().await;
            let flushing = !self.shared.waiting.lock().flushes.is_empty();
            // A timer that is already due would still take a millisecond.
            if !flushing && next_write > Instant::now() {
                tokio::time::sleep_until(next_write).await;
            }
            let (items, flushes) = {
                let mut waiting = self.shared.waiting.lock();
                waiting.weight = 0;
                self.shared.unwritten.fetch_add(waiting.items.len(), Ordering::Relaxed);
                (std::mem::take(&mut waiting.items), std::mem::take(&mut waiting.flushes))
            };
            batch.extend(items);
            while !batch.is_empty() {
                let count = part.min(batch.len());
                let written = write(batch[..count].to_vec()).await;
                self.health().record(&written);
                next_write = Instant::now() + PAUSE;
                if written.is_err() {
                    part = (count / 2).max(1);
                    self.drop_oldest(&mut batch, T::MAX_WEIGHT);
                    break;
                }
                part = part.saturating_mul(2);
                batch.drain(..count);
            }
            self.shared.unwritten.store(batch.len(), Ordering::Relaxed);
            self.shared.failed.store(batch.len(), Ordering::Relaxed);
            for done in flushes {
                let _ = done.send(());
            }
            if !batch.is_empty() {
                tokio::time::sleep(RETRY_PAUSE).await;
                self.shared.wake.notify_one();
            }
        }
    }

    /// Drops the oldest items until the rest weighs at most this much. Returns the weight of the
    /// rest.
    fn drop_oldest(&self, items: &mut Vec<T>, most: usize) -> usize {
        let mut weight: usize = items.iter().map(Item::weight).sum();
        let mut oldest = 0;
        while weight > most
            && let Some(item) = items.get(oldest)
        {
            weight -= item.weight();
            oldest += 1;
        }
        if oldest > 0 {
            items.drain(..oldest);
            self.health().record_dropped(oldest, "too much waits to be written");
        }
        weight
    }
}

impl Changes {
    /// Writes changes to a store, forever. Run this as a task.
    pub async fn write_to(self, store: Arc<dyn Store>) {
        self.write_with(|changes| store.write(changes)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thinking::store::InMemory;

    #[tokio::test]
    async fn flush_writes_everything_that_was_pushed() {
        let store = Arc::new(InMemory::default());
        let changes = Changes::default();
        let task = tokio::spawn(changes.clone().write_to(store.clone()));
        for number in 0..100 {
            changes.push(Change::Fact(number.to_string(), Some("x".into())));
        }
        changes.flush().await;
        assert_eq!(store.load().await.unwrap().facts.len(), 100);
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn store_is_not_ready_before_what_waits_is_written() {
        let changes = Changes::default();
        let (answers, answer) = tokio::sync::watch::channel(false);
        let begun = Arc::new(Notify::new());
        let started = begun.clone();
        let task = tokio::spawn(changes.clone().write_with(move |_| {
            let (mut answer, started) = (answer.clone(), started.clone());
            async move {
                started.notify_one();
                let _ = answer.wait_for(|answers| *answers).await;
                Ok(())
            }
        }));
        changes.push(Change::Fact("name".into(), Some("value".into())));
        begun.notified().await;
        // A write that goes on has not failed, but it is not done, either.
        assert!(changes.check(async { Ok(()) }).await.is_some());
        answers.send_replace(true);
        assert_eq!(changes.check(async { Ok(()) }).await, None);
        task.abort();
    }

    /// Weighs as much as its number.
    #[derive(Clone, Debug, PartialEq)]
    struct Heavy(usize);

    impl Item for Heavy {
        const STORE: &'static str = "test";
        const MAX_WEIGHT: usize = 10;

        fn weight(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn push_drops_the_oldest_items_if_too_much_waits() {
        let queue = Queue::default();
        for weight in [4, 3, 3] {
            queue.push(Heavy(weight));
        }
        assert_eq!(queue.shared.waiting.lock().items.len(), 3);
        queue.push(Heavy(2));
        let waiting = queue.shared.waiting.lock();
        assert_eq!(waiting.items, [Heavy(3), Heavy(2)]);
        assert_eq!(waiting.weight, 5);
        assert_eq!(queue.health().dropped.get(), 2);
    }

    #[tokio::test]
    async fn single_item_is_written_at_once_and_later_ones_together() {
        let queue = Queue::default();
        let writes = Arc::new(Mutex::new(Vec::new()));
        let going = Arc::new(Notify::new());
        let (seen, gate) = (writes.clone(), going.clone());
        let task = tokio::spawn(queue.clone().write_with(move |items: Vec<Heavy>| {
            seen.lock().push(items.len());
            let gate = gate.clone();
            async move {
                gate.notified().await;
                Ok(())
            }
        }));
        queue.push(Heavy(1));
        // All of this runs on one thread, so the writer has had its turn by now.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*writes.lock(), [1]);
        // More items arrive while it writes.
        for _ in 0..5 {
            queue.push(Heavy(1));
        }
        going.notify_one();
        let flushed = tokio::spawn({
            let queue = queue.clone();
            async move { queue.flush().await }
        });
        while writes.lock().len() < 2 {
            tokio::task::yield_now().await;
        }
        going.notify_one();
        flushed.await.unwrap();
        assert_eq!(*writes.lock(), [1, 5]);
        task.abort();
    }

    /// A store with room for a few items in each write.
    #[derive(Default)]
    struct SmallStore {
        room: AtomicUsize,
        /// How many items each write had.
        tries: Mutex<Vec<usize>>,
    }

    impl SmallStore {
        fn write(&self, items: &[Heavy]) -> Result<(), StoreError> {
            self.tries.lock().push(items.len());
            match items.len() <= self.room.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err(StoreError { what: "no".into(), cause: "the disk is full".into() }),
            }
        }
    }

    /// Starts a writer to a small store.
    fn small_store(queue: &Queue<Heavy>) -> (Arc<SmallStore>, tokio::task::JoinHandle<()>) {
        let store = Arc::new(SmallStore::default());
        let written = store.clone();
        let write = move |items: Vec<Heavy>| std::future::ready(written.write(&items));
        (store, tokio::spawn(queue.clone().write_with(write)))
    }

    #[tokio::test]
    async fn failed_write_is_retried_in_parts_without_new_items() {
        let queue = Queue::default();
        for _ in 0..4 {
            queue.push(Heavy(1));
        }
        let (store, task) = small_store(&queue);
        queue.flush().await;
        assert_eq!(*store.tries.lock(), [4]);
        assert_eq!(queue.health().failure().unwrap(), "no: the disk is full");
        let no_check = || async { panic!("items wait to be retried") };
        assert!(queue.check(no_check()).await.is_some());

        // There is room for two items.
        store.room.store(2, Ordering::Relaxed);
        queue.push(Heavy(1));
        while queue.shared.failed.load(Ordering::Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(*store.tries.lock(), [4, 2, 3, 1, 2]);
        assert_eq!(queue.check(no_check()).await, None);
        assert_eq!((queue.health().write_errors.get(), queue.health().dropped.get()), (2, 0));
        task.abort();
    }

    #[tokio::test]
    async fn items_that_no_longer_fit_are_dropped_and_counted() {
        let queue = Queue::default();
        let (_, task) = small_store(&queue);
        for _ in 0..4 {
            queue.push(Heavy(4));
            queue.flush().await;
        }
        assert_eq!(queue.health().dropped.get(), 2);
        queue.report_unwritten();
        assert_eq!(queue.health().dropped.get(), 4);
        task.abort();
    }
}
