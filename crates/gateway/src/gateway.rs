//! The state that lives as long as the server: configuration, memory, vault, active backend and
//! metrics. The turn itself is in [`crate::turn`].

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use throughline_canonical::{Fault, FaultKind};
use throughline_sealing::Keyring;
use tokio::sync::Semaphore;

use crate::backend::{Auth, Backend};
use crate::cool_down::{CoolDown, FailingBackends};
use crate::learnt_reasoning::LearntReasoning;
use crate::metrics::Metrics;
use crate::models::Lists;
use crate::refused_settings;
use crate::reply::repair::CompleteBackends;
use crate::settings::Settings;
use crate::shutdown::Shutdown;
use crate::stored_settings::StoredSettings;
use crate::thinking::health::StoreHealth;
use crate::thinking::store::{Change, Snapshot, Store};
use crate::thinking::writer::Changes;
use crate::thinking::{Envelopes, Memory, Vault, VaultLimits, VaultStore};
use crate::turn::log::Turns;

/// The stored fact that names the active backend.
pub(crate) const ACTIVE: &str = "active_backend";
/// The stored fact that names the site which receives the callers' own keys.
pub(crate) const KEY_SITE: &str = "caller_key_site";
/// The prefix of the stored facts about backends that bind thinking to its conversation.
pub(crate) const BINDS_PREFIX: &str = "binds_thinking:";

/// The stores of a gateway.
#[derive(Clone)]
pub struct Stores {
    /// The store of the thinking memory and of the operator's choices.
    pub memory: Arc<dyn Store>,
    /// The store of the vault.
    pub vault: Arc<dyn VaultStore>,
}

/// The state that lives as long as the server. Many fields: each one is a subsystem that turns share.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) settings: ArcSwap<Settings>,
    pub(crate) active: RwLock<Arc<str>>,
    pub(crate) stored_settings: StoredSettings,
    pub(crate) memory_store: Arc<dyn Store>,
    /// The site of the last active backend that received the callers' own keys.
    pub(crate) key_site: RwLock<Option<String>>,
    pub(crate) binding: RwLock<HashSet<String>>,
    /// What replies have shown about the reasoning of models.
    pub(crate) learnt: Arc<LearntReasoning>,
    pub(crate) complete_backends: Arc<CompleteBackends>,
    /// Which backends fail.
    pub(crate) failing: FailingBackends,
    /// Remembers who made which thinking block.
    pub memory: Arc<Memory>,
    /// Seals signatures for clients of other dialects.
    pub envelopes: Envelopes,
    /// Stored turns, for clients that cannot hold all of a turn.
    pub vault: Arc<Vault>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The recent turns.
    pub turns: Arc<Turns>,
    pub(crate) changes: Changes,
    pub(crate) lists: Mutex<Lists>,
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) max_streams: usize,
    /// Ends requests in progress.
    pub(crate) shutdown: Shutdown,
}

impl Gateway {
    /// Creates a gateway from its stores and a snapshot of the memory's store. Starts their writers,
    /// so it must be called inside a Tokio runtime.
    pub fn new(
        settings: Settings,
        snapshot: Snapshot,
        stores: Stores,
        keyring: Arc<Keyring>,
    ) -> Self {
        let changes = Changes::default();
        tokio::spawn(changes.clone().write_to(stores.memory.clone()));
        let known = |name: &String| settings.backend(name).is_some();
        let active = snapshot.facts.get(ACTIVE).filter(|name| known(name));
        let active: Arc<str> = active.unwrap_or(&settings.routes.default).as_str().into();
        let binding = snapshot
            .facts
            .keys()
            .filter_map(|fact| fact.strip_prefix(BINDS_PREFIX))
            .map(ToOwned::to_owned)
            .collect();
        let max_streams = settings.limits.streams;
        let is_shared = stores.memory.is_shared();
        let key_site = snapshot.facts.get(KEY_SITE).cloned().or_else(|| {
            let now = settings.backend(&active)?;
            (now.auth == Auth::Passthrough).then(|| now.site())
        });
        refused_settings::restore(&settings.catalog, &snapshot.facts);
        let metrics = Arc::new(Metrics::default());
        metrics.know_models(settings.upstream_models());
        let learnt = Arc::new(LearntReasoning::new(&snapshot, &changes));
        let memory = Arc::new(Memory::new(snapshot, changes.clone()));
        if is_shared {
            memory.share();
        }
        Self {
            active: RwLock::new(active),
            stored_settings: StoredSettings::new(stores.memory.clone()),
            memory_store: stores.memory,
            key_site: RwLock::new(key_site),
            binding: RwLock::new(binding),
            learnt,
            complete_backends: Arc::default(),
            failing: FailingBackends::default(),
            memory,
            envelopes: Envelopes::new(keyring.clone()),
            vault: Arc::new(Vault::new(keyring, stores.vault, VaultLimits::default())),
            metrics,
            turns: Arc::default(),
            changes,
            lists: Mutex::default(),
            streams: Arc::new(Semaphore::new(max_streams)),
            max_streams,
            shutdown: Shutdown::default(),
            settings: ArcSwap::from_pointee(settings),
        }
    }

    /// The current configuration.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Replaces the configuration. Requests in progress keep the one they began with, and the limit
    /// of concurrent streams does not change. Fails if callers' keys would go to a new site without
    /// permission.
    pub async fn configure(&self, settings: Settings) -> Result<(), Fault> {
        let _changing = self.stored_settings.changing.lock().await;
        let settings = Arc::new(settings);
        let active = self.active();
        let name: Arc<str> = match settings.backend(&active) {
            Some(_) => active,
            None => settings.routes.default.as_str().into(),
        };
        let new_site = match settings.backend(&name) {
            Some(next) => self.check_key_site(next)?,
            None => None,
        };
        let facts = new_site.iter().map(|site| (KEY_SITE, site.as_str())).collect();
        self.stored_settings.write("the new configuration", facts).await?;
        self.apply_key_site(new_site);
        *self.active.write() = name;
        self.metrics.know_models(settings.upstream_models());
        self.settings.store(settings);
        Ok(())
    }

    /// Checks that the next active backend may receive the callers' own keys: it is at the same
    /// site as before, or `share_caller_key` allows it. Returns the site, if it is new.
    fn check_key_site(&self, next: &Backend) -> Result<Option<String>, Fault> {
        let key_site = self.key_site.read();
        if let Some(site) = &*key_site
            && !may_receive_key(next, site)
        {
            let name = &next.name;
            return Err(Fault::new(
                FaultKind::Conflict,
                format!(
                    "`{name}` would receive the caller's own key, which was sent to {site} so far; set \
                     `share_caller_key = true` on `{name}` if its operator may see it too"
                ),
            ));
        }
        let site = (next.auth == Auth::Passthrough).then(|| next.site());
        Ok(site.filter(|site| key_site.as_deref() != Some(site)))
    }

    fn apply_key_site(&self, new_site: Option<String>) {
        if new_site.is_some() {
            *self.key_site.write() = new_site;
        }
    }

    /// The active backend.
    pub fn active(&self) -> Arc<str> {
        self.active.read().clone()
    }

    /// The backend that a request would go to first.
    pub fn backend_for(
        &self,
        pin: Option<&str>,
        model: Option<&str>,
    ) -> Result<Arc<Backend>, Fault> {
        let settings = self.settings();
        let routes = &settings.routes;
        let chosen = routes.choose(&settings, pin, model, &self.active())?;
        Ok(chosen.chain[0].clone())
    }

    /// Whether the last requests to a backend succeeded.
    pub fn healthy(&self, backend: &str) -> bool {
        self.failing.healthy(backend)
    }

    /// The parts of a backend that are not tried at the moment, if there is another backend.
    pub fn cool_downs(&self, backend: &str) -> Vec<CoolDown> {
        self.failing.cool_downs(backend, Instant::now())
    }

    /// The number of requests in progress.
    pub fn in_progress(&self) -> usize {
        self.max_streams.saturating_sub(self.streams.available_permits())
    }

    /// Waits until no request is in progress. No request can start meanwhile.
    pub async fn wait_until_idle(&self) {
        let all = u32::try_from(self.max_streams).unwrap_or(u32::MAX);
        drop(self.streams.acquire_many(all).await);
    }

    /// Ends all requests in progress with an error that their clients can see.
    pub fn end_requests(&self) {
        self.shutdown.begin();
    }

    /// Waits until all requests in progress have to end.
    pub async fn requests_end(&self) {
        self.shutdown.begun().await;
    }

    /// What is known about the writes to each store.
    pub fn store_health(&self) -> [&StoreHealth; 3] {
        [self.changes.health(), self.vault.health(), &self.stored_settings.health]
    }

    /// Why stores cannot be written, one reason for each. Stores that were not written for a while
    /// are tried.
    pub async fn check_stores(&self) -> Vec<String> {
        let memory = self.changes.check(self.memory_store.check_write());
        let settings = self.stored_settings.check_store();
        let failures = tokio::join!(memory, self.vault.check_store(), settings);
        [failures.0, failures.1, failures.2].into_iter().flatten().collect()
    }

    /// Waits until the memory and the vault have written everything, or have failed.
    pub async fn flush(&self) {
        tokio::join!(self.changes.flush(), self.vault.flush());
    }

    /// Like [`Gateway::flush`], and reports what could not be written. Call this last.
    pub async fn close(&self) {
        self.flush().await;
        self.changes.report_unwritten();
        self.vault.report_unwritten();
    }

    /// Makes another backend the active one. Returns the previous one. If that cannot be stored, the
    /// active backend stays.
    pub async fn switch(&self, name: &str) -> Result<Arc<str>, Fault> {
        // Lock first, so that a new configuration cannot remove the backend in between.
        let _changing = self.stored_settings.changing.lock().await;
        let settings = self.settings();
        let Some(next) = settings.backend(name) else {
            return Err(Fault::new(
                FaultKind::NotFound,
                format!(
                    "there is no backend `{name}`; the configured ones are {}",
                    settings.names()
                ),
            ));
        };
        next.check_on()?;
        let new_site = self.check_key_site(next)?;
        let mut facts = vec![(ACTIVE, name)];
        facts.extend(new_site.iter().map(|site| (KEY_SITE, site.as_str())));
        self.stored_settings.write("the active backend", facts).await?;
        self.apply_key_site(new_site);
        let previous = std::mem::replace(&mut *self.active.write(), name.into());
        tracing::info!(old_backend = &*previous, new_backend = name, "Active backend changed");
        Ok(previous)
    }

    /// Whether a backend is known to bind thinking to its conversation.
    pub(crate) fn binds_thinking(&self, backend: &str) -> bool {
        self.binding.read().contains(backend)
    }

    /// Remembers that a backend binds thinking to its conversation.
    pub(crate) fn learn_binding(&self, backend: &str) {
        if self.binding.write().insert(backend.to_owned()) {
            tracing::info!(backend, "this backend binds thinking to its conversation");
            let fact = format!("{BINDS_PREFIX}{backend}");
            self.changes.push(Change::Fact(fact, Some("yes".into())));
        }
    }
}

/// Whether a backend may receive a caller's key that was sent to this site before.
pub(crate) fn may_receive_key(backend: &Backend, site: &str) -> bool {
    backend.auth != Auth::Passthrough || backend.share_caller_key || backend.site() == site
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use throughline_canonical::Origin;

    use super::*;
    use crate::route::Routes;
    use crate::settings::{Limits, Policy, Thinking, ToolThinking, Unknown};
    use crate::thinking::store::{InMemory, Store};
    use crate::thinking::vault::store::InMemoryVault;
    use crate::thinking::{StoredTurn, VaultKey};

    #[tokio::test]
    async fn flush_writes_the_memory_and_the_vault() {
        let settings = Settings {
            backends: Vec::new(),
            catalog: Arc::new(crate::catalog::Catalog::embedded()),
            routes: Routes::default(),
            thinking: Thinking {
                policy: Policy::Origin,
                unknown: Unknown::Try,
                orphan_threshold: Duration::from_secs(300),
                memory_limit: 1 << 20,
                tool_thinking: ToolThinking::Auto,
            },
            reasoning_fields: Vec::new(),
            limits: Limits { body: 1 << 20, json_depth: 128, streams: 1 },
            keep_alive: Duration::from_secs(15),
            full_body: false,
            pretty_print: false,
        };
        let (memory, vault) = (Arc::new(InMemory::default()), Arc::new(InMemoryVault::default()));
        let stores = Stores { memory: memory.clone(), vault: vault.clone() };
        let keyring = Arc::new(Keyring::new([1; 32]));
        let gateway = Gateway::new(settings, Snapshot::default(), stores, keyring);
        gateway.changes.push(Change::Fact("name".into(), Some("value".into())));
        let kept = StoredTurn {
            origin: Origin {
                domain: "a".into(),
                backend: "a".into(),
                model: "m".into(),
                credential: String::new(),
            },
            session: 1,
            conversation: None,
            prefix: None,
            blocks: Vec::new(),
        };
        let name = VaultKey::of_call("call_1");
        gateway.vault.store(&[name], &kept);
        gateway.flush().await;
        assert_eq!(gateway.check_stores().await, [""; 0]);
        assert_eq!(memory.load().await.unwrap().facts.len(), 1);
        assert!(vault.read(name).await.unwrap().is_some());
    }
}
