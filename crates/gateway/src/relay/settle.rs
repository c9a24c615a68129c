//! Compares what a provider reports about the sent thinking with what was expected. The rule is the
//! same for both lanes.

use std::collections::HashMap;

use throughline_canonical::{BlockKey, Fate, Loss, Prefix, Reason, Transformation};
use throughline_codec::dialects::blocks::dropped_reason;

use crate::thinking::memory::BlockOutcome;

/// One sent block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBlock {
    /// Its position in the body: message index, block index.
    pub(crate) position: (usize, usize),
    pub(crate) key: Option<BlockKey>,
    /// Its expected fate.
    pub(crate) fate: Fate,
    pub(crate) reason: Option<Reason>,
    /// The prefix it follows, if prefixes matter.
    pub(crate) prefix: Option<Prefix>,
}

/// The positions of the blocks that the provider dropped, and the reasons.
pub(crate) struct Dropped(HashMap<(usize, usize), Reason>);

impl Dropped {
    pub(crate) fn read(transformations: &[Transformation]) -> Self {
        let dropped = transformations.iter().filter_map(|transformation| {
            Some((transformation.at?, dropped_reason(transformation)?))
        });
        Self(dropped.collect())
    }

    /// The fate of a block, and the outcome to remember.
    pub(crate) fn settle(&self, block: &SentBlock) -> (Fate, Option<Reason>, Option<BlockOutcome>) {
        let dropped = self.0.get(&block.position).copied();
        let tried = block.fate == Fate::Tried;
        let (fate, reason) = match dropped {
            Some(reason) => (Fate::LeftOut, Some(reason)),
            // It was expected to be stale and was accepted.
            None if block.fate == Fate::LeftOut => (Fate::Sent, None),
            None => (block.fate, block.reason),
        };
        let informative = tried || dropped.is_some() || block.prefix.is_some();
        let outcome = block.key.filter(|_| informative).map(|key| BlockOutcome {
            key,
            tried,
            prefix: block.prefix,
            dropped,
        });
        (fate, reason, outcome)
    }
}

/// Counts the omitted blocks again, by reason.
pub(crate) fn count_omitted(
    losses: &mut Vec<Loss>,
    blocks: impl Iterator<Item = (Fate, Option<Reason>)>,
) {
    let mut omitted: Vec<(Reason, usize)> = Vec::new();
    for (_, reason) in blocks.filter(|(fate, _)| *fate == Fate::LeftOut) {
        let reason = reason.unwrap_or(Reason::Policy);
        match omitted.iter_mut().find(|(of, _)| *of == reason) {
            Some((_, count)) => *count += 1,
            None => omitted.push((reason, 1)),
        }
    }
    losses.retain(|loss| !matches!(loss, Loss::ThinkingOmitted { .. }));
    let omitted =
        omitted.into_iter().map(|(reason, blocks)| Loss::ThinkingOmitted { blocks, reason });
    losses.splice(0..0, omitted);
}
