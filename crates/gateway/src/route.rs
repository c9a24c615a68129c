//! Which backend a request goes to: the one it is pinned to, the one a model rule names, or the
//! active one.

use std::sync::Arc;

use throughline_canonical::Fault;

use crate::backend::{Backend, longest_match};
use crate::settings::Settings;

/// The operator's routes.
#[derive(Clone, Debug, Default)]
pub struct Routes {
    /// The backend that is active at first.
    pub default: String,
    /// Models that go elsewhere.
    pub rules: Vec<Rule>,
    /// Where to go, in order, when the active backend cannot answer.
    pub fallback: Vec<String>,
}

/// Models that go elsewhere.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which models.
    pub model: String,
    /// To which backend.
    pub backend: String,
    /// Where to go, in order, when it cannot answer.
    pub fallback: Vec<String>,
}

/// Where a request goes, and why.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The backends to ask, first the one that was chosen.
    pub chain: Vec<Arc<Backend>>,
    /// Whether the active backend was used. Only then a change of backend is a switch.
    pub follows_active_backend: bool,
}

impl Routes {
    /// Chooses for one request.
    pub fn choose(
        &self,
        settings: &Settings,
        pin: Option<&str>,
        model: Option<&str>,
        active: &str,
    ) -> Result<Chosen, Fault> {
        let rule = model.and_then(|model| {
            let rows = self.rules.iter().map(|rule| (rule.model.as_str(), rule));
            longest_match(rows, model)
        });
        let none = Vec::new();
        let (name, fallback, follows_active_backend) = match (pin, rule) {
            (Some(name), _) => (name, &none, false),
            (None, Some(rule)) => (rule.backend.as_str(), &rule.fallback, false),
            (None, None) => (active, &self.fallback, true),
        };
        let find = |name: &str| {
            settings.backend(name).cloned().ok_or_else(|| {
                Fault::invalid(format!(
                    "there is no backend `{name}`; the configured ones are {}",
                    settings.names()
                ))
            })
        };
        let mut chain = vec![find(name)?];
        for next in fallback.iter().filter(|next| *next != name) {
            chain.push(find(next)?);
        }
        Ok(Chosen { chain, follows_active_backend })
    }
}
