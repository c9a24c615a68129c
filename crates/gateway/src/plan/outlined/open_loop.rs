//! Repairs an open tool loop that the target would refuse because its thinking is missing.

use throughline_canonical::{Fate, LossReason, LossSubject};
use throughline_codec::dialects::blocks::rewrite::ThinkingEdit;

use crate::catalog::Off;
use crate::plan::outlined::fates::{first_in_body, is_thinking, of_message};
use crate::plan::outlined::settings::adapted;
use crate::plan::outlined::{OutlinedPlan, Planner, turn_start};
use crate::upstream::refusal_policy::RetryPlan;

impl Planner<'_> {
    /// With manual thinking, an open tool loop must begin with a thinking block. If that block was
    /// left out, this request goes without thinking, or the loop is rewritten as text.
    pub(crate) fn repair_open_loop(&self, plan: &mut OutlinedPlan) {
        let Some(call) = self.outline.open_tool_loop() else {
            return;
        };
        let start = turn_start(&self.outline.messages, call);
        let manual = plan.thinking.mode(self.outline) == Some("enabled");
        let omitted =
            plan.blocks.iter().any(|block| block.message >= start && block.fate == Fate::LeftOut);
        let begins = self.outline.messages[call]
            .blocks()
            .get(first_in_body(of_message(&plan.blocks, call)))
            .is_some_and(is_thinking);
        let omitted = omitted || plan.withholds_from(start) || self.dropped.is_foreign_loop;
        let needed = self.retry == RetryPlan::ThinkingOff || manual && omitted && !begins;
        if needed && self.model.off == Off::Disabled {
            plan.thinking = ThinkingEdit::Disabled;
            plan.betas_added.clear();
            plan.decision.losses.push(adapted(LossSubject::Thinking, LossReason::OpenToolLoop));
        } else if needed {
            plan.close_loop_from = Some(start);
        }
    }
}
