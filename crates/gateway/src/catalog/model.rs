//! What is known about one model, and the values it has in the table. `rows` reads the table;
//! `plan::thinking_setting` applies it to a request.

use serde::{Deserialize, Serialize};
use throughline_canonical::Effort;
pub use throughline_canonical::ThinkingForm as Form;

use super::price::Price;

/// What is known about one model. The default is an unknown model: it refuses nothing, has no
/// limits and accepts whatever its dialect can express, so that a client's settings pass unchanged
/// and the provider decides. Many fields: each one is a column of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// The form of the thinking setting.
    pub thinking: Option<Form>,
    /// The efforts or levels that it accepts. Empty if unknown.
    pub efforts: Vec<Effort>,
    /// The smallest budget that it accepts.
    pub budget_min: u64,
    /// The largest budget that it accepts.
    pub budget_max: Option<u64>,
    /// Whether it refuses a budget although other models of its dialect accept one.
    pub refuses_budget: bool,
    /// Whether a budget must be below the output limit, in any dialect.
    pub budget_below_limit: bool,
    /// How its thinking is turned off.
    pub off: Off,
    /// Whether it thinks by default.
    pub unasked: bool,
    /// When it accepts sampling settings such as `temperature`.
    pub sampling: Sampling,
    /// When it can be forced to call a tool.
    pub forced_tools: ForcedTools,
    /// What it shows of its thinking on request.
    pub shows: Option<Shows>,
    /// When tools need OpenAI's Responses dialect.
    pub responses_for_tools: ResponsesForTools,
    /// Whether it refuses its own calls if their signature is missing.
    pub signatures_enforced: bool,
    /// Whether its thinking is bound to everything before it.
    pub preserved: bool,
    /// Whether its thinking is bound to the credential.
    pub account_bound: bool,
    /// Whether it accepts images.
    pub vision: bool,
    /// Whether it cannot call tools.
    pub lacks_tools: bool,
    /// The output limit in tokens, including thinking.
    pub max_output: Option<u64>,
    /// The context length in tokens.
    pub context: Option<u64>,
    /// What its tokens cost.
    pub price: Option<Price>,
}

/// How thinking is turned off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// By the dialect's setting for off.
    #[default]
    Disabled,
    /// Not completely: there is no thinking before the answer, but short notes between tool calls.
    BetweenTools,
    /// It cannot be turned off.
    Never,
}

/// When a model accepts sampling settings such as `temperature`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Always.
    #[default]
    Free,
    /// No `temperature` below 1 while it thinks.
    Warm,
    /// Only while it does not think.
    NotThinking,
    /// Never.
    Never,
}

/// When a model can be forced to call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedTools {
    /// Always.
    #[default]
    Free,
    /// Unless it thinks with a budget.
    NotWithBudget,
    /// Only while it does not think.
    NotThinking,
}

/// What a model shows of its thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shows {
    /// All of it.
    Full,
    /// A summary.
    Summary,
    /// Nothing.
    Nothing,
}

/// When tools need OpenAI's Responses dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponsesForTools {
    /// Never.
    #[default]
    Never,
    /// Unless thinking is off.
    Thinking,
    /// Always.
    Always,
}

impl Model {
    /// Whether it always thinks and accepts no setting.
    pub fn only_thinks(&self) -> bool {
        self.thinking == Some(Form::Switch) && self.off == Off::Never
    }
}
