//! What people say in rooms, and decisions about calls that wait.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline_canonical::FaultKind;
use utoipa::ToSchema;

use super::Rooms;
use super::channel::MAX_ID;
use super::hooks::{HookCall, Trigger, Verdict};
use super::machine::Message;
use super::room::OpenRoom;
use super::task::{Command, LiveRoom};
use crate::projects::problem::Problem;
use crate::projects::room_turn::{Saying, StoredSaying};
use crate::projects::tools::not_waiting;
use crate::projects::{ApprovalRequest, Caller, HistoryPage, Order};
use crate::store::{Page, RunStatus, project_scope};

/// The newest runs of a project among which the runs of a room are searched.
const MAX_RECENT_RUNS: usize = 200;

/// What a person says.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NewMessage {
    /// Who says it.
    pub participant: String,
    /// A text, or blocks.
    #[schema(value_type = Object)]
    pub content: Value,
    /// The caller's name for this request. A repeated one is stored once.
    pub client_request_id: Option<String>,
}

/// A message that is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SaidMessage {
    /// Its node.
    pub node_id: String,
    /// The runs of the members that answer it.
    pub runs: Vec<String>,
}

impl Rooms {
    /// Stores what a person says, and asks the members that it addresses.
    pub async fn say(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        new: NewMessage,
    ) -> Result<SaidMessage, Problem> {
        check_participant(&new.participant)?;
        let text = self.projects.read_saying(&new.content)?;
        let open = self.open(caller, id).await?;
        let name = new.client_request_id.as_deref().map(request_name);
        if let Some(name) = &name
            && let Some(known) = self.repeated(caller, &open, name).await?
        {
            return Ok(known);
        }
        let content = self.ask_before_message(&open, &new, &text).await?;
        let open = self.join(caller, open, &new.participant).await?;
        let saying = Saying {
            author: new.participant,
            shows_author: open.content.shows_authors(),
            content,
            name,
        };
        let (own, caller) = (self.clone(), caller.clone());
        // A stored message is answered, also if the client leaves meanwhile.
        let stored = tokio::spawn(async move { own.store_message(&caller, &open, saying).await });
        stored.await.unwrap_or_else(|_| {
            let detail = "the server failed while it stored the message; see its log";
            Err(Problem::new(FaultKind::Internal, "failed", detail))
        })
    }

    async fn store_message(
        self: &Arc<Self>,
        caller: &Caller,
        open: &OpenRoom,
        saying: Saying,
    ) -> Result<SaidMessage, Problem> {
        let name = saying.name.clone();
        // From here on the room is in use, so no reader misses the message.
        let live = self.live(&open.home).await?;
        match self.projects.say(&open.home, saying).await? {
            StoredSaying::Stored { node, message } => {
                Ok(self.dispatch(caller, &live, node, message).await)
            }
            StoredSaying::Repeated => {
                let known =
                    self.repeated(caller, open, name.as_deref().unwrap_or_default()).await?;
                known.ok_or_else(|| Problem::conflict("repeated", "it is stored already"))
            }
        }
    }

    /// Has the members asked that a message addresses.
    async fn dispatch(
        &self,
        caller: &Caller,
        live: &LiveRoom,
        node_id: String,
        message: Message,
    ) -> SaidMessage {
        let (started, runs) = tokio::sync::oneshot::channel();
        live.send(Command::Message { message, caller: Box::new(caller.clone()), started }).await;
        let runs = runs.await.unwrap_or_default();
        SaidMessage { node_id, runs }
    }

    async fn ask_before_message(
        &self,
        open: &OpenRoom,
        new: &NewMessage,
        text: &str,
    ) -> Result<Value, Problem> {
        let data = json!({"room": open.room.id, "participant": new.participant, "content": text});
        let call = HookCall { trigger: Trigger::BeforeMessage, data };
        match self.hooks.ask(&open.home, &open.content.hooks, call).await {
            Verdict::Continue => Ok(new.content.clone()),
            Verdict::Replace(text) => Ok(Value::from(text)),
            Verdict::Refuse(reason) => Err(Problem::new(FaultKind::Forbidden, "refused", reason)
                .hint("a hook of the room refused the message; nothing was stored")),
        }
    }

    /// What a request of this name has stored before. If the server died before it asked the members, they are
    /// asked now.
    async fn repeated(
        self: &Arc<Self>,
        caller: &Caller,
        open: &OpenRoom,
        name: &str,
    ) -> Result<Option<SaidMessage>, Problem> {
        let entry = self.sealed_store.store.named_entry(&open.room.id, name).await?;
        let Some(entry) = entry else { return Ok(None) };
        let event = open.home.open(&entry)?;
        let node_id = event.node().unwrap_or_default().to_owned();
        let project = &open.home.project;
        let scope = project_scope(&project.id);
        let runs = self.sealed_store.store.runs(&project.owner, &scope, MAX_RECENT_RUNS).await?;
        let answers = |run: &&crate::store::Run| {
            let known = self.projects.run_in_room(run);
            known.is_some_and(|known| known.room.room == open.room.id && known.parent == node_id)
        };
        let runs: Vec<String> = runs.iter().filter(answers).map(|run| run.id.clone()).collect();
        if runs.is_empty()
            && let Some(message) = self.projects.newest_message(&open.home, &node_id).await?
        {
            let live = self.live(&open.home).await?;
            return Ok(Some(self.dispatch(caller, &live, node_id, message).await));
        }
        Ok(Some(SaidMessage { node_id, runs }))
    }

    /// A page of the messages of a room.
    pub async fn messages(
        &self,
        caller: &Caller,
        id: &str,
        order: Order,
        page: Page,
    ) -> Result<HistoryPage, Problem> {
        let (room, _) = self.own_room(caller, id).await?;
        let branch = self.sealed_store.store.reference(&room.branch).await?;
        let name = branch.and_then(|branch| branch.branch).map(|branch| branch.name);
        let name = name.ok_or_else(|| Problem::not_found("branch", &room.branch))?;
        self.projects.history(caller, &room.project, &name, order, page).await
    }

    /// Decides about a call that waits for a person.
    pub async fn approve(
        &self,
        caller: &Caller,
        id: &str,
        call: &str,
        request: ApprovalRequest,
    ) -> Result<(), Problem> {
        let (room, _) = self.own_room(caller, id).await?;
        let scope = project_scope(&room.project);
        let runs = self.sealed_store.store.runs(&room.owner, &scope, MAX_RECENT_RUNS).await?;
        let mut refused = None;
        for run in runs.iter().filter(|run| run.status == RunStatus::Running) {
            let is_here = self.projects.run_in_room(run).is_some_and(|of| of.room.room == id);
            if !is_here {
                continue;
            }
            match self.projects.approve(caller, &run.id, call, request.clone()).await {
                Ok(()) => return Ok(()),
                Err(problem) => refused = Some(problem),
            }
        }
        Err(refused.unwrap_or_else(|| not_waiting(call)))
    }
}

/// The name of the entry of a message that has a name of its own.
fn request_name(id: &str) -> String {
    let name = format!("request:{id}");
    crate::store::bounded_name(&name).into_owned()
}

fn check_participant(name: &str) -> Result<(), Problem> {
    let count = name.chars().count();
    match (1..=MAX_ID).contains(&count) && !name.contains(char::is_control) {
        true => Ok(()),
        false => {
            let wrong = format!("must have 1 to {MAX_ID} characters");
            Err(Problem::invalid("participant", wrong))
        }
    }
}
