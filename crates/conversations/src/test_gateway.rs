//! A gateway without backends, for tests of conversations.

use std::sync::Arc;
use std::time::Duration;

use throughline_gateway::Gateway;
use throughline_gateway::catalog::Catalog;
use throughline_gateway::gateway::Stores;
use throughline_gateway::route::Routes;
use throughline_gateway::settings::{Limits, Policy, Settings, Thinking, ToolThinking, Unknown};
use throughline_gateway::thinking::store as memory;
use throughline_gateway::thinking::vault::store::InMemoryVault;
use throughline_sealing::Keyring;

/// A gateway that can reach no provider.
pub(crate) fn gateway(keyring: Arc<Keyring>) -> Arc<Gateway> {
    let thinking = Thinking {
        policy: Policy::Origin,
        unknown: Unknown::Try,
        orphan_threshold: Duration::from_secs(300),
        memory_limit: 1 << 20,
        tool_thinking: ToolThinking::Auto,
    };
    let settings = Settings {
        backends: Vec::new(),
        catalog: Arc::new(Catalog::embedded()),
        routes: Routes::default(),
        thinking,
        reasoning_fields: Vec::new(),
        limits: Limits { body: 1 << 20, json_depth: 128, streams: 1 },
        keep_alive: Duration::from_secs(3600),
        full_body: false,
        pretty_print: false,
    };
    let stores = Stores {
        memory: Arc::new(memory::InMemory::default()),
        vault: Arc::new(InMemoryVault::default()),
    };
    Arc::new(Gateway::new(settings, memory::Snapshot::default(), stores, keyring))
}
