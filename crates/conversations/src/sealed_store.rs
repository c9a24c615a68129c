//! What all kinds of stored conversations share: seals what goes into a store and opens what comes
//! out, checks owner and expiry, and evicts what is too old or too much. A sealed value is bound to
//! its id and kind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use throughline_canonical::{Fault, FaultKind};
use throughline_gateway::thinking::health::StoreHealth;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;
use throughline_sealing::{Keyring, OpenError, Purpose, SealError};
use tokio::sync::Notify;

use crate::store::{Detail, Node, Store};
use crate::watched_store::WatchedStore;

/// The name of the store in metrics and in the log.
const STORE: &str = "responses";
/// The code of a fault about a stored value that does not open: it was damaged or moved, and a retry does
/// not help.
pub(crate) const UNREADABLE: &str = "unreadable";
/// How many turns of a history are loaded.
const MAX_TURNS: usize = 10_000;
/// How often expired turns are evicted.
const EVICTION_INTERVAL: Duration = Duration::from_secs(600);
/// The share of the limit, as a divisor, that may be written before the next eviction.
const EVICTION_SHARE: u64 = 16;

/// How long and how much is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long a conversation is stored after its last turn.
    pub time: Duration,
    /// How many bytes are stored, sealed.
    pub limit: u64,
}

/// A store with a keyring.
#[derive(Debug)]
pub struct SealedStore {
    /// The store.
    pub store: Arc<dyn Store>,
    /// What is known about the writes to it.
    pub health: Arc<StoreHealth>,
    /// The server's keys.
    pub keyring: Arc<Keyring>,
    /// How many sealed bytes are stored.
    limit: u64,
    /// How many bytes were written since the last eviction.
    written: AtomicU64,
    eviction_due: Notify,
}

/// A turn and those before it.
#[derive(Debug)]
pub(crate) struct Ancestry<T> {
    /// The turns, oldest first.
    pub(crate) turns: Vec<T>,
    /// The turn before the oldest one, if that is not stored any more or cannot be opened.
    pub(crate) missing: Option<String>,
}

/// Whether something has not expired. The eviction may not have run since.
pub(crate) fn is_valid(expires: Option<u64>) -> bool {
    expires.is_none_or(|at| at > unix_ms())
}

fn is_live(node: &Node) -> bool {
    node.open || is_valid(node.expires)
}

/// When something that is stored now for this long expires, in milliseconds since 1970.
pub(crate) fn expires(now: u64, time: Duration) -> u64 {
    now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Turns a store error into a fault for the client, and logs it.
#[allow(clippy::needless_pass_by_value, reason = "it is an argument of map_err")]
pub(crate) fn fault(error: StoreError) -> Fault {
    tracing::error!(error = &error as &dyn std::error::Error, "{error}");
    let cause = &error.cause;
    // These causes say nothing about contents.
    match cause.is::<OpenError>() || cause.is::<SealError>() || cause.is::<InvalidContent>() {
        true => Fault::new(FaultKind::Internal, format!("{error}: {cause}")).with_code(UNREADABLE),
        false => {
            let message = "the conversation store failed; see the server's log";
            Fault::new(FaultKind::Internal, message)
        }
    }
}

/// An opened value is not what its field holds. A message of the parser would quote the content, so only
/// the place is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the opened field `{field}` is not valid: a {category} error at line {line}, column {column}"
)]
pub struct InvalidContent {
    field: String,
    category: &'static str,
    line: usize,
    column: usize,
}

impl InvalidContent {
    /// The place of an error in the JSON of a field.
    pub(crate) fn new(field: &str, error: &serde_json::Error) -> Self {
        let category = match error.classify() {
            Category::Io => "read",
            Category::Syntax => "syntax",
            Category::Data => "data",
            Category::Eof => "length",
        };
        Self { field: field.to_owned(), category, line: error.line(), column: error.column() }
    }
}

/// The kind of a sealed value, so that no value can replace one of another kind.
#[derive(Clone, Copy, Debug)]
pub enum SealedKind {
    /// The content of a node.
    Node,
    /// The content of a reference.
    Reference,
    /// A piece of a log, by the number of its first entry.
    Log(u64),
    /// The content of a project.
    Project,
    /// The content of a run.
    Run,
    /// The thinking of a node.
    Thinking,
    /// The signatures of a node.
    Signatures,
    /// The provider's reply of a node, compressed.
    Raw,
    /// The settings of a room, with its members and hooks.
    Room,
    /// A channel.
    Channel,
    /// A call of a webhook.
    Delivery,
}

impl SealedKind {
    /// The name that its associated data begins with. It must never change.
    fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Reference => "reference",
            Self::Log(_) => "log",
            Self::Project => "project",
            Self::Run => "run",
            Self::Thinking => "thinking",
            Self::Signatures => "signatures",
            Self::Raw => "raw",
            Self::Room => "room",
            Self::Channel => "channel",
            Self::Delivery => "delivery",
        }
    }
}

impl SealedStore {
    /// A sealed store that holds at most `limit` sealed bytes.
    pub fn new(store: Arc<dyn Store>, keyring: Arc<Keyring>, limit: u64) -> Self {
        let health = Arc::new(StoreHealth::new(STORE));
        Self {
            store: Arc::new(WatchedStore::new(store, health.clone())),
            health,
            keyring,
            limit,
            written: AtomicU64::new(0),
            eviction_due: Notify::new(),
        }
    }

    /// Whether there is room for anything at all.
    pub(crate) fn has_room(&self) -> bool {
        self.limit > 0
    }

    /// Seals the value of an id.
    pub fn seal(&self, kind: SealedKind, id: &str, what: &impl Serialize) -> Vec<u8> {
        self.seal_bytes(kind, id, &serde_json::to_vec(what).unwrap_or_default())
    }

    /// Seals the bytes of an id.
    pub fn seal_bytes(&self, kind: SealedKind, id: &str, bytes: &[u8]) -> Vec<u8> {
        let associated_data = associated_data(kind, id);
        self.keyring.seal(Purpose::Conversation, &random::nonce(), &associated_data, bytes)
    }

    /// Opens the value of an id.
    pub fn open<T: DeserializeOwned>(
        &self,
        kind: SealedKind,
        id: &str,
        sealed: &[u8],
    ) -> Result<T, StoreError> {
        let bytes = self.open_bytes(kind, id, sealed)?;
        let read = serde_json::from_slice(&bytes);
        read.map_err(|cause| unreadable(id, InvalidContent::new(kind.name(), &cause).into()))
    }

    /// Opens the bytes of an id.
    pub fn open_bytes(
        &self,
        kind: SealedKind,
        id: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        open_with_keyring(&self.keyring, kind, id, sealed)
    }

    /// Opens the value of an id for a client. `None` if the keyring cannot open it: then it is as
    /// good as not stored, and the client has to send its history.
    pub(crate) fn open_if_possible<T: DeserializeOwned>(
        &self,
        kind: SealedKind,
        id: &str,
        sealed: &[u8],
    ) -> Result<Option<T>, Fault> {
        match self.open(kind, id, sealed) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.cause.is::<SealError>() => {
                tracing::warn!(id, cause = %error.cause, "cannot open a stored value");
                Ok(None)
            }
            Err(error) => Err(fault(error)),
        }
    }

    /// Opens the content of a node.
    pub(crate) fn open_node<T: DeserializeOwned>(&self, node: &Node) -> Result<Option<T>, Fault> {
        self.open_if_possible(SealedKind::Node, &node.id, &node.sealed)
    }

    /// A turn of this owner.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<T>, Fault> {
        let node = self.store.node(id).await.map_err(fault)?;
        let node = node.filter(|node| node.owner == owner && is_live(node));
        match node {
            Some(node) => self.open_node(&node),
            None => Ok(None),
        }
    }

    /// A turn and those before it. `None` if there is no such turn of this owner, or if it cannot be
    /// opened.
    pub(crate) async fn ancestry<T: DeserializeOwned>(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<Option<Ancestry<T>>, Fault> {
        let nodes = self.store.path(id, MAX_TURNS, Detail::Content).await.map_err(fault)?;
        let all_owned = nodes.iter().all(|node| node.owner == owner);
        if !all_owned || !nodes.last().is_some_and(is_live) {
            return Ok(None);
        }
        let mut turns = Vec::with_capacity(nodes.len());
        let mut missing = nodes.first().and_then(|first| first.parent.clone());
        for node in nodes {
            match self.open_node(&node)? {
                Some(turn) => turns.push(turn),
                None if node.id == id => return Ok(None),
                None => {
                    turns.clear();
                    missing = Some(node.id);
                }
            }
        }
        Ok(Some(Ancestry { turns, missing }))
    }

    /// Whether this id belongs to another owner. Such an id is never forwarded: a backend that uses
    /// the operator's key cannot tell our callers apart.
    pub(crate) async fn is_foreign(&self, owner: &str, id: &str) -> Result<bool, Fault> {
        let node = self.store.node(id).await.map_err(fault)?;
        Ok(node.is_some_and(|node| node.owner != owner))
    }

    /// Counts written bytes, and wakes the eviction after many.
    pub(crate) fn count_written(&self, bytes: usize) {
        let before = self.written.fetch_add(bytes as u64, Ordering::Relaxed);
        if before.saturating_add(bytes as u64) > self.limit / EVICTION_SHARE {
            self.eviction_due.notify_one();
        }
    }

    /// Evicts expired turns and those over the limit, forever. Run this as a task.
    pub async fn run_eviction(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(EVICTION_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.eviction_due.notified() => {}
            }
            self.written.store(0, Ordering::Relaxed);
            match self.store.trim(unix_ms(), self.limit).await {
                Ok(0) => {}
                Ok(gone) => tracing::debug!(gone, "evicted stored turns"),
                // The store has recorded and logged it.
                Err(_) => {}
            }
        }
    }
}

/// Opens the bytes of an id that the server's keyring has sealed.
pub(crate) fn open_with_keyring(
    keyring: &Keyring,
    kind: SealedKind,
    id: &str,
    sealed: &[u8],
) -> Result<Vec<u8>, StoreError> {
    let opened = keyring.open(Purpose::Conversation, &associated_data(kind, id), sealed);
    opened.map_err(|cause| unreadable(id, cause.into()))
}

pub(crate) fn unreadable(id: &str, cause: Box<dyn std::error::Error + Send + Sync>) -> StoreError {
    StoreError { what: format!("cannot read the stored value of `{id}`"), cause }
}

fn associated_data(kind: SealedKind, id: &str) -> Vec<u8> {
    match kind {
        SealedKind::Log(first) => format!("{} {first} {id}", kind.name()),
        _ => format!("{} {id}", kind.name()),
    }
    .into_bytes()
}
