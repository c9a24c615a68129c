//! Models whose server sends reasoning in a field of its own.
//!
//! Many models start their reasoning in the prompt template, so raw text begins inside the
//! reasoning. A server that separates reasoning itself sends only the answer as text. Once a
//! backend has done so for a model, its text is read as the answer, also in replies without
//! reasoning.

use std::collections::HashSet;

use parking_lot::RwLock;

use crate::thinking::store::{Change, Snapshot};
use crate::thinking::writer::Changes;

/// The prefix of the stored facts.
const FACT: &str = "separates_reasoning:";

/// Limits the set, because a client can invent model names.
const MAX_MODELS: usize = 4096;

/// The models that are known to separate reasoning, by backend. They survive a restart.
#[derive(Debug, Default)]
pub(crate) struct SeparatingModels {
    known: RwLock<HashSet<String>>,
    changes: Changes,
}

impl SeparatingModels {
    /// Loads the stored models.
    pub(crate) fn new(snapshot: &Snapshot, changes: Changes) -> Self {
        let stored = snapshot.facts.keys().filter_map(|fact| fact.strip_prefix(FACT));
        Self { known: RwLock::new(stored.map(ToOwned::to_owned).collect()), changes }
    }

    /// Whether this model has separated its reasoning before.
    pub(crate) fn contains(&self, backend: &str, model: &str) -> bool {
        self.known.read().contains(&key(backend, model))
    }

    /// Remembers that this model separates its reasoning.
    pub(crate) fn learn(&self, backend: &str, model: &str) {
        if self.contains(backend, model) {
            return;
        }
        let key = key(backend, model);
        let mut known = self.known.write();
        if known.len() < MAX_MODELS && known.insert(key.clone()) {
            tracing::info!(
                backend,
                model,
                "this server separates the model's reasoning from its text"
            );
            self.changes.push(Change::Fact(format!("{FACT}{key}"), Some("yes".into())));
        }
    }
}

/// Backend names have no slash, so the pair is unique.
fn key(backend: &str, model: &str) -> String {
    format!("{backend}/{model}")
}
