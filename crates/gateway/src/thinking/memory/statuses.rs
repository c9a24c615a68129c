//! The statuses of the blocks of one conversation.

use std::collections::{BTreeMap, HashMap};

use throughline_canonical::BlockKey;

use crate::thinking::store::BlockStatus;

/// The statuses of the blocks of one conversation. Evicted blocks keep theirs, so there may be
/// thousands. Blocks in use are counted as they change, because every request asks for the count.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    by_key: HashMap<BlockKey, BlockStatus>,
    /// How many blocks of each session are in use. No count is zero.
    in_use: BTreeMap<u64, usize>,
}

impl Statuses {
    pub(super) fn get(&self, key: &BlockKey) -> Option<&BlockStatus> {
        self.by_key.get(key)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&BlockKey, &BlockStatus)> {
        self.by_key.iter()
    }

    /// How many there are, with those of evicted blocks.
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// How many blocks are in use.
    pub(super) fn in_use(&self) -> usize {
        self.in_use.values().sum()
    }

    /// Whether a block of another session is in use.
    pub(super) fn has_other_session(&self, session: u64) -> bool {
        self.in_use.keys().any(|used| *used != session)
    }

    /// Sets the status of a block. Returns whether the block is new.
    pub(super) fn insert(&mut self, key: BlockKey, status: BlockStatus) -> bool {
        if !status.gone {
            *self.in_use.entry(status.session).or_default() += 1;
        }
        let before = self.by_key.insert(key, status);
        self.no_longer_in_use(before);
        before.is_none()
    }

    pub(super) fn remove(&mut self, key: &BlockKey) {
        let before = self.by_key.remove(key);
        self.no_longer_in_use(before);
    }

    /// Confirms a block of this session. Returns its status if that has changed.
    pub(super) fn confirm(&mut self, key: &BlockKey, session: u64) -> Option<BlockStatus> {
        let status = self.by_key.get_mut(key)?;
        if status.gone || status.confirmed || status.session != session {
            return None;
        }
        status.confirmed = true;
        Some(*status)
    }

    /// Evicts the blocks in use that `is_over` selects. Returns their new statuses.
    pub(super) fn evict(
        &mut self,
        mut is_over: impl FnMut(&BlockKey, &BlockStatus) -> bool,
    ) -> Vec<(BlockKey, BlockStatus)> {
        let mut evicted = Vec::new();
        for (key, status) in &mut self.by_key {
            if !status.gone && is_over(key, status) {
                evicted.push((*key, *status));
                status.gone = true;
            }
        }
        for (_, status) in &mut evicted {
            self.no_longer_in_use(Some(*status));
            status.gone = true;
        }
        evicted
    }

    fn no_longer_in_use(&mut self, before: Option<BlockStatus>) {
        if let Some(before) = before.filter(|before| !before.gone)
            && let Some(count) = self.in_use.get_mut(&before.session)
        {
            *count -= 1;
            if *count == 0 {
                self.in_use.remove(&before.session);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn status(session: u64, gone: bool) -> BlockStatus {
        BlockStatus { session, confirmed: false, registered: 0, gone }
    }

    const fn key(number: u8) -> BlockKey {
        BlockKey([number; 32])
    }

    #[test]
    fn blocks_in_use_are_counted_as_they_change() {
        let mut statuses = Statuses::default();
        assert!(statuses.insert(key(1), status(1, false)));
        assert!(statuses.insert(key(2), status(1, false)));
        assert!(statuses.insert(key(3), status(2, true)));
        assert_eq!((statuses.len(), statuses.in_use()), (3, 2));
        assert!(!statuses.has_other_session(1));
        assert!(statuses.has_other_session(2));

        // A block moves to another session and comes back to life.
        assert!(!statuses.insert(key(1), status(2, false)));
        assert!(!statuses.insert(key(3), status(2, false)));
        assert_eq!(statuses.in_use(), 3);
        assert!(statuses.has_other_session(1));

        let evicted = statuses.evict(|_, status| status.session == 2);
        assert!(evicted.iter().all(|(_, status)| *status == self::status(2, true)));
        assert_eq!((evicted.len(), statuses.len(), statuses.in_use()), (2, 3, 1));
        assert!(!statuses.has_other_session(1));
        assert!(statuses.evict(|_, status| status.session == 2).is_empty());

        statuses.remove(&key(1));
        statuses.remove(&key(2));
        assert_eq!((statuses.len(), statuses.in_use()), (1, 0));
        assert!(!statuses.has_other_session(7));
    }

    #[test]
    fn only_blocks_in_use_of_the_session_are_confirmed() {
        let mut statuses = Statuses::default();
        statuses.insert(key(1), status(1, false));
        statuses.insert(key(2), status(1, true));
        assert_eq!(statuses.confirm(&key(1), 2), None);
        assert_eq!(statuses.confirm(&key(2), 1), None);
        assert!(statuses.confirm(&key(1), 1).is_some_and(|status| status.confirmed));
        assert_eq!(statuses.confirm(&key(1), 1), None, "it was confirmed before");
    }
}
