//! Leases: chat keys that the server holds for some minutes, so that a client need not send its key
//! with each request. They are in memory only, and end with the process.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use throughline_canonical::FaultKind;
use throughline_gateway::thinking::random;
use throughline_gateway::unix_ms;
use throughline_sealing::ChatKey;
use tokio::sync::watch;
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Caller, Projects};
use crate::sealed_store::expires;

/// The longest lease, in minutes.
const MAX_MINUTES: u64 = 24 * 60;
/// The length of a lease that names none, in minutes.
const DEFAULT_MINUTES: u64 = 15;
/// Leases of one caller that are held at the same time.
const MAX_LEASES: usize = 100;

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
pub(super) struct Leases(Arc<Mutex<HashMap<String, Lease>>>);

#[derive(Debug)]
struct Lease {
    owner: String,
    project: String,
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
            key,
            revoked: watch::Sender::new(false),
        };
        {
            let mut leases = self.0.lock();
            let own = leases.values().filter(|lease| lease.owner == caller.owner).count();
            if own >= MAX_LEASES {
                return Err(too_many());
            }
            leases.insert(id.clone(), lease);
        }
        let (leases, ended) = (Arc::downgrade(&self.0), id.clone());
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
        let leases = self.0.lock();
        let lease = leases.get(id)?;
        let is_own = lease.owner == caller.owner && lease.project == project;
        is_own.then(|| (lease.key.clone(), lease.revoked.subscribe()))
    }

    /// Ends the leases of a project that `ends` names. Runs and readers that use them end too.
    pub(super) fn revoke(&self, project: &str, ends: impl Fn(&str, &str) -> bool) -> usize {
        let mut leases = self.0.lock();
        let before = leases.len();
        leases.retain(|id, lease| {
            let ends = lease.project == project && ends(&lease.owner, id);
            if ends {
                lease.revoked.send_replace(true);
            }
            !ends
        });
        before - leases.len()
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
        Ok(LeaseView { lease, expires_at: expires(unix_ms(), time) })
    }

    /// Ends the lease that the caller presents, or all leases that the caller has on the project. Runs
    /// that were started with them stop, and readers that use them end.
    pub async fn revoke_lease(&self, caller: &Caller, project: &str) -> Result<(), Problem> {
        let project = self.any_project(caller, project).await?;
        let revoked = self.leases.revoke(&project.id, |owner, id| {
            owner == caller.owner && caller.lease.as_deref().is_none_or(|lease| lease == id)
        });
        match revoked {
            0 => Err(Problem::not_found("lease of project", &project.id)
                .hint("it may have ended; leases also end when the server restarts")),
            _ => Ok(()),
        }
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
