//! The memory and its rules.
//!
//! Two things are kept apart. **Provenance**, for the whole data directory: who made a block. **How
//! a block stands in a conversation**: its session, whether the client sent it back, whether it
//! was evicted. Decisions follow from these and nothing else, so they are stable: what was left
//! out for a target stays left out, what was sent stays sent.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::Serialize;
use throughline_canonical::{BlockKey, Origin, Prefix, Reason};

use super::lineage::{Lineage, LineageId, MarkId};
use super::store::{Change, Snapshot, Standing, StoredBlock, StoredMark};
use super::writer::Changes;
use crate::settings::{Policy, Thinking, Unknown};

/// Rough cost in RAM of one block, one standing, one conversation, one session, with the tables
/// they live in.
const BLOCK_BYTES: usize = 240;
const STANDING_BYTES: usize = 120;
const LINEAGE_BYTES: usize = 320;
const MARK_BYTES: usize = 120;

/// The memory.
#[derive(Debug)]
pub struct Memory {
    state: Mutex<State>,
    changes: Changes,
}

#[derive(Debug, Default)]
struct State {
    blocks: HashMap<BlockKey, Record>,
    lineages: HashMap<LineageId, Conversation>,
    marks: HashMap<MarkId, Session>,
    /// Conversations by when they were last used, oldest first.
    by_use: BTreeMap<u64, LineageId>,
    uses: u64,
    standings: usize,
    restored: u64,
    tried: u64,
    refused: u64,
}

#[derive(Debug)]
struct Record {
    stored: StoredBlock,
    /// In how many conversations it stands.
    holders: u32,
}

#[derive(Debug)]
struct Conversation {
    mark: MarkId,
    standings: HashMap<BlockKey, Standing>,
    used: u64,
}

#[derive(Debug)]
struct Session {
    stored: StoredMark,
    /// How many conversations hang on it.
    holders: u32,
}

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// The backend.
    pub backend: Arc<str>,
    /// Whose signatures it reads.
    pub domain: Arc<str>,
    /// A fingerprint of the credential.
    pub credential: String,
    /// It reads only blocks made with the same credential.
    pub account_bound: bool,
}

/// A request, as far as the memory is concerned.
#[derive(Debug)]
pub struct Question<'a> {
    /// Where it belongs.
    pub lineage: Lineage,
    /// Where it goes.
    pub target: &'a Target,
    /// Whether it follows the active backend. Only then a new target is a switch.
    pub by_active: bool,
    /// Whether this request is part of the conversation. Token counts and plans are not.
    pub counts: bool,
    /// Its thinking blocks in order; none for a malformed one.
    pub blocks: &'a [Option<BlockKey>],
    /// Whether the model has spoken before.
    pub has_assistant: bool,
    /// Now, in milliseconds since 1970.
    pub now: u64,
    /// The rules.
    pub rules: Thinking,
}

/// What the memory says to a request.
#[derive(Debug)]
pub struct Answer {
    /// The session the request, and so its reply, belongs to.
    pub session: u64,
    /// One verdict for each block.
    pub verdicts: Vec<Verdict>,
}

/// What may become of a block.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It may go.
    Send {
        /// Who made it, if that is known.
        origin: Option<Arc<Origin>>,
        /// What it was made under, if that is known.
        prefix: Option<Prefix>,
    },
    /// Nobody knows it; it may go to see.
    Try,
    /// It may not go.
    LeaveOut {
        /// Why.
        reason: Reason,
        /// Who made it, if that is known.
        origin: Option<Arc<Origin>>,
    },
}

/// What the memory holds, for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Blocks in use.
    pub total: usize,
    /// Of these, seen in a request.
    pub confirmed: usize,
    /// Of these, not seen in a request yet.
    pub unconfirmed: usize,
    /// Of these, of their conversation's present session.
    pub current_session: usize,
    /// Of these, of an older one.
    pub old_session: usize,
    /// The highest session number.
    pub session: u64,
    /// Conversations.
    pub lineages: usize,
    /// Bytes, roughly.
    pub bytes: usize,
    /// Blocks put back because a client had lost them.
    pub restored: u64,
    /// Blocks nobody knew that were sent to see.
    pub tried: u64,
    /// Blocks that were refused.
    pub refused: u64,
}

/// What a request did to its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Summary {
    confirmed: usize,
    old_session: usize,
    confirmed_unused: usize,
    orphaned: usize,
}

impl Memory {
    /// A memory that holds what a store held, and reports its changes.
    pub fn new(snapshot: Snapshot, changes: Changes) -> Self {
        let mut state = State::default();
        for (id, stored) in snapshot.marks {
            state.marks.insert(id, Session { stored, holders: 0 });
        }
        let mut lineages = snapshot.lineages;
        lineages.sort_by_key(|(_, _, used)| *used);
        for (id, mark, _) in lineages {
            state.place(Lineage { mark, id });
        }
        for stored in snapshot.blocks {
            state
                .blocks
                .insert(stored.key, Record { stored, holders: 0 });
        }
        for (lineage, key, standing) in snapshot.standings {
            if let Some(conversation) = state.lineages.get_mut(&lineage)
                && let Some(record) = state.blocks.get_mut(&key)
                && conversation.standings.insert(key, standing).is_none()
            {
                record.holders += 1;
                state.standings += 1;
            }
        }
        // A write cut in two by a crash of the machine may leave blocks nobody holds.
        state.blocks.retain(|_, record| record.holders > 0);
        Self {
            state: Mutex::new(state),
            changes,
        }
    }

    /// Decides what of a request may go, and notes what the request tells.
    pub fn ask(&self, question: &Question<'_>) -> Answer {
        let mut state = self.state.lock();
        let session = state.session(question, &self.changes);
        let mut summary = Summary::default();
        if question.counts {
            state.lineage(question.lineage, question.now, &self.changes);
            summary = state.confirm_and_clean(question, session, &self.changes);
        }
        let verdicts: Vec<Verdict> = question
            .blocks
            .iter()
            .map(|block| state.verdict(question, session, *block, &self.changes))
            .collect();
        if question.counts {
            let filtered = verdicts
                .iter()
                .filter(|verdict| matches!(verdict, Verdict::LeaveOut { .. }))
                .count();
            state.tried += verdicts
                .iter()
                .filter(|verdict| **verdict == Verdict::Try)
                .count() as u64;
            let cache = state.in_use(question.lineage.id);
            state.keep_within(
                question.rules.memory_limit,
                question.lineage.id,
                &self.changes,
            );
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
    pub fn register(&self, made: &Made<'_>) {
        let mut state = self.state.lock();
        state.lineage(made.lineage, made.now, &self.changes);
        let domain: Arc<str> = made.origin.domain.as_str().into();
        let record = state.block(made.key);
        record
            .stored
            .refused
            .retain(|refused| **refused != *made.origin.backend);
        match &record.stored.origin {
            // Unsigned blocks of two backends may be the same to the letter; both read them.
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
        state.stand(
            made.lineage.id,
            made.key,
            Standing {
                session: made.session,
                confirmed: false,
                registered: made.now,
                gone: made.cut,
            },
            &self.changes,
        );
        state.keep_within(made.memory_limit, made.lineage.id, &self.changes);
    }

    /// A target took blocks that nobody knew.
    pub fn accepted(
        &self,
        lineage: Lineage,
        session: u64,
        target: &Target,
        tried: &[(BlockKey, Option<Prefix>)],
        now: u64,
    ) {
        let mut state = self.state.lock();
        state.lineage(lineage, now, &self.changes);
        for (key, prefix) in tried {
            let record = state.block(*key);
            add(&mut record.stored.accepted, &target.domain);
            record.stored.prefix = record.stored.prefix.or(*prefix);
            self.changes.push(Change::Block(record.stored.clone()));
            let standing = Standing {
                session,
                confirmed: true,
                registered: now,
                gone: false,
            };
            state.stand(lineage.id, *key, standing, &self.changes);
        }
    }

    /// A target refused blocks.
    pub fn refused(
        &self,
        lineage: Lineage,
        session: u64,
        target: &Target,
        keys: &[BlockKey],
        now: u64,
    ) {
        let mut state = self.state.lock();
        state.lineage(lineage, now, &self.changes);
        for key in keys {
            let record = state.block(*key);
            record
                .stored
                .accepted
                .retain(|domain| *domain != target.domain);
            add(&mut record.stored.refused, &target.backend);
            self.changes.push(Change::Block(record.stored.clone()));
            let known = state
                .lineages
                .get(&lineage.id)
                .is_some_and(|conversation| conversation.standings.contains_key(key));
            if !known {
                let standing = Standing {
                    session,
                    confirmed: true,
                    registered: now,
                    gone: true,
                };
                state.stand(lineage.id, *key, standing, &self.changes);
            }
        }
        state.refused += keys.len() as u64;
    }

    /// What is held, of all conversations or of the one whose id begins so.
    pub fn statistics(&self, lineage: Option<&str>) -> Option<Statistics> {
        let state = self.state.lock();
        let mut statistics = Statistics {
            restored: state.restored,
            tried: state.tried,
            refused: state.refused,
            ..Statistics::default()
        };
        for (id, conversation) in &state.lineages {
            if lineage.is_some_and(|wanted| id.text() != wanted) {
                continue;
            }
            let session = state
                .marks
                .get(&conversation.mark)
                .map_or(0, |mark| mark.stored.session);
            statistics.session = statistics.session.max(session);
            statistics.lineages += 1;
            statistics.bytes += LINEAGE_BYTES;
            for standing in conversation.standings.values() {
                statistics.bytes += BLOCK_BYTES + STANDING_BYTES;
                if standing.gone {
                    continue;
                }
                statistics.total += 1;
                *(if standing.confirmed {
                    &mut statistics.confirmed
                } else {
                    &mut statistics.unconfirmed
                }) += 1;
                *(if standing.session == session {
                    &mut statistics.current_session
                } else {
                    &mut statistics.old_session
                }) += 1;
            }
        }
        if lineage.is_some() {
            return (statistics.lineages > 0).then_some(statistics);
        }
        statistics.bytes = state.bytes();
        Some(statistics)
    }
}

/// A block as it was made.
#[derive(Debug)]
pub struct Made<'a> {
    /// In which conversation.
    pub lineage: Lineage,
    /// In which session the request began.
    pub session: u64,
    /// By whom.
    pub origin: &'a Arc<Origin>,
    /// Its name.
    pub key: BlockKey,
    /// Under what.
    pub prefix: Option<Prefix>,
    /// It was cut off.
    pub cut: bool,
    /// When.
    pub now: u64,
    /// Bytes the memory may take.
    pub memory_limit: usize,
}

fn add(domains: &mut Vec<Arc<str>>, domain: &Arc<str>) {
    if !domains.contains(domain) {
        domains.push(domain.clone());
    }
}

impl State {
    /// The session number for a request; a switch raises it.
    fn session(&mut self, question: &Question<'_>, changes: &Changes) -> u64 {
        let backend = &question.target.backend;
        let Some(mark) = self.marks.get_mut(&question.lineage.mark) else {
            if question.counts {
                let stored = StoredMark {
                    session: 1,
                    // A pinned request does not say where the conversation lives.
                    backend: if question.by_active {
                        backend.clone()
                    } else {
                        "".into()
                    },
                };
                changes.push(Change::Mark(question.lineage.mark, stored.clone()));
                self.marks
                    .insert(question.lineage.mark, Session { stored, holders: 0 });
            }
            return 1;
        };
        let stored = &mut mark.stored;
        if !question.by_active || stored.backend == *backend {
            return stored.session;
        }
        let first = stored.backend.is_empty();
        let session = stored.session + u64::from(!first);
        if question.counts {
            if !first {
                tracing::info!(
                    old_backend = &*stored.backend,
                    new_backend = &**backend,
                    old_session = stored.session,
                    new_session = session,
                    "Backend switch: incremented thinking session"
                );
            }
            stored.session = session;
            stored.backend = backend.clone();
            changes.push(Change::Mark(question.lineage.mark, stored.clone()));
        }
        session
    }

    /// Finds or begins a conversation; it is now the one used last.
    fn lineage(&mut self, lineage: Lineage, now: u64, changes: &Changes) {
        self.place(lineage);
        changes.push(Change::Lineage(lineage.id, lineage.mark, now));
    }

    fn place(&mut self, lineage: Lineage) {
        self.uses += 1;
        let used = self.uses;
        let conversation = self.lineages.entry(lineage.id).or_insert_with(|| {
            if let Some(mark) = self.marks.get_mut(&lineage.mark) {
                mark.holders += 1;
            }
            Conversation {
                mark: lineage.mark,
                standings: HashMap::new(),
                used,
            }
        });
        self.by_use.remove(&conversation.used);
        conversation.used = used;
        self.by_use.insert(used, lineage.id);
    }

    fn block(&mut self, key: BlockKey) -> &mut Record {
        self.blocks.entry(key).or_insert_with(|| Record {
            stored: StoredBlock {
                key,
                origin: None,
                cut: false,
                prefix: None,
                accepted: Vec::new(),
                refused: Vec::new(),
            },
            holders: 0,
        })
    }

    /// Sets how a known block stands in a known conversation.
    fn stand(&mut self, lineage: LineageId, key: BlockKey, standing: Standing, changes: &Changes) {
        if let Some(conversation) = self.lineages.get_mut(&lineage)
            && let Some(record) = self.blocks.get_mut(&key)
        {
            if conversation.standings.insert(key, standing).is_none() {
                record.holders += 1;
                self.standings += 1;
            }
            changes.push(Change::Standing(lineage, key, standing));
        }
    }

    /// Confirms what came back, then evicts what is no longer used: in this order, so that an old
    /// block that is in the request survives.
    fn confirm_and_clean(
        &mut self,
        question: &Question<'_>,
        session: u64,
        changes: &Changes,
    ) -> Summary {
        let mut summary = Summary::default();
        let lineage = question.lineage.id;
        let Some(conversation) = self.lineages.get_mut(&lineage) else {
            return summary;
        };
        for key in question.blocks.iter().flatten() {
            if let Some(standing) = conversation.standings.get_mut(key)
                && !standing.gone
                && !standing.confirmed
                && standing.session == session
            {
                standing.confirmed = true;
                summary.confirmed += 1;
                tracing::debug!(hash = key.short(), session, "Confirmed thinking block");
                changes.push(Change::Standing(lineage, *key, *standing));
            }
        }
        // Token counts and helper requests carry no thinking; they say nothing about what the
        // client still holds.
        let tells = question.has_assistant && question.blocks.iter().any(Option::is_some);
        let threshold = question.rules.orphan_threshold.as_millis() as u64;
        let present: std::collections::HashSet<&BlockKey> = if tells {
            question.blocks.iter().flatten().collect()
        } else {
            Default::default()
        };
        for (key, standing) in &mut conversation.standings {
            if standing.gone {
                continue;
            }
            let age = question.now.saturating_sub(standing.registered);
            let (count, why) = if standing.session != session {
                (&mut summary.old_session, "old session")
            } else if !tells || present.contains(key) {
                continue;
            } else if standing.confirmed {
                (
                    &mut summary.confirmed_unused,
                    "confirmed and no longer used",
                )
            } else if age > threshold {
                (&mut summary.orphaned, "never came back")
            } else {
                continue;
            };
            *count += 1;
            standing.gone = true;
            tracing::debug!(
                hash = key.short(),
                session = standing.session,
                why,
                "Evicted thinking block"
            );
            changes.push(Change::Standing(lineage, *key, *standing));
        }
        summary
    }

    fn verdict(
        &mut self,
        question: &Question<'_>,
        session: u64,
        block: Option<BlockKey>,
        changes: &Changes,
    ) -> Verdict {
        let Some(key) = block else {
            return leave_out(Reason::Shape, None);
        };
        let verdict = self.judge(question, session, &key);
        tracing::trace!(
            hash = key.short(),
            session,
            ?verdict,
            "Decided on thinking block"
        );
        // A known block in a conversation it was not made in, or come back after an absence: from
        // now on it stands here.
        if question.counts
            && let Verdict::Send { .. } = verdict
            && self
                .lineages
                .get(&question.lineage.id)
                .and_then(|conversation| conversation.standings.get(&key))
                .is_none_or(|standing| standing.gone)
        {
            let standing = Standing {
                session,
                confirmed: true,
                registered: question.now,
                gone: false,
            };
            self.stand(question.lineage.id, key, standing, changes);
        }
        verdict
    }

    fn judge(&self, question: &Question<'_>, session: u64, key: &BlockKey) -> Verdict {
        let unknown = || match question.rules.unknown {
            Unknown::Try => Verdict::Try,
            Unknown::Drop => leave_out(Reason::Unknown, None),
        };
        let Some(record) = self.blocks.get(key) else {
            return unknown();
        };
        let (stored, target) = (&record.stored, question.target);
        let origin = &stored.origin;
        if stored.cut {
            return leave_out(Reason::Cut, origin.clone());
        }
        if stored.refused.contains(&target.backend) {
            return leave_out(Reason::Origin, origin.clone());
        }
        let accepted = stored.accepted.contains(&target.domain);
        match origin {
            Some(origin) if !accepted => {
                let readable = origin.domain == *target.domain
                    && (!target.account_bound || origin.credential == target.credential);
                if !readable {
                    return leave_out(Reason::Origin, Some(origin.clone()));
                }
            }
            None if !accepted => return unknown(),
            _ => {}
        }
        if question.rules.policy == Policy::Session {
            let standing = self
                .lineages
                .get(&question.lineage.id)
                .and_then(|conversation| conversation.standings.get(key));
            let valid = match standing {
                Some(standing) => !standing.gone && standing.session == session,
                // A fork or a resumed session brings blocks of another lineage along.
                None => {
                    accepted
                        || origin
                            .as_ref()
                            .is_some_and(|origin| origin.backend == *target.backend)
                }
            };
            if !valid {
                return leave_out(Reason::Session, origin.clone());
            }
        }
        Verdict::Send {
            origin: origin.clone(),
            prefix: stored.prefix,
        }
    }

    fn in_use(&self, lineage: LineageId) -> usize {
        self.lineages.get(&lineage).map_or(0, |conversation| {
            conversation
                .standings
                .values()
                .filter(|standing| !standing.gone)
                .count()
        })
    }

    fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
            + self.standings * STANDING_BYTES
            + self.lineages.len() * LINEAGE_BYTES
            + self.marks.len() * MARK_BYTES
    }

    /// Forgets whole conversations, the longest unused first, until the memory fits.
    fn keep_within(&mut self, limit: usize, current: LineageId, changes: &Changes) {
        while self.bytes() > limit {
            let oldest = self.by_use.values().find(|id| **id != current).copied();
            let Some(oldest) = oldest else {
                self.thin_out(limit, current, changes);
                return;
            };
            tracing::debug!(
                lineage = oldest.text(),
                "Forgot a conversation to stay within memory_limit"
            );
            self.forget(oldest, changes);
        }
    }

    fn forget(&mut self, id: LineageId, changes: &Changes) {
        let Some(conversation) = self.lineages.remove(&id) else {
            return;
        };
        self.by_use.remove(&conversation.used);
        self.standings -= conversation.standings.len();
        for key in conversation.standings.keys() {
            self.release(key, changes);
        }
        changes.push(Change::ForgetLineage(id));
        if let Some(mark) = self.marks.get_mut(&conversation.mark) {
            mark.holders = mark.holders.saturating_sub(1);
            if mark.holders == 0 {
                self.marks.remove(&conversation.mark);
                changes.push(Change::ForgetMark(conversation.mark));
            }
        }
    }

    /// Only one conversation is left and it alone is too large: its evicted blocks go.
    fn thin_out(&mut self, limit: usize, current: LineageId, changes: &Changes) {
        let Some(conversation) = self.lineages.get_mut(&current) else {
            return;
        };
        let gone: Vec<BlockKey> = conversation
            .standings
            .iter()
            .filter(|(_, standing)| standing.gone)
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            if self.bytes() <= limit {
                return;
            }
            if let Some(conversation) = self.lineages.get_mut(&current) {
                conversation.standings.remove(&key);
                self.standings -= 1;
            }
            self.release(&key, changes);
        }
    }

    fn release(&mut self, key: &BlockKey, changes: &Changes) {
        if let Some(record) = self.blocks.get_mut(key) {
            record.holders = record.holders.saturating_sub(1);
            if record.holders == 0 {
                self.blocks.remove(key);
                changes.push(Change::ForgetBlock(*key));
            }
        }
    }
}

fn leave_out(reason: Reason, origin: Option<Arc<Origin>>) -> Verdict {
    Verdict::LeaveOut { reason, origin }
}
