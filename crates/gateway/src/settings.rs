//! What the operator configured, as the gateway uses it. Replaced as a whole when it changes.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::Backend;
use crate::catalog::Catalog;
use crate::route::Routes;

/// Everything a turn needs to know of the configuration.
#[derive(Debug)]
pub struct Settings {
    /// The backends, in the order they were configured.
    pub backends: Vec<Arc<Backend>>,
    /// Which request goes where.
    pub routes: Routes,
    /// What is known of models.
    pub catalog: Arc<Catalog>,
    /// What may be replayed.
    pub thinking: Thinking,
    /// The members in which clients of the chat dialect get reasoning as plain text.
    pub reasoning_fields: Vec<String>,
    /// Bounds.
    pub limits: Limits,
    /// Silence after which a client gets a sign of life.
    pub keep_alive: Duration,
    /// Whether contents may be kept and logged.
    pub full_body: bool,
    /// Whether logged JSON is spread over lines.
    pub pretty_print: bool,
}

impl Settings {
    /// The backend of this name.
    pub fn backend(&self, name: &str) -> Option<&Arc<Backend>> {
        self.backends.iter().find(|backend| backend.name == name)
    }

    /// The names of all backends, for messages.
    pub fn names(&self) -> String {
        let names: Vec<String> =
            self.backends.iter().map(|backend| format!("`{}`", backend.name)).collect();
        names.join(", ")
    }
}

/// What may be replayed.
#[derive(Clone, Copy, Debug)]
pub struct Thinking {
    /// When a block may go to a target.
    pub policy: Policy,
    /// What to do with blocks never seen.
    pub unknown: Unknown,
    /// Age after which a block that never came back is forgotten.
    pub orphan_threshold: Duration,
    /// Bytes the memory may take.
    pub memory_limit: usize,
    /// How thinking and tool calls follow each other.
    pub tool_thinking: ToolThinking,
}

/// How thinking and tool calls follow each other within a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolThinking {
    /// As the client asks and the model can.
    #[default]
    Auto,
    /// All thinking comes before the first call.
    Sequential,
    /// Thinking may come between calls too.
    Interleaved,
}

/// When a block may go to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// When the target reads the signatures of the block's origin.
    Origin,
    /// As `Origin`, and only until the conversation changes its backend.
    Session,
}

/// What to do with blocks never seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// Send them, and take them out if they are refused.
    Try,
    /// Leave them out.
    Drop,
}

/// Bounds.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of a request body.
    pub body: usize,
    /// Levels of nesting in it.
    pub json_depth: usize,
    /// Requests in progress at a time.
    pub streams: usize,
}
