//! Decides the fate of each thinking block: by the memory's verdict, the configuration, a
//! refusal, and the shape of its message.

use throughline_canonical::{Fate, Reason};
use throughline_codec::dialects::blocks::outline::{Block, BlockKind};

use crate::backend::Replay;
use crate::plan::outlined::{PlannedBlock, Planner, turn_start};
use crate::thinking::Verdict;
use crate::thinking::guard::PrefixRecord;
use crate::upstream::refusal_policy::RetryPlan;

impl Planner<'_> {
    pub(crate) fn blocks_from_memory(&self) -> Vec<PlannedBlock> {
        let mut restored = self.dropped.restored.iter().peekable();
        let (mut in_message, mut inserted) = (0, 0);
        self.outline
            .thinking_blocks()
            .zip(self.verdicts)
            .map(|((message, index, kind, key), verdict)| {
                if message != in_message {
                    (in_message, inserted) = (message, 0);
                }
                let restored = restored.next_if(|restored| restored.at == (message, index));
                let is_inserted = restored.is_some_and(|restored| !restored.replaces);
                let client_index = (!is_inserted).then_some(index - inserted);
                inserted += usize::from(is_inserted);
                let mut block = PlannedBlock {
                    message,
                    index,
                    client_index,
                    kind,
                    key,
                    fate: if restored.is_some() { Fate::Restored } else { Fate::Sent },
                    reason: None,
                    origin: None,
                    in_body: true,
                    prefix_record: PrefixRecord::default(),
                    prefix: None,
                };
                match verdict {
                    Verdict::Send { origin, prefix, dropped } => {
                        block.origin.clone_from(origin);
                        let (made, dropped) = (*prefix, *dropped);
                        block.prefix_record = PrefixRecord { made, dropped };
                    }
                    Verdict::Try { dropped } => {
                        (block.fate, block.reason) = (Fate::Tried, Some(Reason::Unknown));
                        block.prefix_record.dropped = *dropped;
                    }
                    Verdict::LeaveOut { reason, origin } => {
                        block.origin.clone_from(origin);
                        block.leave_out(*reason);
                    }
                }
                block
            })
            .collect()
    }

    pub(crate) fn apply_configuration(&self, blocks: &mut [PlannedBlock]) {
        let from = match self.backend.replay {
            Replay::Verbatim => return,
            Replay::None => usize::MAX,
            Replay::LatestTurn => self.latest_turn(),
        };
        for block in blocks {
            if block.fate != Fate::LeftOut && block.message < from {
                block.leave_out(Reason::Policy);
            }
        }
    }

    /// The index of the message where the model's latest turn begins.
    fn latest_turn(&self) -> usize {
        let messages = &self.outline.messages;
        let last = messages
            .iter()
            .rposition(|message| !message.blocks().is_empty() && !message.is_user_turn())
            .unwrap_or_default();
        turn_start(messages, last)
    }

    pub(crate) fn apply_retry(&self, blocks: &mut [PlannedBlock]) {
        let old = match self.retry {
            RetryPlan::DropAllThinking => usize::MAX,
            RetryPlan::DropEarlierThinking => self.outline.after_last_user_turn(),
            RetryPlan::DropTried => 0,
            _ => return,
        };
        for block in blocks {
            let is_known = matches!(block.fate, Fate::Sent | Fate::Restored);
            if block.fate == Fate::Tried || is_known && block.message < old {
                block.leave_out(Reason::Origin);
            }
        }
    }

    /// A message that began with thinking must not keep only later thinking.
    pub(crate) fn apply_shape(&self, blocks: &mut [PlannedBlock]) {
        for thinking in blocks.chunk_by_mut(|one, next| one.message == next.message) {
            let began = thinking.first().is_some_and(|block| block.index == 0);
            let message = &self.outline.messages[thinking[0].message];
            let begins = message.blocks().get(first_in_body(thinking)).is_some_and(is_thinking);
            if began && !begins {
                for block in thinking {
                    if block.fate != Fate::LeftOut {
                        block.leave_out(Reason::Shape);
                    }
                }
            }
        }
    }
}

/// The thinking blocks of one message.
pub(crate) fn of_message(blocks: &[PlannedBlock], message: usize) -> &[PlannedBlock] {
    let start = blocks.partition_point(|block| block.message < message);
    let end = blocks.partition_point(|block| block.message <= message);
    &blocks[start..end]
}

/// The index of a message's first block in the sent body, given its thinking blocks in order.
pub(crate) fn first_in_body(thinking: &[PlannedBlock]) -> usize {
    thinking
        .iter()
        .enumerate()
        .take_while(|(at, block)| block.index == *at && !block.in_body)
        .count()
}

pub(crate) fn is_thinking(block: &Block) -> bool {
    matches!(block.kind, BlockKind::Thinking { .. })
}
