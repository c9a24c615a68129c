//! Stored messages of threads, and how they are found.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use throughline_canonical::Fault;
use throughline_codec::dialects::anthropic::threads::{
    AddedMessage, ThreadBase, ThreadTurn, already_continued, not_found,
};
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;

use super::Threads;
use crate::sealed_store::{Ancestry, SealedKind, expires};
use crate::store::{Move, Node, Reference};

/// A message of one owner. Backends make the ids of messages, and two owners may get the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct MessageKey {
    owner: String,
    pub(super) id: String,
}

impl MessageKey {
    pub(super) fn new(owner: &str, id: &str) -> Self {
        Self { owner: owner.to_owned(), id: id.to_owned() }
    }

    /// The id of its node. No response has such an id.
    fn node(&self) -> String {
        format!("thread {} {}", self.owner, self.id)
    }
}

/// The sealed content of a node: what one turn added to a thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct StoredMessage {
    /// The reference that points to the newest message of the thread.
    thread: String,
    /// What the thread keeps from the request that created it. Only in its first message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<ThreadBase>,
    turn: ThreadTurn,
    /// Whether the id names two different messages, so that it is ambiguous.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ambiguous: bool,
}

impl StoredMessage {
    /// Whether two messages have the same conversation before them and the same content.
    fn says_the_same(&self, other: &Self) -> bool {
        let value = |json: &str| serde_json::from_str::<Value>(&format!("[{json}]")).ok();
        let same = |one: &str, other: &str| one == other || value(one) == value(other);
        self.base == other.base
            && self.ambiguous == other.ambiguous
            && same(&self.turn.messages, &other.turn.messages)
            && same(&self.turn.content, &other.turn.content)
    }
}

/// A turn whose reply is still to come.
#[derive(Debug)]
pub(super) struct NewTurn {
    owner: String,
    position: Position,
    turn: ThreadTurn,
}

/// Where a turn is in its thread.
#[derive(Debug)]
enum Position {
    First(ThreadBase),
    After { previous: MessageKey, thread: String },
}

impl NewTurn {
    /// The turn that creates a thread.
    pub(super) fn first(owner: String, base: ThreadBase, turn: ThreadTurn) -> Self {
        Self { owner, position: Position::First(base), turn }
    }

    /// A turn that continues a thread.
    pub(super) fn next(previous: MessageKey, thread: String, turn: ThreadTurn) -> Self {
        let owner = previous.owner.clone();
        Self { owner, position: Position::After { previous, thread }, turn }
    }
}

/// A thread up to one message.
#[derive(Debug)]
pub(super) struct ThreadHistory {
    pub(super) thread: String,
    pub(super) base: ThreadBase,
    /// At least one.
    pub(super) turns: Vec<ThreadTurn>,
}

impl Threads {
    /// The thread that ends in this message.
    pub(super) async fn history(&self, message: &MessageKey) -> Result<ThreadHistory, Fault> {
        let missing = || not_found(&message.id);
        // If the store fails, the client can still send everything. The failure is logged.
        let found = self.sealed_store.ancestry(&message.owner, &message.node()).await;
        let Ok(Some(Ancestry::<StoredMessage> { turns, missing: None })) = found else {
            return Err(missing());
        };
        let (Some(first), Some(last)) = (turns.first(), turns.last()) else {
            return Err(missing());
        };
        let base = first.base.clone().ok_or_else(missing)?;
        if turns.iter().any(|stored| stored.ambiguous) {
            return Err(missing());
        }
        let thread = last.thread.clone();
        let reference = self.sealed_store.store.reference(&thread).await;
        let head = reference.ok().flatten().and_then(|reference| reference.head);
        if head.ok_or_else(missing)? != message.node() {
            return Err(already_continued(&message.id));
        }
        let turns = turns.into_iter().map(|stored| stored.turn).collect();
        Ok(ThreadHistory { thread, base, turns })
    }

    /// Stores a turn with its reply.
    pub(super) async fn store(&self, turn: NewTurn, message: AddedMessage) {
        let key = MessageKey::new(&turn.owner, &message.id);
        // The message cannot be continued then, and its client sends everything again.
        if let Err(error) = self.write(&key, turn, message).await {
            let why = format!("the message `{}` of a thread: {error}", key.id);
            self.sealed_store.health.record_dropped(1, &why);
        }
    }

    async fn write(
        &self,
        key: &MessageKey,
        new: NewTurn,
        message: AddedMessage,
    ) -> Result<(), StoreError> {
        let AddedMessage { content, stop_reason, .. } = message;
        let turn = ThreadTurn { content, stop_reason, ..new.turn };
        let (thread, base, parent) = match new.position {
            Position::First(base) => (format!("thread_{}", random::id()), Some(base), None),
            Position::After { previous, thread } => (thread, None, Some(previous.node())),
        };
        let stored = StoredMessage { thread, base, turn, ambiguous: false };
        let store = &self.sealed_store.store;
        let now = unix_ms();
        let mut node = Node {
            id: key.node(),
            parent,
            owner: new.owner,
            created: now,
            expires: Some(expires(now, self.retention)),
            open: false,
            names: Vec::new(),
            sealed: Vec::new(),
            in_project: None,
        };
        if self.names_another(&node, &stored).await? {
            tracing::warn!(message = key.id, "the backend gave this id to two messages");
            let stored = StoredMessage { ambiguous: true, ..stored };
            node.sealed = self.sealed_store.seal(SealedKind::Node, &node.id, &stored);
            node.parent = None;
            return store.put(node, None).await.map(|_| ());
        }
        node.sealed = self.sealed_store.seal(SealedKind::Node, &node.id, &stored);
        self.sealed_store.count_written(node.sealed.len());
        if stored.base.is_some() {
            let reference = Reference {
                id: stored.thread.clone(),
                owner: node.owner.clone(),
                head: None,
                created: now,
                expires: node.expires,
                sealed: Vec::new(),
                branch: None,
            };
            store.put_reference(reference).await?;
        }
        let (from, to) = (node.parent.clone(), Some(node.id.clone()));
        let moves = Move { reference: stored.thread, from, to };
        // If another turn was faster, this one cannot be continued.
        store.put(node, Some(moves)).await.map(|_| ())
    }

    /// Whether a message with the same id but other contents is stored.
    async fn names_another(&self, node: &Node, stored: &StoredMessage) -> Result<bool, StoreError> {
        let Some(known) = self.sealed_store.store.node(&node.id).await? else {
            return Ok(false);
        };
        let opened = self.sealed_store.open(SealedKind::Node, &known.id, &known.sealed);
        let Ok(content): Result<StoredMessage, _> = opened else {
            return Ok(false);
        };
        // A server that answers the same request twice may give both answers one id.
        Ok(known.parent != node.parent || !content.says_the_same(stored))
    }
}
