//! The operator's configuration, as the gateway uses it. It is replaced as a whole when it changes.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{Backend, Pricing};
use crate::catalog::{Catalog, Tariff};
use crate::route::Routes;

/// The configuration that a turn needs.
#[derive(Debug)]
pub struct Settings {
    /// The backends, in the order of the configuration.
    pub backends: Vec<Arc<Backend>>,
    /// Which request goes to which backend.
    pub routes: Routes,
    /// What is known about models.
    pub catalog: Arc<Catalog>,
    /// Which thinking may be sent back.
    pub thinking: Thinking,
    /// The members in which clients of the chat dialect get reasoning as plain text.
    pub reasoning_fields: Vec<String>,
    /// Limits for requests.
    pub limits: Limits,
    /// The silence after which a client gets a keep-alive.
    pub keep_alive: Duration,
    /// Whether request and reply bodies may be recorded and logged.
    pub full_body: bool,
    /// Whether logged JSON is indented.
    pub pretty_print: bool,
}

impl Settings {
    /// The backend of this name.
    pub fn backend(&self, name: &str) -> Option<&Arc<Backend>> {
        self.backends.iter().find(|backend| backend.name == name)
    }

    /// What the tokens of a backend's model cost.
    pub fn tariff(&self, backend: &str, model: &str) -> Tariff {
        match self.backend(backend).map(|backend| backend.pricing) {
            Some(Pricing::Free) => Tariff::Free,
            _ => match self.catalog.find_at(backend, model).price {
                Some(price) => Tariff::Priced(price),
                None => Tariff::Unknown,
            },
        }
    }

    /// The models that the configuration names, by the names they have at their backends.
    pub fn upstream_models(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().flat_map(|backend| {
            let mapped = backend.models.iter().map(|(_, name)| name.as_str());
            mapped.chain(backend.default_model.as_deref())
        })
    }

    /// The names of all backends, for error messages.
    pub fn names(&self) -> String {
        let names: Vec<String> =
            self.backends.iter().map(|backend| format!("`{}`", backend.name)).collect();
        names.join(", ")
    }
}

/// Which thinking may be sent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thinking {
    /// When a block may go to a target.
    pub policy: Policy,
    /// What to do with blocks whose maker is unknown.
    pub unknown: Unknown,
    /// The age after which a block that was never sent back is forgotten.
    pub orphan_threshold: Duration,
    /// How many bytes the memory may use.
    pub memory_limit: usize,
    /// How thinking and tool calls follow each other.
    pub tool_thinking: ToolThinking,
}

/// How thinking and tool calls follow each other within a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolThinking {
    /// As the client asks and the model supports.
    #[default]
    Auto,
    /// All thinking comes before the first call.
    Sequential,
    /// Thinking may also come between calls.
    Interleaved,
}

/// When a block may go to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// If the target reads the signatures of the block's origin.
    Origin,
    /// As `Origin`, but only until the conversation changes its backend.
    Session,
}

/// What to do with blocks whose maker is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Send them, and drop them if they are refused.
    Try,
    /// Drop them.
    Drop,
}

/// Limits for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The size of a request body, in bytes.
    pub body: usize,
    /// The nesting depth of a request body.
    pub json_depth: usize,
    /// Requests in progress at the same time, and as many open WebSockets.
    pub streams: usize,
}
