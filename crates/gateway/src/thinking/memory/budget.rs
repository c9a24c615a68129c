//! Keeps the memory within `thinking.memory_limit`: forgets whole conversations, least recently
//! used first.

use throughline_canonical::BlockKey;

use super::State;
use crate::thinking::lineage::LineageId;
use crate::thinking::store::Change;
use crate::thinking::writer::Changes;

/// The approximate size in RAM of one block, one block status, one conversation and one session,
/// including their table entries.
pub(super) const BLOCK_BYTES: usize = 240;
pub(super) const STANDING_BYTES: usize = 120;
pub(super) const LINEAGE_BYTES: usize = 320;
pub(super) const MARK_BYTES: usize = 120;

impl State {
    pub(super) fn bytes(&self) -> usize {
        self.blocks.len() * BLOCK_BYTES
            + self.standings * STANDING_BYTES
            + self.lineages.len() * LINEAGE_BYTES
            + self.marks.len() * MARK_BYTES
    }

    /// Forgets whole conversations, least recently used first, until the memory fits.
    pub(super) fn keep_within(&mut self, limit: usize, current: LineageId, changes: &Changes) {
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

    pub(super) fn forget(&mut self, id: LineageId, changes: &Changes) {
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

    /// Only one conversation is left and it is too large: forgets its evicted blocks.
    pub(super) fn thin_out(&mut self, limit: usize, current: LineageId, changes: &Changes) {
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

    pub(super) fn release(&mut self, key: &BlockKey, changes: &Changes) {
        if let Some(record) = self.blocks.get_mut(key) {
            record.holders = record.holders.saturating_sub(1);
            if record.holders == 0 {
                self.blocks.remove(key);
                changes.push(Change::ForgetBlock(*key));
            }
        }
    }
}
