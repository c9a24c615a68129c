//! Several instances on one store. Before a turn is planned, the memory gets what the others have
//! recorded about it; what they have learnt and what their operators have chosen is read every two
//! seconds. Conversations that no instance uses any more are removed by age.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use throughline_canonical::{Block, BlockKey};
use throughline_codec::dialects::compaction::Compaction;
use tokio::time::Instant;

use crate::gateway::{ACTIVE, BINDS_PREFIX, Gateway, KEY_SITE};
use crate::history::compaction::outlined_compactions;
use crate::history::recall::client_key;
use crate::refused_settings;
use crate::thinking::Vault;
use crate::thinking::writer::Changes;
use crate::turn::request::ParsedRequest;
use crate::unix_ms;

/// How long a piece of a reply waits until what was learnt from it is written.
const MAX_HELD: Duration = Duration::from_secs(1);
/// How often the facts of other instances are read.
const FACTS_INTERVAL: Duration = Duration::from_secs(2);
/// How often unused conversations are removed.
const CLEANING_INTERVAL: Duration = Duration::from_secs(3600);
/// How long a conversation is remembered after its last request.
const MAX_UNUSED: Duration = Duration::from_secs(90 * 24 * 3600);

/// The writes that a client must not outrun: its next request may go to another instance.
#[derive(Clone, Debug)]
pub(crate) struct SharedWrites {
    changes: Changes,
    vault: Arc<Vault>,
}

impl SharedWrites {
    /// A number that differs after every change.
    pub(crate) fn pushed(&self) -> u64 {
        self.changes.pushed().wrapping_add(self.vault.pushed())
    }

    /// Whether the store has failed. Then no request waits for it.
    pub(crate) fn have_failed(&self) -> bool {
        self.changes.health().failure().or_else(|| self.vault.health().failure()).is_some()
    }

    /// Waits until everything is written, but not for long.
    pub(crate) async fn written(self) {
        let written = async { tokio::join!(self.changes.flush(), self.vault.flush()) };
        let _ = tokio::time::timeout(MAX_HELD, written).await;
    }
}

impl Gateway {
    /// The writes that replies wait for, if the store is shared.
    pub(crate) fn shared_writes(&self) -> Option<SharedWrites> {
        let writes = || SharedWrites { changes: self.changes.clone(), vault: self.vault.clone() };
        self.memory.is_shared().then(writes)
    }

    /// Takes over what other instances have recorded about a request. Costs nothing if the store is
    /// not shared. If the store fails, the memory answers with what it knows.
    pub(crate) async fn ask_others(&self, request: &ParsedRequest) {
        // Turns of sealed projects leave nothing in the memory, so no instance knows more about them.
        if !self.memory.is_shared() || request.incoming.private {
            return;
        }
        let search = self.memory.search(request.lineage, self.block_keys(request).into_iter());
        match self.memory_store.find(search).await {
            Ok(found) => self.memory.merge(request.lineage, found, request.in_conversation),
            Err(error) => tracing::error!(
                error = &error as &dyn std::error::Error,
                "cannot find out what other instances know about the request"
            ),
        }
    }

    /// The keys of everything in a request that the memory may know.
    fn block_keys(&self, request: &ParsedRequest) -> Vec<BlockKey> {
        let dialect = request.incoming.dialect;
        let body = &request.body;
        if let Some(outline) = &request.outline {
            let compactions = outlined_compactions(dialect.name(), body, outline);
            let blocks = self.outlined_keys(body, outline).into_iter().flatten();
            return blocks.chain(compactions.map(|found| found.key())).collect();
        }
        let binds_text = dialect.defaults().signature_binds_text;
        let mut keys = Vec::new();
        if let Ok(accepted) = request.canonical() {
            let blocks = accepted.request.messages.iter().flat_map(|message| &message.content);
            keys.extend(blocks.filter_map(|block| match block {
                Block::Opaque { dialect, value } => Some(Compaction::read(dialect, value)?.key()),
                other => client_key(other, binds_text),
            }));
        }
        if let Some(outline) = request.opaque_outline() {
            let parts = self.replayable_parts(outline, body, binds_text);
            keys.extend(parts.into_iter().flatten().filter_map(|(_, key)| key));
        }
        keys
    }

    /// Follows the other instances on a shared store, forever. Run this as a task.
    pub async fn follow_others(self: Arc<Self>) {
        let mut next_cleaning = Instant::now();
        let mut ticks = tokio::time::interval(FACTS_INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.merge_facts().await;
            if Instant::now() >= next_cleaning {
                next_cleaning = Instant::now() + CLEANING_INTERVAL;
                let unused = u64::try_from(MAX_UNUSED.as_millis()).unwrap_or(u64::MAX);
                let before = unix_ms().saturating_sub(unused);
                match self.memory_store.forget_unused(before).await {
                    Ok(0) => {}
                    Ok(conversations) => {
                        tracing::info!(conversations, "removed unused conversations");
                    }
                    Err(error) => tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot remove unused conversations"
                    ),
                }
            }
        }
    }

    /// Reads the facts and applies those that other instances have changed.
    pub async fn merge_facts(&self) {
        // A switch of our own is stored before it is applied.
        let _changing = self.stored_settings.changing.lock().await;
        match self.memory_store.facts().await {
            Ok(facts) => self.apply_facts(&facts),
            // The writers report a store that is lost.
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "cannot read what other instances have learnt"
            ),
        }
    }

    fn apply_facts(&self, facts: &HashMap<String, String>) {
        let settings = self.settings();
        self.learnt.merge(facts);
        refused_settings::restore(&settings.catalog, facts);
        let binding = facts.keys().filter_map(|fact| fact.strip_prefix(BINDS_PREFIX));
        self.binding.write().extend(binding.map(ToOwned::to_owned));
        if let Some(site) = facts.get(KEY_SITE) {
            *self.key_site.write() = Some(site.clone());
        }
        let Some(name) = facts.get(ACTIVE).filter(|name| settings.backend(name).is_some()) else {
            return;
        };
        let mut active = self.active.write();
        if **active != **name {
            tracing::info!(
                old_backend = &**active,
                new_backend = name,
                "Active backend changed by another instance"
            );
            *active = name.as_str().into();
        }
    }
}
