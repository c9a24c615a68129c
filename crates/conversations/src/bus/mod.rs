//! The bus: tells the readers of other instances what is new, as soon as it is stored. The store stays the
//! truth: what a bus brings is in the store already, so a reader that hears nothing reads there, and a bus
//! that is lost costs time and never an entry.
//!
//! - [`hub`]: the readers of this process, by topic;
//! - [`in_process`]: the bus of a single process; the one for several instances is in the crate of stores;
//! - [`chat_stream`]: what other programs can follow on the bus;
//! - [`suite`]: the tests that every bus must pass.

pub mod chat_stream;
pub mod hub;
pub mod in_process;
pub mod suite;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use throughline_gateway::metrics::Counter;

use self::chat_stream::ChatMessage;
use self::hub::Listener;
use crate::store::Piece;

/// What readers can listen to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    /// The log of a run, by the id of the run.
    Run(String),
    /// A room, by its id.
    Room(String),
}

/// What is new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A piece of the log of a run.
    Piece(Arc<Piece>),
    /// The run has ended.
    Ended,
    /// The log of the room has new entries, or a member begins to answer.
    Changed {
        /// The instance that changed it.
        instance: Arc<str>,
    },
    /// The bus may have lost news. Read the store.
    Missed,
}

/// Brings news from instance to instance.
pub trait Bus: Debug + Send + Sync {
    /// Whether anyone but this process, or anyone in this process, may listen to a topic.
    fn wants(&self, topic: &Topic) -> bool;

    /// Tells what is new, without waiting. What it tells is in the store.
    fn publish(&self, topic: &Topic, news: News);

    /// Listens to a topic from now on.
    fn listen(&self, topic: Topic) -> Listener;

    /// The pieces of a run after this number that the bus still has, in order. They may have gaps.
    fn logged<'a>(&'a self, run: &'a str, after: u64) -> BoxFuture<'a, Vec<Piece>>;

    /// Sends a message to other programs, without waiting. Without one for several instances, there are none.
    fn send(&self, message: ChatMessage);

    /// What is known about the connection.
    fn health(&self) -> &Arc<BusHealth>;
}

/// What is known about the connection of a bus.
#[derive(Debug, Default)]
pub struct BusHealth {
    /// Whether the bus reaches other instances.
    is_shared: bool,
    is_connected: AtomicBool,
    failure: Mutex<Option<String>>,
    /// What was published.
    pub published: Counter,
    /// What was dropped because the bus could not take it. Readers find it in the store.
    pub dropped: Counter,
    /// What was heard from other instances.
    pub heard: Counter,
}

impl BusHealth {
    /// A bus that reaches other instances, and is connected.
    pub fn connected() -> Self {
        let is_connected = AtomicBool::new(true);
        Self { is_shared: true, is_connected, ..Self::default() }
    }

    /// Whether the bus reaches other instances.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Whether news of other instances arrive at present.
    pub fn is_live(&self) -> bool {
        self.is_shared && self.is_connected.load(Ordering::Relaxed)
    }

    /// Why the bus is not connected, if it should be.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Records that the connection is lost. An outage is logged once.
    pub fn record_lost(&self, why: &str) {
        self.is_connected.store(false, Ordering::Relaxed);
        let message = format!("the bus is not connected: {why}");
        if self.failure.lock().replace(message).is_none() {
            tracing::error!(why, "the bus is not connected; readers use the store meanwhile");
        }
    }

    /// Records that the bus is connected again.
    pub fn record_connected(&self) {
        self.is_connected.store(true, Ordering::Relaxed);
        if self.failure.lock().take().is_some() {
            tracing::info!(dropped = self.dropped.get(), "the bus is connected again");
        }
    }
}
