//! The thinking setting: how much a model thinks, and how much of it is shown. All dialects share
//! it.

use serde::{Deserialize, Serialize};

/// How much a model thinks, and how much of it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThinkingSetting {
    /// The amount of thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// The visible part of the thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show: Option<Show>,
}

impl ThinkingSetting {
    /// Whether nothing is set.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// The largest number of thinking tokens, if the client limits it.
    pub fn budget(&self) -> Option<u64> {
        match self.amount {
            Some(Amount::Budget { tokens }) => Some(tokens),
            _ => None,
        }
    }

    /// Whether the client asks for thinking.
    pub fn is_wanted(&self) -> bool {
        !matches!(self.amount, None | Some(Amount::Off))
    }
}

/// The amount of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Amount {
    /// No thinking.
    Off,
    /// Thinking with the model's default amount.
    On,
    /// Thinking with an effort level.
    Effort {
        /// The effort level.
        effort: Effort,
    },
    /// Thinking with a token budget.
    Budget {
        /// Maximum number of thinking tokens.
        tokens: u64,
    },
    /// The model decides, guided by an effort.
    Adaptive {
        /// The effort that guides the model.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
    },
}

/// Effort levels, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// The lowest level.
    Minimal,
    /// Less than usual.
    Low,
    /// The usual level.
    Medium,
    /// More than usual.
    High,
    /// Much more than usual.
    XHigh,
    /// The highest level.
    Max,
}

impl Effort {
    /// All levels, in ascending order.
    pub const ALL: [Self; 6] =
        [Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The name of the level, which most dialects share.
    pub fn word(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::XHigh => "xhigh",
            Self::Max => "max",
        }
    }

    /// Parses the name of a level, in any letter case.
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.word().eq_ignore_ascii_case(word))
    }

    /// The budget that replaces it where only a budget can be expressed. The one table of budgets and
    /// efforts; [`Effort::of_budget`] reads it the other way.
    ///
    /// | minimal | low | medium | high | xhigh | max |
    /// |---|---|---|---|---|---|
    /// | 1024 | 4096 | 16384 | 32768 | 65536 | 131072 |
    pub fn budget(self) -> u64 {
        match self {
            Self::Minimal => 1 << 10,
            Self::Low => 1 << 12,
            Self::Medium => 1 << 14,
            Self::High => 1 << 15,
            Self::XHigh => 1 << 16,
            Self::Max => 1 << 17,
        }
    }

    /// The level for a token budget: the lowest whose tokens suffice.
    pub fn of_budget(tokens: u64) -> Self {
        Self::ALL.into_iter().find(|effort| tokens <= effort.budget()).unwrap_or(Self::Max)
    }

    /// The nearest level that a model accepts; the lower one of two equally near levels.
    pub fn nearest(self, known: &[Self]) -> Option<Self> {
        let distance = |effort: &Self| (self as u8).abs_diff(*effort as u8);
        known.iter().copied().min_by_key(|effort| (distance(effort), *effort))
    }
}

/// How much of the thinking is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// All of it.
    Full,
    /// A summary.
    Summary,
    /// None of it.
    Hidden,
}

/// How a model is asked to think.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkingForm {
    /// By a number of tokens.
    Budget,
    /// The model decides, around an effort.
    Adaptive,
    /// By a level.
    Level,
    /// By an effort.
    Effort,
    /// Thinking is on or off. A model that cannot be off always thinks.
    Switch,
    /// The model does not think.
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effort_names_parse_back() {
        for effort in Effort::ALL {
            assert_eq!(Effort::read(effort.word()), Some(effort));
            assert_eq!(Effort::read(&effort.word().to_uppercase()), Some(effort));
            let json = serde_json::to_value(effort).unwrap();
            assert_eq!(json, effort.word());
        }
        assert_eq!(Effort::read("none"), None);
    }

    #[test]
    fn budgets_and_efforts_convert_both_ways() {
        for effort in Effort::ALL {
            assert_eq!(Effort::of_budget(effort.budget()), effort);
            let more = effort.budget() + 1;
            let next = Effort::ALL.into_iter().find(|next| *next > effort);
            assert_eq!(Effort::of_budget(more), next.unwrap_or(Effort::Max));
        }
        assert_eq!(Effort::of_budget(0), Effort::Minimal);
        assert_eq!(Effort::of_budget(u64::MAX), Effort::Max);
    }

    #[test]
    fn nearest_effort_is_found() {
        use Effort::*;
        let check = |asked: Effort, known: &[Effort], found: Option<Effort>| {
            assert_eq!(asked.nearest(known), found, "{asked:?} of {known:?}");
        };
        check(Max, &[Low, Medium, High], Some(High));
        check(Minimal, &[Low, High], Some(Low));
        check(Medium, &[Low, High], Some(Low));
        check(XHigh, &[Low, High, Max], Some(High));
        check(High, &[High], Some(High));
        check(High, &[], None);
    }
}
