//! What a durable store of the memory must do. It holds hashes and origins, never contents.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_canonical::{BlockKey, Origin, Prefix};

use super::lineage::{LineageId, SessionTag};

/// What is known of one block, wherever it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// Its name.
    pub key: BlockKey,
    /// Who made it, if it was seen being made.
    pub origin: Option<Arc<Origin>>,
    /// It was cut off before it was complete.
    pub cut: bool,
    /// What it was made under.
    pub prefix: Option<Prefix>,
    /// What it stood under when a provider dropped it, if one did.
    pub dropped: Option<Prefix>,
    /// Domains that took it although they are not its origin.
    pub accepted: Vec<Arc<str>>,
    /// Backends that refused it. Not domains: a domain may be configured too wide, and the block's
    /// own maker must not lose it by that.
    pub refused: Vec<Arc<str>>,
}

/// How a block stands in one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatus {
    /// The session it belongs to.
    pub session: u64,
    /// The client has sent it back.
    pub confirmed: bool,
    /// When it was registered, in milliseconds since 1970.
    pub registered: u64,
    /// It was evicted; its origin stays known.
    pub gone: bool,
}

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMark {
    /// The session number.
    pub session: u64,
    /// The backend of the last request that followed the active one.
    pub backend: Arc<str>,
}

/// One change of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block is known, or known better.
    Block(StoredBlock),
    /// A block stands so in a conversation.
    BlockStatus(LineageId, BlockKey, BlockStatus),
    /// A conversation was used at this time.
    Lineage(LineageId, SessionTag, u64),
    /// A session stands so.
    Mark(SessionTag, StoredMark),
    /// A conversation and how its blocks stand are forgotten.
    ForgetLineage(LineageId),
    /// A session is forgotten.
    ForgetMark(SessionTag),
    /// A block is forgotten.
    ForgetBlock(BlockKey),
    /// A fact of the gateway itself, such as the active backend; none to forget it.
    Fact(String, Option<String>),
}

/// Everything a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All blocks.
    pub blocks: Vec<StoredBlock>,
    /// All standings.
    pub standings: Vec<(LineageId, BlockKey, BlockStatus)>,
    /// All conversations, with their session and the time of their last use.
    pub lineages: Vec<(LineageId, SessionTag, u64)>,
    /// All sessions.
    pub marks: Vec<(SessionTag, StoredMark)>,
    /// All facts.
    pub facts: HashMap<String, String>,
}

/// Why a store could not do its work.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// What could not be done.
    pub what: String,
    /// The cause.
    #[source]
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

/// A future of a store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A durable store.
pub trait Store: Send + Sync + 'static {
    /// Reads everything.
    fn load(&self) -> StoreFuture<'_, Snapshot>;
    /// Writes changes, in order, all or none.
    fn write(&self, changes: Vec<Change>) -> StoreFuture<'_, ()>;
}

/// A store that lasts as long as the process.
#[derive(Debug, Default)]
pub struct InMemory {
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    blocks: HashMap<BlockKey, StoredBlock>,
    standings: HashMap<(LineageId, BlockKey), BlockStatus>,
    lineages: HashMap<LineageId, (SessionTag, u64)>,
    marks: HashMap<SessionTag, StoredMark>,
    facts: HashMap<String, String>,
}

impl Held {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Block(block) => {
                self.blocks.insert(block.key, block);
            }
            Change::BlockStatus(lineage, key, standing) => {
                self.standings.insert((lineage, key), standing);
            }
            Change::Lineage(lineage, mark, used) => {
                self.lineages.insert(lineage, (mark, used));
            }
            Change::Mark(id, mark) => {
                self.marks.insert(id, mark);
            }
            Change::ForgetLineage(lineage) => {
                self.lineages.remove(&lineage);
                self.standings.retain(|(of, _), _| *of != lineage);
            }
            Change::ForgetMark(id) => {
                self.marks.remove(&id);
            }
            Change::ForgetBlock(key) => {
                self.blocks.remove(&key);
            }
            Change::Fact(name, Some(value)) => {
                self.facts.insert(name, value);
            }
            Change::Fact(name, None) => {
                self.facts.remove(&name);
            }
        }
    }
}

impl Store for InMemory {
    fn load(&self) -> StoreFuture<'_, Snapshot> {
        let held = self.held.lock();
        let snapshot = Snapshot {
            blocks: held.blocks.values().cloned().collect(),
            standings: held
                .standings
                .iter()
                .map(|((lineage, key), standing)| (*lineage, *key, *standing))
                .collect(),
            lineages: held.lineages.iter().map(|(id, (mark, used))| (*id, *mark, *used)).collect(),
            marks: held.marks.iter().map(|(id, mark)| (*id, mark.clone())).collect(),
            facts: held.facts.clone(),
        };
        Box::pin(std::future::ready(Ok(snapshot)))
    }

    fn write(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        let mut held = self.held.lock();
        for change in changes {
            held.apply(change);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// What every store has to pass.
pub mod suite {
    use super::*;

    fn block(number: u8) -> StoredBlock {
        StoredBlock {
            key: BlockKey([number; 32]),
            origin: Some(Arc::new(Origin {
                domain: "anthropic".into(),
                backend: "a".into(),
                model: "claude".into(),
                credential: "c0ffee".into(),
            })),
            cut: false,
            prefix: Some(Prefix([number; 16])),
            dropped: Some(Prefix([number + 100; 16])),
            accepted: vec![],
            refused: vec!["glm".into()],
        }
    }

    fn sorted(mut snapshot: Snapshot) -> Snapshot {
        snapshot.blocks.sort_by_key(|block| block.key);
        snapshot.standings.sort_by_key(|(lineage, key, _)| (*lineage, *key));
        snapshot.lineages.sort_unstable();
        snapshot.marks.sort_by_key(|(id, _)| *id);
        snapshot
    }

    /// What is written is read back; what is forgotten is gone; the last word counts.
    ///
    /// # Panics
    /// If the store does not keep its promise.
    pub async fn keeps_its_promise(store: &impl Store) {
        let (one, two) = (LineageId([1; 16]), LineageId([2; 16]));
        let mark = SessionTag([9; 16]);
        let standing =
            BlockStatus { session: 3, confirmed: true, registered: 1_700_000_000_000, gone: false };
        let stored_mark = StoredMark { session: 3, backend: "glm".into() };
        let unknown = StoredBlock {
            origin: None,
            cut: true,
            prefix: None,
            dropped: None,
            accepted: vec!["x".into(), "y".into()],
            refused: vec![],
            ..block(3)
        };
        store
            .write(vec![
                Change::Lineage(one, mark, 5),
                Change::Lineage(two, mark, 6),
                Change::Mark(mark, stored_mark.clone()),
                Change::Mark(SessionTag([8; 16]), stored_mark.clone()),
                Change::Block(block(1)),
                Change::Block(block(2)),
                Change::Block(unknown.clone()),
                Change::BlockStatus(one, block(1).key, standing),
                Change::BlockStatus(two, block(1).key, standing),
                Change::BlockStatus(two, block(2).key, standing),
                Change::Fact("active".into(), Some("a".into())),
                Change::Fact("other".into(), Some("b".into())),
            ])
            .await
            .expect("the store writes");
        store
            .write(vec![
                Change::Lineage(one, mark, 7),
                Change::BlockStatus(one, block(1).key, BlockStatus { gone: true, ..standing }),
                Change::ForgetLineage(two),
                Change::ForgetMark(SessionTag([8; 16])),
                Change::ForgetBlock(block(2).key),
                Change::Fact("active".into(), Some("glm".into())),
                Change::Fact("other".into(), None),
            ])
            .await
            .expect("the store writes");
        let expected = Snapshot {
            blocks: vec![block(1), unknown],
            standings: vec![(one, block(1).key, BlockStatus { gone: true, ..standing })],
            lineages: vec![(one, mark, 7)],
            marks: vec![(mark, stored_mark)],
            facts: HashMap::from([("active".into(), "glm".into())]),
        };
        let found = store.load().await.expect("the store reads");
        assert_eq!(sorted(found), sorted(expected));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_in_memory_store_keeps_its_promise() {
        suite::keeps_its_promise(&InMemory::default()).await;
    }
}
