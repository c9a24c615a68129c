//! Branches: create, rename, mark, delete, and the lock to a provider and a model.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
use throughline_gateway::unix_ms;
use utoipa::ToSchema;

use super::ids::new_id;
use super::problem::Problem;
use super::project::check_name;
use super::turn::{facts_of, scope};
use super::{Caller, Projects};
use crate::store::{
    Branch, BranchFacts, Changed, Commit, NodeFacts, Outcome, Page, Project, Reference,
};

/// Nodes that are read at a time when a branch is purged.
const NODE_PAGE: usize = 1_000;
/// The longest path of a branch.
pub(super) const MAX_PATH: usize = 1_000_000;

/// A new branch.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NewBranch {
    /// The name.
    pub name: String,
    /// The branch or the node that it leaves from. Empty: `main`.
    pub from_ref: Option<String>,
    /// The backend. Empty: that of the source.
    pub provider: Option<String>,
    /// The model. Empty: that of the source, or the default of the backend.
    pub model: Option<String>,
}

/// A change of a branch.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct BranchChange {
    /// The new name.
    pub name: Option<String>,
    /// Whether it is listed first.
    pub pinned: Option<bool>,
    /// Whether pages should not show it. The list still has it.
    pub hidden: Option<bool>,
    /// Whether the user marked it.
    pub starred: Option<bool>,
    /// Refused: a branch keeps its provider.
    pub provider: Option<String>,
    /// Refused: a branch keeps its model.
    pub model: Option<String>,
}

/// A branch as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchView {
    /// The name.
    pub name: String,
    /// The id.
    pub id: String,
    /// The newest node.
    pub head: Option<String>,
    /// The backend that it is locked to.
    pub provider: String,
    /// The model that it is locked to.
    pub model: String,
    /// The node where it left another branch.
    pub fork_node: Option<String>,
    /// Whether it is listed first.
    pub pinned: bool,
    /// Whether pages should not show it. The list still has it.
    pub hidden: bool,
    /// Whether the user marked it.
    pub starred: bool,
    /// The provider's id of the newest answer, if the provider stores it.
    pub previous_response_id: Option<String>,
    /// The run in progress.
    pub run_id: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// When it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<u64>,
}

impl BranchView {
    fn new(
        reference: Reference,
        run: Option<String>,
        previous_response_id: Option<String>,
    ) -> Option<Self> {
        let branch = reference.branch?;
        let facts = branch.facts;
        Some(Self {
            name: branch.name,
            id: reference.id,
            head: reference.head,
            provider: facts.provider,
            model: facts.model,
            fork_node: facts.fork_node,
            pinned: facts.pinned,
            hidden: facts.hidden,
            starred: facts.starred,
            previous_response_id,
            run_id: run,
            created_at: reference.created,
            deleted_at: facts.deleted,
        })
    }
}

impl Projects {
    /// The branches of a project: pinned ones first, then in the order in which they were made.
    pub async fn branches(
        &self,
        caller: &Caller,
        project: &str,
        deleted: bool,
    ) -> Result<Vec<BranchView>, Problem> {
        let project = self.own_project(caller, project).await?;
        self.branch_views(&project.id, deleted).await
    }

    pub(super) async fn branch_views(
        &self,
        project: &str,
        deleted: bool,
    ) -> Result<Vec<BranchView>, Problem> {
        let store = &self.sealed_store.store;
        let references = store.branches(project).await?;
        let ids: Vec<String> = references.iter().map(|reference| reference.id.clone()).collect();
        let runs = store.active_runs(&ids).await?;
        let mut running: HashMap<String, String> =
            runs.into_iter().filter_map(|run| Some((run.reference?, run.id))).collect();
        let mut stored = self.stored_replies(&references).await?;
        let view = |reference: Reference| {
            let run = running.remove(&reference.id);
            let reply = stored.remove(&reference.id);
            BranchView::new(reference, run, reply)
        };
        let mut views: Vec<BranchView> = references.into_iter().filter_map(view).collect();
        views.retain(|branch| branch.deleted_at.is_some() == deleted);
        views.sort_by_key(|branch| !branch.pinned);
        Ok(views)
    }

    /// Creates a branch.
    pub async fn create_branch(
        &self,
        caller: &Caller,
        project: &str,
        new: NewBranch,
    ) -> Result<BranchView, Problem> {
        let project = self.own_project(caller, project).await?;
        let (source, head) = self.find_source(&project, new.from_ref.as_deref()).await?;
        let facts = source.branch.map(|branch| branch.facts).unwrap_or_default();
        let lock =
            self.resolve_lock(new.provider.as_deref(), new.model.as_deref(), Some(&facts))?;
        let reference = self.new_branch(&project, &new.name, lock, head)?;
        let commit = Commit { reference: Some(reference.clone()), ..Commit::default() };
        match self.sealed_store.store.commit(commit).await? {
            Outcome::NameTaken => Err(name_taken(&new.name)),
            _ => self.show_branch(reference).await,
        }
    }

    /// A branch that is not stored yet.
    pub(super) fn new_branch(
        &self,
        project: &Project,
        name: &str,
        lock: (String, String),
        fork_node: Option<String>,
    ) -> Result<Reference, Problem> {
        check_branch_name(name)?;
        Ok(Reference {
            id: new_id("branch"),
            owner: project.owner.clone(),
            head: fork_node.clone(),
            created: unix_ms(),
            branch: Some(Branch {
                project: project.id.clone(),
                name: name.to_owned(),
                facts: BranchFacts {
                    provider: lock.0,
                    model: lock.1,
                    fork_node,
                    ..BranchFacts::default()
                },
            }),
            ..Reference::default()
        })
    }

    /// The branch that a new one inherits from, and the node where it starts. `from` names a branch,
    /// or a node of the project.
    async fn find_source(
        &self,
        project: &Project,
        from: Option<&str>,
    ) -> Result<(Reference, Option<String>), Problem> {
        let from = from.unwrap_or(super::project::FIRST_BRANCH);
        let node = self.sealed_store.store.node(from).await?;
        let inside = node.and_then(|node| node.in_project);
        let Some(inside) = inside.filter(|inside| inside.project == project.id) else {
            return match self.branch(project, from).await {
                Ok(branch) => {
                    let head = branch.head.clone();
                    Ok((branch, head))
                }
                // After a purge of all branches, the project starts again.
                Err(_) if self.sealed_store.store.branches(&project.id).await?.is_empty() => {
                    Ok((Reference::default(), None))
                }
                Err(problem) => Err(problem),
            };
        };
        let maker = self.sealed_store.store.reference(&inside.facts.branch).await?;
        Ok((maker.unwrap_or_default(), Some(from.to_owned())))
    }

    /// Renames or marks a branch.
    pub async fn change_branch(
        &self,
        caller: &Caller,
        project: &str,
        name: &str,
        change: BranchChange,
    ) -> Result<BranchView, Problem> {
        let project = self.own_project(caller, project).await?;
        let reference = self.branch(&project, name).await?;
        if change.provider.is_some() || change.model.is_some() {
            return Err(locked(&facts_of(&reference)));
        }
        if let Some(new) = &change.name {
            check_branch_name(new)?;
        }
        let changed = self.edit_branch(reference, |branch| {
            let facts = &mut branch.facts;
            facts.pinned = change.pinned.unwrap_or(facts.pinned);
            facts.hidden = change.hidden.unwrap_or(facts.hidden);
            facts.starred = change.starred.unwrap_or(facts.starred);
            if let Some(new) = &change.name {
                branch.name.clone_from(new);
            }
        });
        self.show_branch(changed.await?).await
    }

    /// Deletes a branch. It can be restored. `purge` removes it for good, with the nodes that were
    /// created on it and that no other branch has.
    pub async fn delete_branch(
        &self,
        caller: &Caller,
        project: &str,
        name: &str,
        purge: bool,
    ) -> Result<(), Problem> {
        let project = self.present_owned(caller, project).await?;
        let reference = match self.branch(&project, name).await {
            Ok(reference) => reference,
            Err(problem) if !purge => return Err(problem),
            Err(_) => self.deleted_branch(&project, name).await?,
        };
        let store = &self.sealed_store.store;
        if let Some(run) = store.active_runs(std::slice::from_ref(&reference.id)).await?.pop() {
            return Err(busy(&run.id));
        }
        if purge {
            return self.purge_branch(&project, &reference).await;
        }
        let deleted = self.edit_branch(reference, |branch| {
            branch.facts.deleted.get_or_insert_with(unix_ms);
        });
        deleted.await.map(drop)
    }

    /// Brings a deleted branch back.
    pub async fn restore_branch(
        &self,
        caller: &Caller,
        project: &str,
        name: &str,
    ) -> Result<BranchView, Problem> {
        let project = self.present_owned(caller, project).await?;
        let reference = match self.branch(&project, name).await {
            Ok(present) => return self.show_branch(present).await,
            Err(_) => self.deleted_branch(&project, name).await?,
        };
        let restored = self.edit_branch(reference, |branch| branch.facts.deleted = None);
        self.show_branch(restored.await?).await
    }

    async fn deleted_branch(&self, project: &Project, name: &str) -> Result<Reference, Problem> {
        let mut branches = self.sealed_store.store.branches(&project.id).await?.into_iter();
        let is_named = |reference: &Reference| {
            reference.branch.as_ref().is_some_and(|branch| branch.name == name)
        };
        branches.find(is_named).ok_or_else(|| Problem::not_found("branch", name))
    }

    async fn purge_branch(&self, project: &Project, purged: &Reference) -> Result<(), Problem> {
        let store = &self.sealed_store.store;
        // The nodes that other branches have, and everything before them, stay.
        let mut kept = HashSet::new();
        for branch in store.branches(&project.id).await? {
            let Some(head) = branch.head.filter(|_| branch.id != purged.id) else {
                continue;
            };
            kept.extend(store.path_ids(&head, MAX_PATH).await?);
        }
        let mut after = None;
        loop {
            let page = Page { after: after.take(), limit: NODE_PAGE };
            let nodes = store.project_nodes(&project.id, page).await?;
            let Some(last) = nodes.last() else {
                break;
            };
            after = Some(last.id.clone());
            for node in nodes {
                let made_here =
                    node.in_project.is_some_and(|inside| inside.facts.branch == purged.id);
                if made_here && !kept.contains(&node.id) {
                    store.remove(&node.id).await?;
                }
            }
        }
        // The logs of its runs have contents too.
        for run in store.runs(&project.owner, &scope(&project.id), usize::MAX).await? {
            if run.reference.as_deref() == Some(&*purged.id) {
                store.remove_run(&run.id).await?;
            }
        }
        store.remove_reference(&purged.id).await?;
        Ok(())
    }

    /// Changes a branch. What others change at the same time stays: each attempt starts from what is
    /// stored, and fails only if another request was faster.
    async fn edit_branch(
        &self,
        mut reference: Reference,
        edit: impl Fn(&mut Branch),
    ) -> Result<Reference, Problem> {
        let store = &self.sealed_store.store;
        loop {
            let from = reference.branch.clone().unwrap_or_default();
            let mut to = from.clone();
            edit(&mut to);
            match store.change_branch(&reference.id, from, to.clone()).await? {
                Changed::Yes => return Ok(Reference { branch: Some(to), ..reference }),
                Changed::NameTaken => return Err(name_taken(&to.name)),
                Changed::Stale => {
                    let read = store.reference(&reference.id).await?;
                    let read = read.filter(|read| read.branch.is_some());
                    reference = read.ok_or_else(|| Problem::not_found("branch", &to.name))?;
                }
            }
        }
    }

    /// The provider's ids of the newest answers, by the branch whose next request continues from it.
    async fn stored_replies(
        &self,
        branches: &[Reference],
    ) -> Result<HashMap<String, String>, Problem> {
        let heads: Vec<String> = branches.iter().filter_map(|of| of.head.clone()).collect();
        let facts = self.sealed_store.store.node_facts(&heads).await?;
        let facts: HashMap<String, NodeFacts> = facts.into_iter().collect();
        let stored = branches.iter().filter_map(|branch| {
            let head = facts.get(branch.head.as_deref()?)?;
            let continues = self.continues_from(head, &branch.id, &facts_of(branch));
            Some((branch.id.clone(), head.response_id.clone().filter(|_| continues)?))
        });
        Ok(stored.collect())
    }

    async fn show_branch(&self, reference: Reference) -> Result<BranchView, Problem> {
        let runs = self.sealed_store.store.active_runs(std::slice::from_ref(&reference.id)).await?;
        let name = reference.id.clone();
        let mut stored = self.stored_replies(std::slice::from_ref(&reference)).await?;
        let run = runs.into_iter().next().map(|run| run.id);
        let view = BranchView::new(reference, run, stored.remove(&name));
        view.ok_or_else(|| Problem::not_found("branch", &name))
    }

    /// The provider and the model of a new branch. Without a provider it inherits both from its
    /// source. With one, it gets the source's model if the provider is the same, else the default
    /// model of the provider.
    pub(crate) fn resolve_lock(
        &self,
        provider: Option<&str>,
        model: Option<&str>,
        source: Option<&BranchFacts>,
    ) -> Result<(String, String), Problem> {
        let (settings, own) = (self.gateway.settings(), self.settings());
        let given = |text: Option<&str>| {
            text.map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let (provider, model) = (given(provider), given(model));
        let source = source.filter(|source| !source.provider.is_empty());
        let default = || match own.provider.as_str() {
            "" => settings.routes.default.clone(),
            provider => provider.to_owned(),
        };
        let inherited = || source.map(|source| source.provider.clone());
        let wanted = provider.clone().or_else(inherited).unwrap_or_else(default);
        let backend = settings
            .backends
            .iter()
            .find(|backend| backend.name.eq_ignore_ascii_case(&wanted))
            .ok_or_else(|| {
                let known = settings.names();
                Problem::invalid("provider", format!("there is no provider `{wanted}`"))
                    .hint(format!("the configured ones are {known}"))
            })?;
        let of_source = || {
            let same = source.filter(|source| source.provider == backend.name)?;
            Some(same.model.clone())
        };
        let configured = || {
            let is_default = provider.is_none() && !own.model.is_empty();
            is_default.then(|| own.model.clone())
        };
        let model = model.or_else(of_source).or_else(configured);
        let model = model.or_else(|| backend.default_model.clone()).ok_or_else(|| {
            let name = &backend.name;
            Problem::invalid("model", format!("provider `{name}` has no default model"))
                .hint("name a model, or set `default_model` of the backend")
        })?;
        Ok((backend.name.clone(), model))
    }

    /// Checks that a request does not ask for another provider or model than the branch has.
    pub(super) fn check_lock(
        &self,
        facts: &BranchFacts,
        provider: Option<&str>,
        model: Option<&str>,
    ) -> Result<(), Problem> {
        if provider.is_none() && model.is_none() {
            return Ok(());
        }
        let (provider, model) = self.resolve_lock(provider, model, Some(facts))?;
        match (&provider, &model) == (&facts.provider, &facts.model) {
            true => Ok(()),
            false => Err(locked(facts)),
        }
    }
}

/// The error of a request that would change the provider or the model of a branch.
pub(crate) fn locked(facts: &BranchFacts) -> Problem {
    let BranchFacts { provider, model, .. } = facts;
    Problem::conflict(
        "locked",
        format!("this branch is locked to provider `{provider}` and model `{model}`"),
    )
    .with("lock", serde_json::json!({"provider": provider, "model": model}))
    .hint(
        "create a branch with the other provider or model: POST /api/projects/{id}/branches, or send \
         `\"autoBranch\": true`",
    )
}

/// The error of a request that needs an idle branch.
pub(super) fn busy(run: &str) -> Problem {
    Problem::conflict("busy", "an answer is being written on this branch")
        .with("runId", run)
        .hint("wait for its end, or stop it: POST /api/runs/{id}/stop")
}

pub(super) fn name_taken(name: &str) -> Problem {
    Problem::conflict("name-taken", format!("the project has a branch `{name}`"))
        .hint("choose another name; deleted branches keep theirs until they are purged")
}

fn check_branch_name(name: &str) -> Result<(), Problem> {
    if name.trim().is_empty() || name != name.trim() || name.contains('/') {
        let wrong = "must not be empty, and must have no `/` and no space at its ends";
        return Err(Problem::invalid("name", wrong));
    }
    check_name("name", name)
}
