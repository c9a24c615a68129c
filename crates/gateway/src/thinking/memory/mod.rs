//! The thinking memory and its rules.
//!
//! It keeps two things apart. **Provenance**, across all conversations: who made a block. **The
//! status of a block in one conversation**: its session, whether the client sent it back, whether
//! it was evicted. Verdicts depend on nothing else, so they are stable: a block that was left out
//! for a target stays left out, and a block that was sent stays sent.

mod budget;
mod judge;
mod lifecycle;
mod shared;
mod statistics;
mod statuses;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use throughline_canonical::{BlockKey, Origin, Prefix, Reason};

use crate::settings::Thinking;
use crate::thinking::lineage::{Lineage, LineageId, SessionTag};
use crate::thinking::store::{BlockStatus, Change, Snapshot, StoredBlock, StoredSession};
use crate::thinking::writer::Changes;

use self::lifecycle::Summary;
pub use self::statistics::Statistics;
use self::statuses::Statuses;

/// The thinking memory.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<MemoryState>,
    changes: Changes,
}

#[derive(Debug, Default)]
struct MemoryState {
    blocks: HashMap<BlockKey, Record>,
    lineages: HashMap<LineageId, Conversation>,
    sessions: HashMap<SessionTag, Session>,
    /// Conversations by their last use, oldest first.
    by_use: BTreeMap<u64, LineageId>,
    uses: u64,
    statuses: usize,
    /// Whether other instances write to the store too.
    is_shared: bool,
    /// Blocks that were found in a shared store and that no conversation held then, oldest first.
    unheld: VecDeque<(Instant, BlockKey)>,
    restored: u64,
    tried: u64,
    refused: u64,
}

#[derive(Debug)]
struct Record {
    stored: StoredBlock,
    /// How many conversations hold it.
    holders: u32,
}

#[derive(Debug)]
struct Conversation {
    tag: SessionTag,
    statuses: Statuses,
    used: u64,
    /// When a shared store was last asked about it, by the clock of the store.
    searched: Option<u64>,
}

#[derive(Debug)]
struct Session {
    stored: StoredSession,
    /// How many conversations belong to it.
    holders: u32,
}

/// The receiver of a request.
#[derive(Clone, Debug)]
pub struct TargetIdentity {
    /// The backend's name.
    pub backend: Arc<str>,
    /// The domain whose signatures it reads.
    pub domain: Arc<str>,
    /// The fingerprint of the credential.
    pub credential: String,
    /// Whether it reads only blocks made with the same credential.
    pub account_bound: bool,
}

impl TargetIdentity {
    /// Whether it reads blocks of this origin.
    pub fn reads(&self, origin: &Origin) -> bool {
        origin.domain == *self.domain
            && (!self.account_bound || origin.credential == self.credential)
    }
}

/// What the memory needs to know about a request.
#[derive(Debug)]
pub struct Question<'a> {
    /// The conversation of the request.
    pub lineage: Lineage,
    /// The receiver of the request.
    pub target: &'a TargetIdentity,
    /// Whether the request follows the active backend. Only then is a new target a switch.
    pub follows_active_backend: bool,
    /// Whether the request is part of the conversation. Token counts and plans are not.
    pub in_conversation: bool,
    /// The keys of its thinking blocks, in order. `None` for a malformed block.
    pub blocks: &'a [Option<BlockKey>],
    /// Whether it has an assistant message.
    pub has_assistant: bool,
    /// The present time, in milliseconds since 1970.
    pub now: u64,
    /// The configured rules.
    pub rules: Thinking,
}

/// The memory's answer to a request.
#[derive(Debug)]
pub struct Answer {
    /// The session of the request and its reply.
    pub session: u64,
    /// One verdict for each block.
    pub verdicts: Vec<Verdict>,
}

/// Whether a block may go to a target.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may be sent.
    Send {
        /// Its maker, if known.
        origin: Option<Arc<Origin>>,
        /// The prefix it was made after, if known.
        prefix: Option<Prefix>,
        /// The prefix it followed when a provider dropped it, if one did.
        dropped: Option<Prefix>,
    },
    /// Its maker is unknown. It may be sent to see whether the target accepts it.
    Try {
        /// The prefix it followed when a provider dropped it, if one did.
        dropped: Option<Prefix>,
    },
    /// It must not be sent.
    LeaveOut {
        /// Why.
        reason: Reason,
        /// Its maker, if known.
        origin: Option<Arc<Origin>>,
    },
}

impl Memory {
    /// A memory with the content of a store. It reports its changes to `changes`.
    pub fn new(snapshot: Snapshot, changes: Changes) -> Self {
        let mut state = MemoryState::default();
        for (id, stored) in snapshot.sessions {
            state.sessions.insert(id, Session { stored, holders: 0 });
        }
        let mut lineages = snapshot.lineages;
        lineages.sort_by_key(|(_, _, used)| *used);
        for (id, tag, _) in lineages {
            state.touch(Lineage { tag, id });
        }
        for stored in snapshot.blocks {
            state.blocks.insert(stored.key, Record { stored, holders: 0 });
        }
        for (lineage, key, status) in snapshot.statuses {
            if let Some(conversation) = state.lineages.get_mut(&lineage)
                && let Some(record) = state.blocks.get_mut(&key)
                && conversation.statuses.insert(key, status)
            {
                record.holders += 1;
                state.statuses += 1;
            }
        }
        // A crash in the middle of a write may leave blocks that no conversation holds.
        state.blocks.retain(|_, record| record.holders > 0);
        Self { state: Mutex::new(state), changes }
    }

    /// Decides which blocks of a request may be sent, and learns from the request.
    pub fn ask(&self, question: &Question<'_>) -> Answer {
        let mut state = self.state.lock();
        let session = state.session(question, &self.changes);
        let mut summary = Summary::default();
        if question.in_conversation {
            state.lineage(question.lineage, question.now, &self.changes);
            summary = state.confirm_and_clean(question, session, &self.changes);
        }
        let verdicts: Vec<Verdict> = question
            .blocks
            .iter()
            .map(|block| state.verdict(question, session, *block, &self.changes))
            .collect();
        if question.in_conversation {
            let filtered = verdicts
                .iter()
                .filter(|verdict| matches!(verdict, Verdict::LeaveOut { .. }))
                .count();
            state.tried +=
                verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Try { .. })).count()
                    as u64;
            let cache = state.blocks_in_use(question.lineage.id);
            state.evict_to_limit(question.rules.memory_limit, question.lineage.id, &self.changes);
            drop(state);
            tracing::info!(
                lineage = question.lineage.id.text(),
                session,
                confirmed = summary.confirmed,
                cleanup_old_session = summary.old_session,
                cleanup_confirmed_unused = summary.confirmed_unused,
                cleanup_orphaned = summary.orphaned,
                filtered_from_request = filtered,
                cache_size_after = cache,
                "Request processing complete"
            );
        }
        Answer { session, verdicts }
    }

    /// Remembers a block that a backend made.
    pub fn register(&self, made: &NewBlock<'_>) {
        let mut state = self.state.lock();
        state.lineage(made.lineage, made.now, &self.changes);
        let domain: Arc<str> = made.origin.domain.as_str().into();
        let record = state.block(made.key);
        record.stored.refused.retain(|refused| **refused != *made.origin.backend);
        match &record.stored.origin {
            // Unsigned blocks of two backends may be identical. Both can read them.
            Some(known) if known.domain != made.origin.domain => {
                add(&mut record.stored.accepted, &domain);
            }
            Some(_) => {}
            None => record.stored.origin = Some(made.origin.clone()),
        }
        if !made.cut {
            record.stored.cut = false;
            record.stored.prefix = made.prefix.or(record.stored.prefix);
        } else if record.holders == 0 {
            record.stored.cut = true;
        }
        self.changes.push(Change::Block(record.stored.clone()));
        state.restore_session(made, &self.changes);
        let is_known = state
            .lineages
            .get(&made.lineage.id)
            .is_some_and(|conversation| conversation.statuses.get(&made.key).is_some());
        if made.cut && is_known {
            // A retry of the same answer was cut. The complete block from before stays valid.
            return;
        }
        state.set_status(
            made.lineage.id,
            made.key,
            BlockStatus {
                session: made.session,
                confirmed: false,
                registered: made.now,
                gone: made.cut,
            },
            &self.changes,
        );
        state.evict_to_limit(made.memory_limit, made.lineage.id, &self.changes);
    }

    /// Records what a target did with the blocks it received.
    pub fn outcome(
        &self,
        lineage: Lineage,
        session: u64,
        target: &TargetIdentity,
        outcomes: &[BlockOutcome],
        now: u64,
    ) {
        let mut refused = Vec::new();
        let mut state = self.state.lock();
        state.lineage(lineage, now, &self.changes);
        for outcome in outcomes {
            let record = state.block(outcome.key);
            let before = record.stored.clone();
            match outcome.dropped {
                // It is valid after its present prefix, whatever was known before.
                None => {
                    record.stored.prefix = outcome.prefix.or(record.stored.prefix);
                    record.stored.dropped = None;
                    if outcome.tried {
                        add(&mut record.stored.accepted, &target.domain);
                    }
                }
                Some(Reason::Prefix) => record.stored.dropped = outcome.prefix,
                Some(_) => refused.push(outcome.key),
            }
            let changed = record.stored != before;
            if changed {
                self.changes.push(Change::Block(record.stored.clone()));
            }
            if outcome.tried {
                let status = BlockStatus {
                    session,
                    confirmed: true,
                    registered: now,
                    gone: outcome.dropped.is_some(),
                };
                state.set_status(lineage.id, outcome.key, status, &self.changes);
            }
        }
        drop(state);
        if !refused.is_empty() {
            self.refused(lineage, session, target, &refused, now);
        }
    }

    /// Whether the maker of the block with this key is known.
    pub fn knows_maker(&self, key: &BlockKey) -> bool {
        let state = self.state.lock();
        state.blocks.get(key).is_some_and(|record| record.stored.origin.is_some())
    }

    /// Whether a target has refused the block with this key.
    pub fn has_refused(&self, target: &TargetIdentity, key: &BlockKey) -> bool {
        let state = self.state.lock();
        let record = state.blocks.get(key);
        record.is_some_and(|record| record.stored.refused.contains(&target.backend))
    }

    /// Whether a backend of a signature domain reads the block with this key. `None` if its maker is
    /// unknown and the backend has not refused it.
    pub fn reads(&self, domain: &str, backend: &str, key: &BlockKey) -> Option<bool> {
        let state = self.state.lock();
        let stored = &state.blocks.get(key)?.stored;
        if stored.refused.iter().any(|refused| &**refused == backend) {
            return Some(false);
        }
        let made_there = stored.origin.as_ref()?.domain == domain;
        Some(made_there || stored.accepted.iter().any(|accepted| &**accepted == domain))
    }

    /// Counts restored blocks.
    pub fn restored(&self, blocks: usize) {
        self.state.lock().restored += blocks as u64;
    }

    /// Remembers that a target refused blocks.
    pub fn refused(
        &self,
        lineage: Lineage,
        session: u64,
        target: &TargetIdentity,
        keys: &[BlockKey],
        now: u64,
    ) {
        let mut state = self.state.lock();
        state.lineage(lineage, now, &self.changes);
        for key in keys {
            let record = state.block(*key);
            record.stored.accepted.retain(|domain| *domain != target.domain);
            let known = record.stored.refused.len();
            add(&mut record.stored.refused, &target.backend);
            let newly = record.stored.refused.len() > known;
            self.changes.push(Change::Block(record.stored.clone()));
            state.refused += u64::from(newly);
            let known = state
                .lineages
                .get(&lineage.id)
                .is_some_and(|conversation| conversation.statuses.get(key).is_some());
            if !known {
                let status = BlockStatus { session, confirmed: true, registered: now, gone: true };
                state.set_status(lineage.id, *key, status, &self.changes);
            }
        }
    }
}

/// What a target did with one block.
#[derive(Clone, Copy, Debug)]
pub struct BlockOutcome {
    /// Its key.
    pub key: BlockKey,
    /// Whether its maker was unknown.
    pub tried: bool,
    /// The prefix it followed, if prefixes matter.
    pub prefix: Option<Prefix>,
    /// Why the target dropped it, if it did.
    pub dropped: Option<Reason>,
}

/// A block that a backend made.
#[derive(Debug)]
pub struct NewBlock<'a> {
    /// Its conversation.
    pub lineage: Lineage,
    /// The session in which its request began.
    pub session: u64,
    /// Its maker.
    pub origin: &'a Arc<Origin>,
    /// Its key.
    pub key: BlockKey,
    /// The prefix it was made after, if prefixes matter.
    pub prefix: Option<Prefix>,
    /// Whether it was cut.
    pub cut: bool,
    /// When it was made, in milliseconds since 1970.
    pub now: u64,
    /// How many bytes the memory may use.
    pub memory_limit: usize,
}

fn add(domains: &mut Vec<Arc<str>>, domain: &Arc<str>) {
    if !domains.contains(domain) {
        domains.push(domain.clone());
    }
}

impl MemoryState {
    /// Finds or adds a conversation and marks it as last used.
    fn lineage(&mut self, lineage: Lineage, now: u64, changes: &Changes) {
        self.touch(lineage);
        changes.push(Change::Lineage(lineage.id, lineage.tag, now));
    }

    fn touch(&mut self, lineage: Lineage) {
        self.uses += 1;
        let used = self.uses;
        let conversation = self.lineages.entry(lineage.id).or_insert_with(|| {
            if let Some(session) = self.sessions.get_mut(&lineage.tag) {
                session.holders += 1;
            }
            Conversation { tag: lineage.tag, statuses: Statuses::default(), used, searched: None }
        });
        self.by_use.remove(&conversation.used);
        conversation.used = used;
        self.by_use.insert(used, lineage.id);
    }

    /// Restores a session that was forgotten while its answer was written. It takes the block's
    /// session number.
    fn restore_session(&mut self, made: &NewBlock<'_>, changes: &Changes) {
        self.sessions.entry(made.lineage.tag).or_insert_with(|| {
            let stored = StoredSession {
                session: made.session,
                backend: made.origin.backend.as_str().into(),
            };
            changes.push(Change::Session(made.lineage.tag, stored.clone()));
            Session { stored, holders: 1 }
        });
    }

    fn block(&mut self, key: BlockKey) -> &mut Record {
        self.blocks.entry(key).or_insert_with(|| Record {
            stored: StoredBlock {
                key,
                origin: None,
                cut: false,
                prefix: None,
                dropped: None,
                accepted: Vec::new(),
                refused: Vec::new(),
            },
            holders: 0,
        })
    }

    /// Sets the status of a known block in a known conversation.
    fn set_status(
        &mut self,
        lineage: LineageId,
        key: BlockKey,
        status: BlockStatus,
        changes: &Changes,
    ) {
        if self.put_status(lineage, key, status) {
            changes.push(Change::BlockStatus(lineage, key, status));
        }
    }

    /// As [`MemoryState::set_status`], but does not report the change. Returns whether block and
    /// conversation are known.
    fn put_status(&mut self, lineage: LineageId, key: BlockKey, status: BlockStatus) -> bool {
        let Some(conversation) = self.lineages.get_mut(&lineage) else {
            return false;
        };
        let Some(record) = self.blocks.get_mut(&key) else {
            return false;
        };
        if conversation.statuses.insert(key, status) {
            record.holders += 1;
            self.statuses += 1;
        }
        true
    }
}
