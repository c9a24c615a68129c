//! Writes to a store in batches, in the background. The memory's changes and the vault's records
//! each have their own queue.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::store::{Change, Store, StoreError};

/// How long the writer pauses after a write. Items that arrive during the pause go into one write,
/// because a write costs about the same for one item as for many. After a longer silence, an item
/// is written at once. Anything older than a second must be safe.
const PAUSE: Duration = Duration::from_millis(100);

/// The pause before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// An item that can wait to be written.
pub trait Item: Clone + Send + 'static {
    /// The owner of the items, for the log.
    const OWNER: &'static str;
    /// How much may wait. The oldest items are dropped above this.
    const MAX_WEIGHT: usize;

    /// How much the item counts towards [`Item::MAX_WEIGHT`].
    fn weight(&self) -> usize;
}

/// Changes of the memory are small and counted by number. If they are dropped, the memory in RAM
/// stays complete, and only a restart forgets them.
impl Item for Change {
    const OWNER: &'static str = "thinking memory";
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
    failing: AtomicBool,
}

#[derive(Debug)]
struct Waiting<T> {
    items: Vec<T>,
    weight: usize,
    flushes: Vec<oneshot::Sender<()>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        let waiting = Waiting { items: Vec::new(), weight: 0, flushes: Vec::new() };
        Self {
            shared: Arc::new(Shared {
                waiting: Mutex::new(waiting),
                wake: Notify::new(),
                failing: AtomicBool::new(false),
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
        let mut waiting = self.shared.waiting.lock();
        waiting.weight += item.weight();
        waiting.items.push(item);
        if waiting.weight > T::MAX_WEIGHT {
            waiting.weight = drop_oldest(&mut waiting.items, T::MAX_WEIGHT / 2);
        }
        drop(waiting);
        self.shared.wake.notify_one();
    }

    /// Waits until everything in the queue is written or has failed.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        self.shared.waiting.lock().flushes.push(done);
        self.shared.wake.notify_one();
        // An error means that the writer is gone, so there is nothing to wait for.
        let _ = written.await;
    }

    /// Whether the last write failed.
    pub fn failing(&self) -> bool {
        self.shared.failing.load(Ordering::Relaxed)
    }

    /// Writes the items of the queue, forever. Run this as a task.
    pub async fn write_with<Writing>(self, write: impl Fn(Vec<T>) -> Writing + Send)
    where
        Writing: Future<Output = Result<(), StoreError>> + Send,
    {
        let mut batch: Vec<T> = Vec::new();
        let mut next_write = Instant::now();
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
                (std::mem::take(&mut waiting.items), std::mem::take(&mut waiting.flushes))
            };
            batch.extend(items);
            if !batch.is_empty() {
                match write(batch.clone()).await {
                    Ok(()) => {
                        next_write = Instant::now() + PAUSE;
                        batch.clear();
                        self.shared.failing.store(false, Ordering::Relaxed);
                    }
                    Err(error) => {
                        self.shared.failing.store(true, Ordering::Relaxed);
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            waiting = batch.len(),
                            "cannot write the {}; retrying",
                            T::OWNER
                        );
                        drop_oldest(&mut batch, T::MAX_WEIGHT);
                        tokio::time::sleep(RETRY_PAUSE).await;
                        next_write = Instant::now() + PAUSE;
                        self.shared.wake.notify_one();
                    }
                }
            }
            for done in flushes {
                let _ = done.send(());
            }
        }
    }
}

impl Changes {
    /// Writes changes to a store, forever. Run this as a task.
    pub async fn write_to(self, store: Arc<dyn Store>) {
        self.write_with(|changes| store.write(changes)).await;
    }
}

/// Drops the oldest items until the rest weighs at most this much. Returns the weight of the rest.
fn drop_oldest<T: Item>(items: &mut Vec<T>, most: usize) -> usize {
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
        tracing::warn!(
            dropped = oldest,
            "the store is too slow; dropped the oldest waiting items of the {}",
            T::OWNER
        );
    }
    weight
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

    /// Weighs as much as its number.
    #[derive(Clone, Debug, PartialEq)]
    struct Heavy(usize);

    impl Item for Heavy {
        const OWNER: &'static str = "test";
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

    #[tokio::test]
    async fn failed_write_is_retried_with_the_same_items() {
        let queue = Queue::default();
        let tries = Arc::new(Mutex::new(Vec::new()));
        let seen = tries.clone();
        let task = tokio::spawn(queue.clone().write_with(move |items: Vec<Heavy>| {
            seen.lock().push(items);
            let first = seen.lock().len() == 1;
            std::future::ready(if first {
                Err(StoreError { what: "no".into(), cause: "the disk is full".into() })
            } else {
                Ok(())
            })
        }));
        queue.push(Heavy(1));
        queue.flush().await;
        assert!(queue.failing());
        queue.push(Heavy(2));
        queue.flush().await;
        assert!(!queue.failing());
        queue.push(Heavy(3));
        queue.flush().await;
        assert_eq!(*tries.lock(), [vec![Heavy(1)], vec![Heavy(1), Heavy(2)], vec![Heavy(3)]]);
        task.abort();
    }
}
