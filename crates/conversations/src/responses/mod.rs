//! The stateful half of the Responses dialect, over any backend.
//!
//! A client that keeps no history is served as if it sent all of it: what a turn added is kept as a node
//! of the store, and the next request gets the items of the whole way before its own. So everything
//! else, lanes, memory, envelopes, works as for a client that keeps its history itself. A backend that
//! speaks the dialect may keep what was begun with it; we keep a copy, and go on from that.
//!
//! Start at [`Responses::create`]. `kept` is what is kept, `run` what goes on without a client, `by_id`
//! and `conversation` what can be asked of both, `socket` the same over one long connection.

mod body;
mod by_id;
mod conversation;
mod create;
mod kept;
mod run;
mod socket;

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
use crate::shelf::Shelf;
use crate::store::Store;

/// How often what has expired is looked for.
const SWEEP: Duration = Duration::from_secs(600);
/// Which part of the limit may be written before it is looked at again.
const PART: u64 = 16;

/// How long responses are kept, and how many.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// How long; none for ever.
    pub retention: Option<Duration>,
    /// How many bytes, sealed.
    pub limit: u64,
}

impl Rules {
    /// When what is made now may be forgotten, in milliseconds since 1970.
    fn expires(&self, now: u64) -> Option<u64> {
        let retention = self.retention?.as_millis();
        Some(now.saturating_add(u64::try_from(retention).unwrap_or(u64::MAX)))
    }
}

/// Responses that are kept, and those being written.
#[derive(Debug)]
pub struct Responses {
    gateway: Arc<Gateway>,
    shelf: Shelf,
    rules: Rules,
    /// What is being written although nobody may be listening.
    runs: Mutex<HashMap<String, Arc<Run>>>,
    /// How many bytes were written since somebody looked at the limit.
    written: AtomicU64,
    much_written: Notify,
}

impl Responses {
    /// Responses over a store.
    pub fn new(
        gateway: Arc<Gateway>,
        store: Arc<dyn Store>,
        keyring: Arc<Keyring>,
        rules: Rules,
    ) -> Self {
        Self {
            gateway,
            shelf: Shelf::new(store, keyring),
            rules,
            runs: Mutex::default(),
            written: AtomicU64::new(0),
            much_written: Notify::new(),
        }
    }

    /// Notes that so much was written.
    fn wrote(&self, bytes: usize) {
        let before = self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.rules.limit / PART {
            self.much_written.notify_one();
        }
    }

    /// Forgets what has expired or is too much, now and then.
    pub async fn keep_house(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.much_written.notified() => {}
            }
            self.written.store(0, Ordering::Relaxed);
            match self.shelf.store.trim(unix_ms(), self.rules.limit).await {
                Ok(0) => {}
                Ok(gone) => tracing::debug!(gone, "kept responses have expired"),
                Err(error) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "{error}");
                }
            }
        }
    }
}
