//! What is known of one model, and the words for it in the table. How the table is read lives in
//! `rows`, what follows for a request in `across::setting`.

use serde::Deserialize;
use throughline_canonical::Effort;

/// What is known of one model. The default is for one of which nothing is known: it refuses
/// nothing, bounds nothing and offers whatever its dialect has a word for, so that a client's wish
/// goes on as it is and the provider has the last word.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Model {
    /// How thinking is asked for.
    pub thinking: Option<Form>,
    /// The efforts, or levels, it takes; empty if that is not known.
    pub efforts: Vec<Effort>,
    /// The least budget it takes.
    pub budget_min: u64,
    /// The largest budget it takes.
    pub budget_max: Option<u64>,
    /// It answers a budget with an error, though others of its dialect take one.
    pub refuses_budget: bool,
    /// A budget must be less than the limit of the output, in whatever dialect it is asked.
    pub budget_below_limit: bool,
    /// How its thinking is switched off.
    pub off: Off,
    /// It thinks when nothing is said of thinking.
    pub unasked: bool,
    /// When it takes temperature and the like.
    pub sampling: Sampling,
    /// When it can be made to call a tool.
    pub forced_tools: ForcedTools,
    /// What it shows of its thinking to those who ask.
    pub shows: Option<Shows>,
    /// When tools need OpenAI's Responses.
    pub responses_for_tools: ResponsesForTools,
    /// It refuses calls of its own that come back without their signature.
    pub signatures_enforced: bool,
    /// Its thinking is bound to everything before it.
    pub preserved: bool,
    /// Its thinking is bound to the credential.
    pub account_bound: bool,
    /// It sees pictures.
    pub vision: bool,
    /// The most tokens it writes, thinking included.
    pub max_output: Option<u64>,
    /// The most tokens it reads and writes.
    pub context: Option<u64>,
}

/// How thinking is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// By a number of tokens.
    Budget,
    /// The model decides, around an effort.
    Adaptive,
    /// By one of Gemini's levels.
    Level,
    /// By an effort.
    Effort,
    /// It is on or off, and no more can be said. One that cannot be off always thinks.
    Switch,
    /// It is not: the model does not think.
    None,
}

/// How thinking is switched off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Off {
    /// By its dialect's word for off.
    #[default]
    Disabled,
    /// Almost: nothing before the answer, short notes between calls of tools.
    BetweenTools,
    /// It is not.
    Never,
}

/// When a model takes temperature and the like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// Always.
    #[default]
    Free,
    /// While it thinks, no temperature below 1.
    Warm,
    /// While it does not think.
    NotThinking,
    /// Never.
    Never,
}

/// When a model can be made to call a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForcedTools {
    /// Always.
    #[default]
    Free,
    /// Unless it thinks by a budget.
    NotWithBudget,
    /// While it does not think.
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

/// When tools need OpenAI's Responses.
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
    /// Whether it thinks always, and nothing can be said of how much.
    pub fn only_thinks(&self) -> bool {
        self.thinking == Some(Form::Switch) && self.off == Off::Never
    }
}
