//! The store of the vault: its trait, an in-memory version and the suite that every store must
//! pass. A store holds sealed records, and hashes as their keys.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::VaultKey;
use crate::thinking::store::StoreFuture;

/// A sealed turn and its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The keys, in the order in which it was sealed.
    pub keys: Vec<VaultKey>,
    /// The sealed turn.
    pub sealed: Vec<u8>,
}

impl Record {
    /// The approximate size in bytes, in RAM and on disk.
    pub fn size(&self) -> usize {
        self.sealed.len() + 100 * self.keys.len() + 100
    }
}

/// A durable store of the vault.
pub trait VaultStore: Send + Sync + 'static {
    /// Writes records in order, all or none. A known key then finds the newer record. A record
    /// without keys is removed.
    fn write(&self, records: Vec<Arc<Record>>) -> StoreFuture<'_, ()>;

    /// Checks that a write succeeds now, with a write that does not change the content.
    fn check_write(&self) -> StoreFuture<'_, ()>;

    /// Whether the store may have a record of this key. `false` is certain.
    fn may_have(&self, name: &VaultKey) -> bool;

    /// Reads the record of a key.
    fn read(&self, name: VaultKey) -> StoreFuture<'_, Option<Record>>;

    /// Reads the records of those keys that have one. A database that is far away is asked once.
    fn read_all<'a>(&'a self, keys: &'a [VaultKey]) -> StoreFuture<'a, Vec<(VaultKey, Record)>> {
        Box::pin(async move {
            let mut found = Vec::new();
            for key in keys {
                found.extend(self.read(*key).await?.map(|record| (*key, record)));
            }
            Ok(found)
        })
    }

    /// Removes the oldest records until at most this many bytes, by [`Record::size`], and records
    /// are left.
    fn trim(&self, bytes: usize, records: usize) -> StoreFuture<'_, ()>;
}

/// A vault store in RAM.
#[derive(Debug, Default)]
pub struct InMemoryVault {
    contents: Mutex<Contents>,
}

#[derive(Debug, Default)]
struct Contents {
    records: BTreeMap<u64, Arc<Record>>,
    keys: HashMap<VaultKey, u64>,
    last: u64,
}

impl Contents {
    fn insert(&mut self, record: Arc<Record>) {
        self.last += 1;
        let replaced: Vec<u64> =
            record.keys.iter().filter_map(|name| self.keys.insert(*name, self.last)).collect();
        self.records.insert(self.last, record);
        for id in replaced {
            if !self.keys.values().any(|named| *named == id) {
                self.records.remove(&id);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.records.values().map(|record| record.size()).sum()
    }
}

impl VaultStore for InMemoryVault {
    fn write(&self, records: Vec<Arc<Record>>) -> StoreFuture<'_, ()> {
        let mut contents = self.contents.lock();
        for record in records {
            contents.insert(record);
        }
        Box::pin(std::future::ready(Ok(())))
    }

    fn check_write(&self) -> StoreFuture<'_, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn may_have(&self, name: &VaultKey) -> bool {
        self.contents.lock().keys.contains_key(name)
    }

    fn read(&self, name: VaultKey) -> StoreFuture<'_, Option<Record>> {
        let contents = self.contents.lock();
        let found = contents.keys.get(&name).and_then(|id| contents.records.get(id));
        let found = found.map(|record| Record::clone(record));
        Box::pin(std::future::ready(Ok(found)))
    }

    fn trim(&self, bytes: usize, records: usize) -> StoreFuture<'_, ()> {
        let mut contents = self.contents.lock();
        while contents.records.len() > records || contents.bytes() > bytes {
            let Some((oldest, _)) = contents.records.pop_first() else {
                break;
            };
            contents.keys.retain(|_, id| *id != oldest);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The suite that every vault store must pass.
pub mod suite {
    use super::*;

    const EVERY: std::ops::Range<u8> = 0..40;

    fn record(keys: &[u8], fill: u8, length: usize) -> Arc<Record> {
        Arc::new(Record {
            keys: keys.iter().map(|name| VaultKey([*name; 16])).collect(),
            sealed: vec![fill; length],
        })
    }

    /// The known keys, each with the first byte of its record.
    async fn known(store: &impl VaultStore) -> Vec<(u8, u8)> {
        let mut known = Vec::new();
        for name in EVERY {
            let record = store.read(VaultKey([name; 16])).await;
            if let Some(record) = record.expect("the store reads") {
                known.push((name, record.sealed[0]));
            }
        }
        known
    }

    /// Every key finds its complete record, the newest record of a key counts, and the oldest are
    /// removed first.
    ///
    /// # Panics
    /// If the store fails a check.
    pub async fn check_store(store: &impl VaultStore) {
        let works = "the store works";
        store.trim(0, 0).await.expect(works);
        assert_eq!(known(store).await, []);

        let (one, two) = (record(&[2, 1], 1, 100), record(&[3], 2, 50_000));
        let both = vec![one.clone(), two.clone()];
        store.write(both).await.expect(works);
        for _ in 0..2 {
            store.check_write().await.expect(works);
        }
        for (name, record) in [(1, &one), (2, &one), (3, &two)] {
            let found = store.read(VaultKey([name; 16])).await.expect(works);
            assert_eq!(found.as_ref(), Some(&**record));
        }

        // A key moves to the newer record, and a record without keys is removed.
        let newer = vec![record(&[2, 4], 3, 100), record(&[3, 3], 4, 100)];
        store.write(newer).await.expect(works);
        assert_eq!(known(store).await, [(1, 1), (2, 3), (3, 4), (4, 3)]);
        let several = [2, 9, 4, 1].map(|name| VaultKey([name; 16]));
        let mut found: Vec<(u8, Record)> = store
            .read_all(&several)
            .await
            .expect(works)
            .into_iter()
            .map(|(key, record)| (key.0[0], record))
            .collect();
        found.sort_by_key(|(key, _)| *key);
        let newer = record(&[2, 4], 3, 100);
        let expected = [(1, &one), (2, &newer), (4, &newer)];
        assert_eq!(found, expected.map(|(key, record)| (key, Record::clone(record))));
        assert_eq!(store.read_all(&[]).await.expect(works), []);
        let three = one.size() + 2 * record(&[1, 2], 0, 100).size();
        store.trim(three, 3).await.expect(works);
        assert_eq!(known(store).await.len(), 4, "nothing is over the limit");

        // The oldest record is removed with the keys that still find it.
        store.trim(three, 2).await.expect(works);
        assert_eq!(known(store).await, [(2, 3), (3, 4), (4, 3)]);
        store.trim(three / 2, 2).await.expect(works);
        assert_eq!(known(store).await, [(3, 4)]);

        let many = (10..30).map(|name| record(&[name], name, 10)).collect();
        store.write(many).await.expect(works);
        store.trim(usize::MAX, 5).await.expect(works);
        let last: Vec<(u8, u8)> = (25..30).map(|name| (name, name)).collect();
        assert_eq!(known(store).await, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn in_memory_vault_passes_the_suite() {
        suite::check_store(&InMemoryVault::default()).await;
    }
}
