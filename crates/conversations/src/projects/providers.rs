//! The provider registry: which backends and models a branch can have, and what they can do.

use serde::Serialize;
use serde_json::{Value, json};
use throughline_gateway::backend::Backend;
use throughline_gateway::catalog::{Catalog, Form, Off, Shows};
use utoipa::ToSchema;

use super::Projects;

/// A provider as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderView {
    /// The id: the name of the backend.
    pub id: String,
    /// The dialect that it speaks.
    pub dialect: String,
    /// Whether it can be used.
    pub configured: bool,
    /// What to do if it cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Whether new projects use it.
    pub default: bool,
    /// The model of new branches.
    pub default_model: Option<String>,
    /// The models that the configuration names.
    pub models: Vec<ModelView>,
}

/// A model as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelView {
    /// The name.
    pub id: String,
    /// How thinking is set, and what is shown of it. Members are `null` if the model is not known.
    #[schema(value_type = Object)]
    pub thinking: Value,
    /// The context length in tokens, if known.
    pub context: Option<u64>,
    /// The output limit in tokens, if known.
    pub max_output: Option<u64>,
    /// Whether it calls tools. True unless the catalog knows that it cannot.
    pub tools: bool,
    /// Whether it is known to read images.
    pub images: bool,
}

impl Projects {
    /// All providers.
    pub fn providers(&self) -> Vec<ProviderView> {
        let settings = self.gateway.settings();
        let chosen = self.settings().provider;
        let default = if chosen.is_empty() { settings.routes.default.clone() } else { chosen };
        let view = |backend: &Backend| ProviderView {
            id: backend.name.clone(),
            dialect: backend.dialect.name().to_owned(),
            configured: backend.off().is_none(),
            hint: backend.off().map(|to_do| to_do.to_string()),
            default: backend.name == default,
            default_model: backend.default_model.clone(),
            models: models(backend, &settings.catalog),
        };
        settings.backends.iter().map(|backend| view(backend)).collect()
    }
}

/// The models that a backend's configuration names.
fn models(backend: &Backend, catalog: &Catalog) -> Vec<ModelView> {
    let mapped = backend.models.iter().map(|(_, name)| name.as_str());
    let mut names: Vec<&str> = backend.default_model.as_deref().into_iter().chain(mapped).collect();
    let mut seen = std::collections::HashSet::new();
    names.retain(|name| seen.insert(*name));
    let view = |name: &str| {
        let known = catalog.find_at(&backend.name, name);
        // Nothing is said about a model that the catalog does not know.
        let supported = known.thinking.map(|form| form != Form::None);
        let can_be_off = known.thinking.map(|_| known.off == Off::Disabled);
        ModelView {
            id: name.to_owned(),
            thinking: json!({
                "form": known.thinking,
                "efforts": known.efforts,
                "budget": known.budget_max.map(|most| json!({"min": known.budget_min, "max": most})),
                "canBeOff": can_be_off,
                "byDefault": known.thinking.map(|_| known.unasked),
                "supported": supported,
                "shows": match known.shows {
                    Some(Shows::Full) => "full",
                    Some(Shows::Summary) => "summary",
                    Some(Shows::Nothing) => "nothing",
                    None => "unknown",
                },
            }),
            context: known.context,
            max_output: known.max_output,
            tools: !known.lacks_tools,
            images: known.vision,
        }
    };
    names.into_iter().map(view).collect()
}
