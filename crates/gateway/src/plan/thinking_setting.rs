//! Adapts the settings of a request to a model: how much it thinks, what is shown, the output
//! limit, sampling and tool choice. What a model accepts is in the catalog; what its dialect can
//! express is in `thinking_controls`.
//!
//! A setting that the model does not accept becomes the nearest one, and a loss reports it. A
//! different form with the same meaning is no loss. Budgets and efforts are converted by the table
//! of [`Effort::budget`].
//!
//! | requested | by budget | adaptive | by effort or level | a switch | does not think |
//! |---|---|---|---|---|---|
//! | off | off, else the least | off, else the least | off, else the least | off, else nothing | nothing |
//! | on | automatic, else that of `medium` | adaptive | `medium`, or the model's default | on | nothing, a loss |
//! | effort | its budget, a loss | adaptive around it | it, or the nearest | on, a loss | nothing, a loss |
//! | budget | it, within bounds | it, else adaptive around its effort | its effort, a loss | on, a loss | nothing, a loss |
//! | adaptive | automatic, else a budget | adaptive | its effort, or as `on` | on | nothing, a loss |
//!
//! "Else" is also a loss if the meaning differs. An unknown model accepts all of these, as far as
//! the dialect can express them.

use throughline_canonical::{
    Amount, Effort, Loss, LossReason, LossSubject, Request, Show, ToolChoice,
};
use throughline_codec::dialects::blocks;
use throughline_codec::dialects::blocks::settings::{forget_between_tools, thinks_between_tools};
use throughline_codec::dialects::profile::{Profile, ThinkingControls as DialectControls};

use crate::catalog::{ForcedTools, Form, Model, Off, ResponsesForTools, Sampling, Shows};
use crate::plan::thinking_controls::{ThinkingControls, shows};

/// The assumed output limit of an unknown model. All recent models accept it, and a smaller one
/// would cut answers.
const ASSUMED_OUTPUT: u64 = 32_000;

/// Adapts the settings of a request to a model in this dialect and variant. Returns the losses.
pub(crate) fn adapt(request: &mut Request, model: &Model, profile: &Profile) -> Vec<Loss> {
    let mut adapter = SettingAdapter::new(model, &profile.thinking);
    let wanted = wants_thinking(request);
    adapter.adapt_output_limit(request);
    adapter.adapt_amount(request, wanted);
    adapter.adapt_show(request, wanted);
    adapter.adapt_dependent_settings(request);
    adapter.losses
}

/// Adapts all settings except thinking, which the operator has configured.
pub(crate) fn adapt_except_thinking(
    request: &mut Request,
    model: &Model,
    profile: &Profile,
) -> Vec<Loss> {
    let mut adapter = SettingAdapter::new(model, &profile.thinking);
    adapter.adapt_output_limit(request);
    adapter.adapt_dependent_settings(request);
    adapter.losses
}

/// Whether a request for one of OpenAI's models must use the Responses dialect. Some models refuse
/// tools in Chat Completions, always or while they think.
pub(crate) fn wants_responses(request: &Request, model: &Model) -> bool {
    let needed = match model.responses_for_tools {
        ResponsesForTools::Never => false,
        // Their default differs, and Responses accepts both.
        ResponsesForTools::Thinking => request.thinking.amount != Some(Amount::Off),
        ResponsesForTools::Always => true,
    };
    needed && !request.tools.is_empty()
}

/// Whether a client asked for reasoning. Asking to see it counts.
fn wants_thinking(request: &Request) -> bool {
    let thinking = &request.thinking;
    let sees = matches!(thinking.show, Some(Show::Full | Show::Summary));
    thinking.is_wanted() || sees && thinking.amount.is_none()
}

struct SettingAdapter<'a> {
    model: &'a Model,
    dialect: &'a DialectControls,
    controls: ThinkingControls,
    losses: Vec<Loss>,
}

impl<'a> SettingAdapter<'a> {
    fn new(model: &'a Model, dialect: &'a DialectControls) -> Self {
        let controls = ThinkingControls::new(dialect, model);
        Self { model, controls, dialect, losses: Vec::new() }
    }

    /// Adapts the settings that depend on the amount of thinking.
    fn adapt_dependent_settings(&mut self, request: &mut Request) {
        self.adapt_sampling(request);
        self.adapt_tool_choice(request);
    }

    fn adapted(&mut self, setting: LossSubject, reason: LossReason) {
        let loss = Loss::SettingAdapted { setting, reason };
        if !self.losses.contains(&loss) {
            self.losses.push(loss);
        }
    }

    /// Adapts the output limit.
    fn adapt_output_limit(&mut self, request: &mut Request) {
        match (request.max_tokens, self.model.max_output) {
            (Some(requested), Some(most)) if requested > most => {
                self.adapted(LossSubject::MaxTokens, LossReason::MaxOutput);
                request.max_tokens = Some(most);
            }
            // Without a limit, the client means the model's own.
            (None, Some(most)) if self.dialect.needs_max_tokens => request.max_tokens = Some(most),
            (None, None) if self.dialect.needs_max_tokens => {
                self.adapted(LossSubject::MaxTokens, LossReason::ModelUnknown);
                request.max_tokens = Some(ASSUMED_OUTPUT);
            }
            _ => {}
        }
    }

    fn adapt_amount(&mut self, request: &mut Request, wanted: bool) {
        let requested = match request.thinking.amount {
            Some(Amount::Budget { tokens: 0 }) => Some(Amount::Off),
            None if wanted => Some(Amount::On),
            amount => amount,
        };
        let Some(requested) = requested else {
            if self.controls.always_sent {
                request.thinking.amount = self.model_default();
            }
            // Without a mode, `show` cannot be sent either.
            let shows = self.controls.has_modes && request.thinking.show.is_some();
            if shows && self.controls.automatic && self.model.unasked {
                request.thinking.amount = Some(Amount::Adaptive { effort: None });
            }
            return;
        };
        if self.model.thinking == Some(Form::None) {
            if requested != Amount::Off {
                self.adapted(LossSubject::Thinking, LossReason::ModelDoesNotThink);
            }
            request.thinking.amount = self.controls.always_sent.then_some(Amount::Off);
            return;
        }
        request.thinking.amount = match requested {
            Amount::Off => self.turn_off(request),
            Amount::On => self.turn_on(false),
            Amount::Adaptive { effort: None } => self.turn_on(true),
            Amount::Effort { effort } | Amount::Adaptive { effort: Some(effort) } => {
                self.effort(effort)
            }
            Amount::Budget { tokens } => self.budget(tokens),
        };
        if let Some(Amount::Budget { tokens }) = request.thinking.amount {
            let ours = !matches!(requested, Amount::Budget { .. });
            self.fit_budget(tokens, ours, request);
        }
    }

    /// The default of the model, if it must be sent. `None` if it is not known.
    fn model_default(&self) -> Option<Amount> {
        match self.model.thinking? {
            Form::None => Some(Amount::Off),
            _ if self.model.unasked => Some(Amount::On),
            _ => Some(Amount::Off),
        }
    }

    fn turn_off(&mut self, request: &mut Request) -> Option<Amount> {
        let between_tools = thinks_between_tools(request);
        if self.controls.off {
            // Only one kind of model has that mode, and it has no other.
            if between_tools && self.controls.between_tools && self.model.thinking.is_some() {
                forget_between_tools(request);
                self.adapted(LossSubject::Thinking, LossReason::Disabled);
            }
            return Some(Amount::Off);
        }
        if self.model.off == Off::BetweenTools && self.controls.between_tools {
            if !between_tools {
                self.adapted(LossSubject::Thinking, LossReason::BetweenTools);
                blocks::think_between_tools(request);
            }
            return Some(Amount::Off);
        }
        self.adapted(LossSubject::Thinking, LossReason::AlwaysThinks);
        match self.controls.efforts.first() {
            Some(least) => Some(self.effort_amount(*least)),
            None if self.controls.budget => Some(Amount::Budget { tokens: self.min_budget() }),
            None => None,
        }
    }

    /// Turns thinking on with the usual amount: the model's choice, if that can be expressed.
    fn turn_on(&mut self, adaptive: bool) -> Option<Amount> {
        if self.controls.automatic {
            return Some(Amount::Adaptive { effort: None });
        }
        if self.controls.on {
            return Some(Amount::On);
        }
        let silent =
            !(self.controls.has_modes || self.controls.sends_effort || self.dialect.passes_on);
        if self.controls.always || self.model.unasked && silent {
            return None;
        }
        if let Some(medium) = Effort::Medium.nearest(&self.controls.efforts) {
            return Some(self.effort_amount(medium));
        }
        if !self.controls.budget {
            self.adapted(LossSubject::Thinking, LossReason::CannotBeSet);
            return None;
        }
        if adaptive {
            self.adapted(LossSubject::Thinking, LossReason::AdaptiveAsBudget);
        }
        Some(Amount::Budget { tokens: Effort::Medium.budget() })
    }

    fn effort(&mut self, requested: Effort) -> Option<Amount> {
        if let Some(near) = requested.nearest(&self.controls.efforts) {
            if near != requested {
                self.adapted(LossSubject::Thinking, LossReason::Effort);
            }
            return Some(self.effort_amount(near));
        }
        if self.controls.budget {
            self.adapted(LossSubject::Thinking, LossReason::EffortAsBudget);
            return Some(Amount::Budget { tokens: requested.budget() });
        }
        self.switch_on_only()
    }

    fn budget(&mut self, tokens: u64) -> Option<Amount> {
        if self.controls.budget {
            return Some(Amount::Budget { tokens });
        }
        match Effort::of_budget(tokens).nearest(&self.controls.efforts) {
            Some(near) => {
                self.adapted(LossSubject::Thinking, LossReason::BudgetAsEffort);
                Some(self.effort_amount(near))
            }
            None => self.switch_on_only(),
        }
    }

    /// Only "on" can be expressed, not the amount.
    fn switch_on_only(&mut self) -> Option<Amount> {
        self.adapted(LossSubject::Thinking, LossReason::OnOrOff);
        self.controls.on.then_some(Amount::On)
    }

    /// An effort in the form of the dialect.
    fn effort_amount(&self, effort: Effort) -> Amount {
        match self.controls.has_modes {
            true => Amount::Adaptive { effort: Some(effort) },
            false => Amount::Effort { effort },
        }
    }

    fn min_budget(&self) -> u64 {
        self.model.budget_min.max(self.dialect.min_budget)
    }

    /// Moves a budget into the model's range and below the output limit. The limit is the caller's
    /// word, so it stays: the budget shrinks, and without room for the least one the model does not
    /// think.
    fn fit_budget(&mut self, requested: u64, ours: bool, request: &mut Request) {
        let least = self.min_budget();
        let most = self.model.budget_max.unwrap_or(u64::MAX).max(least);
        let mut tokens = requested.clamp(least, most);
        if tokens != requested && !ours {
            self.adapted(LossSubject::Thinking, LossReason::BudgetRange);
        }
        let must_fit = self.dialect.budget_below_limit || self.model.budget_below_limit;
        // If thinking counts towards the output, a budget of the gateway leaves room for the
        // answer.
        let should_fit = must_fit || ours && self.dialect.shares_limit;
        if let Some(limit) = request.max_tokens
            && should_fit
            && tokens >= limit
        {
            let share = thinking_share(limit);
            if share >= least.max(1) {
                tokens = share;
            } else if must_fit && least < limit {
                tokens = least;
            } else if must_fit {
                self.adapted(LossSubject::Thinking, LossReason::MaxTokens);
                request.thinking.amount = self.controls.off.then_some(Amount::Off);
                return;
            }
            if !ours {
                self.adapted(LossSubject::Thinking, LossReason::MaxTokens);
            }
        }
        request.thinking.amount = Some(Amount::Budget { tokens });
    }

    /// Adapts what is shown. A client that asked for reasoning gets as much as there is.
    fn adapt_show(&mut self, request: &mut Request, wanted: bool) {
        let thinking = &mut request.thinking;
        if !self.will_think(thinking.amount) {
            // An unknown model may still think.
            let known = self.model.thinking.is_some() || thinking.amount.is_some();
            if known || self.controls.has_modes {
                thinking.show = None;
            }
            return;
        }
        let offered = shows(self.dialect, self.model);
        match (thinking.show, offered) {
            (None, offered) if wanted => thinking.show = offered,
            (Some(Show::Summary), Some(Show::Full)) => thinking.show = Some(Show::Full),
            (Some(Show::Full), Some(Show::Summary)) if !self.dialect.has_details => {
                thinking.show = Some(Show::Summary);
                self.adapted(LossSubject::ThinkingShow, LossReason::Summaries);
            }
            (Some(Show::Summary | Show::Full), None)
                if self.model.shows == Some(Shows::Nothing) =>
            {
                thinking.show = None;
                self.adapted(LossSubject::ThinkingShow, LossReason::NotShown);
            }
            _ => {}
        }
    }

    /// Whether the model will think.
    fn will_think(&self, amount: Option<Amount>) -> bool {
        match (self.model.thinking, amount) {
            (Some(Form::None), _) => false,
            (_, Some(Amount::Off)) => self.model.off != Off::Disabled,
            (_, Some(_)) => true,
            (_, None) => self.model.unasked,
        }
    }

    fn adapt_sampling(&mut self, request: &mut Request) {
        let thinks = self.will_think(request.thinking.amount);
        let rule = match self.model.sampling {
            // Claude under another name does not accept it either.
            Sampling::Free
                if self.model.thinking.is_none() && self.dialect.no_sampling_while_thinking =>
            {
                Sampling::NotThinking
            }
            rule => rule,
        };
        let sampling = &mut request.sampling;
        let reason = match rule {
            Sampling::Free => return,
            Sampling::Never => LossReason::Model,
            Sampling::NotThinking | Sampling::Warm if !thinks => return,
            Sampling::NotThinking => LossReason::Thinking,
            Sampling::Warm => {
                if sampling.temperature.is_some_and(|heat| heat < 1.0) {
                    sampling.temperature = None;
                    self.adapted(LossSubject::Temperature, LossReason::Thinking);
                }
                return;
            }
        };
        let gone = [
            (LossSubject::Temperature, sampling.temperature.take().is_some()),
            (LossSubject::TopP, sampling.top_p.take().is_some()),
            (LossSubject::TopK, sampling.top_k.take().is_some()),
        ];
        for (setting, _) in gone.into_iter().filter(|(_, was_set)| *was_set) {
            self.adapted(setting, reason);
        }
    }

    fn adapt_tool_choice(&mut self, request: &mut Request) {
        let Some(ToolChoice::Required | ToolChoice::Named { .. }) = request.tool_choice else {
            return;
        };
        let amount = request.thinking.amount;
        let refused = match self.model.forced_tools {
            ForcedTools::Free => false,
            ForcedTools::NotWithBudget => matches!(amount, Some(Amount::Budget { .. })),
            ForcedTools::NotThinking => self.will_think(amount),
        };
        if refused {
            request.tool_choice = Some(ToolChoice::Auto);
            self.adapted(LossSubject::ToolChoice, LossReason::Thinking);
        }
    }
}

/// The part of a limit that thinking may use, so that some remains for the answer.
fn thinking_share(limit: u64) -> u64 {
    limit - limit.div_ceil(5)
}

#[cfg(test)]
mod tests;
