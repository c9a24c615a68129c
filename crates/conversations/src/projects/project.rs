//! Projects: create, list, change, delete.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use throughline_gateway::unix_ms;
use utoipa::ToSchema;

use super::ids::new_id;
use super::locks::{check_mode, locked};
use super::members::key_changed;
use super::problem::Problem;
use super::unreadable::{Unreadable, or_unreadable};
use super::{BranchView, Caller, Projects};
use crate::chat_seal::{ChatSeal, Field, SealedFields};
use crate::store::{
    Branch, BranchFacts, Changed, Commit, Page, Project, ProjectFacts, Reference, RunStatus,
    project_scope,
};

/// The name of the first branch.
pub(crate) const FIRST_BRANCH: &str = "main";
/// The longest title or name, in characters.
pub(super) const MAX_NAME: usize = 500;
/// Projects that are read at a time while titles or contents are searched.
const SEARCH_PAGE: usize = 200;
/// Projects whose title one request looks at. The next request goes on.
const MAX_SEARCHED: usize = 5_000;
/// Damaged values that one search reports.
const MAX_UNREADABLE: usize = 100;

/// A new project.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProject {
    /// The title. If it is empty, the model writes one after the first answer.
    pub title: String,
    /// The backend of its first branch.
    pub provider: Option<String>,
    /// The model of its first branch.
    pub model: Option<String>,
    /// Who holds the key: `managed` (the server) or `sealed` (the client). Default: `projects.mode`.
    pub mode: Option<String>,
    /// The check of the chat key of a sealed project, in base64url.
    pub key_check: Option<String>,
    /// The system text of all requests.
    pub system: Option<String>,
}

/// A change of a project.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectChange {
    /// The new title.
    pub title: Option<String>,
    /// The new system text. An empty one removes it.
    pub system: Option<String>,
}

/// Which projects to list.
#[derive(Clone, Debug, Default)]
pub struct ProjectQuery {
    /// A part of the title, or of the content.
    pub search: Option<String>,
    /// Whether to search in contents instead of titles.
    pub in_content: bool,
    /// Whether to list deleted projects instead.
    pub deleted: bool,
    /// The id after which the list goes on.
    pub after: Option<String>,
    /// The largest number of projects.
    pub limit: usize,
}

/// What is sealed of a project.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ProjectContent {
    pub(super) title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) system: Option<String>,
}

/// A project as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectView {
    /// The id.
    pub id: String,
    /// The title. `null` if the project is sealed and the request has no key.
    pub title: Option<String>,
    /// The title of a sealed project, sealed.
    #[serde(rename = "encrypted_title", skip_serializing_if = "Option::is_none")]
    pub encrypted_title: Option<String>,
    /// Who holds the key: `managed` or `sealed`.
    pub mode: String,
    /// The check of the chat key of a sealed project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_check: Option<String>,
    /// The system text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// When it was deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<u64>,
    /// Its branches. Lists leave them out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<BranchView>,
    /// The nodes in which a searched text was found.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<super::history::Match>,
    /// Why the title and the system text are missing although the request may read them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Unreadable>,
}

/// A page of projects.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProjectList {
    /// The projects, newest first.
    pub projects: Vec<ProjectView>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
    /// What a search could not look at, at most 100 values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl Projects {
    /// Creates a project with its first branch.
    pub async fn create(&self, caller: &Caller, new: NewProject) -> Result<ProjectView, Problem> {
        let lock = self.resolve_lock(new.provider.as_deref(), new.model.as_deref(), None)?;
        self.create_locked(caller, new, lock).await
    }

    /// Creates a project whose first branch is locked to this provider and model. Empty ones lock nothing:
    /// the branch of a room has members with models of their own.
    pub(crate) async fn create_locked(
        &self,
        caller: &Caller,
        new: NewProject,
        lock: (String, String),
    ) -> Result<ProjectView, Problem> {
        let (mode, key_check) = check_mode(
            caller,
            new.mode.as_deref(),
            self.settings().mode,
            new.key_check.as_deref(),
        )?;
        check_name("title", &new.title)?;
        let now = unix_ms();
        let mut project = Project {
            id: new_id("project"),
            owner: caller.owner.clone(),
            created: now,
            facts: ProjectFacts {
                mode: mode.as_str().to_owned(),
                key_check,
                ..ProjectFacts::default()
            },
            sealed: Vec::new(),
        };
        let system = new.system.filter(|system| !system.is_empty());
        match self.seal_of(caller, &project)? {
            Some(seal) => {
                seal_project(&seal, &mut project, &ProjectContent { title: new.title, system });
            }
            // A client that never shows its key adds the title later, with the key.
            None if new.title.is_empty() && system.is_none() => {}
            None => return Err(locked()),
        }
        let store = &self.sealed_store.store;
        store.put_project(project.clone()).await?;
        let reference = Reference {
            id: new_id("branch"),
            owner: caller.owner.clone(),
            created: now,
            branch: Some(Branch {
                project: project.id.clone(),
                name: FIRST_BRANCH.to_owned(),
                facts: BranchFacts { provider: lock.0, model: lock.1, ..BranchFacts::default() },
            }),
            ..Reference::default()
        };
        store.commit(Commit { reference: Some(reference), ..Commit::default() }).await?;
        self.show(caller, &project).await
    }

    /// A project.
    pub async fn get(&self, caller: &Caller, id: &str) -> Result<ProjectView, Problem> {
        self.show(caller, &self.own_project(caller, id).await?).await
    }

    /// Changes a project.
    pub async fn change(
        &self,
        caller: &Caller,
        id: &str,
        change: ProjectChange,
    ) -> Result<ProjectView, Problem> {
        if let Some(title) = &change.title {
            check_name("title", title)?;
        }
        let project = self.present_owned(caller, id).await?;
        let seal = self.unlock(caller, &project)?;
        let changed = self.edit_project(project, |project| {
            let mut content = project_content(&seal, project)?;
            if let Some(title) = &change.title {
                content.title.clone_from(title);
            }
            if let Some(system) = &change.system {
                content.system = Some(system.clone()).filter(|system| !system.is_empty());
            }
            seal_project(&seal, project, &content);
            Ok(())
        });
        self.show(caller, &changed.await?).await
    }

    /// Changes a project. What others change at the same time stays: each attempt starts from what is
    /// stored, and fails only if another request was faster.
    pub(super) async fn edit_project(
        &self,
        mut project: Project,
        edit: impl Fn(&mut Project) -> Result<(), Problem>,
    ) -> Result<Project, Problem> {
        let store = &self.sealed_store.store;
        loop {
            let mut to = project.clone();
            edit(&mut to)?;
            if store.change_project(project.clone(), to.clone()).await? == Changed::Yes {
                return Ok(to);
            }
            let read = store.project(&project.id).await?;
            let read = read.ok_or_else(|| Problem::not_found("project", &project.id))?;
            // What was sealed under the key before must not be stored any more.
            if read.facts.key_check != project.facts.key_check {
                return Err(key_changed());
            }
            project = read;
        }
    }

    /// Deletes a project. It can be restored, unless `purge` removes it for good.
    pub async fn delete(&self, caller: &Caller, id: &str, purge: bool) -> Result<(), Problem> {
        let project = self.owned_project(caller, id).await?;
        let store = &self.sealed_store.store;
        if purge {
            self.stop_runs(id).await?;
            store.remove_project(id).await?;
            return Ok(());
        }
        let deleted = self.edit_project(project, |project| {
            project.facts.deleted.get_or_insert_with(unix_ms);
            Ok(())
        });
        deleted.await.map(drop)
    }

    /// Stops all runs of a project.
    pub(super) async fn stop_runs(&self, project: &str) -> Result<(), Problem> {
        let store = &self.sealed_store.store;
        let branches = store.branches(project).await?.into_iter();
        let branches: Vec<String> = branches.map(|branch| branch.id).collect();
        for run in store.active_runs(&branches).await? {
            self.runs.stop(&run.id).await?;
        }
        // Runs of rooms are on no branch.
        let Some(project) = store.project(project).await? else {
            return Ok(());
        };
        let runs = store.runs(&project.owner, &project_scope(&project.id), usize::MAX).await?;
        for run in runs.iter().filter(|run| run.status == RunStatus::Running) {
            self.runs.stop(&run.id).await?;
        }
        Ok(())
    }

    /// Brings a deleted project back.
    pub async fn restore(&self, caller: &Caller, id: &str) -> Result<ProjectView, Problem> {
        let project = self.owned_project(caller, id).await?;
        let restored = self.edit_project(project, |project| {
            project.facts.deleted = None;
            Ok(())
        });
        self.show(caller, &restored.await?).await
    }

    /// Lists projects, or searches them.
    pub async fn list(&self, caller: &Caller, query: ProjectQuery) -> Result<ProjectList, Problem> {
        let searched = query.search.as_deref().map(str::to_lowercase);
        let limit = query.limit;
        let mut page = Page { after: query.after, limit: limit.max(1) + 1 };
        if searched.is_some() {
            page.limit = SEARCH_PAGE;
        }
        let (mut found, mut looked_at, mut unreadable) = (Vec::new(), 0, Vec::new());
        loop {
            let batch = self
                .sealed_store
                .store
                .projects(&caller.owner, query.deleted, page.clone())
                .await?;
            let is_last = batch.len() < page.limit;
            for project in batch {
                if found.len() == limit || looked_at == MAX_SEARCHED {
                    let next = page.after;
                    return Ok(ProjectList { projects: found, next, unreadable });
                }
                looked_at += 1;
                page.after = Some(project.id.clone());
                let seal = self.seal_of(caller, &project).ok().flatten();
                let mut view = summary(&project, seal.as_deref())?;
                match &searched {
                    Some(text) if query.in_content => {
                        // A sealed project is not searched, even if the request has its key.
                        let seal = seal.filter(|seal| !seal.is_clients());
                        if let Some(seal) = seal {
                            let found = self.search_content(&seal, &project.id, text).await?;
                            view.matches = found.matches;
                            unreadable.extend(found.unreadable);
                        }
                        unreadable.truncate(MAX_UNREADABLE);
                        if view.matches.is_empty() {
                            continue;
                        }
                    }
                    Some(text) if !view.has_in_title(text) => {
                        unreadable.extend(view.problem);
                        unreadable.truncate(MAX_UNREADABLE);
                        continue;
                    }
                    _ => {}
                }
                found.push(view);
            }
            if is_last {
                return Ok(ProjectList { projects: found, next: None, unreadable });
            }
        }
    }

    async fn show(&self, caller: &Caller, project: &Project) -> Result<ProjectView, Problem> {
        let branches = self.branch_views(&project.id, false).await?;
        let seal = self.seal_of(caller, project)?;
        Ok(ProjectView { branches, ..summary(project, seal.as_deref())? })
    }
}

impl ProjectView {
    fn has_in_title(&self, searched: &str) -> bool {
        self.title.as_ref().is_some_and(|title| title.to_lowercase().contains(searched))
    }
}

/// The opened content of a project.
pub(super) fn project_content(
    seal: &ChatSeal,
    project: &Project,
) -> Result<ProjectContent, Problem> {
    // A sealed project that was created without its key has no content yet.
    if project.sealed.is_empty() {
        return Ok(ProjectContent::default());
    }
    let fields = SealedFields::read(&project.sealed);
    let sealed = fields.as_ref().and_then(|fields| fields.get(Field::Project));
    Ok(seal.open_json(Field::Project, "", sealed.unwrap_or(&project.sealed))?)
}

pub(super) fn seal_project(seal: &ChatSeal, project: &mut Project, content: &ProjectContent) {
    let mut fields =
        SealedFields::default().with(Field::Project, seal.seal_json(Field::Project, "", content));
    if seal.is_clients() {
        fields = fields.with(Field::Title, seal.seal(Field::Title, "", content.title.as_bytes()));
    }
    project.sealed = fields.write();
}

/// A project without its branches. If its content does not open, it says so.
fn summary(project: &Project, seal: Option<&ChatSeal>) -> Result<ProjectView, Problem> {
    let content = seal.map(|seal| project_content(seal, project).map(Some));
    let (content, problem) = or_unreadable(content.unwrap_or(Ok(None)))?;
    let fields = SealedFields::read(&project.sealed).unwrap_or_default();
    let encrypted_title =
        fields.get(Field::Title).map(|title| BASE64_URL_SAFE_NO_PAD.encode(title));
    let (title, system) = content.map_or((None, None), |of| (Some(of.title), of.system));
    Ok(ProjectView {
        id: project.id.clone(),
        title,
        encrypted_title,
        mode: project.facts.mode.clone(),
        key_check: project.facts.key_check.clone(),
        system,
        created_at: project.created,
        deleted_at: project.facts.deleted,
        branches: Vec::new(),
        matches: Vec::new(),
        problem,
    })
}

/// Checks a title or a name.
pub(crate) fn check_name(member: &str, name: &str) -> Result<(), Problem> {
    match name.chars().count() {
        0..=MAX_NAME if !name.contains(char::is_control) => Ok(()),
        0..=MAX_NAME => Err(Problem::invalid(member, "must not have control characters")),
        _ => Err(Problem::invalid(member, format!("must have at most {MAX_NAME} characters"))),
    }
}
