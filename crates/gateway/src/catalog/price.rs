//! What tokens cost. The unit is the picodollar per token: a price in dollars per million tokens has up to
//! six decimals, so it is a whole number of them, and sums are exact.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use throughline_canonical::{Cost, Usage};

/// How many picodollars a token costs if a million tokens cost a dollar.
const PER_DOLLAR: f64 = 1e6;
/// The largest price of a million tokens, in dollars.
const MAX_DOLLARS: f64 = 1e6;

/// What a model's tokens cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Table")]
pub struct Price {
    base: Rates,
    /// The prices of requests whose input is longer than this. They count for the whole request.
    long: Option<(u64, Rates)>,
}

/// What the tokens of a backend's model cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tariff {
    /// The price is unknown.
    #[default]
    Unknown,
    /// Nothing.
    Free,
    /// This price.
    Priced(Price),
}

/// Picodollars per token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rates {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    cache_write_1h: u64,
    reasoning: u64,
}

/// A price as it is written, in dollars per million tokens, or the prices of long requests in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    /// When the provider's list was read. Prices of long requests have none.
    date: Option<String>,
    /// Only prices of long requests have it.
    above: Option<u64>,
    input: Dollars,
    output: Dollars,
    cache_read: Option<Dollars>,
    cache_write: Option<Dollars>,
    cache_write_1h: Option<Dollars>,
    reasoning: Option<Dollars>,
    long: Option<Box<Table>>,
}

/// Dollars per million tokens, as picodollars per token.
#[derive(Clone, Copy, Debug)]
struct Dollars(u64);

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        let picodollars = (dollars * PER_DOLLAR).round();
        let is_exact = (picodollars / PER_DOLLAR - dollars).abs() < f64::EPSILON * dollars.abs();
        match (0.0..=MAX_DOLLARS).contains(&dollars) && (is_exact || dollars == 0.0) {
            // In range, and whole.
            true => Ok(Self(picodollars as u64)),
            false => Err(D::Error::custom(format!(
                "a price is 0 to {MAX_DOLLARS} dollars per million tokens, with at most 6 decimals"
            ))),
        }
    }
}

impl From<&Table> for Rates {
    /// Tokens that a provider does not price apart cost what the others cost: those of the cache like
    /// other input, reasoning like other output.
    fn from(table: &Table) -> Self {
        let Table { input, output, .. } = *table;
        let write = table.cache_write.unwrap_or(input);
        Self {
            input: input.0,
            output: output.0,
            cache_read: table.cache_read.unwrap_or(input).0,
            cache_write: write.0,
            cache_write_1h: table.cache_write_1h.unwrap_or(write).0,
            reasoning: table.reasoning.unwrap_or(output).0,
        }
    }
}

impl Rates {
    fn picodollars(&self, usage: &Usage) -> u64 {
        let count = |count: Option<u64>| count.unwrap_or_default();
        let long_writes = count(usage.cache_write_1h).min(count(usage.cache_write));
        let thinking = count(usage.thinking).min(count(usage.output));
        let parts = [
            (count(usage.input), self.input),
            (count(usage.cache_read), self.cache_read),
            (count(usage.cache_write) - long_writes, self.cache_write),
            (long_writes, self.cache_write_1h),
            (count(usage.output) - thinking, self.output),
            (thinking, self.reasoning),
        ];
        let part = |(tokens, rate): (u64, u64)| tokens.saturating_mul(rate);
        parts.into_iter().map(part).fold(0, u64::saturating_add)
    }
}

impl TryFrom<Table> for Price {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        match table.date.as_deref() {
            Some(date) if is_date(date) => {}
            Some(date) => {
                return Err(format!("`date` is `{date}`: expected a day, as in 2026-11-18"));
            }
            None => return Err("`date` is missing: the day on which the price was read".to_owned()),
        }
        if table.above.is_some() {
            return Err("`above` belongs into `long`".to_owned());
        }
        let long = match table.long.as_deref() {
            None => None,
            Some(long @ Table { above: Some(above), date: None, long: None, .. }) => {
                Some((*above, Rates::from(long)))
            }
            Some(_) => return Err("`long` has `above` and prices, and nothing else".to_owned()),
        };
        Ok(Self { base: Rates::from(&table), long })
    }
}

/// Whether a text is a day, as in 2026-11-18.
fn is_date(text: &str) -> bool {
    text.len() == 10
        && text.bytes().enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

impl Price {
    /// What one request costs. The length of its input chooses the rates.
    fn picodollars(&self, usage: &Usage) -> u64 {
        let input = [usage.input, usage.cache_read, usage.cache_write];
        let input = input.into_iter().flatten().fold(0, u64::saturating_add);
        let rates = match &self.long {
            Some((above, long)) if input > *above => long,
            _ => &self.base,
        };
        rates.picodollars(usage)
    }
}

impl Tariff {
    /// What the reply to one request costs. `None` if the provider has reported no tokens.
    pub fn cost(&self, usage: &Usage) -> Option<Cost> {
        if usage.total() == 0 {
            return None;
        }
        Some(match self {
            Self::Unknown => Cost { picodollars: 0, unpriced_tokens: usage.total() },
            Self::Free => Cost::default(),
            Self::Priced(price) => {
                Cost { picodollars: price.picodollars(usage), unpriced_tokens: 0 }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Catalog;
    use super::*;

    fn tariff(model: &str) -> Tariff {
        Catalog::embedded().find(model).price.map_or(Tariff::Unknown, Tariff::Priced)
    }

    /// The cost in picodollars of [input, read, written, of it for an hour, output, of it thinking].
    fn cost(tariff: Tariff, counts: [u64; 6]) -> u64 {
        let [input, cache_read, cache_write, cache_write_1h, output, thinking] = counts.map(Some);
        let usage = Usage { input, cache_read, cache_write, cache_write_1h, output, thinking };
        tariff.cost(&usage).expect("a cost").picodollars
    }

    /// The sum of tokens times dollars per million tokens, in picodollars.
    fn sum(parts: &[(u64, f64)]) -> u64 {
        parts.iter().map(|(tokens, dollars)| tokens * (dollars * 1e6).round() as u64).sum()
    }

    /// The formulas of the providers' price lists, with the numbers of these lists.
    #[test]
    fn cost_follows_the_published_formula_of_each_provider() {
        // Anthropic: the five columns of its table.
        let counts = [1_000, 100_000, 5_000, 2_000, 3_000, 1_500];
        let parts = [(1_000, 5.0), (100_000, 0.5), (3_000, 6.25), (2_000, 10.0), (3_000, 25.0)];
        assert_eq!(cost(tariff("claude-opus-5"), counts), sum(&parts));
        assert_eq!(sum(&parts), 168_750_000_000, "16.875 cents");
        // OpenAI: cached input is cheaper, reasoning is output, and older models write for the price of input.
        let parts = [(1_000, 1.25), (2_000, 0.125), (500, 1.25), (3_000, 10.0)];
        assert_eq!(
            cost(tariff("gpt-5-2025-08-07"), [1_000, 2_000, 500, 0, 3_000, 2_900]),
            sum(&parts)
        );
        // Gemini: thoughts are output.
        let parts = [(1_000, 0.3), (2_000, 0.03), (3_000, 2.5)];
        assert_eq!(
            cost(tariff("gemini-2.5-flash"), [1_000, 2_000, 0, 0, 3_000, 2_900]),
            sum(&parts)
        );
        // DeepSeek: cache hit, cache miss, output.
        let parts = [(1_000, 0.435), (2_000, 0.003_625), (3_000, 0.87)];
        assert_eq!(cost(tariff("deepseek-v4-pro"), [1_000, 2_000, 0, 0, 3_000, 0]), sum(&parts));
    }

    #[test]
    fn long_input_has_other_prices_for_the_whole_request() {
        let gemini = tariff("gemini-2.5-pro");
        let at_limit = [(150_000, 1.25), (50_000, 0.125), (10, 10.0)];
        assert_eq!(cost(gemini, [150_000, 50_000, 0, 0, 10, 0]), sum(&at_limit));
        let above = [(150_001, 2.5), (50_000, 0.25), (10, 15.0)];
        assert_eq!(cost(gemini, [150_001, 50_000, 0, 0, 10, 0]), sum(&above));
        // What is written to the cache is input too.
        let claude = tariff("claude-sonnet-4-5");
        let above = [(1, 6.0), (200_000, 7.5), (10, 22.5)];
        assert_eq!(cost(claude, [1, 0, 200_000, 0, 10, 0]), sum(&above));
    }

    #[test]
    fn price_belongs_to_one_model_at_its_own_provider() {
        for unknown in [
            "claude-opus-6",
            "claude-opus-5-9",
            "gpt-5.9",
            "gpt-7",
            "gemini-4-pro",
            "qwen3-32b",
            "openai/gpt-5",
            "deepseek-ai/deepseek-v4-pro",
            "gpt-5-search-api",
            "llama-4",
        ] {
            assert_eq!(tariff(unknown), Tariff::Unknown, "{unknown}");
        }
        for known in ["claude-sonnet-4-5-20250929", "Claude-Opus-5-5", "o3", "gpt-4.1-2025-04-14"] {
            assert!(matches!(tariff(known), Tariff::Priced(_)), "{known}");
        }
    }

    #[test]
    fn unknown_price_is_no_cost_of_zero() {
        let usage = Usage { input: Some(5), output: Some(2), ..Usage::default() };
        let unknown = Tariff::Unknown.cost(&usage).unwrap();
        assert_eq!((unknown.unpriced_tokens, unknown.dollars()), (7, None));
        assert_eq!(Tariff::Free.cost(&usage).unwrap().dollars(), Some(0.0));
        assert_eq!(Tariff::Free.cost(&Usage::default()), None);
    }

    #[test]
    fn operators_table_changes_and_adds_prices() {
        let text = r#"
[[model]]
pattern = ["claude-opus-5", "house-*"]
price = { date = "2026-11-18", input = 1, output = 2, reasoning = 3 }
"#;
        let catalog = Catalog::with(text).unwrap();
        for name in ["claude-opus-5", "house-1"] {
            let tariff = Tariff::Priced(catalog.find(name).price.unwrap());
            let parts = [(10, 1.0), (10, 1.0), (4, 2.0), (6, 3.0)];
            assert_eq!(cost(tariff, [10, 10, 0, 0, 10, 6]), sum(&parts), "{name}");
        }
    }

    #[test]
    fn wrong_price_is_reported() {
        for (price, words) in [
            ("{ input = 1, output = 1 }", "`date` is missing"),
            (
                r#"{ date = "2026-11-18", input = 1, output = 1, long = { input = 1, output = 1 } }"#,
                "`long` has `above`",
            ),
            (r#"{ date = "yesterday", input = 1, output = 1 }"#, "expected a day"),
            (r#"{ date = "2026-11-18", input = 1 }"#, "missing field `output`"),
            (r#"{ date = "2026-11-18", input = -1, output = 1 }"#, "dollars per million tokens"),
            (r#"{ date = "2026-11-18", input = 0.0000001, output = 1 }"#, "at most 6 decimals"),
            (
                r#"{ date = "2026-11-18", input = 1, output = 1, cached = 1 }"#,
                "unknown field `cached`",
            ),
        ] {
            let text = format!("[[model]]\npattern = \"a\"\nprice = {price}\n");
            let error = Catalog::with(&text).unwrap_err().to_string();
            assert!(error.contains("line 3: `price`: ") && error.contains(words), "{error}");
        }
    }
}
