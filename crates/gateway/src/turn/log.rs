//! The recent turns, for people: what went where, what became of each block, how long it took.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use throughline_canonical::{BlockReport, Fate, Loss, Origin, Reason, ThinkingKind, Usage};
use throughline_codec::dialects::UpstreamDialect;
use throughline_codec::dialects::anthropic::Anthropic;
use throughline_codec::dialects::passthrough::Passthrough;
use tokio::sync::broadcast;

use crate::plan::Lane;
use crate::plan::outlined::PlannedBlock;

/// How many turns are kept.
const KEPT: usize = 1000;
/// How many bytes all of them may take, about.
const KEPT_BYTES: usize = 32 << 20;
/// How many blocks of one turn are kept.
const KEPT_BLOCKS: usize = 200;
/// How much of a body is kept where contents may be kept.
const KEPT_BODY: usize = 1 << 20;

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
    /// The lane it took.
    pub lane: Lane,
    /// The status of the reply.
    pub status: u16,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// What became of each thinking block, the last ones of many.
    pub blocks: Vec<KeptBlock>,
    /// How many more blocks there were.
    pub blocks_omitted: usize,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// Token counts.
    pub usage: Usage,
    /// Times since the request came.
    pub ms: Times,
    /// How it ended.
    pub end: TurnEnd,
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

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// It is still running.
    #[default]
    #[serde(rename = "")]
    Running,
    /// The reply came to its end.
    Completed,
    /// The provider's bytes stopped before the end.
    Cut,
    /// The provider or the gateway reported an error.
    Failed,
    /// The client left.
    ClientGone,
}

impl TurnEnd {
    /// The word in logs and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "",
            Self::Completed => "completed",
            Self::Cut => "cut",
            Self::Failed => "failed",
            Self::ClientGone => "client_gone",
        }
    }
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

/// What became of one block, without what all blocks of a maker share.
#[derive(Clone, Debug)]
pub struct KeptBlock {
    /// Its message, and its place there if the client has it.
    at: (usize, Option<usize>),
    /// Who knows how a place is spelled.
    dialect: &'static dyn Passthrough,
    kind: ThinkingKind,
    fate: Fate,
    reason: Option<Reason>,
    origin: Option<Arc<Origin>>,
}

impl KeptBlock {
    /// The block at a place, message and block, and what became of it.
    pub fn new(
        at: (usize, Option<usize>),
        kind: ThinkingKind,
        (fate, reason): (Fate, Option<Reason>),
        origin: Option<Arc<Origin>>,
    ) -> Self {
        Self { at, dialect: Anthropic.passthrough(), kind, fate, reason, origin }
    }

    /// The reports of planned blocks.
    pub(crate) fn list(blocks: &[PlannedBlock]) -> Vec<Self> {
        blocks.iter().map(Self::from).collect()
    }

    /// What became of it, as far as is known.
    pub fn fate(&self) -> (Fate, Option<Reason>) {
        (self.fate, self.reason)
    }

    /// Sets what became of it.
    pub fn set_fate(&mut self, fate: Fate, reason: Option<Reason>) {
        (self.fate, self.reason) = (fate, reason);
    }

    /// Whether the client sent it, and it was not brought back.
    pub fn is_clients(&self) -> bool {
        self.at.1.is_some()
    }

    /// Sets its path in the client's own body.
    pub fn set_path(&mut self, at: (usize, Option<usize>), dialect: &'static dyn Passthrough) {
        self.at = at;
        self.dialect = dialect;
    }

    /// Says whose spelling its place has.
    pub fn spelled_by(self, dialect: &'static dyn Passthrough) -> Self {
        Self { dialect, ..self }
    }
}

impl From<&PlannedBlock> for KeptBlock {
    fn from(block: &PlannedBlock) -> Self {
        Self::new(
            (block.message, Some(block.index)),
            block.kind,
            (block.fate, block.reason),
            block.origin.clone(),
        )
    }
}

impl Serialize for KeptBlock {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BlockReport {
            path: self.dialect.place(self.at.0, self.at.1),
            kind: self.kind,
            fate: self.fate,
            reason: self.reason,
            origin: self.origin.as_deref().cloned(),
        }
        .serialize(serializer)
    }
}

impl Turn {
    /// Keeps what became of the blocks. Of many, it keeps the last ones: those are new.
    pub fn keep_blocks(&mut self, mut blocks: Vec<KeptBlock>) {
        self.blocks_omitted = blocks.len().saturating_sub(KEPT_BLOCKS);
        self.blocks = blocks.split_off(self.blocks_omitted);
        share_origins(&mut self.blocks);
    }

    /// Keeps the body that was sent, or its beginning.
    pub fn keep_sent(&mut self, body: &str) {
        self.sent = Some(beginning(body));
    }

    /// About how many bytes it takes.
    fn weight(&self) -> usize {
        let texts =
            [&self.id, &self.lineage, &self.path, &self.backend, &self.model, &self.upstream_model];
        let more = [&self.error, &self.sent, &self.received];
        let texts = texts.into_iter().chain(more.into_iter().flatten());
        let mut last = std::ptr::null();
        let origins: usize = self
            .blocks
            .iter()
            .filter_map(|block| block.origin.as_ref())
            .filter(|origin| {
                std::mem::replace(&mut last, Arc::as_ptr(origin)) != Arc::as_ptr(origin)
            })
            .map(|origin| {
                let texts = [&origin.domain, &origin.backend, &origin.model, &origin.credential];
                size_of::<Origin>() + texts.map(String::len).iter().sum::<usize>()
            })
            .sum();
        size_of::<Self>()
            + texts.map(String::len).sum::<usize>()
            + self.blocks.len() * size_of::<KeptBlock>()
            + self.losses.len() * size_of::<Loss>()
            + origins
    }
}

/// Neighbours mostly have one maker. They share its name.
fn share_origins(blocks: &mut [KeptBlock]) {
    for at in 1..blocks.len() {
        if blocks[at].origin == blocks[at - 1].origin {
            blocks[at].origin = blocks[at - 1].origin.clone();
        }
    }
}

/// A body, or as much of it as is kept, with a note where it was cut.
fn beginning(body: &str) -> String {
    if body.len() <= KEPT_BODY {
        return body.to_owned();
    }
    let (kept, rest) = body.split_at(body.floor_char_boundary(KEPT_BODY));
    format!("{kept}\n[cut here, {} more bytes]", rest.len())
}

/// A turn that may still change.
pub type SharedTurn = Arc<Mutex<Turn>>;

/// The recent turns.
#[derive(Debug)]
pub struct Turns {
    ring: Mutex<Ring>,
    /// Whoever reads slowly keeps nothing alive: the ring alone says what is kept.
    news: broadcast::Sender<Weak<Mutex<Turn>>>,
    count: AtomicU64,
}

/// Turns in the order they were answered, each with its weight.
#[derive(Debug, Default)]
struct Ring {
    turns: VecDeque<(SharedTurn, usize)>,
    bytes: usize,
}

impl Ring {
    /// The oldest go, until what is left is within bounds.
    fn shrink(&mut self) {
        while self.turns.len() > KEPT || self.bytes > KEPT_BYTES {
            let Some((_, weight)) = self.turns.pop_front() else {
                return;
            };
            self.bytes -= weight;
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self { ring: Mutex::default(), news: broadcast::channel(256).0, count: AtomicU64::new(0) }
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
        let weight = turn.lock().weight();
        let mut ring = self.ring.lock();
        ring.turns.push_back((turn, weight));
        ring.bytes += weight;
        ring.shrink();
    }

    /// A turn has ended: weighs it anew, and tells whoever listens.
    pub fn ended(&self, turn: &SharedTurn) {
        let weight = turn.lock().weight();
        {
            let mut ring = self.ring.lock();
            let mut kept = ring.turns.iter_mut().rev();
            if let Some((_, before)) = kept.find(|(kept, _)| Arc::ptr_eq(kept, turn)) {
                let before = std::mem::replace(before, weight);
                ring.bytes = ring.bytes - before + weight;
                ring.shrink();
            }
        }
        // None listening is no error.
        let _ = self.news.send(Arc::downgrade(turn));
    }

    /// Turns as they end; one that is no longer kept is gone.
    pub fn listen(&self) -> broadcast::Receiver<Weak<Mutex<Turn>>> {
        self.news.subscribe()
    }

    /// The last turns, newest first; only those after an id, where one is given.
    pub fn list(&self, limit: usize, after: Option<&str>) -> Vec<Turn> {
        let ring = self.ring.lock();
        // Turns are kept in the order they were answered, not in the order of their ids.
        ring.turns
            .iter()
            .rev()
            .map(|(turn, _)| turn.lock())
            .filter(|turn| after.is_none_or(|after| turn.id.as_str() > after))
            .take(limit)
            .map(|turn| turn.clone())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(model: &str) -> Option<Arc<Origin>> {
        Some(Arc::new(Origin {
            domain: "a".into(),
            backend: "a".into(),
            model: model.into(),
            credential: String::new(),
        }))
    }

    fn kept(turns: &Turns) -> Vec<String> {
        let all = turns.list(usize::MAX, None);
        all.into_iter().map(|turn| turn.id).collect()
    }

    fn shared(id: usize, received: usize) -> SharedTurn {
        Arc::new(Mutex::new(Turn {
            id: id.to_string(),
            received: Some("x".repeat(received)),
            ..Turn::default()
        }))
    }

    #[test]
    fn the_oldest_turns_go_first() {
        let turns = Turns::default();
        for id in 0..KEPT + 2 {
            turns.push(shared(id, 0));
        }
        let kept = kept(&turns);
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[KEPT - 1], "2");
    }

    #[test]
    fn all_turns_together_stay_within_their_bytes() {
        let turns = Turns::default();
        for id in 0..40 {
            turns.push(shared(id, 1 << 20));
        }
        let before = kept(&turns).len();
        assert!((30..32).contains(&before), "{before}");
        // One that grew while it ran counts with what it has become.
        let last = shared(40, 0);
        turns.push(last.clone());
        last.lock().sent = Some("x".repeat(10 << 20));
        turns.ended(&last);
        let after = kept(&turns);
        assert!((20..23).contains(&after.len()), "{}", after.len());
        assert_eq!(after[0], "40");
        for id in 41..41 + KEPT {
            turns.push(shared(id, 0));
        }
        assert_eq!(kept(&turns).len(), KEPT);
    }

    #[test]
    fn a_slow_listener_keeps_no_turn_alive() {
        let turns = Turns::default();
        let mut news = turns.listen();
        let turn = shared(0, 0);
        turns.push(turn.clone());
        turns.ended(&turn);
        drop(turn);
        for id in 1..=KEPT {
            turns.push(shared(id, 0));
        }
        assert!(news.try_recv().unwrap().upgrade().is_none());
    }

    #[test]
    fn a_long_body_is_kept_up_to_a_note() {
        let mut turn = Turn::default();
        turn.keep_sent("short");
        assert_eq!(turn.sent.as_deref(), Some("short"));
        // The limit falls into a character.
        turn.keep_sent(&format!("x{}", "\u{e9}".repeat(KEPT_BODY)));
        let sent = turn.sent.unwrap();
        assert!(sent.len() < KEPT_BODY + 100);
        assert!(sent.ends_with("\n[cut here, 1048578 more bytes]"), "{}", &sent[sent.len() - 40..]);
    }

    #[test]
    fn neighbours_share_their_origin() {
        let block = |maker| {
            let (kind, fate) = (ThinkingKind::Thinking, (Fate::Sent, None));
            KeptBlock::new((1, Some(0)), kind, fate, origin(maker))
        };
        let mut kept = [block("m"), block("m"), block("n"), block("m")];
        share_origins(&mut kept);
        let same = |one: usize, other: usize| {
            Arc::ptr_eq(kept[one].origin.as_ref().unwrap(), kept[other].origin.as_ref().unwrap())
        };
        assert!(same(0, 1));
        assert!(!same(1, 2));
        let shown = serde_json::to_value(&kept[2]).unwrap();
        assert_eq!(shown["path"], "messages.1.content.0");
        assert_eq!(shown["origin"]["model"], "n");
    }
}
