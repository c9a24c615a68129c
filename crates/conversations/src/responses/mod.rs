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

mod by_id;
mod compact;
mod conversation;
mod copy;
mod create;
mod history;
mod recording;
mod run;
mod socket;
mod stored;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use throughline_gateway::Gateway;
use throughline_gateway::thinking::health::StoreHealth;

use self::run::Run;
pub use self::socket::Socket;
use crate::runs::Runs;
use crate::sealed_store::SealedStore;

/// Stored and running responses.
#[derive(Debug)]
pub struct Responses {
    gateway: Arc<Gateway>,
    sealed_store: Arc<SealedStore>,
    /// How long a conversation is stored after its last turn.
    retention: Duration,
    runs: Arc<Runs>,
    /// Responses that run in the background, in this process.
    running: Mutex<HashMap<String, Arc<Run>>>,
    /// Conversations that lack a turn because it could not be stored. Their content says it too, as
    /// soon as that can be written.
    incomplete: Mutex<HashSet<String>>,
}

impl Responses {
    /// Responses with a store.
    pub fn new(gateway: Arc<Gateway>, runs: Arc<Runs>, retention: Duration) -> Self {
        let (running, incomplete) = (Mutex::default(), Mutex::default());
        let sealed_store = runs.sealed_store.clone();
        Self { gateway, sealed_store, retention, runs, running, incomplete }
    }

    /// What is known about the writes to the store.
    pub fn store_health(&self) -> &StoreHealth {
        &self.sealed_store.health
    }

    /// Why the store cannot be written.
    pub async fn check_store(&self) -> Option<String> {
        self.store_health().check(self.sealed_store.store.check_write()).await
    }
}
