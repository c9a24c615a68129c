//! Statistics of the memory, for `/admin/thinking` and the metrics.

use serde::Serialize;

use super::Memory;
use super::budget::{BLOCK_BYTES, LINEAGE_BYTES, STATUS_BYTES};

/// Statistics of the memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Statistics {
    /// Blocks in use.
    pub total: usize,
    /// Blocks in use that the client has sent back.
    pub confirmed: usize,
    /// Blocks in use that the client has not sent back yet.
    pub unconfirmed: usize,
    /// Blocks in use of their conversation's present session.
    pub current_session: usize,
    /// Blocks in use of an older session.
    pub old_session: usize,
    /// The highest session number.
    pub session: u64,
    /// The number of conversations.
    pub lineages: usize,
    /// The approximate size in bytes.
    pub bytes: usize,
    /// Blocks restored because a client had lost them.
    pub restored: u64,
    /// Blocks with an unknown maker that were tried.
    pub tried: u64,
    /// Blocks that targets refused.
    pub refused: u64,
}

impl Memory {
    /// Statistics of all conversations, or of the one with this id.
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
            let session =
                state.sessions.get(&conversation.tag).map_or(0, |known| known.stored.session);
            statistics.session = statistics.session.max(session);
            statistics.lineages += 1;
            statistics.bytes += LINEAGE_BYTES;
            for (_, status) in conversation.statuses.iter() {
                statistics.bytes += BLOCK_BYTES + STATUS_BYTES;
                if status.gone {
                    continue;
                }
                statistics.total += 1;
                *(if status.confirmed {
                    &mut statistics.confirmed
                } else {
                    &mut statistics.unconfirmed
                }) += 1;
                *(if status.session == session {
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
