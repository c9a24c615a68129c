//! What is known about models, as a table.
//!
//! There are four layers. Later layers win, key by key: the built-in tables (`models.toml` and `prices.toml`), what
//! servers report about their models ([`Catalog::learn`]), the thinking settings that models have
//! refused ([`Catalog::learn_refused`]), and the operator's file ([`Catalog::with`]). Within a table every matching pattern applies, and for each key the longest
//! pattern wins.

mod learnt;
mod model;
mod pattern;
mod price;
mod refused;
mod rows;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use throughline_codec::dialects::{ModelCard, RefusedSetting};

pub use model::{ForcedTools, Form, Model, Off, ResponsesForTools, Sampling, Shows};
pub use price::{Price, Tariff};
pub use rows::{CatalogError, CatalogMistake};

use learnt::Learnt;
use rows::Row;

static EMBEDDED: LazyLock<Vec<Row>> = LazyLock::new(|| embedded(include_str!("models.toml")));
static PRICES: LazyLock<Vec<Row>> = LazyLock::new(|| embedded(include_str!("prices.toml")));

fn embedded(text: &str) -> Vec<Row> {
    let rows = rows::read(text);
    debug_assert!(rows.is_ok(), "the embedded tables are checked by a test");
    rows.unwrap_or_default()
}

/// How many models are kept after they were found. Clients can send any number of names.
const MAX_FOUND: usize = 1024;

/// What is known about all models.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    own: Vec<Row>,
    learnt: Arc<Learnt>,
    found: Arc<RwLock<Found>>,
}

/// Models that were found before, because every turn looks its model up.
#[derive(Debug, Default)]
struct Found {
    /// The version of the learnt rows that they were found with.
    version: u64,
    models: HashMap<String, Arc<Model>>,
}

impl Catalog {
    /// The built-in table.
    pub fn embedded() -> Self {
        Self::default()
    }

    /// The built-in table with an operator's table on top.
    pub fn with(text: &str) -> Result<Self, CatalogError> {
        Ok(Self { own: rows::read(text)?, ..Self::default() })
    }

    /// Shares what another catalog has learnt and will learn.
    pub fn sharing(self, other: &Self) -> Self {
        Self { learnt: other.learnt.clone(), found: Arc::default(), ..self }
    }

    /// What is known about the model of this name. For many names nothing is known.
    pub fn find(&self, name: &str) -> Model {
        self.known(name, &name.to_lowercase())
    }

    /// What is known about a backend's model. Reports of other backends about the same name do not
    /// count.
    pub fn find_at(&self, backend: &str, name: &str) -> Arc<Model> {
        let key = at(backend, name);
        let version = self.learnt.version();
        let known = {
            let found = self.found.read();
            let current = found.version == version;
            current.then(|| found.models.get(&key).cloned()).flatten()
        };
        known.unwrap_or_else(|| {
            let model = Arc::new(self.known(name, &key));
            let mut found = self.found.write();
            if found.version != version || found.models.len() >= MAX_FOUND {
                *found = Found { version, models: HashMap::new() };
            }
            found.models.insert(key, model.clone());
            model
        })
    }

    fn known(&self, name: &str, learnt: &str) -> Model {
        let name = name.to_lowercase();
        let mut model = Model::default();
        apply(&EMBEDDED, &name, &mut model);
        // A name such as `openai/gpt-5` is one of a reseller, who has prices of its own.
        if !name.contains('/') {
            apply(&PRICES, &name, &mut model);
        }
        if let Some(row) = self.learnt.find(learnt) {
            row.apply(&mut model);
        }
        if let Some(refused) = self.learnt.refused.find(learnt) {
            refused.apply(&mut model);
        }
        apply(&self.own, &name, &mut model);
        model
    }

    /// Remembers what a backend reports about a model.
    pub fn learn_at(&self, backend: &str, card: &ModelCard) {
        self.learn(&at(backend, &card.name), card);
    }

    /// Remembers a thinking setting that a backend's model has refused. Returns all that is known of
    /// this kind about the model, to be stored, if that changes.
    pub fn learn_refused(
        &self,
        backend: &str,
        name: &str,
        refused: &RefusedSetting,
    ) -> Option<String> {
        let changed = self.learnt.refused.add(&at(backend, name), refused);
        if changed.is_some() {
            self.learnt.count_change();
        }
        changed
    }

    /// Restores what was stored about a backend's model.
    pub fn restore_refused(&self, backend: &str, name: &str, stored: &str) {
        if self.learnt.refused.restore(&at(backend, name), stored) {
            self.learnt.count_change();
        }
    }

    /// Remembers what a server reports about a model.
    pub fn learn(&self, name: &str, card: &ModelCard) {
        self.learnt.learn(name, card);
    }
}

/// The key of a backend's model.
fn at(backend: &str, name: &str) -> String {
    format!("{backend}\n{name}").to_lowercase()
}

/// Applies all matching rows, those with the longest patterns last.
fn apply(rows: &[Row], name: &str, model: &mut Model) {
    let mut matching: Vec<(usize, &Row)> =
        rows.iter().filter_map(|row| row.weight(name).map(|weight| (weight, row))).collect();
    matching.sort_by_key(|(weight, _)| *weight);
    for (_, row) in matching {
        row.apply(model);
    }
}

#[cfg(test)]
mod tests;
