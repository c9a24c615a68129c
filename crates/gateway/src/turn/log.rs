//! The recent turns, as `/admin/turns` shows them: where each went, the fate of each block, how
//! long it took.

use std::collections::VecDeque;
use std::hash::RandomState;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use throughline_canonical::{
    BlockReport, Fate, Fault, FaultKind, Loss, Origin, Reason, ThinkingKind, Usage,
};
use throughline_codec::dialects::blocks;
use throughline_codec::dialects::passthrough::Passthrough;
use throughline_codec::dialects::request_shape::RequestShape;
use tokio::sync::broadcast;
use tracing::Span;

use crate::catalog::Tariff;
use crate::plan::Lane;
use crate::plan::outlined::PlannedBlock;
use crate::turn::span::turn_span;
use crate::unix_ms;

/// How many turns are kept.
const MAX_TURNS: usize = 1000;
/// About how many bytes all turns together may use.
const MAX_TOTAL_BYTES: usize = 32 << 20;
/// How many blocks of one turn are kept.
const MAX_BLOCKS: usize = 200;
/// How many bytes of a body are kept if `full_body` is on.
const MAX_BODY_BYTES: usize = 4 << 20;
/// How long after an operator has read turns the shapes of requests are kept, in milliseconds.
const WATCHED_MS: u64 = 10 * 60 * 1000;

/// The key of the fingerprints in shapes. Only this process has it.
static SHAPE_KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// One turn. Many fields: it is the JSON object that `/admin/turns` returns.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Turn {
    /// The turn's id. Ids grow with time.
    pub id: String,
    /// When it began, in milliseconds since 1970.
    pub time: u64,
    /// The conversation it belongs to.
    pub lineage: String,
    /// The session it belongs to.
    pub session: u64,
    /// The dialect of the client.
    pub client_dialect: &'static str,
    /// The path of the request.
    pub path: String,
    /// The backend that answered.
    pub backend: String,
    /// The same name, if this is not the backend that was chosen first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The backends that did not answer. The first one was chosen first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<PassedOver>,
    /// The backend's dialect.
    pub upstream_dialect: &'static str,
    /// The model's name, as the client wrote it.
    pub model: String,
    /// The model's name at the backend.
    pub upstream_model: String,
    /// The lane.
    pub lane: Lane,
    /// The status of the reply.
    pub status: u16,
    /// Whether the client asked for a stream.
    pub stream: bool,
    /// The fate of each thinking block. Only the last blocks are listed if there are many.
    pub blocks: Vec<BlockRecord>,
    /// How many earlier blocks are not listed.
    pub blocks_omitted: usize,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// The token counts.
    pub usage: Usage,
    /// The cost in US dollars, as far as the prices are known. `None` if no price is known.
    pub cost: Option<f64>,
    /// What its tokens cost.
    #[serde(skip)]
    pub tariff: Tariff,
    /// Times since the request arrived.
    pub ms: Times,
    /// How the turn ended.
    pub end: TurnEnd,
    /// The client's id of the request, from its header `x-request-id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The trace that the request belongs to, from its header `traceparent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// The error, if the turn failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TurnError>,
    /// Whether an operator reads turns, so that the shape of the request is kept.
    #[serde(skip)]
    pub watched: bool,
    /// The shape of the body sent to the backend, without any content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<Arc<RequestShape>>,
    /// The client's body, in its own dialect. Only set if `full_body` is on, and if the client sent
    /// one: the requests of stored conversations have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_body: Option<String>,
    /// The body sent to the backend. Only set if `full_body` is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<String>,
    /// The body received from the backend. Only set if `full_body` is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub received: Option<String>,
}

/// A backend that did not answer a turn.
#[derive(Clone, Debug, Serialize)]
pub struct PassedOver {
    /// The backend's name.
    pub backend: String,
    /// What it failed with.
    pub reason: String,
    /// Whether it was not tried, because it cools down after an earlier failure.
    pub cooling: bool,
}

/// How a turn ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnEnd {
    /// The turn is still running.
    #[default]
    #[serde(rename = "")]
    Running,
    /// The reply is complete.
    Completed,
    /// The provider's bytes stopped before the end of the reply.
    Cut,
    /// The provider or the gateway reported an error.
    Failed,
    /// The client disconnected.
    ClientGone,
    /// The server stopped before the end of the reply.
    Stopped,
}

/// Why a turn failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnError {
    message: String,
    /// The words for the log. Messages about requests and of providers may quote contents, so the
    /// log has only the kind of error and the path of the invalid member.
    logged: String,
}

impl TurnError {
    /// An error in words that quote no contents.
    pub fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { logged: message.clone(), message }
    }

    /// A fault of the gateway.
    pub fn of_gateway(fault: &Fault) -> Self {
        let Fault { kind, message, path, .. } = fault;
        let logged = match (kind, path) {
            // The message is about the backend or the gateway, not about the request.
            (
                FaultKind::Unreachable
                | FaultKind::TimedOut
                | FaultKind::Overloaded
                | FaultKind::Internal,
                _,
            ) => message.clone(),
            (kind, Some(path)) => format!("{} at {path}", kind.as_str()),
            (kind, None) => kind.as_str().to_owned(),
        };
        Self { message: message.clone(), logged }
    }

    /// A fault that a backend reported within its reply.
    pub fn of_backend(fault: Fault) -> Self {
        let logged = format!("the backend reported an error: {}", fault.kind.as_str());
        Self { message: fault.message, logged }
    }

    /// The same error without words that may quote contents.
    #[must_use]
    pub fn without_contents(self) -> Self {
        Self { message: self.logged.clone(), ..self }
    }

    /// The words for the log.
    pub fn logged(&self) -> &str {
        &self.logged
    }
}

impl Serialize for TurnError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.message)
    }
}

impl TurnEnd {
    /// The name of this end in logs and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "",
            Self::Completed => "completed",
            Self::Cut => "cut",
            Self::Failed => "failed",
            Self::ClientGone => "client_gone",
            Self::Stopped => "stopped",
        }
    }
}

/// Milliseconds since the request arrived.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Times {
    /// When the head of the reply arrived.
    pub first_byte: Option<u64>,
    /// When the first thinking arrived.
    pub first_thinking: Option<u64>,
    /// When the first text arrived.
    pub first_text: Option<u64>,
    /// When the first thinking, text or tool call arrived.
    #[serde(skip)]
    pub first_token: Option<u64>,
    /// When the reply ended.
    pub total: Option<u64>,
}

/// The fate of one block. Neighbouring blocks share one origin.
#[derive(Clone, Debug)]
pub struct BlockRecord {
    /// The index of its message, and its index in the message if the client sent it.
    at: (usize, Option<usize>),
    /// The dialect that writes its path.
    dialect: &'static dyn Passthrough,
    /// Its path, if it is not in the client's request.
    path: Option<Box<str>>,
    kind: ThinkingKind,
    fate: Fate,
    reason: Option<Reason>,
    origin: Option<Arc<Origin>>,
}

impl BlockRecord {
    /// Records a block at a message and block index, and its fate.
    pub fn new(
        at: (usize, Option<usize>),
        kind: ThinkingKind,
        (fate, reason): (Fate, Option<Reason>),
        origin: Option<Arc<Origin>>,
    ) -> Self {
        Self { at, dialect: blocks::DIALECT.passthrough(), path: None, kind, fate, reason, origin }
    }

    /// The index of its message.
    pub fn message(&self) -> usize {
        self.at.0
    }

    /// The fate of the block, and why.
    pub fn fate(&self) -> (Fate, Option<Reason>) {
        (self.fate, self.reason)
    }

    /// Sets the fate of the block.
    pub fn set_fate(&mut self, fate: Fate, reason: Option<Reason>) {
        (self.fate, self.reason) = (fate, reason);
    }

    /// Whether the client sent the block. Otherwise the gateway restored it.
    pub fn is_from_client(&self) -> bool {
        self.at.1.is_some()
    }

    /// Sets the block's path in the client's own body.
    pub fn set_path(&mut self, at: (usize, Option<usize>), dialect: &'static dyn Passthrough) {
        self.at = at;
        self.dialect = dialect;
    }

    /// Sets the dialect that writes the block's path.
    pub fn with_path_dialect(self, dialect: &'static dyn Passthrough) -> Self {
        Self { dialect, ..self }
    }
}

impl From<&BlockReport> for BlockRecord {
    fn from(block: &BlockReport) -> Self {
        let origin = block.origin.clone().map(Arc::new);
        let record = Self::new((0, None), block.kind, (block.fate, block.reason), origin);
        Self { path: Some(block.path.as_str().into()), ..record }
    }
}

impl From<&PlannedBlock> for BlockRecord {
    fn from(block: &PlannedBlock) -> Self {
        Self::new(
            (block.message, block.client_index),
            block.kind,
            (block.fate, block.reason),
            block.origin.clone(),
        )
    }
}

impl Serialize for BlockRecord {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        BlockReport {
            path: match &self.path {
                Some(path) => path.to_string(),
                None => self.dialect.block_path(self.at.0, self.at.1),
            },
            kind: self.kind,
            fate: self.fate,
            reason: self.reason,
            origin: self.origin.as_deref().cloned(),
        }
        .serialize(serializer)
    }
}

impl Turn {
    /// Records the blocks. Only the last ones are kept if there are many, because those are new.
    pub fn record_blocks(&mut self, mut blocks: Vec<BlockRecord>) {
        self.blocks_omitted = blocks.len().saturating_sub(MAX_BLOCKS);
        self.blocks = blocks.split_off(self.blocks_omitted);
        share_origins(&mut self.blocks);
    }

    /// The span of the turn, for its log lines.
    pub fn span(&self) -> Span {
        turn_span(&self.id)
    }

    /// The losses as one text; `None` if nothing was lost.
    pub fn losses_text(&self) -> Option<String> {
        (!self.losses.is_empty()).then(|| Loss::header(&self.losses))
    }

    /// Records the client's body, or its beginning.
    pub fn record_client_body(&mut self, body: &str) {
        self.client_body = Some(cut_body(body));
    }

    /// Records the sent body, or its beginning.
    pub fn record_sent_body(&mut self, body: &str) {
        self.sent = Some(cut_body(body));
    }

    /// Records the shape of the sent body. The parts of a private turn cannot be compared: a caller who can send
    /// requests could find out what they say.
    pub fn record_shape(&mut self, body: &[u8], private: bool) {
        let key = (!private).then(|| &*SHAPE_KEY);
        self.shape = RequestShape::read(body, key).map(Arc::new);
    }

    /// The turn without its bodies and their shape, for lists.
    #[must_use]
    pub fn without_bodies(self) -> Self {
        Self { client_body: None, sent: None, received: None, shape: None, ..self }
    }

    /// About how many bytes the turn uses.
    fn weight(&self) -> usize {
        let texts =
            [&self.id, &self.lineage, &self.path, &self.backend, &self.model, &self.upstream_model];
        let error = self.error.iter().flat_map(|error| [&error.message, &error.logged]);
        let more =
            [&self.request_id, &self.traceparent, &self.client_body, &self.sent, &self.received];
        let texts = texts.into_iter().chain(more.into_iter().flatten()).chain(error);
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
            + self.blocks.len() * size_of::<BlockRecord>()
            + self.losses.len() * size_of::<Loss>()
            + self.passed_over.len() * size_of::<PassedOver>()
            + self.shape.as_ref().map_or(0, |shape| shape.weight())
            + origins
    }
}

/// Lets neighbouring blocks share one origin, because most have the same maker.
fn share_origins(blocks: &mut [BlockRecord]) {
    for at in 1..blocks.len() {
        if blocks[at].origin == blocks[at - 1].origin {
            blocks[at].origin = blocks[at - 1].origin.clone();
        }
    }
}

/// The body, cut to the limit. A note says how many bytes are missing.
fn cut_body(body: &str) -> String {
    if body.len() <= MAX_BODY_BYTES {
        return body.to_owned();
    }
    let (kept, rest) = body.split_at(body.floor_char_boundary(MAX_BODY_BYTES));
    format!("{kept}\n[cut here, {} more bytes]", rest.len())
}

/// A turn that may still change.
pub type SharedTurn = Arc<Mutex<Turn>>;

/// The recent turns.
#[derive(Debug)]
pub struct Turns {
    ring: Mutex<Ring>,
    /// Subscribers hold weak references, so that a slow subscriber keeps no turn in memory.
    ended_turns: broadcast::Sender<Weak<Mutex<Turn>>>,
    count: AtomicU64,
    /// When turns were last read, in milliseconds since 1970.
    last_read: AtomicU64,
}

/// Turns in the order they were answered, each with its size in bytes.
#[derive(Debug, Default)]
struct Ring {
    turns: VecDeque<(SharedTurn, usize)>,
    bytes: usize,
}

impl Ring {
    /// Drops the oldest turns until the rest is within the limits.
    fn shrink(&mut self) {
        while self.turns.len() > MAX_TURNS || self.bytes > MAX_TOTAL_BYTES {
            let Some((_, weight)) = self.turns.pop_front() else {
                return;
            };
            self.bytes -= weight;
        }
    }
}

impl Default for Turns {
    fn default() -> Self {
        Self {
            ring: Mutex::default(),
            ended_turns: broadcast::channel(256).0,
            count: AtomicU64::new(0),
            last_read: AtomicU64::new(0),
        }
    }
}

impl Turns {
    /// Whether an operator reads turns, or did a while ago.
    pub fn is_watched(&self, now: u64) -> bool {
        now.saturating_sub(self.last_read.load(Ordering::Relaxed)) < WATCHED_MS
            || self.ended_turns.receiver_count() > 0
    }

    /// Records that an operator reads turns.
    fn record_reader(&self) {
        self.last_read.store(unix_ms(), Ordering::Relaxed);
    }

    /// Returns a new id.
    pub fn id(&self, now: u64) -> String {
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        format!("turn_{now:011x}{:05x}", count & 0xf_ffff)
    }

    /// Adds a turn.
    pub fn push(&self, turn: SharedTurn) {
        let weight = turn.lock().weight();
        let mut ring = self.ring.lock();
        ring.turns.push_back((turn, weight));
        ring.bytes += weight;
        ring.shrink();
    }

    /// Records the end of a turn: updates its size and notifies the subscribers.
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
        // Having no subscriber is not an error.
        let _ = self.ended_turns.send(Arc::downgrade(turn));
    }

    /// Subscribes to turns as they end. A turn that is no longer kept cannot be upgraded.
    pub fn listen(&self) -> broadcast::Receiver<Weak<Mutex<Turn>>> {
        self.record_reader();
        self.ended_turns.subscribe()
    }

    /// The turn with this id, if it is still kept.
    pub fn find(&self, id: &str) -> Option<Turn> {
        self.record_reader();
        let ring = self.ring.lock();
        let found = ring.turns.iter().rev().map(|(turn, _)| turn.lock()).find(|turn| turn.id == id);
        found.map(|turn| turn.clone())
    }

    /// The last turns, newest first. With `after`, only turns with a greater id.
    pub fn list(&self, limit: usize, after: Option<&str>) -> Vec<Turn> {
        self.record_reader();
        let ring = self.ring.lock();
        // The ring is ordered by the time of the answer, not by id.
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
    fn push_drops_the_oldest_turns_first() {
        let turns = Turns::default();
        for id in 0..MAX_TURNS + 2 {
            turns.push(shared(id, 0));
        }
        let kept = kept(&turns);
        assert_eq!(kept.len(), MAX_TURNS);
        assert_eq!(kept[MAX_TURNS - 1], "2");
    }

    #[test]
    fn turns_stay_within_the_byte_limit() {
        let turns = Turns::default();
        for id in 0..40 {
            turns.push(shared(id, 1 << 20));
        }
        let before = kept(&turns).len();
        assert!((30..32).contains(&before), "{before}");
        // A turn that grew while it ran counts with its new size.
        let last = shared(40, 0);
        turns.push(last.clone());
        last.lock().sent = Some("x".repeat(10 << 20));
        turns.ended(&last);
        let after = kept(&turns);
        assert!((20..23).contains(&after.len()), "{}", after.len());
        assert_eq!(after[0], "40");
        for id in 41..41 + MAX_TURNS {
            turns.push(shared(id, 0));
        }
        assert_eq!(kept(&turns).len(), MAX_TURNS);
    }

    #[test]
    fn slow_subscriber_keeps_no_turn_alive() {
        let turns = Turns::default();
        let mut ended_turns = turns.listen();
        let turn = shared(0, 0);
        turns.push(turn.clone());
        turns.ended(&turn);
        drop(turn);
        for id in 1..=MAX_TURNS {
            turns.push(shared(id, 0));
        }
        assert!(ended_turns.try_recv().unwrap().upgrade().is_none());
    }

    #[test]
    fn shapes_are_kept_while_an_operator_reads_turns() {
        let turns = Turns::default();
        let now = unix_ms();
        assert!(!turns.is_watched(now));
        assert!(turns.find("none").is_none());
        assert!(turns.is_watched(now));
        assert!(!turns.is_watched(unix_ms() + WATCHED_MS));
        let reader = turns.listen();
        assert!(turns.is_watched(unix_ms() + WATCHED_MS), "a reader of the stream still reads");
        drop(reader);
        assert!(!turns.is_watched(unix_ms() + WATCHED_MS));
    }

    #[test]
    fn long_body_is_cut_with_a_note() {
        let mut turn = Turn::default();
        turn.record_sent_body("short");
        assert_eq!(turn.sent.as_deref(), Some("short"));
        // The limit falls inside a character.
        turn.record_sent_body(&format!("x{}", "\u{e9}".repeat(MAX_BODY_BYTES)));
        let sent = turn.sent.unwrap();
        assert!(sent.len() < MAX_BODY_BYTES + 100);
        assert!(sent.ends_with("\n[cut here, 4194306 more bytes]"), "{}", &sent[sent.len() - 40..]);
    }

    #[test]
    fn find_returns_a_kept_turn_with_its_bodies() {
        let turns = Turns::default();
        turns.push(shared(1, 3));
        turns.push(shared(2, 5));
        assert_eq!(turns.find("1").and_then(|turn| turn.received).as_deref(), Some("xxx"));
        assert!(turns.find("3").is_none());
        assert!(turns.find("2").unwrap().without_bodies().received.is_none());
    }

    #[test]
    fn neighbouring_blocks_share_their_origin() {
        let block = |maker| {
            let (kind, fate) = (ThinkingKind::Thinking, (Fate::Sent, None));
            BlockRecord::new((1, Some(0)), kind, fate, origin(maker))
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
