//! What the operator has chosen while the server runs, such as the active backend. It is written
//! before it takes effect, because the operator must learn if a restart would forget it.

use std::sync::Arc;

use throughline_canonical::{Fault, FaultKind};

use crate::thinking::health::StoreHealth;
use crate::thinking::store::{Change, Store};

/// Writes the operator's choices, as facts in the store of the memory.
#[derive(Debug)]
pub(crate) struct StoredSettings {
    store: Arc<dyn Store>,
    pub(crate) health: StoreHealth,
    /// Held while a choice is checked, written and applied.
    pub(crate) changing: tokio::sync::Mutex<()>,
}

impl StoredSettings {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            health: StoreHealth::new("settings"),
            changing: tokio::sync::Mutex::default(),
        }
    }

    /// Writes facts, all or none. `what` names the choice in the error.
    pub(crate) async fn write(&self, what: &str, facts: Vec<(&str, &str)>) -> Result<(), Fault> {
        if facts.is_empty() {
            return Ok(());
        }
        let fact = |(name, value): (&str, &str)| Change::Fact(name.into(), Some(value.into()));
        let written = self.store.write(facts.into_iter().map(fact).collect()).await;
        self.health.record(&written);
        written.map_err(|error| {
            Fault::new(
                FaultKind::Internal,
                format!("cannot store {what}, so nothing was changed: {}", error.cause),
            )
        })
    }

    /// Why the store cannot be written.
    pub(crate) async fn check_store(&self) -> Option<String> {
        let failure = self.health.check(self.store.check_write()).await;
        failure.map(|failure| format!("cannot store the active backend: {failure}"))
    }
}
