//! Token counts with the same meaning for all providers.

use serde::{Deserialize, Serialize};

/// Token counts of one reply. `None` means that the provider did not report it.
#[cfg_attr(test, derive(ts_rs::TS))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(test, ts(optional_fields))]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<u64>,
    /// Input tokens read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_read: Option<u64>,
    /// Input tokens written to a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write: Option<u64>,
    /// The part of `cache_write` that the cache keeps for an hour. The rest is kept for minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<u64>,
    /// Output tokens, thinking included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<u64>,
    /// Output tokens spent on thinking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<u64>,
}

impl Usage {
    /// Merges a later report: present fields replace earlier values.
    pub fn update(&mut self, later: Self) {
        self.input = later.input.or(self.input);
        self.cache_read = later.cache_read.or(self.cache_read);
        self.cache_write = later.cache_write.or(self.cache_write);
        self.cache_write_1h = later.cache_write_1h.or(self.cache_write_1h);
        self.output = later.output.or(self.output);
        self.thinking = later.thinking.or(self.thinking);
    }

    /// The tokens that a provider charges for.
    pub fn total(&self) -> u64 {
        let counts = [self.input, self.cache_read, self.cache_write, self.output];
        counts.into_iter().flatten().fold(0, u64::saturating_add)
    }

    /// What these counts have in addition to those of an earlier part of the same reply.
    #[must_use]
    pub fn minus(self, earlier: Self) -> Self {
        let rest = |all: Option<u64>, part: Option<u64>| {
            all.map(|all| all.saturating_sub(part.unwrap_or_default()))
        };
        Self {
            input: rest(self.input, earlier.input),
            cache_read: rest(self.cache_read, earlier.cache_read),
            cache_write: rest(self.cache_write, earlier.cache_write),
            cache_write_1h: rest(self.cache_write_1h, earlier.cache_write_1h),
            output: rest(self.output, earlier.output),
            thinking: rest(self.thinking, earlier.thinking),
        }
    }

    /// The counts of two replies together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = |one: Option<u64>, two: Option<u64>| match (one, two) {
            (Some(one), Some(two)) => Some(one.saturating_add(two)),
            (one, two) => one.or(two),
        };
        Self {
            input: sum(self.input, other.input),
            cache_read: sum(self.cache_read, other.cache_read),
            cache_write: sum(self.cache_write, other.cache_write),
            cache_write_1h: sum(self.cache_write_1h, other.cache_write_1h),
            output: sum(self.output, other.output),
            thinking: sum(self.thinking, other.thinking),
        }
    }
}
