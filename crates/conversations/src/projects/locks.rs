//! Who can read the contents of a project. The server has the key of a managed project. For a sealed one
//! the caller presents it; without it there are only ciphertexts, flags and counts.

use std::sync::Arc;

use throughline_canonical::FaultKind;
use throughline_sealing::{KeyCheck, OpenError};

use super::problem::Problem;
use super::{Caller, Projects};
use crate::chat_seal::ChatSeal;
use crate::store::Project;

/// Who holds the key of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProjectMode {
    /// The server: its keyring has it.
    #[default]
    Managed,
    /// The client.
    Sealed,
}

impl ProjectMode {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Managed => "managed",
            Self::Sealed => "sealed",
        }
    }

    fn read(name: &str) -> Option<Self> {
        [Self::Managed, Self::Sealed].into_iter().find(|mode| mode.as_str() == name)
    }
}

/// Checks the mode of a new project. Returns the mode and the check of its key.
pub(super) fn check_mode(
    caller: &Caller,
    mode: Option<&str>,
    default: ProjectMode,
    key_check: Option<&str>,
) -> Result<(ProjectMode, Option<String>), Problem> {
    let mode = match mode {
        None => default,
        Some(name) => ProjectMode::read(name)
            .ok_or_else(|| Problem::invalid("mode", "must be `managed` or `sealed`"))?,
    };
    let check = match (mode, key_check) {
        (ProjectMode::Managed, None) => None,
        (ProjectMode::Managed, Some(_)) => {
            return Err(Problem::invalid("keyCheck", "belongs to sealed projects only"));
        }
        (ProjectMode::Sealed, None) => {
            return Err(Problem::invalid("keyCheck", "is required for a sealed project")
                .hint("docs/sealing.md says how it is computed from the chat key"));
        }
        (ProjectMode::Sealed, Some(check)) => {
            let check = KeyCheck::read(check);
            Some(check.map_err(|error| Problem::invalid("keyCheck", error))?)
        }
    };
    match (&caller.key, check) {
        (Some(key), Some(check)) if key.key_check() != check => Err(wrong_key(key.key_check())),
        _ => Ok((mode, check.map(|check| check.to_string()))),
    }
}

impl Projects {
    /// The seal of a project, or why the caller cannot open its contents.
    pub(crate) fn unlock(
        &self,
        caller: &Caller,
        project: &Project,
    ) -> Result<Arc<ChatSeal>, Problem> {
        self.seal_of(caller, project)?.ok_or_else(locked)
    }

    /// The seal of a project; `None` if it is sealed and the caller presents no key.
    pub(crate) fn seal_of(
        &self,
        caller: &Caller,
        project: &Project,
    ) -> Result<Option<Arc<ChatSeal>>, Problem> {
        let Some(check) = &project.facts.key_check else {
            let seal = ChatSeal::managed(&self.sealed_store.keyring, &project.id);
            return Ok(Some(Arc::new(seal)));
        };
        let (key, revoked) = match (&caller.key, &caller.lease) {
            (Some(key), _) => (key.clone(), None),
            (None, Some(lease)) => {
                let held = self.leases.find(caller, &project.id, lease).ok_or_else(lease_ended)?;
                (held.0, Some(held.1))
            }
            (None, None) => return Ok(None),
        };
        if key.key_check().to_string() != *check {
            return Err(wrong_key(key.key_check()));
        }
        let seal = ChatSeal::sealed(&project.id, key, &project.facts.previous_keys, revoked);
        seal.map(|seal| Some(Arc::new(seal))).map_err(broken_chain)
    }

    /// The seal of a project whose key the server has.
    pub(super) fn managed_seal(&self, project: &Project) -> Option<Arc<ChatSeal>> {
        let is_managed = project.facts.key_check.is_none();
        is_managed.then(|| Arc::new(ChatSeal::managed(&self.sealed_store.keyring, &project.id)))
    }
}

/// The error of a request that needs the key.
pub(super) fn locked() -> Problem {
    Problem::locked("this project is sealed, and the request has no key to it").hint(
        "send the chat key as `x-throughline-chat-key`, or make a lease with \
         POST /api/projects/{id}/lease and send it as `x-throughline-lease`",
    )
}

fn lease_ended() -> Problem {
    Problem::locked("the lease has ended, or belongs to another project").hint(
        "make a new one with POST /api/projects/{id}/lease; leases also end when the server restarts",
    )
}

/// The error of a key that is not the project's. Nothing was stored.
pub(super) fn wrong_key(presented: KeyCheck) -> Problem {
    Problem::conflict(
        "wrong-key",
        "the chat key is not the key of this project; nothing was stored",
    )
    .with("code", "wrong_key")
    .with("presentedKeyCheck", presented.to_string())
    .hint("present the key whose check is the project's `keyCheck`; it may have been changed")
}

/// The error of a request whose key was replaced while it was answered. Nothing was stored.
pub(super) fn replaced_key(seal: &ChatSeal) -> Problem {
    match seal.present_key() {
        Some(key) => wrong_key(key),
        None => Problem::conflict("wrong-key", "the project is gone, or has another key"),
    }
}

fn broken_chain(error: OpenError) -> Problem {
    tracing::error!(%error, "cannot open an earlier key of a project");
    let detail = "an earlier key of this project cannot be opened with the present one";
    Problem::new(FaultKind::Internal, "unreadable", detail)
}
