//! What replies cost.

use serde::{Deserialize, Serialize};

/// How many picodollars a dollar has.
const PICODOLLARS: f64 = 1e12;

/// What replies have cost. Sums are exact: a price is a whole number of picodollars per token, so that it
/// has up to six decimals in dollars per million tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Cost {
    /// Picodollars: millionths of a millionth of a US dollar.
    pub picodollars: u64,
    /// Tokens whose price is unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub unpriced_tokens: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Cost {
    /// The cost of two replies together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            picodollars: self.picodollars.saturating_add(other.picodollars),
            unpriced_tokens: self.unpriced_tokens.saturating_add(other.unpriced_tokens),
        }
    }

    /// US dollars, as far as the prices are known. `None` if no price is known.
    pub fn dollars(self) -> Option<f64> {
        let is_unknown = self.picodollars == 0 && self.unpriced_tokens > 0;
        // The nearest number: up to 8,000 dollars, each picodollar shows.
        (!is_unknown).then(|| self.picodollars as f64 / PICODOLLARS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_keep_every_picodollar() {
        let cost = |picodollars| Cost { picodollars, unpriced_tokens: 0 };
        for (picodollars, dollars) in [
            (0, "0.0"),
            (1, "1e-12"),
            (123_456_789_012, "0.123456789012"),
            (8_000_000_000_000_001, "8000.000000000001"),
        ] {
            assert_eq!(format!("{:?}", cost(picodollars).dollars().unwrap()), dollars);
        }
    }

    #[test]
    fn cost_without_any_price_is_unknown() {
        let unpriced = Cost { picodollars: 0, unpriced_tokens: 5 };
        assert_eq!(unpriced.dollars(), None);
        let both = unpriced.plus(Cost { picodollars: 2_000_000_000_000, unpriced_tokens: 1 });
        assert_eq!((both.dollars(), both.unpriced_tokens), (Some(2.0), 6));
    }
}
