//! The prefix guard of the passthrough lane: finds blocks whose prefix has changed since they were
//! made.

use bytes::Bytes;
use throughline_canonical::{Fate, Prefix, Reason};
use throughline_codec::dialects::blocks::BETA_BINDING_CONTROLS;
use throughline_codec::dialects::blocks::outline::Outline;
use throughline_codec::dialects::blocks::prefix::{Prefixes, after_block};
use throughline_codec::dialects::blocks::rewrite::ThinkingEdit;

use crate::plan::outlined::{OutlinedPlan, PlannedBlock, Planner};
use crate::thinking::guard::BlockPosition;
use crate::upstream::refusal_policy::RetryPlan;

impl Planner<'_> {
    /// Finds stale blocks and asks the provider to drop them, unless the caller has chosen what to
    /// do.
    pub(crate) fn guard_prefixes(&self, plan: &mut OutlinedPlan) {
        let Some(prefixes) = self.prefixes(&plan.body) else {
            return;
        };
        plan.prefix = Some(prefixes.whole());
        record_prefixes(&mut plan.blocks, &prefixes);
        let stale: Vec<usize> = plan
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, block)| self.is_stale(block, &prefixes))
            .map(|(at, _)| at)
            .collect();
        if stale.is_empty() && self.retry != RetryPlan::DropBound {
            return;
        }
        let caller =
            self.outline.thinking.as_ref().and_then(|thinking| thinking.binding.as_deref());
        let can_ask = caller.is_none() && self.thinks(plan);
        for at in stale {
            let block = &mut plan.blocks[at];
            match caller {
                // The caller wants the provider's error, so the block is sent.
                Some("error") => block.reason = Some(Reason::Prefix),
                None if !can_ask => block.leave_out(Reason::Prefix),
                _ => (block.fate, block.reason) = (Fate::LeftOut, Some(Reason::Prefix)),
            }
        }
        if can_ask {
            plan.drop_bound = true;
            plan.betas_added.push(BETA_BINDING_CONTROLS);
        }
        if caller.is_none() {
            self.render(plan);
            plan.prefix = self.prefixes(&plan.body).as_ref().map(Prefixes::whole);
        }
    }

    /// Whether a block is probably stale.
    fn is_stale(&self, block: &PlannedBlock, prefixes: &Prefixes) -> bool {
        let after_summary = prefixes.is_after_summary(block.message);
        let tried = block.fate == Fate::Tried;
        block.prefix.is_some_and(|prefix| {
            let position = BlockPosition { prefix, after_summary, tried };
            self.guard.is_stale(position, block.prefix_record)
        })
    }

    /// Whether thinking is on, so that the provider can be asked.
    fn thinks(&self, plan: &OutlinedPlan) -> bool {
        match plan.thinking.mode(self.outline) {
            // Models that bind their blocks think by default.
            None => plan.thinking != ThinkingEdit::Remove,
            Some(mode) => !["disabled", "between_tools"].contains(&mode),
        }
    }

    fn prefixes(&self, sent: &Bytes) -> Option<Prefixes> {
        if sent.as_ptr() == self.body.as_ptr() && sent.len() == self.body.len() {
            return Some(Prefixes::read(sent, self.outline));
        }
        let outline = Outline::read(sent, usize::MAX).ok()?;
        Some(Prefixes::read(sent, &outline))
    }
}

/// Records the prefix of each sent block.
fn record_prefixes(blocks: &mut [PlannedBlock], prefixes: &Prefixes) {
    for thinking in blocks.chunk_by_mut(|one, next| one.message == next.message) {
        let mut running: Prefix = prefixes.before_message(thinking[0].message);
        for block in thinking.iter_mut().filter(|block| block.in_body) {
            block.prefix = Some(running);
            if let Some(key) = &block.key {
                running = after_block(running, key);
            }
        }
    }
}
