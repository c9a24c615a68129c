//! What the memory holds, in numbers for people.

use serde::Serialize;

use super::Memory;
use super::budget::{BLOCK_BYTES, LINEAGE_BYTES, STANDING_BYTES};

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

impl Memory {
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
            let session = state.marks.get(&conversation.mark).map_or(0, |mark| mark.stored.session);
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
