//! The store of the thinking memory: its trait, an in-memory version and the suite that every store
//! must pass. A store holds hashes and origins, never contents.

use std::collections::HashMap;
use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;
use throughline_canonical::{BlockKey, Origin, Prefix};

use super::lineage::{Lineage, LineageId, SessionTag};

/// What is known about one block, in all conversations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBlock {
    /// Its key.
    pub key: BlockKey,
    /// Its maker, if the gateway saw it being made.
    pub origin: Option<Arc<Origin>>,
    /// Whether it was cut.
    pub cut: bool,
    /// The prefix it was made after, if known.
    pub prefix: Option<Prefix>,
    /// The prefix it followed when a provider dropped it, if one did.
    pub dropped: Option<Prefix>,
    /// Domains that accepted it although they are not its origin.
    pub accepted: Vec<Arc<str>>,
    /// Backends that refused it. These are not domains: if a domain is configured too wide, the
    /// maker of a block must not lose it.
    pub refused: Vec<Arc<str>>,
}

/// The status of a block in one conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockStatus {
    /// The session it belongs to.
    pub session: u64,
    /// Whether the client has sent it back.
    pub confirmed: bool,
    /// When it was registered, in milliseconds since 1970.
    pub registered: u64,
    /// Whether it was evicted. Its origin stays known.
    pub gone: bool,
}

/// A client's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSession {
    /// The session number.
    pub session: u64,
    /// The backend of the last request that followed the active one.
    pub backend: Arc<str>,
}

/// One change of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A block is new or has changed.
    Block(StoredBlock),
    /// The status of a block in a conversation is new or has changed.
    BlockStatus(LineageId, BlockKey, BlockStatus),
    /// A conversation was used at this time.
    Lineage(LineageId, SessionTag, u64),
    /// A session is new or has changed.
    Session(SessionTag, StoredSession),
    /// A conversation and its block statuses are forgotten.
    ForgetLineage(LineageId),
    /// A session is forgotten.
    ForgetSession(SessionTag),
    /// A block is forgotten.
    ForgetBlock(BlockKey),
    /// A fact of the gateway itself, such as the active backend. `None` removes it.
    Fact(String, Option<String>),
}

/// The whole content of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All blocks.
    pub blocks: Vec<StoredBlock>,
    /// All block statuses.
    pub statuses: Vec<(LineageId, BlockKey, BlockStatus)>,
    /// All conversations, with their session and the time of their last use.
    pub lineages: Vec<(LineageId, SessionTag, u64)>,
    /// All sessions.
    pub sessions: Vec<(SessionTag, StoredSession)>,
    /// All facts.
    pub facts: HashMap<String, String>,
}

/// What a request asks a store that several instances share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The conversation of the request.
    pub lineage: Lineage,
    /// The blocks that this instance does not know.
    pub keys: Vec<BlockKey>,
    /// [`Found::at`] of the last search for this conversation. `None` if this instance does not know
    /// the conversation.
    pub since: Option<u64>,
}

/// What a shared store knows about a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The blocks of [`Search::keys`], and those whose status in the conversation another instance
    /// has changed.
    pub blocks: Vec<FoundBlock>,
    /// The client's session.
    pub session: Option<StoredSession>,
    /// The present time by the clock of the store.
    pub at: u64,
}

/// A block, and its status in the conversation if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundBlock {
    /// The block.
    pub stored: StoredBlock,
    /// Its status in the conversation.
    pub status: Option<BlockStatus>,
}

/// Why a store operation failed.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct StoreError {
    /// Which operation failed.
    pub what: String,
    /// The cause.
    #[source]
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

/// A future of a store.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A durable store.
pub trait Store: Debug + Send + Sync + 'static {
    /// Loads everything.
    fn load(&self) -> StoreFuture<'_, Snapshot>;
    /// Writes changes in order, all or none.
    fn write(&self, changes: Vec<Change>) -> StoreFuture<'_, ()>;
    /// Checks that a write succeeds now, with a write that does not change the content.
    fn check_write(&self) -> StoreFuture<'_, ()>;

    /// Whether other instances write to the store too. The methods below are called only then.
    fn is_shared(&self) -> bool {
        false
    }
    /// Reads the facts.
    fn facts(&self) -> StoreFuture<'_, HashMap<String, String>> {
        Box::pin(async { Ok(self.load().await?.facts) })
    }
    /// Finds what other instances have written about a request.
    fn find(&self, _: Search) -> StoreFuture<'_, Found> {
        Box::pin(std::future::ready(Ok(Found::default())))
    }
    /// Removes conversations that no instance has used since a time, in milliseconds since 1970.
    /// Returns how many those were.
    fn forget_unused(&self, _before: u64) -> StoreFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(0)))
    }
}

/// A store in RAM.
#[derive(Debug, Default)]
pub struct InMemory {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    blocks: HashMap<BlockKey, StoredBlock>,
    statuses: HashMap<(LineageId, BlockKey), BlockStatus>,
    lineages: HashMap<LineageId, (SessionTag, u64)>,
    sessions: HashMap<SessionTag, StoredSession>,
    facts: HashMap<String, String>,
}

impl Contents {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Block(block) => {
                self.blocks.insert(block.key, block);
            }
            Change::BlockStatus(lineage, key, status) => {
                self.statuses.insert((lineage, key), status);
            }
            Change::Lineage(lineage, tag, used) => {
                self.lineages.insert(lineage, (tag, used));
            }
            Change::Session(id, session) => {
                self.sessions.insert(id, session);
            }
            Change::ForgetLineage(lineage) => {
                self.lineages.remove(&lineage);
                self.statuses.retain(|(of, _), _| *of != lineage);
            }
            Change::ForgetSession(id) => {
                self.sessions.remove(&id);
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
        let contents = self.contents.lock();
        let snapshot = Snapshot {
            blocks: contents.blocks.values().cloned().collect(),
            statuses: contents
                .statuses
                .iter()
                .map(|((lineage, key), status)| (*lineage, *key, *status))
                .collect(),
            lineages: contents
                .lineages
                .iter()
                .map(|(id, (tag, used))| (*id, *tag, *used))
                .collect(),
            sessions: contents
                .sessions
                .iter()
                .map(|(id, session)| (*id, session.clone()))
                .collect(),
            facts: contents.facts.clone(),
        };
        Box::pin(std::future::ready(Ok(snapshot)))
    }

    fn write(&self, changes: Vec<Change>) -> StoreFuture<'_, ()> {
        let mut contents = self.contents.lock();
        for change in changes {
            contents.apply(change);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The suite that every store must pass.
pub mod suite {
    use super::*;

    fn block(number: u8) -> StoredBlock {
        StoredBlock {
            key: BlockKey([number; 32]),
            origin: Some(Arc::new(Origin {
                domain: "d".into(),
                backend: "a".into(),
                model: "m".into(),
                credential: "c0ffee".into(),
            })),
            cut: false,
            prefix: Some(Prefix([number; 16])),
            dropped: Some(Prefix([number + 100; 16])),
            accepted: vec![],
            refused: vec!["b".into()],
        }
    }

    fn sorted(mut snapshot: Snapshot) -> Snapshot {
        snapshot.blocks.sort_by_key(|block| block.key);
        snapshot.statuses.sort_by_key(|(lineage, key, _)| (*lineage, *key));
        snapshot.lineages.sort_unstable();
        snapshot.sessions.sort_by_key(|(id, _)| *id);
        snapshot
    }

    /// Written values are read back, forgotten values are gone, and the last write counts.
    ///
    /// # Panics
    /// If the store fails a check.
    pub async fn check_store(store: &impl Store) {
        let (one, two) = (LineageId([1; 16]), LineageId([2; 16]));
        let tag = SessionTag([9; 16]);
        let status =
            BlockStatus { session: 3, confirmed: true, registered: 1_700_000_000_000, gone: false };
        let stored_session = StoredSession { session: 3, backend: "b".into() };
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
                Change::Lineage(one, tag, 5),
                Change::Lineage(two, tag, 6),
                Change::Session(tag, stored_session.clone()),
                Change::Session(SessionTag([8; 16]), stored_session.clone()),
                Change::Block(block(1)),
                Change::Block(block(2)),
                Change::Block(unknown.clone()),
                Change::BlockStatus(one, block(1).key, status),
                Change::BlockStatus(two, block(1).key, status),
                Change::BlockStatus(two, block(2).key, status),
                Change::Fact("active".into(), Some("a".into())),
                Change::Fact("other".into(), Some("b".into())),
            ])
            .await
            .expect("the store writes");
        store
            .write(vec![
                Change::Lineage(one, tag, 7),
                Change::BlockStatus(one, block(1).key, BlockStatus { gone: true, ..status }),
                Change::ForgetLineage(two),
                Change::ForgetSession(SessionTag([8; 16])),
                Change::ForgetBlock(block(2).key),
                Change::Fact("active".into(), Some("b".into())),
                Change::Fact("other".into(), None),
            ])
            .await
            .expect("the store writes");
        let expected = Snapshot {
            blocks: vec![block(1), unknown],
            statuses: vec![(one, block(1).key, BlockStatus { gone: true, ..status })],
            lineages: vec![(one, tag, 7)],
            sessions: vec![(tag, stored_session)],
            facts: HashMap::from([("active".into(), "b".into())]),
        };
        for _ in 0..2 {
            store.check_write().await.expect("the store writes");
        }
        let found = store.load().await.expect("the store reads");
        assert_eq!(sorted(found), sorted(expected));
    }

    /// What one instance writes, another one finds. Both stores must be the same database, and empty.
    ///
    /// # Panics
    /// If a store fails a check.
    pub async fn check_shared_store(one: &impl Store, other: &impl Store) {
        assert!(one.is_shared() && other.is_shared());
        let works = "the store works";
        let lineage = Lineage { tag: SessionTag([1; 16]), id: LineageId([2; 16]) };
        let search = |keys: &[u8], since| Search {
            lineage,
            keys: keys.iter().map(|number| BlockKey([*number; 32])).collect(),
            since,
        };
        let empty = other.find(search(&[1], None)).await.expect(works);
        assert_eq!((empty.blocks, empty.session), (vec![], None));
        assert!(empty.at > 0);

        let status = BlockStatus { session: 4, confirmed: true, registered: 7, gone: false };
        let session = StoredSession { session: 4, backend: "a".into() };
        let write = vec![
            Change::Lineage(lineage.id, lineage.tag, 1000),
            Change::Session(lineage.tag, session.clone()),
            Change::Block(block(1)),
            Change::Block(block(2)),
            Change::BlockStatus(lineage.id, block(1).key, status),
            Change::Fact("active".into(), Some("a".into())),
        ];
        one.write(write).await.expect(works);
        assert_eq!(other.facts().await.expect(works).len(), 1);
        let first = FoundBlock { stored: block(1), status: Some(status) };
        let second = FoundBlock { stored: block(2), status: None };
        let found = other.find(search(&[2, 9], None)).await.expect(works);
        assert_eq!(sorted_blocks(found.blocks), [first.clone(), second.clone()]);
        assert_eq!(found.session, Some(session.clone()));

        // Who knows the conversation gets what the other one has changed, and nothing else.
        let found = other.find(search(&[], Some(empty.at))).await.expect(works);
        assert_eq!(found.blocks, std::slice::from_ref(&first));
        let found = one.find(search(&[2], Some(empty.at))).await.expect(works);
        assert_eq!(found.blocks, [second]);
        let later = found.at + 60_000;
        let found = other.find(search(&[], Some(later))).await.expect(works);
        assert_eq!(found.blocks, []);

        // A switch is never undone, and the origin of a block is never forgotten.
        let old = StoredSession { session: 3, backend: "b".into() };
        let bare = StoredBlock { origin: None, prefix: None, ..block(1) };
        let write = vec![Change::Session(lineage.tag, old), Change::Block(bare)];
        other.write(write).await.expect(works);
        let found = one.find(search(&[1], Some(later))).await.expect(works);
        assert_eq!((found.blocks, found.session), (vec![first], Some(session)));

        assert_eq!(one.forget_unused(1000).await.expect(works), 0);
        assert_eq!(one.forget_unused(1001).await.expect(works), 1);
        let found = other.find(search(&[1], None)).await.expect(works);
        // The block itself was written a moment ago.
        let alone = FoundBlock { stored: block(1), status: None };
        assert_eq!((found.blocks, found.session), (vec![alone], None));
    }

    fn sorted_blocks(mut blocks: Vec<FoundBlock>) -> Vec<FoundBlock> {
        blocks.sort_by_key(|block| block.stored.key);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn in_memory_store_passes_the_suite() {
        suite::check_store(&InMemory::default()).await;
    }
}
