//! What is known of models: a table, not code.
//!
//! Three layers, of which the later win, key by key: the table that is built in (`models.toml`),
//! what servers tell of their models while the gateway runs ([`Catalog::learn`]), and the operator's
//! own file ([`Catalog::with`]). Within a table every pattern that fits a name speaks, and of those
//! that say something of a key the longest wins.

mod learnt;
mod model;
mod pattern;
mod rows;

use std::sync::{Arc, LazyLock};

use serde_json::Value;
use throughline_codec::dialects::{ModelCard, anthropic, gemini};

pub use model::{ForcedTools, Form, Model, Off, ResponsesForTools, Sampling, Shows};
pub use rows::{CatalogError, CatalogMistake};

use learnt::Learnt;
use rows::Row;

static EMBEDDED: LazyLock<Vec<Row>> = LazyLock::new(|| {
    let rows = rows::read(include_str!("models.toml"));
    debug_assert!(rows.is_ok(), "the embedded table is checked by a test");
    rows.unwrap_or_default()
});

/// What is known of all models.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    own: Vec<Row>,
    learnt: Arc<Learnt>,
}

impl Catalog {
    /// The table that is built in.
    pub fn embedded() -> Self {
        Self::default()
    }

    /// The same, with the rows of an operator's table over it.
    pub fn with(text: &str) -> Result<Self, CatalogError> {
        Ok(Self { own: rows::read(text)?, ..Self::default() })
    }

    /// Takes over what another catalog has learnt and will learn.
    pub fn sharing(self, other: &Self) -> Self {
        Self { learnt: other.learnt.clone(), ..self }
    }

    /// What is known of the model of this name; of many, nothing.
    pub fn find(&self, name: &str) -> Model {
        self.known(name, &name.to_lowercase())
    }

    /// The same, of a backend's model: what another told of its own of that name does not count.
    pub fn find_at(&self, backend: &str, name: &str) -> Model {
        self.known(name, &at(backend, name))
    }

    fn known(&self, name: &str, learnt: &str) -> Model {
        let name = name.to_lowercase();
        let mut model = Model::default();
        tell(&EMBEDDED, &name, &mut model);
        if let Some(row) = self.learnt.find(learnt) {
            row.tell(&mut model);
        }
        tell(&self.own, &name, &mut model);
        model
    }

    /// Remembers what a backend told of a model.
    pub fn learn_at(&self, backend: &str, card: &ModelCard) {
        self.learn(&at(backend, &card.name), card);
    }

    /// Remembers what a server told of a model.
    pub fn learn(&self, name: &str, card: &ModelCard) {
        self.learnt.learn(name, card);
    }

    /// Learns from what a server of Anthropic's dialect answers about a model, or about all of them.
    pub fn learn_from_anthropic(&self, answer: &Value) {
        for card in anthropic::model_card::read(answer) {
            self.learn(&card.name, &card);
        }
    }

    /// Learns from what a server of Gemini's dialect answers about a model, or about all of them.
    pub fn learn_from_gemini(&self, answer: &Value) {
        for card in gemini::model_card::read(answer) {
            self.learn(&card.name, &card);
        }
    }
}

/// The name of a backend's model.
fn at(backend: &str, name: &str) -> String {
    format!("{backend}\n{name}").to_lowercase()
}

/// Lets all rows that fit a name speak, those with the longest patterns last.
fn tell(rows: &[Row], name: &str, model: &mut Model) {
    let mut fitting: Vec<(usize, &Row)> =
        rows.iter().filter_map(|row| row.weight(name).map(|weight| (weight, row))).collect();
    fitting.sort_by_key(|(weight, _)| *weight);
    for (_, row) in fitting {
        row.tell(model);
    }
}

#[cfg(test)]
mod tests;
