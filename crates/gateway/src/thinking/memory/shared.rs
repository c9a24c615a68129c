//! What other instances have recorded, if several share a store. RAM then holds only what this
//! instance has used, and the store is asked about the rest.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use throughline_canonical::BlockKey;

use super::{Memory, MemoryState, Record, Session};
use crate::thinking::lineage::{Lineage, SessionTag};
use crate::thinking::store::{Found, Search, StoredBlock, StoredSession};

/// How long a found block stays in RAM if no conversation takes it, as with a plan that is not sent.
const MAX_UNHELD: Duration = Duration::from_secs(60);

impl Memory {
    /// Other instances write to the store too: what this one no longer holds must stay there.
    pub fn share(&self) {
        self.state.lock().is_shared = true;
    }

    /// Whether other instances write to the store too.
    pub fn is_shared(&self) -> bool {
        self.state.lock().is_shared
    }

    /// What to ask the store about a request with these blocks.
    pub fn search(&self, lineage: Lineage, blocks: impl Iterator<Item = BlockKey>) -> Search {
        let state = self.state.lock();
        let unknown: HashSet<BlockKey> =
            blocks.filter(|key| !state.blocks.contains_key(key)).collect();
        Search {
            lineage,
            keys: unknown.into_iter().collect(),
            since: state.lineages.get(&lineage.id).and_then(|conversation| conversation.searched),
        }
    }

    /// Takes over what the store knows about a request.
    pub fn merge(&self, lineage: Lineage, found: Found, in_conversation: bool) {
        let mut state = self.state.lock();
        state.forget_unheld();
        if let Some(session) = found.session {
            state.merge_session(lineage.tag, session);
        }
        if in_conversation || found.blocks.iter().any(|block| block.status.is_some()) {
            state.touch(lineage);
            if let Some(conversation) = state.lineages.get_mut(&lineage.id) {
                conversation.searched = Some(found.at);
            }
        }
        for block in found.blocks {
            let key = block.stored.key;
            state.merge_block(block.stored);
            if let Some(status) = block.status {
                state.put_status(lineage.id, key, status);
            }
            if state.blocks.get(&key).is_some_and(|record| record.holders == 0) {
                state.unheld.push_back((Instant::now(), key));
            }
        }
    }
}

impl MemoryState {
    /// Takes over a session, unless this instance has seen a later switch.
    fn merge_session(&mut self, tag: SessionTag, found: StoredSession) {
        let Some(known) = self.sessions.get_mut(&tag) else {
            self.sessions.insert(tag, Session { stored: found, holders: 0 });
            return;
        };
        let stored = &mut known.stored;
        if found.session > stored.session
            || found.session == stored.session && stored.backend.is_empty()
        {
            *stored = found;
        }
    }

    /// Takes over a block. It keeps the facts that this instance has learnt about it.
    fn merge_block(&mut self, found: StoredBlock) {
        let Some(record) = self.blocks.get_mut(&found.key) else {
            self.blocks.insert(found.key, Record { stored: found, holders: 0 });
            return;
        };
        let known = &mut record.stored;
        known.origin = known.origin.take().or(found.origin);
        known.prefix = known.prefix.or(found.prefix);
        for domain in &found.accepted {
            super::add(&mut known.accepted, domain);
        }
        for backend in &found.refused {
            super::add(&mut known.refused, backend);
        }
    }

    /// Forgets found blocks that no conversation has taken.
    fn forget_unheld(&mut self) {
        while let Some((at, key)) = self.unheld.front().copied()
            && at.elapsed() > MAX_UNHELD
        {
            self.unheld.pop_front();
            if self.blocks.get(&key).is_some_and(|record| record.holders == 0) {
                self.blocks.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thinking::lineage::LineageId;
    use crate::thinking::store::{BlockStatus, FoundBlock, Snapshot};
    use crate::thinking::writer::Changes;

    const LINEAGE: Lineage = Lineage { tag: SessionTag([1; 16]), id: LineageId([2; 16]) };

    fn found(number: u8, status: Option<BlockStatus>, session: u64) -> Found {
        let stored = StoredBlock {
            key: BlockKey([number; 32]),
            origin: None,
            cut: false,
            prefix: None,
            dropped: None,
            accepted: vec!["d".into()],
            refused: vec![],
        };
        Found {
            blocks: vec![FoundBlock { stored, status }],
            session: Some(StoredSession { session, backend: "a".into() }),
            at: 77,
        }
    }

    fn shared_memory() -> Memory {
        let memory = Memory::new(Snapshot::default(), Changes::default());
        memory.share();
        memory
    }

    #[test]
    fn search_asks_only_for_what_is_unknown() {
        let memory = shared_memory();
        let keys = || [1, 2].into_iter().map(|number| BlockKey([number; 32]));
        let first = memory.search(LINEAGE, keys());
        assert_eq!((first.keys.len(), first.since), (2, None));
        memory.merge(LINEAGE, found(1, None, 1), true);
        let second = memory.search(LINEAGE, keys());
        assert_eq!((second.keys, second.since), (vec![BlockKey([2; 32])], Some(77)));
    }

    #[test]
    fn merged_session_never_goes_back() {
        let memory = shared_memory();
        let session = || memory.state.lock().sessions[&LINEAGE.tag].stored.session;
        for (found_session, expected) in [(2, 2), (1, 2), (3, 3)] {
            memory.merge(LINEAGE, found(1, None, found_session), true);
            assert_eq!(session(), expected);
        }
    }

    #[test]
    fn forgotten_conversation_stays_in_a_shared_store() {
        let memory = shared_memory();
        let status = BlockStatus { session: 1, confirmed: true, registered: 5, gone: false };
        memory.merge(LINEAGE, found(1, Some(status), 1), true);
        let mut state = memory.state.lock();
        assert_eq!(state.blocks[&BlockKey([1; 32])].holders, 1);
        state.forget(LINEAGE.id, &memory.changes);
        assert!(state.blocks.is_empty() && state.lineages.is_empty());
        assert_eq!(memory.changes.pushed(), 0);
    }
}
