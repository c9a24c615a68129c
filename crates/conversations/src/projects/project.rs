//! Projects: create, list, change, delete.

use serde::{Deserialize, Serialize};
use throughline_gateway::unix_ms;
use utoipa::ToSchema;

use super::ids::new_id;
use super::problem::Problem;
use super::{BranchView, Projects};
use crate::sealed_store::SealedKind;
use crate::store::{Branch, BranchFacts, Changed, Commit, Page, Project, ProjectFacts, Reference};

/// The name of the first branch.
pub(super) const FIRST_BRANCH: &str = "main";
/// The longest title or name, in characters.
pub(super) const MAX_NAME: usize = 500;
/// Projects that are read at a time while titles or contents are searched.
const SEARCH_PAGE: usize = 200;
/// Projects whose title one request looks at. The next request goes on.
const MAX_SEARCHED: usize = 5_000;

/// A new project.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NewProject {
    /// The title.
    pub title: String,
    /// The backend of its first branch.
    pub provider: Option<String>,
    /// The model of its first branch.
    pub model: Option<String>,
    /// Who holds the key: `managed`.
    pub mode: Option<String>,
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
    /// The title.
    pub title: String,
    /// Who holds the key.
    pub mode: String,
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
}

/// A page of projects.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProjectList {
    /// The projects, newest first.
    pub projects: Vec<ProjectView>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
}

impl Projects {
    /// Creates a project with its first branch.
    pub async fn create(&self, owner: &str, new: NewProject) -> Result<ProjectView, Problem> {
        let mode = new.mode.as_deref().unwrap_or("managed");
        if mode != "managed" {
            return Err(Problem::invalid(
                "mode",
                "must be `managed`; sealed projects are not available yet",
            ));
        }
        check_name("title", &new.title)?;
        let lock = self.resolve_lock(new.provider.as_deref(), new.model.as_deref(), None)?;
        let now = unix_ms();
        let mut project = Project {
            id: new_id("project"),
            owner: owner.to_owned(),
            created: now,
            facts: ProjectFacts { mode: mode.to_owned(), deleted: None },
            sealed: Vec::new(),
        };
        let system = new.system.filter(|system| !system.is_empty());
        self.seal_project(&mut project, &ProjectContent { title: new.title, system });
        let store = &self.sealed_store.store;
        store.put_project(project.clone()).await?;
        let reference = Reference {
            id: new_id("branch"),
            owner: owner.to_owned(),
            created: now,
            branch: Some(Branch {
                project: project.id.clone(),
                name: FIRST_BRANCH.to_owned(),
                facts: BranchFacts { provider: lock.0, model: lock.1, ..BranchFacts::default() },
            }),
            ..Reference::default()
        };
        store.commit(Commit { reference: Some(reference), ..Commit::default() }).await?;
        self.show(&project).await
    }

    /// A project.
    pub async fn get(&self, owner: &str, id: &str) -> Result<ProjectView, Problem> {
        self.show(&self.own_project(owner, id).await?).await
    }

    /// Changes a project.
    pub async fn change(
        &self,
        owner: &str,
        id: &str,
        change: ProjectChange,
    ) -> Result<ProjectView, Problem> {
        if let Some(title) = &change.title {
            check_name("title", title)?;
        }
        let project = self.own_project(owner, id).await?;
        let changed = self.edit_project(project, |project| {
            let mut content = self.project_content(project)?;
            if let Some(title) = &change.title {
                content.title.clone_from(title);
            }
            if let Some(system) = &change.system {
                content.system = Some(system.clone()).filter(|system| !system.is_empty());
            }
            self.seal_project(project, &content);
            Ok(())
        });
        self.show(&changed.await?).await
    }

    /// Changes a project. What others change at the same time stays: each attempt starts from what is
    /// stored, and fails only if somebody else was faster.
    async fn edit_project(
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
            project = read.ok_or_else(|| Problem::not_found("project", &project.id))?;
        }
    }

    /// Deletes a project. It can be restored, unless `purge` removes it for good.
    pub async fn delete(&self, owner: &str, id: &str, purge: bool) -> Result<(), Problem> {
        let project = self.any_project(owner, id).await?;
        let store = &self.sealed_store.store;
        if purge {
            for branch in store.branches(id).await? {
                for run in store.active_runs(&[branch.id]).await? {
                    self.runs.stop(&run.id).await?;
                }
            }
            store.remove_project(id).await?;
            return Ok(());
        }
        let deleted = self.edit_project(project, |project| {
            project.facts.deleted.get_or_insert_with(unix_ms);
            Ok(())
        });
        deleted.await.map(drop)
    }

    /// Brings a deleted project back.
    pub async fn restore(&self, owner: &str, id: &str) -> Result<ProjectView, Problem> {
        let project = self.any_project(owner, id).await?;
        let restored = self.edit_project(project, |project| {
            project.facts.deleted = None;
            Ok(())
        });
        self.show(&restored.await?).await
    }

    /// Lists projects, or searches them.
    pub async fn list(&self, owner: &str, query: ProjectQuery) -> Result<ProjectList, Problem> {
        let searched = query.search.as_deref().map(str::to_lowercase);
        let limit = query.limit;
        let mut page = Page { after: query.after, limit: limit.max(1) + 1 };
        if searched.is_some() {
            page.limit = SEARCH_PAGE;
        }
        let (mut found, mut looked_at) = (Vec::new(), 0);
        loop {
            let batch =
                self.sealed_store.store.projects(owner, query.deleted, page.clone()).await?;
            let is_last = batch.len() < page.limit;
            for project in batch {
                if found.len() == limit || looked_at == MAX_SEARCHED {
                    return Ok(ProjectList { projects: found, next: page.after });
                }
                looked_at += 1;
                page.after = Some(project.id.clone());
                let mut view = self.summary(&project)?;
                match &searched {
                    Some(text) if query.in_content => {
                        view.matches = self.search_content(&project.id, text).await?;
                        if view.matches.is_empty() {
                            continue;
                        }
                    }
                    Some(text) if !view.title.to_lowercase().contains(text) => continue,
                    _ => {}
                }
                found.push(view);
            }
            if is_last {
                return Ok(ProjectList { projects: found, next: None });
            }
        }
    }

    pub(super) fn project_content(&self, project: &Project) -> Result<ProjectContent, Problem> {
        let opened = self.sealed_store.open(SealedKind::Project, &project.id, &project.sealed);
        Ok(opened?)
    }

    fn seal_project(&self, project: &mut Project, content: &ProjectContent) {
        project.sealed = self.sealed_store.seal(SealedKind::Project, &project.id, content);
    }

    fn summary(&self, project: &Project) -> Result<ProjectView, Problem> {
        let content = self.project_content(project)?;
        Ok(ProjectView {
            id: project.id.clone(),
            title: content.title,
            mode: project.facts.mode.clone(),
            system: content.system,
            created_at: project.created,
            deleted_at: project.facts.deleted,
            branches: Vec::new(),
            matches: Vec::new(),
        })
    }

    async fn show(&self, project: &Project) -> Result<ProjectView, Problem> {
        let branches = self.branch_views(&project.id, false).await?;
        Ok(ProjectView { branches, ..self.summary(project)? })
    }
}

/// Checks a title or a name.
pub(super) fn check_name(member: &str, name: &str) -> Result<(), Problem> {
    match name.chars().count() {
        0..=MAX_NAME if !name.contains(char::is_control) => Ok(()),
        0..=MAX_NAME => Err(Problem::invalid(member, "must not have control characters")),
        _ => Err(Problem::invalid(member, format!("must have at most {MAX_NAME} characters"))),
    }
}
