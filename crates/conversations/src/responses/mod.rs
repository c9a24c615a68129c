//! The stateful part of the Responses dialect, with any backend.
//!
//! A client that sends no history is served as if it sent all of it: the items of each turn are
//! stored as a node, and the next request gets the items of all earlier nodes before its own.
//! Lanes, memory and envelopes therefore work as for a client that sends its history. A backend of
//! the dialect may continue what was started with it; then a copy is stored here.
//!
//! Start at [`Responses::create`]. `history` finds the earlier turns, and `stored` loads and stores
//! them. `recording` writes the events of a reply for streams, for background runs (`run`) and for
//! WebSockets (`socket`). `copy` reads the response of a backend that has the state itself. `by_id`
//! and `conversation` answer requests about stored responses.

mod body;
mod by_id;
mod conversation;
mod copy;
mod create;
mod history;
mod recording;
mod run;
mod socket;
mod stored;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use throughline_gateway::{Gateway, unix_ms};
use throughline_sealing::Keyring;
use tokio::sync::Notify;

pub use self::body::Answer;
use self::run::Run;
pub use self::socket::Socket;
use crate::sealed_store::SealedStore;
use crate::store::Store;

/// How often expired responses are evicted.
const EVICTION_INTERVAL: Duration = Duration::from_secs(600);
/// The share of the limit, as a divisor, that may be written before the next eviction.
const EVICTION_SHARE: u64 = 16;

/// How long and how many responses are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long a conversation is stored after its last turn.
    pub time: Duration,
    /// How many bytes are stored, sealed.
    pub limit: u64,
}

impl Retention {
    /// When something that is stored now expires, in milliseconds since 1970.
    fn expires(&self, now: u64) -> u64 {
        now.saturating_add(u64::try_from(self.time.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Stored and running responses.
#[derive(Debug)]
pub struct Responses {
    gateway: Arc<Gateway>,
    sealed_store: SealedStore,
    retention: Retention,
    /// Responses that run in the background.
    runs: Mutex<HashMap<String, Arc<Run>>>,
    /// How many bytes were written since the last eviction.
    written: AtomicU64,
    eviction_due: Notify,
}

impl Responses {
    /// Responses with a store.
    pub fn new(
        gateway: Arc<Gateway>,
        store: Arc<dyn Store>,
        keyring: Arc<Keyring>,
        retention: Retention,
    ) -> Self {
        Self {
            gateway,
            sealed_store: SealedStore::new(store, keyring),
            retention,
            runs: Mutex::default(),
            written: AtomicU64::new(0),
            eviction_due: Notify::new(),
        }
    }

    /// Counts written bytes, and wakes the eviction after many.
    fn count_written(&self, bytes: usize) {
        let before = self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.retention.limit / EVICTION_SHARE {
            self.eviction_due.notify_one();
        }
    }

    /// Evicts expired responses and those over the limit, forever. Run this as a task.
    pub async fn run_eviction(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(EVICTION_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.eviction_due.notified() => {}
            }
            self.written.store(0, Ordering::Relaxed);
            match self.sealed_store.store.trim(unix_ms(), self.retention.limit).await {
                Ok(0) => {}
                Ok(gone) => tracing::debug!(gone, "evicted stored responses"),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "{error}");
                }
            }
        }
    }
}
