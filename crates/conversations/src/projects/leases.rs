//! Leases: chat keys that the server holds for some minutes, so that a client need not send its key
//! with each request. They are in memory only, and end with the process.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use throughline_canonical::FaultKind;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;
use throughline_sealing::ChatKey;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Caller, Projects};
use crate::sealed_store::expires;
use crate::store::{Store, TokenHash};

/// The longest lease, in minutes.
const MAX_MINUTES: u64 = 24 * 60;
/// The length of a lease that names none, in minutes.
const DEFAULT_MINUTES: u64 = 15;
/// Leases of one caller that are held at the same time.
const MAX_LEASES: usize = 100;

/// How often leases are checked against a store that other processes use too. Two checks fit into the
/// promised second.
const WATCH_INTERVAL: Duration = Duration::from_millis(400);

/// Asks for a lease.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaseRequest {
    /// How long the server may hold the key, 1 to 1440 minutes. Default: 15.
    pub minutes: Option<u64>,
}

/// A lease as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseView {
    /// The value of the header `x-throughline-lease`.
    pub lease: String,
    /// When it ends, in milliseconds since 1970.
    pub expires_at: u64,
}

/// All leases of this process.
#[derive(Debug, Default)]
pub(super) struct Leases {
    held: Arc<Mutex<HashMap<String, Lease>>>,
    /// Whether a task checks them against a store that other processes use too.
    is_watched: Arc<AtomicBool>,
}

/// A chat key that the server holds.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) owner: String,
    pub(super) project: String,
    /// The session of the user who made it, if there are users.
    pub(super) session: Option<TokenHash>,
    /// Erased from memory when the lease is dropped.
    key: ChatKey,
    revoked: watch::Sender<bool>,
}

impl Leases {
    /// Holds a key for some time. Must be called inside a Tokio runtime.
    fn grant(
        &self,
        caller: &Caller,
        project: &str,
        key: ChatKey,
        time: Duration,
    ) -> Result<String, Problem> {
        let secret = random::secret::<16>().map_err(|_| no_randomness())?;
        let id = format!("lease_{}", throughline_canonical::thinking::hex(&secret));
        let lease = Lease {
            owner: caller.owner.clone(),
            project: project.to_owned(),
            session: caller.session,
            key,
            revoked: watch::Sender::new(false),
        };
        {
            let mut leases = self.held.lock();
            let own = leases.values().filter(|lease| lease.owner == caller.owner).count();
            if own >= MAX_LEASES {
                return Err(too_many());
            }
            leases.insert(id.clone(), lease);
        }
        let (leases, ended) = (Arc::downgrade(&self.held), id.clone());
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(leases) = leases.upgrade() {
                leases.lock().remove(&ended);
            }
        });
        Ok(id)
    }

    /// The key of a lease, and what says that it was revoked.
    pub(super) fn find(
        &self,
        caller: &Caller,
        project: &str,
        id: &str,
    ) -> Option<(ChatKey, watch::Receiver<bool>)> {
        let leases = self.held.lock();
        let lease = leases.get(id)?;
        let is_own = lease.owner == caller.owner && lease.project == project;
        is_own.then(|| (lease.key.clone(), lease.revoked.subscribe()))
    }

    /// Ends the leases that `ends` names, by id and content. Runs and readers that use them end too.
    pub(super) fn revoke(&self, ends: impl Fn(&str, &Lease) -> bool) -> usize {
        let mut leases = self.held.lock();
        let before = leases.len();
        leases.retain(|id, lease| {
            let ends = ends(id, lease);
            if ends {
                lease.revoked.send_replace(true);
            }
            !ends
        });
        before - leases.len()
    }

    /// Ends leases whose key or session has ended at another process. One task does this for all leases,
    /// as long as there are any.
    fn watch(self: &Arc<Self>, store: Arc<dyn Store>) {
        if !store.is_shared() || self.is_watched.swap(true, Ordering::AcqRel) {
            return;
        }
        let leases = Arc::downgrade(self);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(WATCH_INTERVAL).await;
                let Some(leases) = leases.upgrade() else { return };
                // A store that does not answer proves nothing, and requests fail with it anyway.
                if let Err(error) = leases.check(&*store).await {
                    tracing::warn!(%error, "cannot check leases");
                }
                if leases.stop_watching() {
                    return;
                }
            }
        });
    }

    /// Whether no lease is left. The next one then starts another task.
    fn stop_watching(&self) -> bool {
        let held = self.held.lock();
        let is_over = held.is_empty();
        if is_over {
            self.is_watched.store(false, Ordering::Release);
        }
        is_over
    }

    async fn check(&self, store: &dyn Store) -> Result<(), StoreError> {
        let (projects, sessions) = {
            let held = self.held.lock();
            let projects: BTreeSet<String> =
                held.values().map(|lease| lease.project.clone()).collect();
            let sessions: BTreeSet<TokenHash> =
                held.values().filter_map(|lease| lease.session).collect();
            (projects.into_iter().collect::<Vec<_>>(), sessions)
        };
        let checks: HashMap<String, Option<String>> =
            store.key_checks(&projects).await?.into_iter().collect();
        let mut ended = BTreeSet::new();
        for session in sessions {
            if store.session(session).await?.is_none() {
                ended.insert(session);
            }
        }
        // A lease that was made meanwhile is checked the next time.
        self.revoke(|_, lease| {
            let key_check = Some(lease.key.key_check().to_string());
            let has_other_key = match checks.get(&lease.project) {
                Some(present) => *present != key_check,
                None => projects.contains(&lease.project),
            };
            has_other_key || lease.session.is_some_and(|session| ended.contains(&session))
        });
        Ok(())
    }
}

impl Projects {
    /// Holds the key that the caller presents for some minutes.
    pub async fn lease(
        &self,
        caller: &Caller,
        project: &str,
        request: LeaseRequest,
    ) -> Result<LeaseView, Problem> {
        let project = self.own_project(caller, project).await?;
        if project.facts.key_check.is_none() {
            let detail = "a managed project needs no lease: its key is the server's";
            return Err(Problem::conflict("not-sealed", detail)
                .hint("use the project without a key, or make one with `\"mode\": \"sealed\"`"));
        }
        let minutes = request.minutes.unwrap_or(DEFAULT_MINUTES);
        if !(1..=MAX_MINUTES).contains(&minutes) {
            return Err(Problem::invalid("minutes", format!("must be 1 to {MAX_MINUTES}")));
        }
        self.unlock(caller, &project)?;
        let key = caller.key.clone().ok_or_else(|| {
            Problem::invalid("x-throughline-chat-key", "is missing: a lease is made with the key")
        })?;
        let time = Duration::from_secs(60 * minutes);
        let lease = self.leases.grant(caller, &project.id, key, time)?;
        self.leases.watch(self.sealed_store.store.clone());
        Ok(LeaseView { lease, expires_at: expires(unix_ms(), time) })
    }

    /// Ends the lease that the caller presents, or all leases that the caller has on the project. Runs
    /// that were started with them stop, and readers that use them end.
    pub async fn revoke_lease(&self, caller: &Caller, project: &str) -> Result<(), Problem> {
        let project = self.any_project(caller, project).await?;
        let revoked = self.leases.revoke(|id, lease| {
            lease.project == project.id
                && lease.owner == caller.owner
                && caller.lease.as_deref().is_none_or(|wanted| wanted == id)
        });
        match revoked {
            0 => Err(Problem::not_found("lease of project", &project.id)
                .hint("it may have ended; leases also end when the server restarts")),
            _ => Ok(()),
        }
    }
}

impl Projects {
    /// Ends the leases that were made with a session, which has ended.
    pub fn end_leases_of_session(&self, session: TokenHash) {
        self.leases.revoke(|_, lease| lease.session == Some(session));
    }

    /// Ends all leases of a user, whose passphrase has changed.
    pub fn end_leases_of_user(&self, user: &str) {
        self.leases.revoke(|_, lease| lease.owner == user);
    }
}

fn too_many() -> Problem {
    let detail = format!("this caller holds too many leases (limit {MAX_LEASES})");
    Problem::new(FaultKind::RateLimited, "too-many-leases", detail)
        .hint("end some with DELETE /api/projects/{id}/lease")
}

fn no_randomness() -> Problem {
    let detail = "the system has no randomness for a lease";
    Problem::new(FaultKind::Internal, "no-randomness", detail)
}
