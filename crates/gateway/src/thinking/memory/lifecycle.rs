//! The life of a block in a conversation: registered, confirmed when the client sends it back, and
//! evicted when its session is over, when it is no longer used, or when it never came back.

use std::collections::HashSet;

use throughline_canonical::BlockKey;

use super::{MemoryState, Question, Session};
use crate::thinking::lineage::LineageId;
use crate::thinking::store::{Change, StoredSession};
use crate::thinking::writer::Changes;

/// What a request changed in its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) confirmed: usize,
    pub(super) old_session: usize,
    pub(super) confirmed_unused: usize,
    pub(super) orphaned: usize,
}

impl MemoryState {
    /// The session number of a request. A backend switch increments it.
    pub(super) fn session(&mut self, question: &Question<'_>, changes: &Changes) -> u64 {
        let backend = &question.target.backend;
        let Some(known) = self.sessions.get_mut(&question.lineage.tag) else {
            if question.in_conversation {
                let stored = StoredSession {
                    session: 1,
                    // A pinned request does not choose the conversation's backend.
                    backend: if question.follows_active_backend {
                        backend.clone()
                    } else {
                        "".into()
                    },
                };
                changes.push(Change::Session(question.lineage.tag, stored.clone()));
                // A conversation that came from a shared store is there before its session.
                let holders = u32::from(self.lineages.contains_key(&question.lineage.id));
                self.sessions.insert(question.lineage.tag, Session { stored, holders });
            }
            return 1;
        };
        let stored = &mut known.stored;
        if !question.follows_active_backend || stored.backend == *backend {
            return stored.session;
        }
        let first = stored.backend.is_empty();
        let session = stored.session + u64::from(!first);
        if question.in_conversation {
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
            changes.push(Change::Session(question.lineage.tag, stored.clone()));
        }
        session
    }

    /// Confirms the blocks that came back, then evicts unused ones. In this order an old block that
    /// is in the request survives.
    pub(super) fn confirm_and_clean(
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
            if let Some(status) = conversation.statuses.confirm(key, session) {
                summary.confirmed += 1;
                tracing::debug!(hash = key.short(), session, "Confirmed thinking block");
                changes.push(Change::BlockStatus(lineage, *key, status));
            }
        }
        // Token counts and helper requests carry no thinking, so they do not show what the client
        // still holds.
        let shows_blocks = question.has_assistant && question.blocks.iter().any(Option::is_some);
        if !shows_blocks && !conversation.statuses.has_other_session(session) {
            return summary;
        }
        let threshold = question.rules.orphan_threshold.as_millis() as u64;
        let present: HashSet<&BlockKey> = if shows_blocks {
            question.blocks.iter().flatten().collect()
        } else {
            Default::default()
        };
        let evicted = conversation.statuses.evict(|key, status| {
            let age = question.now.saturating_sub(status.registered);
            let (count, why) = if status.session != session {
                (&mut summary.old_session, "old session")
            } else if !shows_blocks || present.contains(key) {
                return false;
            } else if status.confirmed {
                (&mut summary.confirmed_unused, "confirmed and no longer used")
            } else if age > threshold {
                (&mut summary.orphaned, "never came back")
            } else {
                return false;
            };
            *count += 1;
            tracing::debug!(
                hash = key.short(),
                session = status.session,
                why,
                "Evicted thinking block"
            );
            true
        });
        for (key, status) in evicted {
            changes.push(Change::BlockStatus(lineage, key, status));
        }
        summary
    }

    pub(super) fn blocks_in_use(&self, lineage: LineageId) -> usize {
        self.lineages.get(&lineage).map_or(0, |conversation| conversation.statuses.in_use())
    }
}
