//! A histogram of durations.

/// Durations, counted in buckets.
#[derive(Clone, Debug)]
pub struct Histogram {
    /// The upper bounds of the buckets, in milliseconds.
    bounds: &'static [u64],
    /// How many durations are in each bucket. The last one has no bound.
    counts: Vec<u64>,
    sum_ms: u64,
}

impl Histogram {
    /// An empty histogram with these upper bounds, in milliseconds.
    pub fn new(bounds: &'static [u64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum_ms: 0 }
    }

    /// Records one duration.
    pub fn observe(&mut self, ms: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < ms);
        self.counts[bucket] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// Each bound, in milliseconds, with the number of durations up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let mut total = 0;
        self.bounds.iter().zip(&self.counts).map(move |(bound, count)| {
            total += count;
            (*bound, total)
        })
    }

    /// How many durations were recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all durations, in milliseconds.
    pub fn sum_ms(&self) -> u64 {
        self.sum_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_counts_all_durations_up_to_its_bound() {
        let mut histogram = Histogram::new(&[10, 100]);
        for ms in [0, 10, 11, 100, 101] {
            histogram.observe(ms);
        }
        assert_eq!(histogram.buckets().collect::<Vec<_>>(), [(10, 2), (100, 4)]);
        assert_eq!((histogram.count(), histogram.sum_ms()), (5, 222));
    }
}
