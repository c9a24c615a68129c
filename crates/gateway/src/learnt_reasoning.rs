//! What replies have shown about backends and their models. It survives a restart.
//!
//! - Which servers send reasoning in a field of its own. Many models start their reasoning in the
//!   prompt template, so raw text begins inside the reasoning. A server that separates reasoning
//!   itself sends only the answer as text. Once a backend has done so for a model, its text is read
//!   as the answer, also in replies without reasoning.
//! - The name of that field. Servers ignore a name that they do not know, so reasoning that goes
//!   back under another one is lost.
//! - Which servers store responses. Others ignore the id of an earlier response, and would answer from
//!   the newest message alone.

use std::collections::HashMap;

use parking_lot::RwLock;
use throughline_codec::dialects::UpstreamDialect;
use throughline_codec::dialects::profile::Profile;

use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::thinking::store::{Change, Snapshot};
use crate::thinking::writer::Changes;

/// Limits each map, because a client can invent model names.
const MAX_MODELS: usize = 4096;
/// The model of a fact about the whole backend.
const ANY_MODEL: &str = "";

/// What replies have shown.
#[derive(Debug, Default)]
pub(crate) struct LearntReasoning {
    separating: ModelFacts,
    members: ModelFacts,
    keeping: ModelFacts,
}

impl LearntReasoning {
    /// Loads what was stored.
    pub(crate) fn new(snapshot: &Snapshot, changes: &Changes) -> Self {
        Self {
            separating: ModelFacts::new("separates_reasoning:", snapshot, changes),
            members: ModelFacts::new("reasoning_member:", snapshot, changes),
            keeping: ModelFacts::new("keeps_responses:", snapshot, changes),
        }
    }

    /// Takes over what other instances have learnt.
    pub(crate) fn merge(&self, facts: &HashMap<String, String>) {
        self.separating.merge(facts);
        self.members.merge(facts);
        self.keeping.merge(facts);
    }

    /// Remembers that a backend stores responses.
    pub(crate) fn learn_keeping(&self, backend: &str) {
        if self.keeping.learn(backend, ANY_MODEL, "yes") {
            tracing::info!(backend, "this server stores responses");
        }
    }

    /// Whether this model has separated its reasoning before.
    pub(crate) fn is_separated(&self, backend: &str, model: &str) -> bool {
        self.separating.get(backend, model).is_some()
    }

    /// Remembers that this model separates its reasoning.
    pub(crate) fn learn_separated(&self, backend: &str, model: &str) {
        if self.separating.learn(backend, model, "yes") {
            tracing::info!(
                backend,
                model,
                "this server separates the model's reasoning from its text"
            );
        }
    }

    /// The member that held this model's reasoning.
    pub(crate) fn member(&self, backend: &str, model: &str) -> Option<String> {
        self.members.get(backend, model)
    }

    /// Remembers the member that held this model's reasoning. A newer server may have another one.
    pub(crate) fn learn_member(&self, backend: &str, model: &str, member: &str) {
        if self.members.learn(backend, model, member) {
            tracing::info!(
                backend,
                model,
                member,
                "learnt which member this server uses for reasoning"
            );
        }
    }
}

impl Gateway {
    /// Whether a backend stores responses and continues them by their ids: it is configured so, it is
    /// known for it, or its replies have said so.
    pub fn keeps_responses(&self, backend: &Backend) -> bool {
        backend.profile.keeps_responses
            || self.learnt.keeping.get(&backend.name, ANY_MODEL).is_some()
    }

    /// Remembers that a backend stores responses or conversations.
    pub fn learn_keeping(&self, backend: &str) {
        self.learnt.learn_keeping(backend);
    }

    /// The profile of a backend, with the member for reasoning that this model's replies had.
    pub(crate) fn learnt_profile(
        &self,
        backend: &str,
        model: &str,
        dialect: &dyn UpstreamDialect,
        profile: &'static Profile,
    ) -> &'static Profile {
        match self.learnt.member(backend, model) {
            Some(member) => dialect.with_member(profile, &member),
            None => profile,
        }
    }
}

/// One fact about each model, as text.
#[derive(Debug, Default)]
struct ModelFacts {
    /// The prefix of the stored facts.
    prefix: &'static str,
    known: RwLock<HashMap<String, String>>,
    changes: Changes,
}

impl ModelFacts {
    fn new(prefix: &'static str, snapshot: &Snapshot, changes: &Changes) -> Self {
        let facts = Self { prefix, known: RwLock::default(), changes: changes.clone() };
        facts.merge(&snapshot.facts);
        facts
    }

    fn merge(&self, facts: &HashMap<String, String>) {
        let stored = facts.iter().filter_map(|(name, value)| {
            Some((name.strip_prefix(self.prefix)?.to_owned(), value.clone()))
        });
        self.known.write().extend(stored);
    }

    fn get(&self, backend: &str, model: &str) -> Option<String> {
        self.known.read().get(&key(backend, model)).cloned()
    }

    /// Stores a fact. Returns whether it is new.
    fn learn(&self, backend: &str, model: &str, value: &str) -> bool {
        let key = key(backend, model);
        if self.known.read().get(&key).is_some_and(|known| known == value) {
            return false;
        }
        let mut known = self.known.write();
        if known.len() >= MAX_MODELS && !known.contains_key(&key) {
            return false;
        }
        let before = known.insert(key.clone(), value.to_owned());
        let is_new = before.as_deref() != Some(value);
        if is_new {
            let name = format!("{}{key}", self.prefix);
            self.changes.push(Change::Fact(name, Some(value.to_owned())));
        }
        is_new
    }
}

/// Backend names have no slash, so the pair is unique.
fn key(backend: &str, model: &str) -> String {
    format!("{backend}/{model}")
}
