//! Projects: conversations as trees of nodes with named branches.
//!
//! - `project`, `branch`: what exists, and how it changes;
//! - `history`: reads nodes, the graph and provider's replies, and searches;
//! - `turn`: starts an answer: chat, edit, regenerate, with `turn_settings`; `merge` joins branches;
//! - `answer`: drives a run and stores its node; `rounds`: asks the model; `tools`: what it may call;
//! - [`context`]: chooses what of a branch goes into the next request, `recent` reads it; `preview` shows it;
//! - `cost`: what answers cost, and their budgets for thinking;
//! - [`content`]: what a node holds; [`problem`]: the errors of the API;
//! - `locks`: who can read contents; `leases`: keys that are held for some minutes; `unfinished`: answers
//!   of sealed projects whose server died.
//!
//! - `members`: with whom a project is shared; `title`: lets the model write a title; `unreadable`: items whose
//!   stored value does not open.
//!
//! Every function checks that the project belongs to the caller, or is shared with the caller. Nothing but a purge removes a node.

mod answer;
mod branch;
pub mod budget;
pub mod content;
pub mod context;
mod cost;
pub(crate) mod history;
pub mod ids;
mod leases;
mod locks;
mod members;
mod merge;
mod preview;
pub mod problem;
mod project;
pub mod providers;
mod recent;
pub(crate) mod room_turn;
mod rounds;
mod title;
mod tool_text;
pub(crate) mod tools;
mod turn;
mod turn_settings;
mod unfinished;
pub(crate) mod unreadable;

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use parking_lot::RwLock;
use throughline_codec::pacing::Pacing;
use throughline_gateway::Gateway;
use throughline_gateway::backend::credential_fingerprint;
use throughline_sealing::ChatKey;
use throughline_tools::Servers;

pub(crate) use self::branch::locked as locked_branch;
pub use self::branch::{BranchChange, BranchView, NewBranch};
pub use self::cost::CostView;
pub use self::history::{Graph, GraphNode, HistoryPage, Order};
use self::leases::Leases;
pub use self::leases::{LeaseRequest, LeaseView};
pub use self::locks::ProjectMode;
pub use self::members::{MemberList, MemberView, NewMember, NextKey, OwnKey};
pub use self::merge::{Merge, Merged};
pub use self::preview::ChatPreview;
use self::problem::Problem;
pub(crate) use self::project::{FIRST_BRANCH, check_name};
pub use self::project::{NewProject, ProjectChange, ProjectList, ProjectQuery, ProjectView};
pub use self::tools::{ApprovalRequest, Resume, ResumedRun};
pub use self::turn::{
    ChatRequest, EditRequest, RegenerateRequest, RunView, StartedRun, ToolResult,
};
pub use self::unreadable::Unreadable;
use crate::runs::Runs;
use crate::sealed_store::SealedStore;
use crate::store::{Project, Reference, TokenHash};
use crate::tool_loop::Limits;
use crate::tool_loop::approvals::Approvals;

/// The settings of projects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectSettings {
    /// The provider of a new project. Empty: the default backend.
    pub provider: String,
    /// The model of a new project. Empty: the default model of its provider.
    pub model: String,
    /// Who holds the keys of new projects.
    pub mode: ProjectMode,
    /// Whether providers store replies, so that the next request need not repeat the history.
    pub previous_response: PreviousResponse,
    /// Whether the providers' replies are kept as they were captured.
    pub raw: bool,
    /// Whether the model writes the title of a project without one.
    pub titles: bool,
    /// How long the log of a run is kept after its end.
    pub retention: Duration,
    /// How deltas are joined.
    pub pacing: Pacing,
    /// The limits of tool loops.
    pub tool_limits: Limits,
}

impl Default for ProjectSettings {
    fn default() -> Self {
        Self {
            provider: String::new(),
            model: String::new(),
            mode: ProjectMode::Managed,
            previous_response: PreviousResponse::Off,
            raw: true,
            titles: true,
            retention: Duration::from_secs(600),
            pacing: Pacing::default(),
            tool_limits: Limits::default(),
        }
    }
}

/// Whether a provider that can store replies is asked to. The next request of a branch then names
/// the newest reply and does not repeat the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousResponse {
    /// Providers store nothing, unless a request says so.
    Off,
    /// They store replies. The first request of a new branch has the whole history.
    Branch,
    /// They store replies, and a new branch continues from the reply where it begins.
    Fork,
}

/// Who calls.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The fingerprint of the caller's key.
    pub owner: String,
    /// The headers, for backends that get the caller's own key.
    pub headers: HeaderMap,
    /// The chat key that the caller presents.
    pub key: Option<ChatKey>,
    /// The lease that the caller presents.
    pub lease: Option<String>,
    /// The session of the user, if there are users.
    pub session: Option<TokenHash>,
}

impl Caller {
    /// The caller with this key.
    pub fn new(key: &str, headers: HeaderMap) -> Self {
        let owner = credential_fingerprint(key);
        Self { owner, headers, key: None, lease: None, session: None }
    }
}

/// The projects of all callers.
#[derive(Debug)]
pub struct Projects {
    gateway: Arc<Gateway>,
    runs: Arc<Runs>,
    sealed_store: Arc<SealedStore>,
    settings: RwLock<ProjectSettings>,
    leases: Arc<Leases>,
    /// The MCP servers whose tools models may call.
    tools: Arc<Servers>,
    approvals: Arc<Approvals>,
}

impl Projects {
    /// Projects in the store of these runs, with the tools of these servers.
    pub fn new(
        gateway: Arc<Gateway>,
        runs: Arc<Runs>,
        tools: Arc<Servers>,
        settings: ProjectSettings,
    ) -> Self {
        let sealed_store = runs.sealed_store.clone();
        Self {
            gateway,
            runs,
            sealed_store,
            settings: RwLock::new(settings),
            leases: Arc::default(),
            tools,
            approvals: Arc::default(),
        }
    }

    /// Replaces the settings.
    pub fn configure(&self, settings: ProjectSettings) {
        *self.settings.write() = settings;
    }

    fn settings(&self) -> ProjectSettings {
        self.settings.read().clone()
    }

    /// A project that the caller owns, deleted or not, or that is shared with the caller.
    pub(crate) async fn any_project(&self, caller: &Caller, id: &str) -> Result<Project, Problem> {
        match self.sealed_store.store.project(id).await? {
            Some(project) if self.may_read(caller, &project).await? => Ok(project),
            _ => Err(Problem::not_found("project", id)),
        }
    }

    /// A project that the caller owns, or that is shared with the caller.
    pub(crate) async fn own_project(&self, caller: &Caller, id: &str) -> Result<Project, Problem> {
        let project = self.any_project(caller, id).await?;
        match project.facts.deleted {
            None => Ok(project),
            Some(_) => Err(Problem::not_found("project", id).hint(format!(
                "it was deleted; bring it back with POST /api/projects/{id}/restore"
            ))),
        }
    }

    /// A branch of a project, by its name.
    pub(crate) async fn branch(&self, project: &Project, name: &str) -> Result<Reference, Problem> {
        let branches = self.sealed_store.store.branches(&project.id).await?;
        let named = |reference: &Reference| {
            let branch = reference.branch.as_ref();
            branch.is_some_and(|branch| branch.name == name && branch.facts.deleted.is_none())
        };
        let known: Vec<String> = branches
            .iter()
            .filter_map(|reference| reference.branch.as_ref())
            .filter(|branch| branch.facts.deleted.is_none())
            .map(|branch| format!("`{}`", branch.name))
            .collect();
        branches.into_iter().find(named).ok_or_else(|| {
            Problem::not_found("branch", name)
                .hint(format!("the branches of this project are {}", known.join(", ")))
        })
    }
}
