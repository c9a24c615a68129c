//! Updates the report of a translated request with what the provider did to its thinking. The rule
//! is in `settle`.

use throughline_canonical::Transformation;

use crate::history::adapt;
use crate::relay::SentRequest;
use crate::relay::settle::{Dropped, SentBlock, count_omitted};
use crate::thinking::memory::{BlockOutcome, TargetIdentity};
use crate::turn::log::BlockRecord;

/// The signed parts that were sent, and their target.
#[derive(Debug)]
pub(crate) struct SentThinking {
    pub(crate) sent: Vec<adapt::SentPart>,
    pub(crate) target: TargetIdentity,
}

impl SentRequest {
    /// Updates the report with what the provider did. Returns the outcomes to remember.
    pub(crate) fn settle(
        &mut self,
        transformations: &[Transformation],
    ) -> Option<(TargetIdentity, Vec<BlockOutcome>)> {
        let thinking = self.sent_thinking.take()?;
        let dropped = Dropped::read(transformations);
        let mut outcomes = Vec::new();
        for sent in &thinking.sent {
            let line = sent.line.and_then(|line| self.blocks.get_mut(line));
            let (Some(block), Some(position)) = (line, sent.position) else {
                continue;
            };
            let (fate, reason) = block.fate();
            let (fate, reason, outcome) = dropped.settle(&SentBlock {
                position,
                key: sent.key,
                fate,
                reason,
                prefix: sent.prefix,
            });
            block.set_fate(fate, reason);
            outcomes.extend(outcome);
        }
        if !outcomes.is_empty() {
            count_omitted(&mut self.losses, self.blocks.iter().map(BlockRecord::fate));
        }
        Some((thinking.target, outcomes))
    }
}
