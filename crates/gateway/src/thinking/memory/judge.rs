//! The verdict on a block: who made it, who can read it, and what the policy says.

use std::sync::Arc;

use throughline_canonical::{BlockKey, Origin, Reason};

use super::{MemoryState, Question, Verdict};
use crate::settings::{Policy, Unknown};
use crate::thinking::store::BlockStatus;
use crate::thinking::writer::Changes;

impl MemoryState {
    pub(super) fn verdict(
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
        tracing::trace!(hash = key.short(), session, ?verdict, "Decided on thinking block");
        // A known block appears in another conversation, or again after it was evicted. From now on
        // it belongs to this conversation.
        if question.in_conversation
            && let Verdict::Send { .. } = verdict
            && self
                .lineages
                .get(&question.lineage.id)
                .and_then(|conversation| conversation.statuses.get(&key))
                .is_none_or(|status| status.gone)
        {
            let status =
                BlockStatus { session, confirmed: true, registered: question.now, gone: false };
            self.set_status(question.lineage.id, key, status, changes);
        }
        verdict
    }

    fn judge(&self, question: &Question<'_>, session: u64, key: &BlockKey) -> Verdict {
        let unknown = |dropped| match question.rules.unknown {
            Unknown::Try => Verdict::Try { dropped },
            Unknown::Drop => leave_out(Reason::Unknown, None),
        };
        let Some(record) = self.blocks.get(key) else {
            return unknown(None);
        };
        let (stored, target) = (&record.stored, question.target);
        let origin = &stored.origin;
        if stored.cut {
            return leave_out(Reason::Cut, origin.clone());
        }
        if stored.refused.contains(&target.backend) {
            return leave_out(Reason::Origin, origin.clone());
        }
        let by_session = question.rules.policy == Policy::Session;
        let status = self
            .lineages
            .get(&question.lineage.id)
            .and_then(|conversation| conversation.statuses.get(key));
        if by_session && status.is_some_and(|status| status.gone || status.session != session) {
            return leave_out(Reason::Session, origin.clone());
        }
        let accepted = stored.accepted.contains(&target.domain);
        match origin {
            Some(origin) if !accepted => {
                if !target.reads(origin) {
                    return leave_out(Reason::Origin, Some(origin.clone()));
                }
                // A fork or a resumed session brings blocks of another lineage. They belong to this
                // session if this backend made them.
                if by_session && status.is_none() && origin.backend != *target.backend {
                    return leave_out(Reason::Session, Some(origin.clone()));
                }
            }
            None if !accepted => return unknown(stored.dropped),
            _ => {}
        }
        Verdict::Send { origin: origin.clone(), prefix: stored.prefix, dropped: stored.dropped }
    }
}

fn leave_out(reason: Reason, origin: Option<Arc<Origin>>) -> Verdict {
    Verdict::LeaveOut { reason, origin }
}
