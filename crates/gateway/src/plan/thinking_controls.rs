//! Which thinking settings can be expressed: what a dialect has, and which of that a model accepts.

use throughline_canonical::{Effort, Show};
use throughline_codec::dialects::profile::{
    self, BudgetFor, EffortsFor, SwitchOn, ThinkingControls as DialectControls,
};

use crate::catalog::{Form, Model, Off, Shows};

/// The thinking settings that a model accepts in a dialect.
#[derive(Debug, Default)]
pub(crate) struct ThinkingControls {
    /// Thinking can be turned off.
    pub(crate) off: bool,
    /// Thinking can be turned off except between tool calls.
    pub(crate) between_tools: bool,
    /// Thinking can be turned on without an amount.
    pub(crate) on: bool,
    /// The model can be asked to decide itself how much to think.
    pub(crate) automatic: bool,
    /// There is no setting, because every model of this server thinks.
    pub(crate) always: bool,
    /// The accepted efforts, in order.
    pub(crate) efforts: Vec<Effort>,
    /// A budget in tokens is accepted.
    pub(crate) budget: bool,
    /// An effort is sent even if the model thinks by default, because other settings depend on it.
    pub(crate) sends_effort: bool,
    /// A setting is always sent, because the server decides itself without one.
    pub(crate) always_sent: bool,
    /// The setting has a mode: an effort needs adaptive thinking, and without a mode thinking
    /// cannot be shown.
    pub(crate) has_modes: bool,
}

impl ThinkingControls {
    /// The settings of a dialect that a model accepts.
    pub(crate) fn new(dialect: &DialectControls, model: &Model) -> Self {
        let form = model.thinking;
        // A model that always thinks cannot be switched on.
        let can_switch = !model.only_thinks();
        let ungraded = matches!(form, Some(Form::Budget | Form::Switch));
        let budgeted = match form {
            None | Some(Form::Budget) => true,
            Some(Form::Adaptive) => !model.refuses_budget,
            _ => false,
        };
        let has_efforts = match dialect.efforts_for {
            EffortsFor::Graded => !ungraded,
            EffortsFor::AllButSwitches => form != Some(Form::Switch),
        };
        Self {
            off: dialect.off && model.off == Off::Disabled,
            between_tools: dialect.between_tools,
            on: match dialect.on {
                SwitchOn::Never => false,
                SwitchOn::Always => true,
                SwitchOn::IfNotFixed => can_switch,
                SwitchOn::IfUngraded => can_switch && ungraded,
            },
            automatic: dialect.automatic.contains(&form),
            always: dialect.always,
            efforts: match has_efforts {
                true => shared_efforts(dialect.efforts, &model.efforts),
                false => Vec::new(),
            },
            budget: match dialect.budget {
                BudgetFor::NoModel => false,
                BudgetFor::Budgeted => budgeted,
                BudgetFor::BudgetedOrSwitches => budgeted || form == Some(Form::Switch),
            },
            sends_effort: dialect.writes_effort,
            always_sent: dialect.always_written,
            has_modes: dialect.modes,
        }
    }
}

/// The most that a model shows of its thinking on request.
pub(crate) fn shows(dialect: &DialectControls, model: &Model) -> Option<Show> {
    match (dialect.shows, model.shows) {
        (_, Some(Shows::Nothing)) | (profile::Shows::Nothing, _) => None,
        (profile::Shows::Full, _) => Some(Show::Full),
        (profile::Shows::Summary, _) => Some(Show::Summary),
        (profile::Shows::FullOrModel, Some(Shows::Summary)) => Some(Show::Summary),
        (profile::Shows::FullOrModel, _) => Some(Show::Full),
        (profile::Shows::SummaryOrModel, Some(Shows::Full)) => Some(Show::Full),
        (profile::Shows::SummaryOrModel, _) => Some(Show::Summary),
    }
}

/// The efforts that dialect and model share. The dialect's if the model is unknown.
fn shared_efforts(dialect: &[Effort], model: &[Effort]) -> Vec<Effort> {
    let both: Vec<Effort> =
        dialect.iter().copied().filter(|effort| model.contains(effort)).collect();
    match both.is_empty() {
        true => dialect.to_vec(),
        false => both,
    }
}
