//! Ids that sort by the time they were made.

use std::sync::atomic::{AtomicU64, Ordering};

use throughline_gateway::thinking::random;
use throughline_gateway::unix_ms;

/// Ids of one millisecond that keep their order.
const PER_MILLISECOND: u64 = 1 << 12;

/// A new id, such as `node_0190e2…`. Ids of this process sort in the order in which they were made;
/// ids of several processes sort by their clocks.
pub fn new_id(kind: &str) -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = unix_ms() * PER_MILLISECOND;
    let last = LAST.fetch_max(now, Ordering::Relaxed);
    let time = match last < now {
        true => now,
        false => LAST.fetch_add(1, Ordering::Relaxed) + 1,
    };
    format!("{kind}_{time:016x}{}", &random::id()[..12])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_in_the_order_in_which_they_were_made() {
        let made: Vec<String> = (0..10_000).map(|_| new_id("node")).collect();
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
