//! What can be said of thinking: what a dialect has words for, and what of that a model takes.

use throughline_canonical::{Effort, Show};
use throughline_codec::dialects::ollama;
use throughline_codec::dialects::openai_chat::variants::{self, Setting, Variant};

use crate::catalog::{Form, Model, Off, Shows};

/// The least budget that servers of Anthropic's dialect take.
const MIN_BUDGET: u64 = 1024;

/// A dialect, as far as settings go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Dialect {
    /// `thinking` with its modes, and an effort beside it.
    Anthropic,
    /// A level, or a budget.
    Gemini,
    /// On or off, or a level.
    Ollama,
    /// An effort.
    Responses,
    /// Whatever this kind of server takes.
    Chat(&'static Variant),
}

/// What a model can be told of its thinking, in a dialect.
#[derive(Debug, Default)]
pub(crate) struct ThinkingControls {
    /// That it be off.
    pub(crate) off: bool,
    /// That it be off but for notes between calls of tools.
    pub(crate) between_tools: bool,
    /// That it be on, and no more.
    pub(crate) on: bool,
    /// That it be as the model finds right.
    pub(crate) automatic: bool,
    /// Nothing: whatever model is there, it thinks.
    pub(crate) always: bool,
    /// Efforts, in their order.
    pub(crate) efforts: Vec<Effort>,
    /// A budget.
    pub(crate) budget: bool,
    /// An effort is said also of a model that thinks unasked: other words go by it.
    pub(crate) says_effort: bool,
    /// Something is said in any case: a server that hears nothing decides by itself.
    pub(crate) said: bool,
    /// The dialect says a mode: an effort goes with adaptive thinking, and where no mode is said
    /// nothing is shown.
    pub(crate) modes: bool,
}

impl Dialect {
    /// The dialect of this name. Those that are none of the others take after Chat Completions.
    pub(crate) fn find(upstream: &str, variant: &str) -> Self {
        match upstream {
            "anthropic" | "simulator" => Self::Anthropic,
            "gemini" => Self::Gemini,
            "ollama" => Self::Ollama,
            "openai_responses" => Self::Responses,
            _ => Self::Chat(variants::find(variant)),
        }
    }

    /// Whether it is Anthropic's, where a request must limit its output, and a budget has a least
    /// and is less than that limit, whatever the model.
    pub(crate) fn is_anthropic(self) -> bool {
        matches!(self, Self::Anthropic)
    }

    /// Whether the server stands before another, which hears only what is said here.
    pub(crate) fn hands_on(self) -> bool {
        matches!(self, Self::Chat(server) if server.setting == Setting::Blocks)
    }

    /// The least budget, of whatever model.
    pub(crate) fn least_budget(self) -> u64 {
        if self.is_anthropic() { MIN_BUDGET } else { 1 }
    }

    /// Whether thinking uses up the limit of the output, though a budget beyond that is taken.
    pub(crate) fn shares_limit(self) -> bool {
        match self {
            Self::Gemini => true,
            Self::Chat(server) => server.setting == Setting::Config,
            _ => false,
        }
    }

    /// Whether it has a word for all there is to show besides that for a summary.
    pub(crate) fn has_details(self) -> bool {
        matches!(self, Self::Responses)
    }

    /// What a model can be told.
    pub(crate) fn controls(self, model: &Model) -> ThinkingControls {
        use Form::{Adaptive, Budget, Switch};
        let form = model.thinking;
        let off = model.off == Off::Disabled;
        // Of a model that does nothing but think there is nothing to say.
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
        let told = ThinkingControls { off, ..ThinkingControls::default() };
        match self {
            Self::Anthropic => ThinkingControls {
                between_tools: true,
                automatic: matches!(form, None | Some(Adaptive)),
                efforts: efforts(graded, &Effort::ALL[1..]),
                // Other models than Claude that are on or off are so here.
                budget: budget || form == Some(Switch),
                modes: true,
                ..told
            },
            Self::Gemini => ThinkingControls {
                automatic: matches!(form, None | Some(Budget)),
                efforts: efforts(graded, &Effort::ALL[..4]),
                budget,
                ..told
            },
            Self::Ollama => ThinkingControls {
                on: true,
                efforts: efforts(graded, &ollama::LEVELS),
                said: true,
                ..told
            },
            Self::Responses => {
                ThinkingControls { efforts: efforts(form != Some(Switch), &Effort::ALL), ..told }
            }
            Self::Chat(server) => match server.setting {
                // A server in between knows what an effort is for a model that takes budgets.
                Setting::Effort => ThinkingControls {
                    efforts: efforts(form != Some(Switch), server.efforts),
                    ..told
                },
                // Models with efforts are told those, all others that they think.
                Setting::Format => ThinkingControls {
                    on: on && matches!(form, Some(Budget | Switch)),
                    efforts: efforts(graded, server.efforts),
                    says_effort: true,
                    ..told
                },
                Setting::Config => ThinkingControls {
                    on,
                    efforts: efforts(graded, server.efforts),
                    budget,
                    ..told
                },
                Setting::Switch | Setting::Template => {
                    ThinkingControls { on, efforts: efforts(graded, server.efforts), ..told }
                }
                Setting::Enable => ThinkingControls { on, budget, ..told },
                Setting::Object => ThinkingControls {
                    on,
                    efforts: efforts(form != Some(Switch), server.efforts),
                    budget,
                    ..told
                },
                Setting::Blocks => ThinkingControls {
                    efforts: efforts(form != Some(Switch), server.efforts),
                    budget,
                    ..told
                },
                Setting::Always => ThinkingControls { always: true, ..ThinkingControls::default() },
            },
        }
    }

    /// The most that is shown of a model's thinking to those who ask.
    pub(crate) fn shows(self, model: &Model) -> Option<Show> {
        match (self, model.shows) {
            (_, Some(Shows::Nothing)) => None,
            (Self::Anthropic, Some(Shows::Full)) => Some(Show::Full),
            (Self::Anthropic | Self::Gemini | Self::Responses, _) => Some(Show::Summary),
            (Self::Ollama, _) => Some(Show::Full),
            // OpenAI's own shows none here.
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

/// The efforts that dialect and model share; the dialect's, where nothing is known of the model.
fn shared(dialect: &[Effort], model: &[Effort]) -> Vec<Effort> {
    let both: Vec<Effort> =
        dialect.iter().copied().filter(|effort| model.contains(effort)).collect();
    match both.is_empty() {
        true => dialect.to_vec(),
        false => both,
    }
}
