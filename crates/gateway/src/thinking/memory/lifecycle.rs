//! The life of a block in a conversation: registered, confirmed when the client sends it back, and
//! evicted when its session is over, when it is no longer used, or when it never came back.

use std::collections::HashSet;

use throughline_canonical::BlockKey;

use super::{Question, Session, State};
use crate::thinking::lineage::LineageId;
use crate::thinking::store::{Change, StoredMark};
use crate::thinking::writer::Changes;

/// What a request changed in its conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Summary {
    pub(super) confirmed: usize,
    pub(super) old_session: usize,
    pub(super) confirmed_unused: usize,
    pub(super) orphaned: usize,
}

impl State {
    /// The session number of a request. A backend switch increments it.
    pub(super) fn session(&mut self, question: &Question<'_>, changes: &Changes) -> u64 {
        let backend = &question.target.backend;
        let Some(mark) = self.marks.get_mut(&question.lineage.mark) else {
            if question.in_conversation {
                let stored = StoredMark {
                    session: 1,
                    // A pinned request does not choose the conversation's backend.
                    backend: if question.follows_active_backend {
                        backend.clone()
                    } else {
                        "".into()
                    },
                };
                changes.push(Change::Mark(question.lineage.mark, stored.clone()));
                self.marks.insert(question.lineage.mark, Session { stored, holders: 0 });
            }
            return 1;
        };
        let stored = &mut mark.stored;
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
            changes.push(Change::Mark(question.lineage.mark, stored.clone()));
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
            if let Some(standing) = conversation.standings.get_mut(key)
                && !standing.gone
                && !standing.confirmed
                && standing.session == session
            {
                standing.confirmed = true;
                summary.confirmed += 1;
                tracing::debug!(hash = key.short(), session, "Confirmed thinking block");
                changes.push(Change::BlockStatus(lineage, *key, *standing));
            }
        }
        // Token counts and helper requests carry no thinking, so they do not show what the client
        // still holds.
        let tells = question.has_assistant && question.blocks.iter().any(Option::is_some);
        let threshold = question.rules.orphan_threshold.as_millis() as u64;
        let present: HashSet<&BlockKey> =
            if tells { question.blocks.iter().flatten().collect() } else { Default::default() };
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
                (&mut summary.confirmed_unused, "confirmed and no longer used")
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
            changes.push(Change::BlockStatus(lineage, *key, *standing));
        }
        summary
    }

    pub(super) fn in_use(&self, lineage: LineageId) -> usize {
        self.lineages.get(&lineage).map_or(0, |conversation| {
            conversation.standings.values().filter(|standing| !standing.gone).count()
        })
    }
}
