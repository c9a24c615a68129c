//! Members: users with whom the owner shares a project. A member reads and chats; only the owner changes
//! the project itself, its members and its key.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};
use throughline_canonical::{Fault, FaultKind};
use throughline_gateway::unix_ms;
use throughline_sealing::{KeyCheck, envelope};
use utoipa::ToSchema;

use super::problem::Problem;
use super::{Caller, Projects};
use crate::store::{KeyChange, Member, PreviousKey, Project, ProjectFacts, Run, User};
use crate::users::name::UserName;
use crate::users::wire::{read_wrapped_key, write_bytes};

/// How often a reader who is not the owner is checked. Two checks fit into the promised second.
const MEMBER_CHECK: Duration = Duration::from_millis(400);

/// A new member, or a new wrapped key of one.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewMember {
    /// The name of the user.
    pub name: String,
    /// The present key of the project, sealed for this user. Sealed projects need it.
    pub wrapped_key: Option<String>,
}

/// A member as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberView {
    /// The name of the user.
    pub name: String,
    /// Whether the user owns the project.
    pub owner: bool,
    /// The public key of the user.
    pub public_key: String,
}

/// All members of a project, the owner first.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MemberList {
    /// The members.
    pub members: Vec<MemberView>,
}

/// The key of a project, for one user.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct OwnKey {
    /// The present key, sealed for the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrapped_key: Option<String>,
    /// The check of the present key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_check: Option<String>,
    /// The keys before it, newest first. Each is wrapped under the key after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub previous_keys: Vec<PreviousKey>,
}

/// The next key of a sealed project.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NextKey {
    /// The check of the next key.
    pub key_check: String,
    /// The next key, sealed for the owner and for members, by their names. Who is not here has no key
    /// from now on.
    pub wrapped_keys: BTreeMap<String, String>,
    /// The present key, wrapped under the next one.
    pub previous: String,
}

impl Projects {
    /// Whether a caller may read a project: as its owner, or as a member.
    pub(super) async fn may_read(
        &self,
        caller: &Caller,
        project: &Project,
    ) -> Result<bool, Problem> {
        let is_member = self.is_member(project, &caller.owner).await?;
        Ok(is_member && (project.owner == caller.owner || project.facts.deleted.is_none()))
    }

    /// Whether a caller may read a run: those of own projects, and of shared ones.
    pub(super) async fn may_read_run(&self, caller: &Caller, run: &Run) -> Result<bool, Problem> {
        if run.owner == caller.owner {
            return Ok(true);
        }
        let project = run.scope.strip_prefix("project:").unwrap_or_default();
        match self.sealed_store.store.project(project).await? {
            Some(project) => self.may_read(caller, &project).await,
            None => Ok(false),
        }
    }

    /// A project that the caller owns, deleted or not. A member may not do what needs it.
    pub(super) async fn owned_project(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Project, Problem> {
        let project = self.any_project(caller, id).await?;
        match project.owner == caller.owner {
            true => Ok(project),
            false => {
                let detail = "only the owner of the project may do this";
                Err(Problem::new(FaultKind::Forbidden, "not-owner", detail)
                    .hint("ask the owner; members read and chat"))
            }
        }
    }

    /// Ready when a project is no longer shared with a reader. `None` for the owner. The store is asked,
    /// because another instance may have removed the member.
    pub async fn end_of_membership(
        self: &Arc<Self>,
        caller: &Caller,
        project: &str,
    ) -> Result<Option<BoxFuture<'static, Fault>>, Problem> {
        let project = self.any_project(caller, project).await?;
        if project.owner == caller.owner {
            return Ok(None);
        }
        let (projects, caller) = (Arc::clone(self), caller.clone());
        let removed = async move {
            while projects.any_project(&caller, &project.id).await.is_ok() {
                tokio::time::sleep(MEMBER_CHECK).await;
            }
            Fault::new(FaultKind::Forbidden, "the reader is no longer a member of this project")
        };
        Ok(Some(removed.boxed()))
    }

    /// Whether a user owns a project, or is a member of it.
    pub(crate) async fn is_member(&self, project: &Project, user: &str) -> Result<bool, Problem> {
        let is_owner = project.owner == user;
        Ok(is_owner || self.sealed_store.store.member(&project.id, user).await?.is_some())
    }

    /// The members of a project.
    pub async fn members(&self, caller: &Caller, project: &str) -> Result<MemberList, Problem> {
        let project = self.own_project(caller, project).await?;
        let store = &self.sealed_store.store;
        let records = store.members(&project.id).await?;
        let others = records.iter().map(|member| &member.user).filter(|id| **id != project.owner);
        let mut members = Vec::new();
        for id in std::iter::once(&project.owner).chain(others) {
            if let Some(user) = store.user(id).await? {
                members.push(view(&project, &user));
            }
        }
        Ok(MemberList { members })
    }

    /// Shares a project with a user, or replaces the wrapped key of one. The owner's own key is stored
    /// in the same way.
    pub async fn add_member(
        &self,
        caller: &Caller,
        project: &str,
        new: NewMember,
    ) -> Result<MemberView, Problem> {
        let project = self.present_owned(caller, project).await?;
        let wrapped_key = match &new.wrapped_key {
            Some(text) => Some(read_wrapped_key("wrappedKey", text)?),
            None if project.facts.key_check.is_some() => {
                return Err(Problem::invalid("wrappedKey", "is missing: the project is sealed"));
            }
            None => None,
        };
        let user = self.user_named(&new.name).await?;
        let member = Member {
            project: project.id.clone(),
            user: user.id.clone(),
            created: unix_ms(),
            wrapped_key,
        };
        let key_check = project.facts.key_check.clone();
        match self.sealed_store.store.put_member(member, key_check).await? {
            true => Ok(view(&project, &user)),
            false => Err(key_changed()),
        }
    }

    /// Removes a member. Members may leave. Their reads of runs in progress end within a second, and
    /// the leases that they have end at once.
    pub async fn remove_member(
        &self,
        caller: &Caller,
        project: &str,
        name: &str,
    ) -> Result<(), Problem> {
        let project = self.own_project(caller, project).await?;
        let user = self.user_named(name).await?;
        if user.id != caller.owner {
            self.owned_project(caller, &project.id).await?;
        }
        if user.id == project.owner {
            return Err(Problem::conflict("owner-stays", "the owner cannot leave the project")
                .hint("delete the project instead"));
        }
        if !self.sealed_store.store.remove_member(&project.id, &user.id).await? {
            return Err(Problem::not_found("member", name));
        }
        self.leases.revoke(|_, lease| lease.project == project.id && lease.owner == user.id);
        Ok(())
    }

    /// The key of a project, sealed for the caller.
    pub async fn own_key(&self, caller: &Caller, id: &str) -> Result<OwnKey, Problem> {
        let project = self.own_project(caller, id).await?;
        match self.find_key(caller, project).await? {
            OwnKey { wrapped_key: None, .. } => {
                Err(Problem::not_found("wrapped key of project", id)
                    .hint("the owner stores it with POST /api/projects/{id}/members"))
            }
            key => Ok(key),
        }
    }

    async fn find_key(&self, caller: &Caller, project: Project) -> Result<OwnKey, Problem> {
        let member = self.sealed_store.store.member(&project.id, &caller.owner).await?;
        let wrapped = member.and_then(|member| member.wrapped_key);
        let ProjectFacts { key_check, previous_keys, .. } = project.facts;
        Ok(OwnKey { wrapped_key: wrapped.as_deref().map(write_bytes), key_check, previous_keys })
    }

    /// Sets the next key of a sealed project. The caller presents the present one. All leases end, and
    /// runs stop, because they hold the present key.
    pub async fn set_next_key(
        &self,
        caller: &Caller,
        project: &str,
        next: NextKey,
    ) -> Result<OwnKey, Problem> {
        let project = self.present_owned(caller, project).await?;
        let Some(present) = project.facts.key_check.clone() else {
            let detail = "a managed project has no key that a client can replace";
            return Err(Problem::conflict("not-sealed", detail));
        };
        let key_check = KeyCheck::read(&next.key_check)
            .map_err(|error| Problem::invalid("keyCheck", error))?
            .to_string();
        if key_check == present {
            return Err(Problem::invalid("keyCheck", "is the check of the present key"));
        }
        let previous = read_wrapped_key("previous", &next.previous)?;
        let names_next = envelope::key_id(&previous).is_ok_and(|id| id.to_string() == key_check);
        if !names_next {
            return Err(Problem::invalid("previous", "is not wrapped under the key of `keyCheck`"));
        }
        self.unlock(caller, &project)?;
        if caller.key.is_none() {
            return Err(Problem::invalid(
                "x-throughline-chat-key",
                "is missing: a lease is not enough",
            ));
        }
        let mut wrapped_keys = Vec::new();
        for (name, wrapped) in &next.wrapped_keys {
            let wrapped = read_wrapped_key(&format!("wrappedKeys.{name}"), wrapped)?;
            wrapped_keys.push((self.user_named(name).await?.id, wrapped));
        }
        let has_owner = wrapped_keys.iter().any(|(user, _)| *user == project.owner);
        if !has_owner && self.sealed_store.store.user(&project.owner).await?.is_some() {
            let missing = "lacks the owner, who would lose the project";
            return Err(Problem::invalid("wrappedKeys", missing)
                .hint("wrap the next key under your own master key, and send it with your name"));
        }
        let change = KeyChange {
            project: project.id.clone(),
            previous: PreviousKey { key_check: present, previous: write_bytes(&previous) },
            key_check,
            wrapped_keys,
        };
        if !self.sealed_store.store.change_key(change).await? {
            return Err(key_changed());
        }
        self.leases.revoke(|_, lease| lease.project == project.id);
        // What they still write would be sealed under the present key.
        self.stop_runs(&project.id).await?;
        self.find_key(caller, self.own_project(caller, &project.id).await?).await
    }

    /// A project that the caller owns, and that is not deleted.
    pub(super) async fn present_owned(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<Project, Problem> {
        self.own_project(caller, id).await?;
        self.owned_project(caller, id).await
    }

    async fn user_named(&self, name: &str) -> Result<User, Problem> {
        let user = match UserName::read(name) {
            Some(name) => self.sealed_store.store.user_named(&name.unique).await?,
            None => None,
        };
        user.ok_or_else(|| Problem::not_found("user", name).hint("check the name"))
    }
}

fn view(project: &Project, user: &User) -> MemberView {
    MemberView {
        name: user.name.clone(),
        owner: user.id == project.owner,
        public_key: write_bytes(&user.public_key),
    }
}

/// The error of a write that knows another key, or other members.
pub(super) fn key_changed() -> Problem {
    let detail = "the key or the members of the project were changed meanwhile";
    Problem::conflict("key-changed", detail).hint(
        "read the project and its members again; `wrappedKeys` may name the owner and members only",
    )
}
