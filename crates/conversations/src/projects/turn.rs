//! Starts answers: chat, edit and regenerate. The user's turn, the move of its branch and the start of
//! the run are one commit, so an acknowledged turn is never lost and a branch has one run at a time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use throughline_canonical::{Block, Cost, Fault, Loss, LossReason, LossSubject, Request, Usage};
use throughline_codec::dialects::stored::Stored;
use throughline_codec::dialects::{ClientDialect, RequestParts};
use throughline_gateway::unix_ms;
use throughline_tools::ToolSet;
use utoipa::ToSchema;

use super::answer::{Answer, RunContent};
use super::branch::{busy, name_taken};
use super::content::NodeContent;
use super::history::content;
use super::ids::new_id;
use super::locks::replaced_key;
use super::problem::Problem;
use super::project::{FIRST_BRANCH, check_name};
use super::room_turn::RoomTurn;
use super::tools::{Resume, take_server_tools};
use super::turn_settings::{MessageOption, TurnSettings};
use super::{Caller, Projects};
use crate::chat_seal::ChatSeal;
use crate::sealed_store::SealedKind;
use crate::store::{
    BranchFacts, Commit, Detail, Move, Node, NodeFacts, NodeRole, Outcome, Project, ProjectNode,
    Reference, Run, RunStatus,
};

/// How many turns may fail before the results of a call cannot be sent again.
const MAX_FAILED_TURNS: usize = 64;
/// The loss of a member that the canonical format does not know.
const UNKNOWN_MEMBER: Loss =
    Loss::PartOmitted { part: LossSubject::Member, reason: LossReason::NoWord };
/// The loss of a block that it does not know.
const UNKNOWN_BLOCK: Loss =
    Loss::PartOmitted { part: LossSubject::Block, reason: LossReason::NoWord };

/// A chat turn. Other members are settings: `thinking`, `tools`, `max_tokens` and others, as in
/// `/ndjson/chat`.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct ChatRequest {
    /// The name of the branch. Empty: `main`.
    pub branch: Option<String>,
    /// What the user says: a text, or blocks.
    #[schema(value_type = Option<MessageOption>)]
    pub message: Option<Value>,
    /// The node that the caller believes to be the newest.
    pub expected_head: Option<String>,
    /// Results of tool calls of the newest answer.
    pub tool_results: Vec<ToolResult>,
    /// The backend. It must be that of the branch.
    pub llm_provider: Option<String>,
    /// The model. It must be that of the branch.
    pub llm_model: Option<String>,
    /// The caller's name for this request. A repeated one returns the same run.
    pub client_request_id: Option<String>,
    /// Creates a branch if the provider or the model differs.
    pub auto_branch: bool,
    /// Decisions about calls that wait, as AG-UI clients send them. The run that waits goes on, and
    /// everything else but the branch is ignored.
    pub resume: Vec<Resume>,
    /// Settings of the request: `thinking`, `tools`, `max_tokens` and others, as in `/ndjson/chat`, and
    /// `store`: whether the provider stores the reply, if it can.
    #[serde(flatten)]
    #[schema(value_type = TurnSettings)]
    pub settings: Map<String, Value>,
}

/// The result of a tool call.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ToolResult {
    /// The id of the call.
    pub id: String,
    /// The content: a text, or blocks.
    #[schema(value_type = MessageOption)]
    pub content: Value,
    /// Whether the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

/// An edit of what a user said: a new branch with the new words.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct EditRequest {
    /// The node whose words are replaced.
    pub node_id: String,
    /// The new words: a text, or blocks.
    #[schema(value_type = Option<MessageOption>)]
    pub message: Option<Value>,
    /// The name of the new branch.
    pub branch: Option<String>,
    /// The backend of the new branch.
    pub llm_provider: Option<String>,
    /// The model of the new branch.
    pub llm_model: Option<String>,
    /// The caller's name for this request.
    pub client_request_id: Option<String>,
    /// Settings of the request.
    #[serde(flatten)]
    #[schema(value_type = TurnSettings)]
    pub settings: Map<String, Value>,
}

/// Asks for another answer to the same words.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase")]
pub struct RegenerateRequest {
    /// The answer that gets a sibling.
    pub node_id: String,
    /// The branch that gets the new answer, if several end at the node.
    pub branch: Option<String>,
    /// The node that the caller believes to be the newest.
    pub expected_head: Option<String>,
    /// The caller's name for this request.
    pub client_request_id: Option<String>,
    /// Settings of the request. Those of the turn are used where it has none.
    #[serde(flatten)]
    #[schema(value_type = TurnSettings)]
    pub settings: Map<String, Value>,
}

/// A run that has started, or had started before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedRun {
    /// The run.
    pub run_id: String,
    /// The node that the answer will be.
    pub node_id: String,
    /// The branch.
    pub branch: String,
}

/// A run as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunView {
    /// The id.
    pub id: String,
    /// `running`, `completed`, `cancelled`, `interrupted` or `error`.
    pub status: RunStatus,
    /// The project.
    pub project_id: String,
    /// The id of the branch.
    pub branch_id: String,
    /// The backend that answers.
    pub provider: String,
    /// The model that answers.
    pub model: String,
    /// The node of the answer. `null` if nothing arrived.
    pub node_id: Option<String>,
    /// Token counts.
    #[schema(value_type = Option<Object>)]
    pub usage: Option<Usage>,
    /// The cost in US dollars, as far as the prices are known. `null` if no price is known.
    pub cost: Option<f64>,
    /// How many of its tokens have no known price. The cost lacks these.
    pub unpriced_tokens: u64,
    /// How many tokens the model may think for each request, if that is limited.
    pub thinking_budget: Option<u64>,
    /// How many tokens of thinking were above the budget, because the provider does not enforce it.
    pub over_budget: u64,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
}

/// What the user's part of a turn says.
#[derive(Clone, Debug)]
pub(super) struct UserPart {
    pub(super) blocks: Vec<Block>,
    /// The request without its messages.
    pub(super) request: Request,
    /// The settings, as they were sent.
    pub(super) settings: Map<String, Value>,
    /// The names of MCP servers and of their tools.
    pub(super) server_tools: Vec<String>,
    /// These tools, once they are found.
    pub(super) tools: ToolSet,
}

/// What a new run needs to know.
pub(super) struct NewRun<'a> {
    pub(super) seal: Arc<ChatSeal>,
    pub(super) project: &'a Project,
    pub(super) branch: &'a Reference,
    /// The node that the answer follows.
    pub(super) parent: String,
    /// The newest node of the branch, if the answer replaces it.
    pub(super) replaces: Option<String>,
    pub(super) name: Option<String>,
    /// What is known about an answer in a room.
    pub(super) room: Option<RoomTurn>,
}

impl Projects {
    /// Takes a user's turn and starts the answer.
    pub async fn chat(
        self: &Arc<Self>,
        caller: &Caller,
        project: &str,
        chat: ChatRequest,
    ) -> Result<StartedRun, Problem> {
        let project = self.own_project(caller, project).await?;
        if let Some(known) = self.repeated(&project, chat.client_request_id.as_deref()).await? {
            return Ok(known);
        }
        let seal = self.unlock(caller, &project)?;
        let name = chat.branch.as_deref().unwrap_or(FIRST_BRANCH);
        let mut branch = self.branch(&project, name).await?;
        self.recover(&seal, &project, &mut branch).await?;
        let facts = facts_of(&branch);
        if facts.provider.is_empty() {
            return Err(no_lock());
        }
        let (provider, model) = (chat.llm_provider.as_deref(), chat.llm_model.as_deref());
        let mut new_branch = None;
        if let Err(problem) = self.check_lock(&facts, provider, model) {
            if !chat.auto_branch {
                return Err(problem);
            }
            let lock = self.resolve_lock(provider, model, Some(&facts))?;
            let name = format!("{name}-{}", &new_id("")[9..17]);
            branch = self.new_branch(&project, &name, lock, branch.head.clone())?;
            new_branch = Some(branch.clone());
        }
        check_head(&branch, chat.expected_head.as_deref())?;
        let part =
            read_part(chat.message, chat.tool_results, chat.settings, self.stores_replies())?;
        let part = self.offer_tools(part).await?;
        self.check_results(&seal, branch.head.as_deref(), &part).await?;
        let user = user_node(&seal, &project, &branch, branch.head.clone(), &part);
        let new = NewRun {
            seal,
            project: &project,
            branch: &branch,
            parent: user.id.clone(),
            replaces: None,
            name: chat.client_request_id,
            room: None,
        };
        let mut commit = Commit { reference: new_branch, ..Commit::default() };
        commit.moves = Some(Move {
            reference: branch.id.clone(),
            from: branch.head.clone(),
            to: Some(user.id.clone()),
        });
        commit.nodes = vec![user];
        self.start(caller, new, part, commit).await
    }

    /// Replaces what a user said: a sibling node on a new branch, and its answer.
    pub async fn edit(
        self: &Arc<Self>,
        caller: &Caller,
        project: &str,
        edit: EditRequest,
    ) -> Result<StartedRun, Problem> {
        let project = self.own_project(caller, project).await?;
        if let Some(known) = self.repeated(&project, edit.client_request_id.as_deref()).await? {
            return Ok(known);
        }
        let seal = self.unlock(caller, &project)?;
        let node = self.own_node(&project, &edit.node_id).await?;
        let inside = node.in_project.clone().unwrap_or_default();
        if inside.facts.role != NodeRole::User {
            return Err(Problem::invalid("nodeId", "only user messages can be edited")
                .hint("use POST /api/projects/{id}/regenerate to get another answer"));
        }
        let source = self.sealed_store.store.reference(&inside.facts.branch).await?;
        let source = source.as_ref().map(facts_of).unwrap_or_default();
        let lock = self.resolve_lock(
            edit.llm_provider.as_deref(),
            edit.llm_model.as_deref(),
            Some(&source),
        )?;
        let settings = settings_or_those_of(&seal, &node, edit.settings)?;
        let part = read_part(edit.message, Vec::new(), settings, self.stores_replies())?;
        let part = self.offer_tools(part).await?;
        self.check_results(&seal, node.parent.as_deref(), &part).await?;
        let name = edit.branch.unwrap_or_else(|| format!("edit-{}", &new_id("")[9..17]));
        let mut branch = self.new_branch(&project, &name, lock, node.parent.clone())?;
        let user = user_node(&seal, &project, &branch, node.parent.clone(), &part);
        branch.head = Some(user.id.clone());
        let new = NewRun {
            seal,
            project: &project,
            branch: &branch,
            parent: user.id.clone(),
            replaces: None,
            name: edit.client_request_id,
            room: None,
        };
        let commit =
            Commit { nodes: vec![user], reference: Some(branch.clone()), ..Commit::default() };
        self.start(caller, new, part, commit).await
    }

    /// Asks for another answer to the same words. It becomes a sibling and the head of the branch.
    pub async fn regenerate(
        self: &Arc<Self>,
        caller: &Caller,
        project: &str,
        again: RegenerateRequest,
    ) -> Result<StartedRun, Problem> {
        let project = self.own_project(caller, project).await?;
        if let Some(known) = self.repeated(&project, again.client_request_id.as_deref()).await? {
            return Ok(known);
        }
        let seal = self.unlock(caller, &project)?;
        let node = self.own_node(&project, &again.node_id).await?;
        let branches = self.sealed_store.store.branches(&project.id).await?;
        let is_wanted = |branch: &Reference| match (&again.branch, &branch.branch) {
            (Some(wanted), Some(branch)) => *wanted == branch.name,
            (wanted, _) => wanted.is_none(),
        };
        let is_head = |branch: &&Reference| {
            branch.head.as_deref() == Some(&*node.id)
                && facts_of(branch).deleted.is_none()
                && is_wanted(branch)
        };
        let inside = node.in_project.clone().unwrap_or_default();
        let is_answer = inside.facts.role == NodeRole::Assistant;
        let home = branches.iter().find(|branch| branch.id == inside.facts.branch);
        let refused = || not_regenerable(home.and_then(|home| home.head.clone()));
        let parent = node.parent.clone().ok_or_else(refused)?;
        let branch = branches.iter().find(is_head).filter(|_| is_answer).ok_or_else(refused)?;
        check_head(branch, again.expected_head.as_deref())?;
        let user = self.own_node(&project, &parent).await?;
        let settings = settings_or_those_of(&seal, &user, again.settings)?;
        let part =
            UserPart { blocks: Vec::new(), ..read_settings(settings, self.stores_replies())? };
        let part = self.offer_tools(part).await?;
        let new = NewRun {
            seal,
            project: &project,
            branch,
            parent,
            replaces: Some(node.id.clone()),
            name: again.client_request_id,
            room: None,
        };
        let head = Some(node.id.clone());
        let moves = Move { reference: branch.id.clone(), from: head.clone(), to: head };
        let commit = Commit { moves: Some(moves), ..Commit::default() };
        self.start(caller, new, part, commit).await
    }

    /// The run that this name has started before.
    async fn repeated(
        &self,
        project: &Project,
        name: Option<&str>,
    ) -> Result<Option<StartedRun>, Problem> {
        let Some(name) = name else { return Ok(None) };
        check_name("clientRequestId", name)?;
        let scope = scope(&project.id);
        let run = self.sealed_store.store.named_run(&project.owner, &scope, name).await?;
        run.map(|run| self.started(&run)).transpose()
    }

    pub(super) fn started(&self, run: &Run) -> Result<StartedRun, Problem> {
        let content = self.run_content(run)?;
        Ok(StartedRun {
            run_id: run.id.clone(),
            node_id: content.node,
            branch: content.branch_name,
        })
    }

    pub(super) fn run_content(&self, run: &Run) -> Result<RunContent, Problem> {
        Ok(self.sealed_store.open(SealedKind::Run, &run.id, &run.sealed)?)
    }

    /// Commits a turn, and starts its run in a task of its own.
    pub(super) async fn start(
        self: &Arc<Self>,
        caller: &Caller,
        new: NewRun<'_>,
        part: UserPart,
        mut commit: Commit,
    ) -> Result<StartedRun, Problem> {
        let permit = self.gateway.admit()?;
        let facts = facts_of(new.branch);
        let RoomTurn { run: room, lock, gate } = new.room.unwrap_or_default();
        let (provider, model) = lock.unwrap_or((facts.provider, facts.model));
        // Several members of a room answer at the same time.
        let reference = room.is_none().then(|| new.branch.id.clone());
        let content = RunContent {
            project: new.project.id.clone(),
            branch: new.branch.id.clone(),
            branch_name: new.branch.branch.as_ref().map_or_else(String::new, |of| of.name.clone()),
            node: new_id("node"),
            parent: new.parent,
            replaces: new.replaces,
            provider,
            model,
            thinking_budget: part.request.thinking.budget(),
            room,
            ..RunContent::default()
        };
        let id = new_id("run");
        let run = Run {
            owner: new.project.owner.clone(),
            scope: scope(&new.project.id),
            name: new.name,
            reference,
            instance: self.runs.instance.clone(),
            epoch: 1,
            status: RunStatus::Running,
            created: unix_ms(),
            expires: None,
            sealed: self.sealed_store.seal(SealedKind::Run, &id, &content),
            id,
        };
        commit.start = Some(run.clone());
        commit.sealed_under = new.seal.sealed_under();
        match self.sealed_store.store.commit(commit).await? {
            Outcome::Written => {}
            Outcome::Stale => return Err(self.stale(&new.branch.id).await),
            Outcome::Busy { run } => return Err(busy(&run)),
            Outcome::Repeated { run } => {
                let known = self.sealed_store.store.run(&run).await?;
                return self.started(&known.ok_or_else(|| Problem::not_found("run", &run))?);
            }
            Outcome::NameTaken => return Err(name_taken(&content.branch_name)),
            Outcome::Fenced => return Err(busy(&run.id)),
            Outcome::KeyChanged => return Err(replaced_key(&new.seal)),
        }
        let started = StartedRun {
            run_id: run.id.clone(),
            node_id: content.node.clone(),
            branch: content.branch_name.clone(),
        };
        let retention = self.settings().retention;
        let answer = Answer::new(Arc::clone(self), new.seal, &run, content, retention)
            .with_tools(part.tools)
            .with_gate(gate);
        answer.spawn(caller.clone(), part.request, permit);
        Ok(started)
    }

    /// The error of a commit whose branch has moved.
    pub(super) async fn stale(&self, branch: &str) -> Problem {
        match self.sealed_store.store.reference(branch).await {
            Ok(reference) => stale(reference.and_then(|reference| reference.head)),
            Err(error) => error.into(),
        }
    }

    /// Checks that results belong to calls of the newest answer before or at this node.
    pub(super) async fn check_results(
        &self,
        seal: &ChatSeal,
        head: Option<&str>,
        part: &UserPart,
    ) -> Result<(), Problem> {
        let results = part.blocks.iter().filter_map(|block| match block {
            Block::ToolResult { id, .. } => Some(id.as_str()),
            _ => None,
        });
        let results: Vec<&str> = results.collect();
        if results.is_empty() {
            return Ok(());
        }
        // After a turn that failed, the newest nodes are what the user said.
        let path = match head {
            Some(head) => {
                self.sealed_store.store.path(head, MAX_FAILED_TURNS, Detail::Content).await?
            }
            None => Vec::new(),
        };
        let is_answer = |node: &&Node| {
            node.in_project.as_ref().is_some_and(|of| of.facts.role == NodeRole::Assistant)
        };
        let blocks = match path.iter().rfind(is_answer) {
            Some(answer) => content(seal, answer)?.blocks,
            None => Vec::new(),
        };
        let is_called = |result: &str| {
            blocks.iter().any(|block| matches!(block, Block::ToolCall { id, .. } if id == result))
        };
        let is_answered = |result: &str| {
            blocks.iter().any(|block| matches!(block, Block::ToolResult { id, .. } if id == result))
        };
        if let Some(unknown) = results.iter().find(|result| !is_called(result)) {
            let wrong = format!("the newest answer has no call `{unknown}`");
            return Err(Problem::invalid("toolResults", wrong));
        }
        match results.iter().find(|result| is_answered(result)) {
            None => Ok(()),
            Some(answered) => {
                let wrong = format!("the server has the result of the call `{answered}` already");
                Err(Problem::invalid("toolResults", wrong))
            }
        }
    }

    /// A run of this owner.
    pub async fn run(&self, caller: &Caller, id: &str) -> Result<RunView, Problem> {
        let run = self.own_run(caller, id).await?;
        let content = self.run_content(&run)?;
        let has_node = self.sealed_store.store.node(&content.node).await?.is_some();
        Ok(RunView {
            id: run.id,
            status: run.status,
            project_id: content.project,
            branch_id: content.branch,
            provider: content.provider,
            model: content.model,
            node_id: has_node.then_some(content.node),
            usage: content.usage,
            cost: content.spent.cost.and_then(Cost::dollars),
            unpriced_tokens: content.spent.cost.map_or(0, |cost| cost.unpriced_tokens),
            thinking_budget: content.thinking_budget,
            over_budget: content.spent.over_budget,
            created_at: run.created,
        })
    }

    /// Stops a run. Returns it as it is then, or soon.
    pub async fn stop(&self, caller: &Caller, id: &str) -> Result<RunView, Problem> {
        let run = self.own_run(caller, id).await?;
        if run.status == RunStatus::Running {
            let live = self.runs.live(id);
            self.runs.stop(id).await?;
            if let Some(live) = live {
                live.closed().await;
            }
        }
        self.run(caller, id).await
    }

    /// The record of a run of this owner.
    pub async fn own_run(&self, caller: &Caller, id: &str) -> Result<Run, Problem> {
        let run = self.sealed_store.store.run(id).await?;
        if let Some(run) = run.filter(|run| is_project(&run.scope))
            && self.may_read_run(caller, &run).await?
        {
            return Ok(run);
        }
        Err(Problem::not_found("run", id)
            .hint("logs of runs are kept for `runs.retention`; the answer is in its node"))
    }

    /// The seal of the project of a run.
    pub async fn seal_of_run(
        &self,
        caller: &Caller,
        run: &RunView,
    ) -> Result<Arc<ChatSeal>, Problem> {
        let project = self.any_project(caller, &run.project_id).await?;
        self.unlock(caller, &project)
    }
}

/// The node of what a user says.
fn user_node(
    seal: &ChatSeal,
    project: &Project,
    branch: &Reference,
    parent: Option<String>,
    part: &UserPart,
) -> Node {
    let content = NodeContent {
        blocks: part.blocks.clone(),
        settings: part.settings.clone(),
        ..NodeContent::default()
    };
    new_node(seal, project, &branch.id, parent, &content)
}

/// A node of a user that is not stored yet.
pub(super) fn new_node(
    seal: &ChatSeal,
    project: &Project,
    branch: &str,
    parent: Option<String>,
    content: &NodeContent,
) -> Node {
    let id = new_id("node");
    Node {
        parent,
        owner: project.owner.clone(),
        created: unix_ms(),
        sealed: content.seal(seal, &id),
        in_project: Some(ProjectNode {
            project: project.id.clone(),
            facts: NodeFacts {
                role: NodeRole::User,
                branch: branch.to_owned(),
                ..NodeFacts::default()
            },
            ..ProjectNode::default()
        }),
        id,
        ..Node::default()
    }
}

/// The settings of a request, or those of an earlier turn where it has none.
fn settings_or_those_of(
    seal: &ChatSeal,
    node: &Node,
    settings: Map<String, Value>,
) -> Result<Map<String, Value>, Problem> {
    let mut all = content(seal, node)?.settings;
    all.extend(settings);
    Ok(all)
}

pub(super) use crate::store::project_scope as scope;

/// Whether runs of this scope belong to projects.
pub(super) fn is_project(scope: &str) -> bool {
    scope.starts_with("project:")
}

pub(super) fn facts_of(branch: &Reference) -> BranchFacts {
    branch.branch.as_ref().map(|branch| branch.facts.clone()).unwrap_or_default()
}

/// The error of a chat on the branch of a room.
fn no_lock() -> Problem {
    Problem::conflict("room", "this branch belongs to a room, and has no model of its own")
        .hint("say it in the room: POST /api/rooms/{id}/messages; or make a branch with a model")
}

fn stale(head: Option<String>) -> Problem {
    Problem::conflict("stale-head", "the branch has grown since you read it")
        .with("head", head)
        .hint("read the branch, then send the message again with the present `head` as `expectedHead`")
}

fn check_head(branch: &Reference, expected: Option<&str>) -> Result<(), Problem> {
    match expected {
        Some(expected) if branch.head.as_deref() != Some(expected) => {
            Err(stale(branch.head.clone()))
        }
        _ => Ok(()),
    }
}

/// The error of a node that cannot be regenerated. `head` is the newest node of its branch.
fn not_regenerable(head: Option<String>) -> Problem {
    Problem::conflict(
        "not-a-head",
        "only an answer that is the head of a branch can be regenerated",
    )
    .with("head", head)
    .hint("edit the message before it: POST /api/projects/{id}/edit makes a branch")
}

/// Reads the user's part of a turn: results of tools, then the message.
///
/// `store` says whether the provider stores the reply, if the settings do not.
pub(super) fn read_part(
    message: Option<Value>,
    results: Vec<ToolResult>,
    settings: Map<String, Value>,
    store: bool,
) -> Result<UserPart, Problem> {
    let is_empty = match &message {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(blocks)) => blocks.is_empty(),
        Some(_) => false,
    };
    if is_empty && results.is_empty() {
        return Err(Problem::invalid("message", "is missing; send a text or blocks"));
    }
    let mut content: Vec<Value> = results
        .into_iter()
        .map(|result| {
            json!({"type": "tool_result", "id": result.id, "content": result.content,
                "is_error": result.is_error})
        })
        .collect();
    match message {
        _ if is_empty => {}
        Some(Value::Array(blocks)) => content.extend(blocks),
        Some(Value::String(text)) => content.push(json!({"type": "text", "text": text})),
        Some(_) | None => {
            return Err(Problem::invalid("message", "must be a text or a list of blocks"));
        }
    }
    read_request(settings, &content, store)
}

/// Reads settings without a message.
pub(super) fn read_settings(
    settings: Map<String, Value>,
    store: bool,
) -> Result<UserPart, Problem> {
    read_request(settings, &[json!({"type": "text", "text": "-"})], store)
}

/// Names the first setting that has an unknown member, or is one.
fn unknown_setting(settings: &Map<String, Value>) -> Problem {
    let is_unknown = |(name, value): &(&String, &Value)| {
        let mut body = json!({"messages": [{"role": "user", "content": "-"}]});
        body[name.as_str()] = (*value).clone();
        let body = body.to_string();
        let parts = RequestParts { body: body.as_bytes(), ..RequestParts::default() };
        Stored.read_request(&parts).is_ok_and(|accepted| accepted.losses.contains(&UNKNOWN_MEMBER))
    };
    let read = |(name, _): &(&String, &Value)| *name != "store";
    match settings.iter().filter(read).find(is_unknown) {
        Some((name, _)) => Problem::invalid(name, "is unknown, or has an unknown member"),
        None => Problem::from(Fault::invalid("the request has an unknown member")),
    }
}

fn read_request(
    settings: Map<String, Value>,
    content: &[Value],
    store: bool,
) -> Result<UserPart, Problem> {
    for own in ["messages", "model", "system", "stream", "backend", "thread"] {
        if settings.contains_key(own) {
            let wrong = "cannot be set here; the project and its branch define it";
            return Err(Problem::invalid(own, wrong));
        }
    }
    let mut body = settings.clone();
    let server_tools = take_server_tools(&mut body);
    let store = match body.remove("store") {
        None | Some(Value::Null) => store,
        Some(Value::Bool(store)) => store,
        Some(_) => return Err(Problem::invalid("store", "must be `true` or `false`")),
    };
    body.insert("messages".to_owned(), json!([{"role": "user", "content": content}]));
    let body = Value::Object(body).to_string();
    let parts = RequestParts { body: body.as_bytes(), ..RequestParts::default() };
    let mut accepted = Stored.read_request(&parts).map_err(|mut fault| {
        // The caller wrote `message`.
        if let Some(rest) =
            fault.path.as_deref().and_then(|path| path.strip_prefix("messages.0.content"))
        {
            fault.path = Some(format!("message{rest}"));
        }
        Problem::from(fault)
    })?;
    // A member that no code reads is a mistake of the caller, and its loss would not be noticed.
    if accepted.losses.contains(&UNKNOWN_MEMBER) {
        let mut settings = settings;
        take_server_tools(&mut settings);
        return Err(unknown_setting(&settings));
    }
    if accepted.losses.contains(&UNKNOWN_BLOCK) {
        return Err(Problem::invalid("message", "has a block of an unknown type")
            .hint("the types are `text`, `media` and `tool_result`"));
    }
    accepted.request.provider_state.store = store;
    let messages = std::mem::take(&mut accepted.request.messages);
    let blocks: Vec<Block> = messages.into_iter().flat_map(|message| message.content).collect();
    check_blocks(&blocks)?;
    let (request, tools) = (accepted.request, ToolSet::default());
    Ok(UserPart { blocks, request, settings, server_tools, tools })
}

/// Refuses what only a model says, and a message that says nothing.
fn check_blocks(blocks: &[Block]) -> Result<(), Problem> {
    let is_said_by_models = |block: &Block| {
        matches!(
            block,
            Block::Thinking { .. }
                | Block::Redacted { .. }
                | Block::Refusal { .. }
                | Block::ToolCall { .. }
        )
    };
    if blocks.iter().any(is_said_by_models) {
        return Err(Problem::invalid("message", "has a block that only an answer can have"));
    }
    let is_empty =
        |block: &Block| matches!(block, Block::Text { text, .. } if text.trim().is_empty());
    match blocks.iter().all(is_empty) {
        true => Err(Problem::invalid("message", "is empty; send a text or blocks")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
