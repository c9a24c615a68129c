//! What servers report about their models while the gateway runs.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use throughline_codec::dialects::ModelCard;

use super::model::{Form, Off};
use super::refused::Refused;
use super::rows::Row;

/// Limits for the number and the length of names, because a server can report any number of models.
pub(super) const MAX_MODELS: usize = 4096;
pub(super) const MAX_NAME_BYTES: usize = 256;

/// Rows by lower-case name.
#[derive(Debug, Default)]
pub(super) struct Learnt {
    rows: RwLock<HashMap<Box<str>, Row>>,
    /// What models have refused.
    pub(super) refused: Refused,
    /// How often the rows have changed.
    changes: AtomicU64,
}

impl Learnt {
    pub(super) fn find(&self, name: &str) -> Option<Row> {
        self.rows.read().get(name).cloned()
    }

    /// A number that differs after every change.
    pub(super) fn version(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    pub(super) fn learn(&self, name: &str, card: &ModelCard) {
        let row = row(card);
        // A list of names alone does not remove what was learnt before.
        if row == Row::default() {
            return;
        }
        let name = name.to_lowercase();
        let mut rows = self.rows.write();
        let known = rows.get(name.as_str());
        if known == Some(&row) {
            return;
        }
        if name.len() <= MAX_NAME_BYTES && (known.is_some() || rows.len() < MAX_MODELS) {
            rows.insert(name.into(), row);
            self.count_change();
        }
    }

    /// Counts a change.
    pub(super) fn count_change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

/// The content of a card, as a row.
fn row(card: &ModelCard) -> Row {
    let thinking = match (card.thinks, card.adaptive, card.budget) {
        (Some(false), _, _) | (None, Some(false), Some(false)) => Some(Form::None),
        (_, Some(true), _) => Some(Form::Adaptive),
        (_, Some(false), Some(true)) => Some(Form::Budget),
        _ => None,
    };
    let off = match (card.off, card.between_tools) {
        (Some(true), _) => Some(Off::Disabled),
        (Some(false), Some(true)) => Some(Off::BetweenTools),
        (Some(false), _) => Some(Off::Never),
        (None, _) => None,
    };
    Row {
        thinking,
        off,
        efforts: (!card.efforts.is_empty()).then(|| card.efforts.clone()),
        refuses_budget: card.budget.map(|takes| !takes),
        max_output: card.max_output.filter(|most| *most > 0),
        context: card.context.filter(|most| *most > 0),
        ..Row::default()
    }
}
