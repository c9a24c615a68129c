//! Writes the memory's changes to its store, off the path of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use super::store::{Change, Store};

/// Changes waiting to be written. More than this and the oldest are given up: the memory in RAM
/// stays whole, only a restart would forget them.
const MOST_WAITING: usize = 500_000;

/// How long changes are collected into one write. Anything older than a second must be safe.
const COLLECT: Duration = Duration::from_millis(100);

/// Hands changes to the writer.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    wake: Notify,
    failing: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    changes: Vec<Change>,
    flushes: Vec<oneshot::Sender<()>>,
}

impl Changes {
    /// Takes a change; never waits.
    pub fn push(&self, change: Change) {
        let mut waiting = self.shared.waiting.lock();
        if waiting.changes.len() >= MOST_WAITING {
            waiting.changes.drain(..MOST_WAITING / 2);
            tracing::warn!("the store is too slow, changes of the thinking memory were given up");
        }
        waiting.changes.push(change);
        drop(waiting);
        self.shared.wake.notify_one();
    }

    /// Waits until everything pushed so far is written.
    pub async fn flush(&self) {
        let (done, written) = oneshot::channel();
        self.shared.waiting.lock().flushes.push(done);
        self.shared.wake.notify_one();
        // An error means the writer is gone, and with it the reason to wait.
        let _ = written.await;
    }

    /// Whether the last write failed.
    pub fn failing(&self) -> bool {
        self.shared.failing.load(Ordering::Relaxed)
    }

    /// Writes until all handles but this one are gone. Run it as a task.
    pub async fn write_to(self, store: Arc<dyn Store>) {
        let mut kept: Vec<Change> = Vec::new();
        loop {
            self.shared.wake.notified().await;
            if self.shared.waiting.lock().flushes.is_empty() {
                tokio::time::sleep(COLLECT).await;
            }
            let (changes, flushes) = {
                let mut waiting = self.shared.waiting.lock();
                (
                    std::mem::take(&mut waiting.changes),
                    std::mem::take(&mut waiting.flushes),
                )
            };
            kept.extend(changes);
            if !kept.is_empty() {
                match store.write(kept.clone()).await {
                    Ok(()) => {
                        kept.clear();
                        self.shared.failing.store(false, Ordering::Relaxed);
                    }
                    Err(error) => {
                        self.shared.failing.store(true, Ordering::Relaxed);
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            waiting = kept.len(),
                            "the thinking memory could not be written; trying again"
                        );
                        let surplus = kept.len().saturating_sub(MOST_WAITING);
                        kept.drain(..surplus);
                        let again = self.shared.clone();
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        again.wake.notify_one();
                    }
                }
            }
            for done in flushes {
                let _ = done.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thinking::store::InMemory;

    #[tokio::test]
    async fn what_was_pushed_is_written_when_flushed() {
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
}
