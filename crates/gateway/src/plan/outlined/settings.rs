//! Adapts settings that the target does not accept: as the operator configured, or, if the model is
//! not the one that the client named, as the catalog says. All other requests keep their settings.

use throughline_canonical::{Amount, Effort, Loss, LossReason, LossSubject, Request};
use throughline_codec::dialects::blocks::BETA_INTERLEAVED;
use throughline_codec::dialects::blocks::rewrite::ThinkingEdit;
use throughline_codec::dialects::blocks::settings::{self, thinks_between_tools};

use crate::backend::Compat;
use crate::catalog::Off;
use crate::plan::outlined::{OutlinedPlan, Planner};
use crate::plan::thinking_setting;

/// The smallest budget that providers accept.
const MIN_BUDGET: u64 = 1024;
/// The budget if neither the operator nor the request limits it.
const DEFAULT_BUDGET: u64 = 8192;
/// The efforts that every model with efforts accepts.
const ANY_KNOWS: [Effort; 3] = [Effort::Low, Effort::Medium, Effort::High];

impl Planner<'_> {
    /// Changes the settings that the backend or its model does not accept.
    pub(crate) fn adapt_settings(&self, plan: &mut OutlinedPlan) {
        if let Some(compat) = self.backend.compat {
            self.apply_compat(compat, plan);
        }
        if plan.asked_model.is_none() {
            return;
        }
        // The client chose its settings for the model it named, and the gateway replaced that
        // model.
        if let Some(client) = settings::read(self.body, self.outline) {
            match self.backend.compat {
                Some(_) => self.adapt_other_settings(&client, plan),
                None => self.adapt_to_model(&client, plan),
            }
        }
    }

    /// Changes the thinking setting to the only form that the backend accepts.
    fn apply_compat(&self, compat: Compat, plan: &mut OutlinedPlan) {
        let Some(thinking) = &self.outline.thinking else {
            return;
        };
        match (compat, thinking.mode.as_str()) {
            // Off is the nearest setting. Never think more than the client asked for.
            (Compat::Budget(_), "between_tools") if self.model.off == Off::Disabled => {
                plan.thinking = ThinkingEdit::Disabled;
                plan.decision
                    .losses
                    .push(adapted(LossSubject::Thinking, LossReason::ThinkingCompat));
            }
            (Compat::Budget(wanted), "adaptive" | "between_tools") => {
                plan.betas_without_adaptive = true;
                let room = self.outline.max_tokens.map(|most| most.saturating_sub(1));
                let budget = match (wanted, room) {
                    (Some(wanted), Some(room)) => wanted.min(room),
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => DEFAULT_BUDGET,
                };
                if budget < MIN_BUDGET {
                    // There is no room for a budget that providers accept.
                    plan.thinking = ThinkingEdit::Remove;
                    plan.decision
                        .losses
                        .push(adapted(LossSubject::Thinking, LossReason::MaxTokens));
                } else {
                    plan.thinking = ThinkingEdit::Budget(budget);
                    plan.betas_added.push(BETA_INTERLEAVED);
                    plan.decision
                        .losses
                        .push(adapted(LossSubject::Thinking, LossReason::ThinkingCompat));
                }
            }
            (Compat::Adaptive, "enabled") => {
                plan.thinking = ThinkingEdit::Adaptive;
                plan.decision
                    .losses
                    .push(adapted(LossSubject::Thinking, LossReason::ThinkingCompat));
                let effort = thinking
                    .budget
                    .and_then(|budget| Effort::of_budget(budget).nearest(&ANY_KNOWS))
                    .unwrap_or(Effort::High);
                plan.effort = self.outline.effort.is_none().then_some(effort.word());
            }
            (Compat::Off, _) => {
                plan.thinking = ThinkingEdit::Remove;
                plan.decision
                    .losses
                    .push(adapted(LossSubject::Thinking, LossReason::ThinkingCompat));
            }
            _ => {}
        }
    }

    /// Adapts the other settings to the thinking mode that the operator chose.
    fn adapt_other_settings(&self, client: &Request, plan: &mut OutlinedPlan) {
        let mut before = client.clone();
        match plan.thinking {
            ThinkingEdit::Budget(tokens) => {
                before.thinking.amount = Some(Amount::Budget { tokens });
            }
            ThinkingEdit::Adaptive => {
                before.thinking.amount = Some(Amount::Adaptive { effort: None });
            }
            ThinkingEdit::Remove => before.thinking.amount = None,
            _ => {}
        }
        let mut after = before.clone();
        let losses =
            thinking_setting::adapt_except_thinking(&mut after, self.model, self.backend.profile);
        self.record_changes(&before, after, losses, plan);
    }

    /// Adapts all settings to the model.
    fn adapt_to_model(&self, client: &Request, plan: &mut OutlinedPlan) {
        let mut after = client.clone();
        let mut losses = thinking_setting::adapt(&mut after, self.model, self.backend.profile);
        if let Some(Amount::Effort { .. }) = client.thinking.amount {
            effort_alone(&mut after, &mut losses);
        }
        // Only models with adaptive thinking hide it unless the request asks to show it.
        let adaptive = matches!(after.thinking.amount, Some(Amount::Adaptive { .. }));
        if client.thinking.amount == after.thinking.amount || !adaptive {
            after.thinking.show = client.thinking.show;
        }
        let by_itself = matches!(client.thinking.amount, Some(Amount::Adaptive { .. }));
        if by_itself && !adaptive {
            plan.betas_without_adaptive = true;
            if let Some(Amount::Budget { .. }) = after.thinking.amount {
                // Adaptive thinking also continues between tool calls.
                plan.betas_added.push(BETA_INTERLEAVED);
            }
        }
        self.record_changes(client, after, losses, plan);
    }

    /// Turns changed settings into edits and records their losses.
    fn record_changes(
        &self,
        before: &Request,
        mut after: Request,
        losses: Vec<Loss>,
        plan: &mut OutlinedPlan,
    ) {
        if before.max_tokens.is_none() {
            // Do not add a limit that the client did not set. Token counts have none.
            after.max_tokens = None;
        }
        let is_unset_limit = |loss: &Loss| match loss {
            Loss::SettingAdapted { setting, .. } => {
                *setting == LossSubject::MaxTokens && before.max_tokens.is_none()
            }
            _ => false,
        };
        plan.decision.losses.extend(losses.into_iter().filter(|loss| !is_unset_limit(loss)));
        for (name, value) in settings::changes(before, &after) {
            match (name, value) {
                ("thinking", Some(value)) => {
                    let mode = mode(&after);
                    plan.thinking = ThinkingEdit::Written { value, mode };
                }
                ("thinking", None) => plan.thinking = ThinkingEdit::Remove,
                change => plan.settings.push(change),
            }
        }
    }
}

/// An effort alone is about the answer and does not turn thinking on.
fn effort_alone(after: &mut Request, losses: &mut Vec<Loss>) {
    match after.thinking.amount {
        Some(Amount::Adaptive { effort: Some(effort) }) => {
            after.thinking.amount = Some(Amount::Effort { effort });
        }
        Some(Amount::Budget { .. }) => {
            after.thinking.amount = None;
            losses
                .retain(|loss| *loss != adapted(LossSubject::Thinking, LossReason::EffortAsBudget));
            losses.push(adapted(LossSubject::Effort, LossReason::NotKnown));
        }
        _ => {}
    }
}

/// The `thinking.type` of a setting.
fn mode(request: &Request) -> &'static str {
    match request.thinking.amount {
        Some(Amount::Budget { .. }) => "enabled",
        Some(Amount::On | Amount::Adaptive { .. }) => "adaptive",
        Some(Amount::Off) if thinks_between_tools(request) => "between_tools",
        Some(Amount::Off) => "disabled",
        Some(Amount::Effort { .. }) | None => "",
    }
}

pub(crate) fn adapted(setting: LossSubject, reason: LossReason) -> Loss {
    Loss::SettingAdapted { setting, reason }
}
