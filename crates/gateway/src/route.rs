//! Chooses the backend of a request: the pinned one, the one that a model rule names, or the active
//! one.

use std::sync::Arc;
use std::time::Duration;

use throughline_canonical::Fault;

use crate::backend::{Backend, longest_match};
use crate::settings::Settings;

/// The operator's routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routes {
    /// The backend that is active at first.
    pub default: String,
    /// Rules for models that go to another backend.
    pub rules: Vec<Rule>,
    /// The backends to try, in order, if the active backend fails.
    pub fallback: Vec<String>,
    /// How long a backend is not tried after a first failure, if there is another one.
    pub cool_down: Duration,
}

/// Sends some models to another backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// A model name, or a prefix that ends in `*`. The longest match wins.
    pub model: String,
    /// The backend's name.
    pub backend: String,
    /// The backends to try, in order, if that backend fails.
    pub fallback: Vec<String>,
}

/// The chosen backends of a request.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The backends to try, in order. Those without a key are not among them.
    pub chain: Vec<Arc<Backend>>,
    /// The backend that comes first by the rules. It may be off.
    pub first: Arc<Backend>,
    /// Whether the active backend was chosen. Only then is a change of backend a switch.
    pub follows_active_backend: bool,
}

impl Routes {
    /// Chooses the backends for one request.
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
        let first = find(name)?;
        let mut chain = vec![first.clone()];
        for next in fallback.iter().filter(|next| *next != name) {
            chain.push(find(next)?);
        }
        chain.retain(|backend| backend.off().is_none());
        if chain.is_empty() {
            first.check_on()?;
        }
        Ok(Chosen { chain, first, follows_active_backend })
    }
}
