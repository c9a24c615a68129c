//! What became of the thinking that went out, once the provider has said what it did with it.

use throughline_canonical::Transformation;

use crate::history::adapt;
use crate::relay::Sent;
use crate::relay::settle::{Dropped, SentBlock, count_omitted};
use crate::thinking::memory::{Outcome, Target};
use crate::turn::log::KeptBlock;

/// What of the past went to whom.
#[derive(Debug)]
pub(crate) struct Past {
    pub(crate) sent: Vec<adapt::Sent>,
    pub(crate) target: Target,
}

impl Sent {
    /// Brings the report in line with what the provider says it did, once the answer has begun. Answers
    /// what is worth remembering of it.
    pub(crate) fn settle(
        &mut self,
        transformations: &[Transformation],
    ) -> Option<(Target, Vec<Outcome>)> {
        let past = self.past.take()?;
        let dropped = Dropped::read(transformations);
        let mut outcomes = Vec::new();
        for sent in &past.sent {
            let line = sent.line.and_then(|line| self.blocks.get_mut(line));
            let (Some(block), Some(place)) = (line, sent.place) else {
                continue;
            };
            let (fate, reason) = block.fate();
            let (fate, reason, outcome) = dropped.settle(&SentBlock {
                place,
                key: sent.key,
                fate,
                reason,
                prefix: sent.prefix,
            });
            block.set_fate(fate, reason);
            outcomes.extend(outcome);
        }
        if !outcomes.is_empty() {
            count_omitted(&mut self.losses, self.blocks.iter().map(KeptBlock::fate));
        }
        Some((past.target, outcomes))
    }
}
