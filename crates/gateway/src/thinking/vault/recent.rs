//! The last used records, up to a limit in bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::VaultKey;
use super::store::Record;

/// The last used records.
#[derive(Default)]
pub(super) struct Recent {
    /// Records by their last use, least recently used first.
    by_use: BTreeMap<u64, Held>,
    keys: HashMap<VaultKey, u64>,
    uses: u64,
    bytes: usize,
    limit: usize,
}

/// A record in RAM.
struct Held {
    record: Arc<Record>,
    /// The number of thinking blocks in it.
    thinking: usize,
}

impl Recent {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds a record with this number of thinking blocks. Its keys now find this record.
    pub(super) fn put(&mut self, record: Arc<Record>, thinking: usize) {
        self.uses += 1;
        for name in &record.keys {
            if let Some(before) = self.keys.insert(*name, self.uses)
                && before != self.uses
            {
                self.drop_unreachable(before);
            }
        }
        self.hold(Held { record, thinking });
    }

    /// Adds a record that was read from the store. Records added meanwhile are newer and keep their
    /// keys.
    pub(super) fn put_back(&mut self, record: Arc<Record>, thinking: usize) {
        self.uses += 1;
        for name in &record.keys {
            self.keys.entry(*name).or_insert(self.uses);
        }
        if record.keys.iter().any(|name| self.keys.get(name) == Some(&self.uses)) {
            self.hold(Held { record, thinking });
        }
    }

    /// Adds a record as the last used one, and drops the least recently used ones.
    fn hold(&mut self, held: Held) {
        self.bytes += held.record.size();
        self.by_use.insert(self.uses, held);
        while self.bytes > self.limit
            && let Some((used, Held { record: oldest, .. })) = self.by_use.pop_first()
        {
            self.bytes -= oldest.size();
            for name in &oldest.keys {
                if self.keys.get(name) == Some(&used) {
                    self.keys.remove(name);
                }
            }
        }
    }

    pub(super) fn has(&self, name: &VaultKey) -> bool {
        self.keys.contains_key(name)
    }

    /// The number of thinking blocks in the record of a key.
    pub(super) fn thinking(&self, name: &VaultKey) -> Option<usize> {
        Some(self.by_use.get(self.keys.get(name)?)?.thinking)
    }

    /// The record of a key, which becomes the last used one.
    pub(super) fn get(&mut self, name: &VaultKey) -> Option<Arc<Record>> {
        let before = *self.keys.get(name)?;
        let held = self.by_use.remove(&before)?;
        self.uses += 1;
        for name in &held.record.keys {
            if let Some(used) = self.keys.get_mut(name)
                && *used == before
            {
                *used = self.uses;
            }
        }
        let record = held.record.clone();
        self.by_use.insert(self.uses, held);
        Some(record)
    }

    /// Drops a record if all its keys find newer records.
    fn drop_unreachable(&mut self, used: u64) {
        let unreachable = self.by_use.get(&used).is_some_and(|held| {
            let mut keys = held.record.keys.iter();
            keys.all(|name| self.keys.get(name) != Some(&used))
        });
        if unreachable && let Some(held) = self.by_use.remove(&used) {
            self.bytes -= held.record.size();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn name(number: u8) -> VaultKey {
        VaultKey([number; 16])
    }

    fn record(keys: &[u8], fill: u8) -> Arc<Record> {
        Arc::new(Record {
            keys: keys.iter().copied().map(name).collect(),
            sealed: vec![fill; 1000],
        })
    }

    fn found(recent: &mut Recent, number: u8) -> Option<u8> {
        recent.get(&name(number)).map(|record| record.sealed[0])
    }

    #[test]
    fn least_recently_used_record_is_dropped_with_its_keys() {
        let size = record(&[1, 2], 1).size();
        let mut recent = Recent::new(2 * size);
        recent.put(record(&[1, 2], 1), 1);
        recent.put(record(&[3, 4], 2), 1);
        assert_eq!(found(&mut recent, 2), Some(1));
        recent.put(record(&[5, 6], 3), 1);
        assert_eq!(recent.bytes(), 2 * size);
        let numbers = [1, 2, 3, 4, 5, 6].map(|number| found(&mut recent, number));
        assert_eq!(numbers, [Some(1), Some(1), None, None, Some(3), Some(3)]);
        assert_eq!((recent.keys.len(), recent.by_use.len()), (4, 2));
    }

    #[test]
    fn key_finds_the_newest_record_and_unreachable_ones_are_dropped() {
        let mut recent = Recent::new(1 << 20);
        recent.put(record(&[1, 2], 1), 1);
        recent.put(record(&[2, 3], 2), 1);
        assert_eq!([1, 2].map(|number| found(&mut recent, number)), [Some(1), Some(2)]);
        recent.put(record(&[1], 3), 1);
        assert_eq!(found(&mut recent, 1), Some(3));
        assert_eq!(recent.by_use.len(), 2);
        let sizes: usize = recent.by_use.values().map(|held| held.record.size()).sum();
        assert_eq!(recent.bytes(), sizes);
    }

    #[test]
    fn record_from_the_store_takes_no_key_from_a_newer_one() {
        let mut recent = Recent::new(1 << 20);
        recent.put(record(&[1], 2), 1);
        recent.put_back(record(&[1, 2], 1), 1);
        assert_eq!([1, 2].map(|number| found(&mut recent, number)), [Some(2), Some(1)]);
        let bytes = recent.bytes();
        recent.put_back(record(&[1, 2], 1), 1);
        assert_eq!((recent.by_use.len(), recent.bytes()), (2, bytes));
    }

    #[test]
    fn record_larger_than_the_limit_is_not_held() {
        let mut recent = Recent::new(500);
        recent.put(record(&[1, 1], 1), 1);
        assert_eq!(found(&mut recent, 1), None);
        assert_eq!((recent.bytes(), recent.keys.len()), (0, 0));
    }
}
