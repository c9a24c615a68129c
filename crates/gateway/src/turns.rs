//! The recent turns, for people: what went where, what became of each block, how long it took.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Serialize;
use throughline_canonical::{BlockReport, Loss, Usage};
use tokio::sync::broadcast;

/// How many turns are kept.
const KEPT: usize = 1000;

/// One turn.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Turn {
    /// Its id; ids grow with time.
    pub id: String,
    /// When it began, in milliseconds since 1970.
    pub time: u64,
    /// The conversation it belongs to.
    pub lineage: String,
    /// The session it belongs to.
    pub session: u64,
    /// The dialect of the client.
    pub client_dialect: &'static str,
    /// The path that was asked.
    pub path: String,
    /// The backend that answered.
    pub backend: String,
    /// Its dialect.
    pub upstream_dialect: &'static str,
    /// The model, as the client called it.
    pub model: String,
    /// The model, as the backend calls it.
    pub upstream_model: String,
    /// Whether it passed through or across.
    pub lane: &'static str,
    /// The status of the reply.
    pub status: u16,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// What became of each thinking block.
    pub blocks: Vec<BlockReport>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// Token counts.
    pub usage: Usage,
    /// Times since the request came.
    pub ms: Times,
    /// How it ended: `completed`, `cut`, `failed`, `client_gone`; empty while it runs.
    pub end: &'static str,
    /// What went wrong, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The body as it was sent; only where contents may be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// The reply as it came; only where contents may be kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<String>,
}

/// Milliseconds since the request came.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// The head of the reply.
    pub first_byte: Option<u64>,
    /// The first thinking.
    pub first_thinking: Option<u64>,
    /// The first text.
    pub first_text: Option<u64>,
    /// The end.
    pub total: Option<u64>,
}

/// A turn that may still change.
pub type SharedTurn = Arc<Mutex<Turn>>;

/// The recent turns.
#[derive(Debug)]
pub struct Turns {
    ring: Mutex<VecDeque<SharedTurn>>,
    news: broadcast::Sender<SharedTurn>,
    count: AtomicU64,
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            ring: Mutex::default(),
            news: broadcast::channel(256).0,
            count: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// A new id.
    pub fn id(&self, now: u64) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("turn_{now:011x}{:05x}", count & 0xf_ffff)
    }

    /// Keeps a turn.
    pub fn push(&self, turn: SharedTurn) {
        let mut ring = self.ring.lock();
        if ring.len() == KEPT {
            ring.pop_front();
        }
        ring.push_back(turn);
    }

    /// Tells whoever listens that a turn has ended.
    pub fn ended(&self, turn: SharedTurn) {
        // Nobody listening is no error.
        let _ = self.news.send(turn);
    }

    /// Turns as they end.
    pub fn listen(&self) -> broadcast::Receiver<SharedTurn> {
        self.news.subscribe()
    }

    /// The last turns, newest first; only those after an id, where one is given.
    pub fn list(&self, limit: usize, after: Option<&str>) -> Vec<Turn> {
        let ring = self.ring.lock();
        // Turns are kept in the order they were answered, not in the order of their ids.
        ring.iter()
            .rev()
            .map(|turn| turn.lock())
            .filter(|turn| after.is_none_or(|after| turn.id.as_str() > after))
            .take(limit)
            .map(|turn| turn.clone())
            .collect()
    }
}
