//! Keeps the memory within `thinking.memory_limit`: forgets whole conversations, least recently
//! used first. In a shared store they stay, because another instance may use them.

use throughline_canonical::BlockKey;

use super::MemoryState;
use crate::thinking::lineage::LineageId;
use crate::thinking::store::Change;
use crate::thinking::writer::Changes;

/// The approximate size in RAM of one block, one block status, one conversation and one session,
/// including their table entries.
pub(super) const BLOCK_BYTES: usize = 240;
pub(super) const STATUS_BYTES: usize = 120;
pub(super) const LINEAGE_BYTES: usize = 320;
pub(super) const SESSION_BYTES: usize = 120;

impl MemoryState {
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
            + self.statuses * STATUS_BYTES
            + self.lineages.len() * LINEAGE_BYTES
            + self.sessions.len() * SESSION_BYTES
    }

    /// Forgets whole conversations, least recently used first, until the memory fits.
    pub(super) fn evict_to_limit(&mut self, limit: usize, current: LineageId, changes: &Changes) {
        while self.bytes() > limit {
            let oldest = self.by_use.values().find(|id| **id != current).copied();
            let Some(oldest) = oldest else {
                self.forget_evicted(limit, current, changes);
                return;
            };
            tracing::debug!(
                lineage = oldest.text(),
                "Forgot a conversation to stay within memory_limit"
            );
            self.forget(oldest, changes);
        }
    }

    pub(super) fn forget(&mut self, id: LineageId, changes: &Changes) {
        let Some(conversation) = self.lineages.remove(&id) else {
            return;
        };
        self.by_use.remove(&conversation.used);
        self.statuses -= conversation.statuses.len();
        for (key, _) in conversation.statuses.iter() {
            self.release(key, changes);
        }
        if !self.is_shared {
            changes.push(Change::ForgetLineage(id));
        }
        if let Some(session) = self.sessions.get_mut(&conversation.tag) {
            session.holders = session.holders.saturating_sub(1);
            if session.holders == 0 {
                self.sessions.remove(&conversation.tag);
                if !self.is_shared {
                    changes.push(Change::ForgetSession(conversation.tag));
                }
            }
        }
    }

    /// Only one conversation is left and it is too large: forgets its evicted blocks.
    pub(super) fn forget_evicted(&mut self, limit: usize, current: LineageId, changes: &Changes) {
        let Some(conversation) = self.lineages.get_mut(&current) else {
            return;
        };
        let gone: Vec<BlockKey> = conversation
            .statuses
            .iter()
            .filter(|(_, status)| status.gone)
            .map(|(key, _)| *key)
            .collect();
        for key in gone {
            if self.bytes() <= limit {
                return;
            }
            if let Some(conversation) = self.lineages.get_mut(&current) {
                conversation.statuses.remove(&key);
                self.statuses -= 1;
            }
            self.release(&key, changes);
        }
    }

    pub(super) fn release(&mut self, key: &BlockKey, changes: &Changes) {
        if let Some(record) = self.blocks.get_mut(key) {
            record.holders = record.holders.saturating_sub(1);
            if record.holders == 0 {
                self.blocks.remove(key);
                if !self.is_shared {
                    changes.push(Change::ForgetBlock(*key));
                }
            }
        }
    }
}
