//! Thinking settings that models have refused, as stored facts. The catalog applies them.

use std::collections::HashMap;

use throughline_codec::dialects::RefusedSetting;

use crate::catalog::Catalog;
use crate::gateway::Gateway;
use crate::thinking::store::Change;
use crate::turn::Attempt;

/// The prefix of the stored facts. The rest is the backend's name, which has no slash, a slash and the
/// model's name.
const FACT: &str = "refused_settings:";

/// Restores the stored refusals.
pub(crate) fn restore(catalog: &Catalog, facts: &HashMap<String, String>) {
    for (fact, stored) in facts {
        let model = fact.strip_prefix(FACT).and_then(|name| name.split_once('/'));
        if let Some((backend, model)) = model {
            catalog.restore_refused(backend, model, stored);
        }
    }
}

impl Gateway {
    /// Remembers that the model of an attempt refuses a thinking setting.
    pub(crate) fn learn_refused_setting(
        &self,
        attempt: &Attempt<'_>,
        model: &str,
        refused: &RefusedSetting,
    ) {
        let backend = &attempt.backend.name;
        let stored = attempt.settings.catalog.learn_refused(backend, model, refused);
        if let Some(stored) = stored {
            tracing::info!(backend, model, ?refused, "this model refuses a thinking setting");
            self.changes.push(Change::Fact(format!("{FACT}{backend}/{model}"), Some(stored)));
        }
    }
}
