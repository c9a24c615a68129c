//! What a provider says it did with the thinking it got, brought into line with what was expected: one
//! rule for both lanes.

use std::collections::HashMap;

use throughline_canonical::{BlockKey, Fate, Loss, Prefix, Reason, Transformation};

use crate::thinking::memory::Outcome;

/// One block that went out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentBlock {
    /// Its place in the body: message, then block.
    pub(crate) place: (usize, usize),
    pub(crate) key: Option<BlockKey>,
    /// What was expected to become of it.
    pub(crate) fate: Fate,
    pub(crate) reason: Option<Reason>,
    /// What it stands under, where prefixes matter.
    pub(crate) prefix: Option<Prefix>,
}

/// What the provider dropped, by its place, and why.
pub(crate) struct Dropped(HashMap<(usize, usize), Reason>);

impl Dropped {
    pub(crate) fn read(transformations: &[Transformation]) -> Self {
        let dropped = transformations
            .iter()
            .filter(|transformation| transformation.action == "thinking_dropped")
            .filter_map(|transformation| {
                // Bound to another model, organisation or user: not readable by this target.
                let reason = match transformation.reason.as_str() {
                    "prefix_binding_mismatch" => Reason::Prefix,
                    _ => Reason::Origin,
                };
                Some((transformation.at?, reason))
            });
        Self(dropped.collect())
    }

    /// What became of a block, and what of it is worth remembering.
    pub(crate) fn settle(&self, block: &SentBlock) -> (Fate, Option<Reason>, Option<Outcome>) {
        let dropped = self.0.get(&block.place).copied();
        let tried = block.fate == Fate::Tried;
        let (fate, reason) = match dropped {
            Some(reason) => (Fate::LeftOut, Some(reason)),
            // It was expected to fail and held.
            None if block.fate == Fate::LeftOut => (Fate::Sent, None),
            None => (block.fate, block.reason),
        };
        let tells = tried || dropped.is_some() || block.prefix.is_some();
        let outcome = block.key.filter(|_| tells).map(|key| Outcome {
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
