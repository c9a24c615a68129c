//! Which thinking settings can be expressed: what a dialect has, and which of that a model accepts.

use throughline_canonical::{Effort, Show};
use throughline_codec::dialects::ollama;
use throughline_codec::dialects::openai_chat::variants::{self, Setting, Variant};

use crate::catalog::{Form, Model, Off, Shows};

/// The smallest budget that servers of Anthropic's dialect accept.
const MIN_BUDGET: u64 = 1024;

/// A dialect, as far as thinking settings are concerned.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dialect {
    /// `thinking` with a mode, and a separate effort.
    Anthropic,
    /// A level, or a budget.
    Gemini,
    /// On or off, or a level.
    Ollama,
    /// An effort.
    Responses,
    /// The settings of this kind of server.
    Chat(&'static Variant),
}

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

impl Dialect {
    /// The dialect of this name. Unknown names count as Chat Completions.
    pub(crate) fn find(upstream: &str, variant: &str) -> Self {
        match upstream {
            "anthropic" | "simulator" => Self::Anthropic,
            "gemini" => Self::Gemini,
            "ollama" => Self::Ollama,
            "openai_responses" => Self::Responses,
            _ => Self::Chat(variants::find(variant)),
        }
    }

    /// Whether this is Anthropic's dialect. There a request must limit its output, and a budget has
    /// a minimum and must be below that limit.
    pub(crate) fn is_anthropic(self) -> bool {
        matches!(self, Self::Anthropic)
    }

    /// Whether the server is a proxy. The server after it sees only what is sent here.
    pub(crate) fn hands_on(self) -> bool {
        matches!(self, Self::Chat(server) if server.setting == Setting::Blocks)
    }

    /// The smallest budget that the dialect allows for any model.
    pub(crate) fn min_budget(self) -> u64 {
        if self.is_anthropic() { MIN_BUDGET } else { 1 }
    }

    /// Whether thinking counts towards the output limit although a larger budget is accepted.
    pub(crate) fn shares_limit(self) -> bool {
        match self {
            Self::Gemini => true,
            Self::Chat(server) => server.setting == Setting::Config,
            _ => false,
        }
    }

    /// Whether it can ask for full reasoning and for a summary separately.
    pub(crate) fn has_details(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// The settings that a model accepts.
    pub(crate) fn controls(self, model: &Model) -> ThinkingControls {
        use Form::{Adaptive, Budget, Switch};
        let form = model.thinking;
        let off = model.off == Off::Disabled;
        // A model that always thinks cannot be switched on.
        let on = !model.only_thinks();
        let graded = !matches!(form, Some(Budget | Switch));
        let budget = match form {
            None | Some(Budget) => true,
            Some(Adaptive) => !model.refuses_budget,
            _ => false,
        };
        let efforts = |when: bool, known: &[Effort]| match when {
            true => shared(known, &model.efforts),
            false => Vec::new(),
        };
        let base = ThinkingControls { off, ..ThinkingControls::default() };
        match self {
            Self::Anthropic => ThinkingControls {
                between_tools: true,
                automatic: matches!(form, None | Some(Adaptive)),
                efforts: efforts(graded, &Effort::ALL[1..]),
                // Models of other vendors that can only be on or off use a budget here.
                budget: budget || form == Some(Switch),
                has_modes: true,
                ..base
            },
            Self::Gemini => ThinkingControls {
                automatic: matches!(form, None | Some(Budget)),
                efforts: efforts(graded, &Effort::ALL[..4]),
                budget,
                ..base
            },
            Self::Ollama => ThinkingControls {
                on: true,
                efforts: efforts(graded, &ollama::LEVELS),
                always_sent: true,
                ..base
            },
            Self::Responses => {
                ThinkingControls { efforts: efforts(form != Some(Switch), &Effort::ALL), ..base }
            }
            Self::Chat(server) => match server.setting {
                // A proxy converts an effort for models that take budgets.
                Setting::Effort => ThinkingControls {
                    efforts: efforts(form != Some(Switch), server.efforts),
                    ..base
                },
                // Models with efforts get an effort. All others get only "on".
                Setting::Format => ThinkingControls {
                    on: on && matches!(form, Some(Budget | Switch)),
                    efforts: efforts(graded, server.efforts),
                    sends_effort: true,
                    ..base
                },
                Setting::Config => ThinkingControls {
                    on,
                    efforts: efforts(graded, server.efforts),
                    budget,
                    ..base
                },
                Setting::Switch | Setting::Template => {
                    ThinkingControls { on, efforts: efforts(graded, server.efforts), ..base }
                }
                Setting::Enable => ThinkingControls { on, budget, ..base },
                Setting::Object => ThinkingControls {
                    on,
                    efforts: efforts(form != Some(Switch), server.efforts),
                    budget,
                    ..base
                },
                Setting::Blocks => ThinkingControls {
                    efforts: efforts(form != Some(Switch), server.efforts),
                    budget,
                    ..base
                },
                Setting::Always => ThinkingControls { always: true, ..ThinkingControls::default() },
            },
        }
    }

    /// The most that a model shows of its thinking on request.
    pub(crate) fn shows(self, model: &Model) -> Option<Show> {
        match (self, model.shows) {
            (_, Some(Shows::Nothing)) => None,
            (Self::Anthropic, Some(Shows::Full)) => Some(Show::Full),
            (Self::Anthropic | Self::Gemini | Self::Responses, _) => Some(Show::Summary),
            (Self::Ollama, _) => Some(Show::Full),
            // OpenAI's own service shows none in this dialect.
            (Self::Chat(server), _) if server.official => None,
            (Self::Chat(server), Some(Shows::Summary))
                if matches!(server.setting, Setting::Object | Setting::Config) =>
            {
                Some(Show::Summary)
            }
            (Self::Chat(_), _) => Some(Show::Full),
        }
    }
}

/// The efforts that dialect and model share. The dialect's if the model is unknown.
fn shared(dialect: &[Effort], model: &[Effort]) -> Vec<Effort> {
    let both: Vec<Effort> =
        dialect.iter().copied().filter(|effort| model.contains(effort)).collect();
    match both.is_empty() {
        true => dialect.to_vec(),
        false => both,
    }
}
