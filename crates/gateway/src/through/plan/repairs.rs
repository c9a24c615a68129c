//! What a target needs besides the right blocks: a thinking setting it knows, and no tool loop that it
//! must refuse.

use throughline_canonical::{Effort, Fate, Loss};
use throughline_codec::dialects::anthropic::BETA_INTERLEAVED;
use throughline_codec::dialects::anthropic::rewrite::ThinkingEdit;

use super::fates::{first_in_body, is_thinking, of_message};
use super::{Again, Plan, Planner, turn_start};
use crate::backend::Compat;
use crate::catalog::{Form, Off};

/// The least budget a provider takes.
const LEAST_BUDGET: u64 = 1024;
/// The budget where neither the operator nor the request bounds it.
const PLAIN_BUDGET: u64 = 8192;
/// The efforts that every model knows that knows any.
const ANY_KNOWS: [Effort; 3] = [Effort::Low, Effort::Medium, Effort::High];

impl Planner<'_> {
    /// Changes the thinking setting to the one form the backend knows.
    pub(super) fn adapt_thinking(&self, plan: &mut Plan) {
        let compat = self.backend.compat.or_else(|| self.implied_compat(plan));
        let (Some(thinking), Some(compat)) = (&self.outline.thinking, compat) else {
            return;
        };
        match (compat, thinking.mode.as_str()) {
            (Compat::Budget(wanted), "adaptive" | "between_tools") => {
                plan.betas_without_adaptive = true;
                let room = self.outline.max_tokens.map(|most| most.saturating_sub(1));
                let budget = match (wanted, room) {
                    (Some(wanted), Some(room)) => wanted.min(room),
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => PLAIN_BUDGET,
                };
                if budget < LEAST_BUDGET {
                    // There is no room for any budget a provider takes.
                    plan.thinking = ThinkingEdit::Remove;
                    plan.losses.push(adapted("thinking", "max_tokens"));
                } else {
                    plan.thinking = ThinkingEdit::Budget(budget);
                    plan.betas_added.push(BETA_INTERLEAVED);
                    plan.losses.push(adapted("thinking", "thinking_compat"));
                }
            }
            (Compat::Adaptive, "enabled") => {
                plan.thinking = ThinkingEdit::Adaptive {
                    shown: self.backend.compat.is_none(),
                };
                plan.losses.push(adapted("thinking", "thinking_compat"));
                let effort = thinking
                    .budget
                    .and_then(|budget| Effort::of_budget(budget).nearest(&ANY_KNOWS))
                    .unwrap_or(Effort::High);
                plan.effort = self.outline.effort.is_none().then_some(effort.word());
            }
            (Compat::Off, _) => {
                plan.thinking = ThinkingEdit::Remove;
                plan.losses.push(adapted("thinking", "thinking_compat"));
            }
            _ => {}
        }
    }

    /// A client spells the setting for the model it named. Where that became another one by our doing,
    /// so does the setting.
    fn implied_compat(&self, plan: &Plan) -> Option<Compat> {
        plan.asked_model.as_ref()?;
        match self.model.thinking? {
            Form::Adaptive if self.model.refuses_budget => Some(Compat::Adaptive),
            Form::Budget => Some(Compat::Budget(None)),
            Form::None => Some(Compat::Off),
            _ => None,
        }
    }

    /// With manual thinking, an open tool loop must begin with a thinking block. If that block had
    /// to stay behind, this one request goes without thinking, or the loop is told as text.
    pub(super) fn repair_open_loop(&self, plan: &mut Plan) {
        let Some(call) = self.outline.open_tool_loop() else {
            return;
        };
        let start = turn_start(&self.outline.messages, call);
        let manual = match &plan.thinking {
            ThinkingEdit::Budget(_) => true,
            ThinkingEdit::Keep => self
                .outline
                .thinking
                .as_ref()
                .is_some_and(|thinking| thinking.mode == "enabled"),
            _ => false,
        };
        let omitted = plan
            .blocks
            .iter()
            .any(|block| block.message >= start && block.fate == Fate::LeftOut);
        let begins = self.outline.messages[call]
            .blocks()
            .get(first_in_body(of_message(&plan.blocks, call)))
            .is_some_and(is_thinking);
        let omitted = omitted || self.made_elsewhere;
        let needed = self.again == Again::ThinkingOff || manual && omitted && !begins;
        if needed && self.model.off == Off::Disabled {
            plan.thinking = ThinkingEdit::Disabled;
            plan.betas_added.clear();
            plan.losses.push(adapted("thinking", "open_tool_loop"));
        } else if needed {
            plan.tells_loop_from = Some(start);
        }
    }
}

fn adapted(setting: &'static str, reason: &'static str) -> Loss {
    Loss::SettingAdapted { setting, reason }
}
