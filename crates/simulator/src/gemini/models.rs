//! The models: how each one's thinking can be controlled, which depends on the generation and the
//! kind in its name.
//!
//! Refusals and the list of models use the same rules, so they agree.

use serde_json::{Value, json};

use crate::prompt_cache::Caching;

/// How a caller controls the thinking of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// By level; thinking cannot be switched off.
    Levels {
        /// Whether the lowest level, `MINIMAL`, exists.
        minimal: bool,
        /// Whether a budget is accepted too.
        budgets: bool,
    },
    /// By a budget between these bounds; zero switches thinking off if `off` is set.
    Budgets { least: i64, most: i64, off: bool },
    /// By level or budget; it thinks when the request asks for it.
    Any,
    /// It does not think.
    Never,
}

/// The rules of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    /// The name signatures are made under.
    pub(crate) family: &'static str,
    pub(crate) control: Control,
    pub(crate) thinks_by_default: bool,
    /// Refuses a step of the current turn whose first call has no signature.
    pub(crate) enforces: bool,
    /// Its calls have ids.
    pub(crate) ids: bool,
}

const LISTED: &[&str] = &[
    "gemini-4-argon",
    "gemini-4-carbon",
    "gemini-3.8-flash",
    "gemini-3.1-pro-preview",
    "gemini-3.1-flash-lite",
    "gemini-3-pro-preview",
    "gemini-3-flash-preview",
    "gemini-flash-latest",
    "gemini-2.5-pro",
    "gemini-2.5-flash",
    "gemini-2.5-flash-lite",
    "gemini-2.0-flash",
];

/// Models of other vendors behind this dialect.
const OTHER: Model = Model {
    family: "other",
    control: Control::Any,
    thinks_by_default: false,
    enforces: false,
    ids: true,
};

/// Models that no table of a gateway knows, and that accept less than others.
const UNKNOWN: [(&str, Control); 3] = [
    ("only-levels", Control::Levels { minimal: true, budgets: false }),
    ("only-budgets", Control::Budgets { least: 2048, most: 8192, off: false }),
    ("never-thinks", Control::Never),
];

impl Model {
    /// The rules for a model name, known or not.
    pub(crate) fn named(name: &str) -> Self {
        let name = name.to_lowercase();
        let Some((_, rest)) = name.split_once("gemini") else {
            let mut unknown = UNKNOWN.iter().filter(|(part, _)| name.contains(part));
            return unknown
                .next()
                .map_or(OTHER, |(_, control)| Self { control: *control, ..OTHER });
        };
        let rest = rest.trim_start_matches('-');
        let has = |word: &str| rest.split('-').any(|part| part == word);
        // A name without a number means the newest model, as `-latest` does.
        let version = version(rest);
        let lite = has("lite");
        match version {
            Some((4.., _)) => Self::current("gemini-4", !has("pro"), false),
            Some((3, minor)) => {
                let high = has("pro") || (has("flash") && !lite && minor >= 7);
                Self::current("gemini-3", !high, true)
            }
            None => Self::current("gemini-3", !has("pro") && (!has("flash") || lite), true),
            Some((2, 5..)) => Self {
                family: "gemini-2.5",
                control: if has("pro") {
                    Control::Budgets { least: 128, most: 32_768, off: false }
                } else {
                    Control::Budgets { least: 0, most: 24_576, off: true }
                },
                thinks_by_default: !lite,
                enforces: false,
                ids: false,
            },
            Some(_) => Self {
                family: "gemini-2",
                control: Control::Never,
                thinks_by_default: false,
                enforces: false,
                ids: false,
            },
        }
    }

    /// How its prompts are cached.
    pub(crate) fn caching(&self) -> Caching {
        let least = match self.family {
            "gemini-2.5" => 2048,
            _ => 4096,
        };
        Caching::Blocks { least, step: 128 }
    }

    fn current(family: &'static str, minimal: bool, budgets: bool) -> Self {
        Self {
            family,
            control: Control::Levels { minimal, budgets },
            thinks_by_default: true,
            enforces: true,
            ids: true,
        }
    }
}

/// The answer of a list of models.
pub(crate) fn list() -> Value {
    let models: Vec<Value> = LISTED.iter().map(|name| describe(name)).collect();
    json!({ "models": models })
}

/// The description of a model; every name has one.
pub(crate) fn describe(name: &str) -> Value {
    let thinking = Model::named(name).control != Control::Never;
    json!({
        "name": format!("models/{name}"),
        "version": "001",
        "displayName": name.replace('-', " "),
        "description": "A model of the simulator",
        "inputTokenLimit": 1_048_576,
        "outputTokenLimit": if thinking { 65_536 } else { 8_192 },
        "supportedGenerationMethods": ["generateContent", "countTokens"],
        "temperature": 1,
        "maxTemperature": 2,
        "topP": 0.95,
        "topK": 64,
        "thinking": thinking,
    })
}

/// The first two numbers at the start: `3.1-pro` is (3, 1), `4-argon` (4, 0).
fn version(rest: &str) -> Option<(u32, u32)> {
    let number = rest.split('-').next()?;
    let (major, minor) = number.split_once('.').unwrap_or((number, "0"));
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn model_name_selects_the_thinking_control() {
        let levels = |minimal, budgets| Control::Levels { minimal, budgets };
        let budgets = |least, most, off| Control::Budgets { least, most, off };
        for (name, family, control) in [
            ("gemini-4-argon", "gemini-4", levels(true, false)),
            ("gemini-4.2-pro", "gemini-4", levels(false, false)),
            ("gemini-3-pro-preview", "gemini-3", levels(false, true)),
            ("google/gemini-3.1-pro", "gemini-3", levels(false, true)),
            ("gemini-3-flash-preview", "gemini-3", levels(true, true)),
            ("gemini-3.7-flash", "gemini-3", levels(false, true)),
            ("gemini-3.8-flash-lite", "gemini-3", levels(true, true)),
            ("gemini-flash-latest", "gemini-3", levels(false, true)),
            ("gemini-flash-lite-latest", "gemini-3", levels(true, true)),
            ("gemini-pro-latest", "gemini-3", levels(false, true)),
            ("gemini-2.5-pro", "gemini-2.5", budgets(128, 32_768, false)),
            ("gemini-2.5-flash", "gemini-2.5", budgets(0, 24_576, true)),
            ("gemini-2.0-flash", "gemini-2", Control::Never),
            ("gemini-1.5-pro", "gemini-2", Control::Never),
            ("gemma-4", "other", Control::Any),
            ("", "other", Control::Any),
        ] {
            let model = Model::named(name);
            assert_eq!((model.family, model.control), (family, control), "{name}");
        }
    }

    #[test]
    fn only_gemini_3_and_later_require_signatures_and_send_ids() {
        for name in LISTED {
            let model = Model::named(name);
            let later = !name.starts_with("gemini-2");
            assert_eq!((model.enforces, model.ids), (later, later), "{name}");
        }
    }
}
