//! Tools of MCP servers in conversations: which ones a turn may use, and what people decide about
//! their calls.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use throughline_canonical::{Event, FaultKind, Tool};
use throughline_tools::{ServerView, ToolSet, ToolsError};
use utoipa::ToSchema;

use super::problem::Problem;
use super::project::FIRST_BRANCH;
use super::turn::{ChatRequest, StartedRun, UserPart};
use super::{Caller, Projects};
use crate::chat_seal::ChatSeal;
use crate::runs::log::Entry;
use crate::store::RunStatus;
use crate::tool_loop::approvals::{Decision, Delivered, question_about, store_decision};

/// The prefix of the ids of interrupts: the id of the call follows.
const INTERRUPT: &str = "approval_";

/// What a person decides about a call.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRequest {
    /// Whether the call may be made.
    pub approve: bool,
    /// The answer, if the tool asks for one.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub input: Option<Map<String, Value>>,
}

/// The answer to an interrupt, in the form of AG-UI.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Resume {
    /// The id of the interrupt.
    pub interrupt_id: String,
    /// `resolved` or `cancelled`.
    pub status: ResumeStatus,
    /// `approved`, and `input` if the tool asks for one.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub payload: Option<Value>,
}

/// Whether a person has answered an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ResumeStatus {
    /// The payload has the answer.
    Resolved,
    /// It was denied.
    Cancelled,
}

impl Resume {
    /// The call and the decision about it.
    fn decision(&self) -> Result<(&str, ApprovalRequest), Problem> {
        let Some(call) = self.interrupt_id.strip_prefix(INTERRUPT) else {
            let wrong = format!("`{}` is no interrupt of this server", self.interrupt_id);
            return Err(Problem::invalid("resume", wrong));
        };
        let payload = self.payload.as_ref();
        let member = |name: &str| payload.and_then(|payload| payload.get(name));
        let approve = match (self.status, member("approved").and_then(Value::as_bool)) {
            (ResumeStatus::Cancelled, _) => false,
            (ResumeStatus::Resolved, Some(approved)) => approved,
            (ResumeStatus::Resolved, None) => {
                let wrong = "`payload` has no `approved`, which is `true` or `false`";
                return Err(Problem::invalid("resume", wrong));
            }
        };
        let input = member("input").and_then(Value::as_object).cloned();
        Ok((call, ApprovalRequest { approve, input }))
    }
}

/// A run that goes on after an interrupt.
#[derive(Clone, Debug)]
pub struct ResumedRun {
    /// The run.
    pub run: StartedRun,
    /// The number of the event that interrupted it.
    pub after: u64,
}

impl Projects {
    /// Goes on with the run of a branch that waits for a person.
    pub async fn resume(
        &self,
        caller: &Caller,
        project: &str,
        chat: &ChatRequest,
    ) -> Result<ResumedRun, Problem> {
        let project = self.own_project(caller, project).await?;
        let seal = self.unlock(caller, &project)?;
        let name = chat.branch.as_deref().unwrap_or(FIRST_BRANCH);
        let branch = self.branch(&project, name).await?;
        let decisions: Vec<(&str, ApprovalRequest)> =
            chat.resume.iter().map(Resume::decision).collect::<Result<_, _>>()?;
        let run = self.sealed_store.store.active_runs(&[branch.id]).await?.into_iter().next();
        let run = run.ok_or_else(|| {
            Problem::conflict("not-waiting", "no run of this branch waits for a decision")
        })?;
        let entries = self.log_of(&run.id, &seal).await?;
        let interrupts = entries.iter().rev().find(|entry| {
            let event = serde_json::from_str(&entry.text);
            matches!(event, Ok(Event::ApprovalNeeded { calls })
                if calls.iter().any(|call| decisions.iter().any(|(id, _)| *id == call.id)))
        });
        let after = interrupts.map_or(0, |entry| entry.number);
        let started = self.started(&run)?;
        for (call, decision) in decisions {
            self.approve(caller, &run.id, call, decision).await?;
        }
        Ok(ResumedRun { run: started, after })
    }

    /// The MCP servers and their tools.
    pub async fn tool_servers(&self) -> Vec<ServerView> {
        self.tools.views().await
    }

    /// Adds the tools of MCP servers that a turn names to its request.
    pub(super) async fn offer_tools(&self, mut part: UserPart) -> Result<UserPart, Problem> {
        if part.server_tools.is_empty() {
            return Ok(part);
        }
        let offered = self.tools.resolve(&part.server_tools).await;
        let tools = offered.map_err(|error| self.tools_problem(&error))?;
        check_names(&tools, &part.request.tools)?;
        part.request.tools.extend(tools.requested());
        part.tools = tools;
        Ok(part)
    }

    fn tools_problem(&self, error: &ToolsError) -> Problem {
        match error {
            ToolsError::UnknownServer { .. } => {
                let known = self.tools.all();
                let known: Vec<String> =
                    known.iter().map(|server| format!("`{}`", server.config.name)).collect();
                let hint = match known.is_empty() {
                    true => "the configuration has no `[[mcp]]` server".to_owned(),
                    false => format!("the servers are {}", known.join(", ")),
                };
                Problem::invalid("tools", error).hint(hint)
            }
            ToolsError::UnknownTool { .. } => {
                Problem::invalid("tools", error).hint("GET /api/tools lists all tools")
            }
            ToolsError::Unreachable { .. } => {
                Problem::new(FaultKind::Unreachable, "tool-server", error.to_string())
                    .hint("check the server with `throughline doctor`, or leave its tools out")
            }
        }
    }

    /// Decides about a call that waits for a person.
    pub async fn approve(
        &self,
        caller: &Caller,
        run: &str,
        call: &str,
        request: ApprovalRequest,
    ) -> Result<(), Problem> {
        let record = self.own_run(caller, run).await?;
        let content = self.run_content(&record)?;
        let project = self.any_project(caller, &content.project).await?;
        let seal = self.unlock(caller, &project)?;
        let decision =
            Decision { approve: request.approve, input: request.input.map(Value::Object) };
        if self.approvals.is_waiting(run, call) == Some(false) {
            return Err(not_waiting(call));
        }
        let store = &*self.sealed_store.store;
        // Several instances may get decisions about the same question.
        let is_shared = store.is_shared();
        if is_shared {
            let entries = self.log_of(&record.id, &seal).await?;
            let question = question_about(&entries, call);
            let question = question.filter(|_| record.status == RunStatus::Running);
            let question = question.ok_or_else(|| not_waiting(call))?;
            if !store_decision(store, &seal, &record, (call, question), &decision).await? {
                return Err(not_waiting(call));
            }
        }
        // The instance that runs the loop also finds it in the store.
        match self.approvals.decide(run, call, decision) {
            Delivered::Yes => Ok(()),
            Delivered::NotWaiting | Delivered::NotHere if is_shared => Ok(()),
            Delivered::NotWaiting | Delivered::NotHere => Err(not_waiting(call)),
        }
    }

    /// The entries of the log of a run, here or in the store.
    async fn log_of(&self, run: &str, seal: &ChatSeal) -> Result<Vec<Entry>, Problem> {
        match self.runs.live(run) {
            Some(live) => Ok(live.entries()),
            None => Ok(self.runs.stored_entries(run, None, Some(seal)).await?),
        }
    }
}

pub(crate) fn not_waiting(call: &str) -> Problem {
    Problem::conflict("not-waiting", format!("the call `{call}` does not wait for a decision"))
        .hint("the events of the run show which calls wait")
}

/// Refuses a tool of the client that has the name of a server's tool.
fn check_names(tools: &ToolSet, clients: &[Tool]) -> Result<(), Problem> {
    let taken = clients.iter().find_map(|tool| match tool {
        Tool::Function { name, .. } => tools.find(name).map(|_| name),
        Tool::Opaque { .. } => None,
    });
    match taken {
        None => Ok(()),
        Some(name) => {
            let wrong = format!("`{name}` is also the name of a tool of an MCP server");
            Err(Problem::invalid("tools", wrong).hint("give your own tool another name"))
        }
    }
}

/// Takes the names of servers and their tools out of the settings of a turn.
pub(super) fn take_server_tools(settings: &mut Map<String, Value>) -> Vec<String> {
    let Some(Value::Array(tools)) = settings.get_mut("tools") else {
        return Vec::new();
    };
    let mut names = Vec::new();
    tools.retain(|tool| match tool {
        Value::String(name) => {
            names.push(name.clone());
            false
        }
        _ => true,
    });
    if tools.is_empty() && !names.is_empty() {
        settings.remove("tools");
    }
    names
}
