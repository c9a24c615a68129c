//! A batch of changes of the thinking memory: the last change of every row, sorted by key. Each
//! database writes it with one statement per table.

use std::collections::{BTreeMap, BTreeSet};

use throughline_canonical::{BlockKey, Origin};
use throughline_gateway::thinking::store::{BlockStatus, Change, StoredBlock, StoredSession};
use throughline_gateway::thinking::{LineageId, SessionTag};

/// The last change of every row. `None` deletes the row.
#[derive(Default)]
pub(crate) struct Batch {
    blocks: BTreeMap<BlockKey, Option<StoredBlock>>,
    statuses: BTreeMap<LineageId, BTreeMap<BlockKey, BlockStatus>>,
    lineages: BTreeMap<LineageId, Option<(SessionTag, u64)>>,
    sessions: BTreeMap<SessionTag, Option<StoredSession>>,
    facts: BTreeMap<String, Option<String>>,
    /// Lineages whose earlier block statuses are deleted.
    forgotten: BTreeSet<LineageId>,
}

/// The rows to write.
pub(crate) struct Written<'a> {
    pub(crate) origins: Vec<&'a Origin>,
    pub(crate) blocks: Vec<&'a StoredBlock>,
    pub(crate) statuses: Vec<(&'a LineageId, &'a BlockKey, &'a BlockStatus)>,
    pub(crate) lineages: Vec<(&'a LineageId, &'a (SessionTag, u64))>,
    pub(crate) sessions: Vec<(&'a SessionTag, &'a StoredSession)>,
    pub(crate) facts: Vec<(&'a String, &'a String)>,
}

/// The keys of the rows to delete. They are deleted before anything is written.
pub(crate) struct Deleted<'a> {
    pub(crate) blocks: Vec<&'a BlockKey>,
    /// Lineages whose block statuses are deleted.
    pub(crate) statuses: Vec<&'a LineageId>,
    pub(crate) lineages: Vec<&'a LineageId>,
    pub(crate) sessions: Vec<&'a SessionTag>,
    pub(crate) facts: Vec<&'a String>,
}

impl Batch {
    pub(crate) fn new(changes: Vec<Change>) -> Self {
        let mut batch = Self::default();
        for change in changes {
            batch.add(change);
        }
        batch
    }

    fn add(&mut self, change: Change) {
        match change {
            Change::Block(block) => drop(self.blocks.insert(block.key, Some(block))),
            Change::ForgetBlock(key) => drop(self.blocks.insert(key, None)),
            Change::BlockStatus(lineage, key, status) => {
                self.statuses.entry(lineage).or_default().insert(key, status);
            }
            Change::Lineage(lineage, tag, used) => {
                self.lineages.insert(lineage, Some((tag, used)));
            }
            Change::ForgetLineage(lineage) => {
                self.lineages.insert(lineage, None);
                self.statuses.remove(&lineage);
                self.forgotten.insert(lineage);
            }
            Change::Session(tag, session) => drop(self.sessions.insert(tag, Some(session))),
            Change::ForgetSession(tag) => drop(self.sessions.insert(tag, None)),
            Change::Fact(name, value) => drop(self.facts.insert(name, value)),
        }
    }

    /// The rows to write. They are sorted, so that two writers never wait for each other.
    pub(crate) fn written(&self) -> Written<'_> {
        let blocks: Vec<&StoredBlock> = present(&self.blocks).map(|(_, block)| block).collect();
        let mut origins: Vec<&Origin> =
            blocks.iter().filter_map(|block| block.origin.as_deref()).collect();
        let parts = |origin: &&Origin| {
            let Origin { domain, backend, model, credential } = *origin;
            (domain.clone(), backend.clone(), model.clone(), credential.clone())
        };
        // Most batches have one origin.
        origins.dedup();
        origins.sort_by_cached_key(parts);
        origins.dedup();
        let statuses = self.statuses.iter().flat_map(|(lineage, statuses)| {
            statuses.iter().map(move |(key, status)| (lineage, key, status))
        });
        Written {
            origins,
            blocks,
            statuses: statuses.collect(),
            lineages: present(&self.lineages).collect(),
            sessions: present(&self.sessions).collect(),
            facts: present(&self.facts).collect(),
        }
    }

    /// The keys of the rows to delete.
    pub(crate) fn deleted(&self) -> Deleted<'_> {
        Deleted {
            blocks: absent(&self.blocks),
            statuses: self.forgotten.iter().collect(),
            lineages: absent(&self.lineages),
            sessions: absent(&self.sessions),
            facts: absent(&self.facts),
        }
    }
}

fn present<K, V>(rows: &BTreeMap<K, Option<V>>) -> impl Iterator<Item = (&K, &V)> {
    rows.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)))
}

fn absent<K, V>(rows: &BTreeMap<K, Option<V>>) -> Vec<&K> {
    rows.iter().filter(|(_, value)| value.is_none()).map(|(key, _)| key).collect()
}
