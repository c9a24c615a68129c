//! Numbers that only go up, for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only goes up.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Ordering::Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How often a duration fell below each bound.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; Self::BOUNDS.len()],
    count: Counter,
    sum_ms: Counter,
}

impl Durations {
    /// Upper bounds in milliseconds.
    pub const BOUNDS: [u64; 10] = [5, 10, 50, 100, 250, 500, 1000, 5000, 30_000, 120_000];

    /// Takes one duration.
    pub fn observe(&self, ms: u64) {
        for (bucket, bound) in self.buckets.iter().zip(Self::BOUNDS) {
            if ms <= bound {
                bucket.add(1);
            }
        }
        self.count.add(1);
        self.sum_ms.add(usize::try_from(ms).unwrap_or(usize::MAX));
    }

    /// Bound and count for each bucket, then the count and the sum in milliseconds of all.
    pub fn read(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let buckets = Self::BOUNDS.into_iter().zip(self.buckets.iter().map(Counter::get));
        (buckets.collect(), self.count.get(), self.sum_ms.get())
    }
}

/// What the gateway counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Turns begun.
    pub turns: Counter,
    /// Turns that ended in an error, ours or the provider's.
    pub failed: Counter,
    /// Thinking blocks left out.
    pub filtered: Counter,
    /// Thinking blocks remembered.
    pub remembered: Counter,
    /// Requests sent a second time because of refused thinking.
    pub retried: Counter,
    /// Replies that ended before their end.
    pub cut: Counter,
    /// Signs of life sent.
    pub keep_alives: Counter,
    /// Thinking tokens, as providers count them.
    pub thinking_tokens: Counter,
    /// Output tokens, as providers count them.
    pub output_tokens: Counter,
    /// Time to the head of the reply.
    pub first_byte: Durations,
    /// Time to the first thinking.
    pub first_thinking: Durations,
    /// Time to the first text.
    pub first_text: Durations,
}
