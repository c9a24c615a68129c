//! How much a model should think, and what of it should be shown: one setting for all dialects.

use serde::{Deserialize, Serialize};

/// What a client says of thinking.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ThinkingSetting {
    /// How much.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Amount>,
    /// What of it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub show: Option<Show>,
}

impl ThinkingSetting {
    /// Whether nothing was said.
    pub fn is_unset(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the client asked for any.
    pub fn is_wanted(&self) -> bool {
        !matches!(self.amount, None | Some(Amount::Off))
    }
}

/// How much thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Amount {
    /// None.
    Off,
    /// On, as much as is usual.
    On,
    /// By effort.
    Effort {
        /// How much.
        effort: Effort,
    },
    /// So many tokens.
    Budget {
        /// How many.
        tokens: u64,
    },
    /// As much as the model finds right, around this effort.
    Adaptive {
        /// Around this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effort: Option<Effort>,
    },
}

/// Steps of effort, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// As little as there is.
    Minimal,
    /// Little.
    Low,
    /// Usual.
    Medium,
    /// Much.
    High,
    /// Very much.
    XHigh,
    /// As much as there is.
    Max,
}

impl Effort {
    /// All of them, in their order.
    pub const ALL: [Self; 6] =
        [Self::Minimal, Self::Low, Self::Medium, Self::High, Self::XHigh, Self::Max];

    /// The word for it, which most dialects share.
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

    /// The effort of this word, in any letter case.
    pub fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|effort| effort.word().eq_ignore_ascii_case(word))
    }

    /// The tokens that stand for it where only a budget can be said. The one table of budgets and
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

    /// The effort that stands for a budget where only an effort can be said: the least whose tokens
    /// suffice.
    pub fn of_budget(tokens: u64) -> Self {
        Self::ALL.into_iter().find(|effort| tokens <= effort.budget()).unwrap_or(Self::Max)
    }

    /// The nearest of those a model knows; of two that are equally near, the lower.
    pub fn nearest(self, known: &[Self]) -> Option<Self> {
        let distance = |effort: &Self| (self as u8).abs_diff(*effort as u8);
        known.iter().copied().min_by_key(|effort| (distance(effort), *effort))
    }
}

/// What is shown of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Show {
    /// All there is to show.
    Full,
    /// A summary.
    Summary,
    /// Nothing.
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
    fn words_and_efforts_go_both_ways() {
        for effort in Effort::ALL {
            assert_eq!(Effort::read(effort.word()), Some(effort));
            assert_eq!(Effort::read(&effort.word().to_uppercase()), Some(effort));
            let json = serde_json::to_value(effort).unwrap();
            assert_eq!(json, effort.word());
        }
        assert_eq!(Effort::read("none"), None);
    }

    #[test]
    fn budgets_and_efforts_go_both_ways() {
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
    fn the_nearest_effort_is_found() {
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
