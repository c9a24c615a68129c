//! Counters and histograms for `/metrics`.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter.
    pub fn add(&self, amount: usize) {
        self.0.fetch_add(amount as u64, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug, Default)]
pub struct Durations {
    buckets: [Counter; Self::BOUNDS.len()],
    count: Counter,
    sum_ms: Counter,
}

impl Durations {
    /// The upper bounds of the buckets, in milliseconds.
    pub const BOUNDS: [u64; 10] = [5, 10, 50, 100, 250, 500, 1000, 5000, 30_000, 120_000];

    /// Records one duration.
    pub fn observe(&self, ms: u64) {
        for (bucket, bound) in self.buckets.iter().zip(Self::BOUNDS) {
            if ms <= bound {
                bucket.add(1);
            }
        }
        self.count.add(1);
        self.sum_ms.add(usize::try_from(ms).unwrap_or(usize::MAX));
    }

    /// The bound and count of each bucket, then the total count and the sum in milliseconds.
    pub fn read(&self) -> (Vec<(u64, u64)>, u64, u64) {
        let buckets = Self::BOUNDS.into_iter().zip(self.buckets.iter().map(Counter::get));
        (buckets.collect(), self.count.get(), self.sum_ms.get())
    }
}

/// The metrics of the gateway.
#[derive(Debug, Default)]
pub struct Counters {
    /// Turns that were started.
    pub turns: Counter,
    /// Turns that ended in an error of the gateway or the provider.
    pub failed: Counter,
    /// Thinking blocks that were left out.
    pub filtered: Counter,
    /// Thinking blocks that were remembered.
    pub remembered: Counter,
    /// Requests that were retried because of refused thinking.
    pub retried: Counter,
    /// Replies that ended early.
    pub cut: Counter,
    /// Keep-alives that were sent.
    pub keep_alives: Counter,
    /// Thinking tokens, as reported by providers.
    pub thinking_tokens: Counter,
    /// Output tokens, as reported by providers.
    pub output_tokens: Counter,
    /// Time to the head of the reply.
    pub first_byte: Durations,
    /// Time to the first thinking.
    pub first_thinking: Durations,
    /// Time to the first text.
    pub first_text: Durations,
}
