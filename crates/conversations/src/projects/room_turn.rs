//! Turns in a room: what people say, and the answers of its members. A room has no run of its own on its
//! branch: people and members speak at any time, and each message follows the newest one when it is
//! stored.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use throughline_canonical::{Block, Fault};
use throughline_gateway::thinking::store::StoreError;
use tokio::time::sleep;

use super::answer::{Answer, Kept};
use super::branch::busy;
use super::content::{NodeContent, text_of};
use super::history::content;
use super::locks::replaced_key;
use super::problem::Problem;
use super::turn::{NewRun, StartedRun, UserPart, new_node, read_part, read_settings};
use super::{Caller, Projects};
use crate::chat_seal::{ChatSeal, Field};
use crate::rooms::event::{StoredEvent, name_of_failure, name_of_step};
use crate::rooms::hooks::{Gate, Verdict};
use crate::rooms::machine::{Author, Message, Step};
use crate::runs::canonical::Driven;
use crate::store::{
    Commit, Detail, Move, Node, NodeRole, Outcome, Project, Reference, RoomEntry, Run, RunStatus,
};

/// How often a message is stored again because others were faster.
const MAX_ATTEMPTS: usize = 200;
/// The pause while a run of the project API holds the branch.
const BUSY_PAUSE: Duration = Duration::from_millis(50);
/// Why an answer is not stored whose server died before the hooks were asked.
const NO_CONSENT: &str = "the server stopped before a hook that must agree was asked";
/// How many of the newest messages are looked at for those that an answer has not read.
const MAX_UNREAD: usize = 100;

/// What a run knows about its room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RoomRun {
    /// The room.
    pub(crate) room: String,
    /// The channel that answers.
    pub(crate) channel: String,
    /// How many answers of models led to this one, with it.
    pub(crate) chain: u32,
    /// The system text, instead of that of the project. It is never stored: the server has the key of a run's
    /// own facts.
    #[serde(skip)]
    pub(crate) system: Option<String>,
    /// Whether the answer is stored only if a hook agrees.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) needs_consent: bool,
}

/// An answer of a member that begins. The default is an answer outside a room.
#[derive(Clone, Debug, Default)]
pub(crate) struct RoomTurn {
    /// What its run knows.
    pub(crate) run: Option<RoomRun>,
    /// The provider and the model, instead of those of the branch.
    pub(crate) lock: Option<(String, String)>,
    /// Asked before the answer is shown.
    pub(crate) gate: Option<Arc<dyn Gate>>,
}

/// Where a room stores its messages.
#[derive(Clone, Debug)]
pub(crate) struct RoomHome {
    /// The room.
    pub(crate) room: String,
    /// The project.
    pub(crate) project: Project,
    /// The id of the branch.
    pub(crate) branch: String,
    /// Seals and opens its contents.
    pub(crate) seal: Arc<ChatSeal>,
}

/// What a person says.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    /// Who says it.
    pub(crate) author: String,
    /// Whether models see the name.
    pub(crate) shows_author: bool,
    /// A text, or blocks.
    pub(crate) content: Value,
    /// The name of the entry in the log of the room.
    pub(crate) name: Option<String>,
}

/// A run of a room.
#[derive(Clone, Debug)]
pub(crate) struct RunInRoom {
    /// What it knows about its room.
    pub(crate) room: RoomRun,
    /// The node of its answer.
    pub(crate) node: String,
    /// The newest node that the answer takes into account.
    pub(crate) parent: String,
}

/// The result of storing what a person says.
#[derive(Clone, Debug)]
pub(crate) enum StoredSaying {
    /// It is stored.
    Stored {
        /// Its node.
        node: String,
        /// The message.
        message: Message,
    },
    /// The log has an entry of this name.
    Repeated,
}

impl Projects {
    /// Reads what a person wants to say. Returns its text.
    pub(crate) fn read_saying(&self, content: &Value) -> Result<String, Problem> {
        let part = read_part(Some(content.clone()), Vec::new(), Map::new(), false);
        Ok(text_of(&part.map_err(named_content)?.blocks))
    }

    /// Stores what a person says as the newest message of a room.
    pub(crate) async fn say(
        &self,
        home: &RoomHome,
        saying: Saying,
    ) -> Result<StoredSaying, Problem> {
        let part = read_part(Some(saying.content), Vec::new(), Map::new(), false);
        let blocks = part.map_err(named_content)?.blocks;
        let author = Author::Person(saying.author.clone());
        let message = Message { author, text: text_of(&blocks), chain: 0 };
        let content = NodeContent {
            blocks,
            author: Some(saying.author),
            shows_author: saying.shows_author,
            ..NodeContent::default()
        };
        let store = &self.sealed_store.store;
        let RoomHome { project, branch, seal, .. } = home;
        for _ in 0..MAX_ATTEMPTS {
            let head = self.room_branch(home).await?.head;
            let node = new_node(seal, project, branch, head.clone(), &content);
            let to = Some(node.id.clone());
            let event = StoredEvent::message(&node.id, None, None);
            let name = saying.name.clone().unwrap_or_else(|| format!("message:{}", node.id));
            let last = store.last_entry(&home.room).await?;
            let id = node.id.clone();
            let commit = Commit {
                sealed_under: seal.sealed_under(),
                nodes: vec![node],
                moves: Some(Move { reference: branch.clone(), from: head, to }),
                entries: vec![home.entry(last + 1, name, &event)],
                ..Commit::default()
            };
            match store.commit(commit).await? {
                Outcome::Written => return Ok(StoredSaying::Stored { node: id, message }),
                Outcome::NameTaken => return Ok(StoredSaying::Repeated),
                Outcome::Busy { run } => return Err(busy(&run)),
                Outcome::KeyChanged => return Err(replaced_key(seal)),
                Outcome::Stale | Outcome::Repeated { .. } | Outcome::Fenced => {}
            }
        }
        Err(crowded())
    }

    /// The branch of a room.
    async fn room_branch(&self, home: &RoomHome) -> Result<Reference, Problem> {
        let branch = self.sealed_store.store.reference(&home.branch).await?;
        branch.ok_or_else(|| Problem::not_found("branch", &home.branch))
    }

    /// Adds an event to the log of a room, unless it has one of this name.
    pub(crate) async fn record(
        &self,
        home: &RoomHome,
        name: String,
        event: &StoredEvent,
    ) -> Result<(), Problem> {
        let store = &self.sealed_store.store;
        for _ in 0..MAX_ATTEMPTS {
            let last = store.last_entry(&home.room).await?;
            let commit = Commit {
                sealed_under: home.seal.sealed_under(),
                entries: vec![home.entry(last + 1, name.clone(), event)],
                ..Commit::default()
            };
            match store.commit(commit).await? {
                Outcome::Stale => {}
                Outcome::KeyChanged => return Err(replaced_key(&home.seal)),
                _ => return Ok(()),
            }
        }
        Err(crowded())
    }

    /// Asks a member for an answer to what was said until now.
    pub(crate) async fn answer_in_room(
        self: &Arc<Self>,
        caller: &Caller,
        home: &RoomHome,
        settings: Map<String, Value>,
        turn: RoomTurn,
    ) -> Result<StartedRun, Problem> {
        let branch = self.room_branch(home).await?;
        let settings = read_settings(settings, self.stores_replies())?;
        let part = self.offer_tools(UserPart { blocks: Vec::new(), ..settings }).await?;
        let new = NewRun {
            seal: home.seal.clone(),
            project: &home.project,
            parent: branch.head.clone().unwrap_or_default(),
            branch: &branch,
            replaces: None,
            name: None,
            room: Some(turn),
        };
        self.start(caller, new, part, Commit::default()).await
    }

    /// What a run knows about its room. `None` if it is of no room.
    pub(crate) fn run_in_room(&self, run: &Run) -> Option<RunInRoom> {
        let content = self.run_content(run).ok()?;
        Some(RunInRoom { room: content.room?, node: content.node, parent: content.parent })
    }

    /// The opened node of a message.
    pub(crate) async fn room_node(
        &self,
        home: &RoomHome,
        id: &str,
    ) -> Result<Option<(Node, NodeContent)>, Problem> {
        let Some(node) = self.sealed_store.store.node(id).await? else {
            return Ok(None);
        };
        let opened = content(&home.seal, &node)?;
        Ok(Some((node, opened)))
    }

    /// A message, if it is the newest one of its room: nothing has followed it.
    pub(crate) async fn newest_message(
        &self,
        home: &RoomHome,
        id: &str,
    ) -> Result<Option<Message>, Problem> {
        if self.room_branch(home).await?.head.as_deref() != Some(id) {
            return Ok(None);
        }
        let node = self.room_node(home, id).await?;
        Ok(node.map(|(node, content)| message_of(&node, &content)))
    }

    /// The messages that arrived after an answer had begun, without the answer itself.
    pub(crate) async fn unread(
        &self,
        home: &RoomHome,
        run: &RunInRoom,
    ) -> Result<Vec<Message>, Problem> {
        let Some(head) = self.room_branch(home).await?.head else {
            return Ok(Vec::new());
        };
        let path = self.sealed_store.store.path(&head, MAX_UNREAD, Detail::Content).await?;
        let read = path.iter().rposition(|node| node.id == run.parent).map_or(0, |at| at + 1);
        let later = path[read..].iter().filter(|node| node.id != run.node);
        later.map(|node| Ok(message_of(node, &content(&home.seal, node)?))).collect()
    }
}

impl RoomHome {
    fn entry(&self, number: u64, name: String, event: &StoredEvent) -> RoomEntry {
        let sealed = self.seal.seal_json(Field::RoomEvent(number), &self.room, event);
        RoomEntry { room: self.room.clone(), number, name: Some(name), sealed }
    }

    /// Opens an entry of the log.
    pub(crate) fn open(&self, entry: &RoomEntry) -> Result<StoredEvent, StoreError> {
        self.seal.open_json(Field::RoomEvent(entry.number), &self.room, &entry.sealed)
    }
}

/// A stored node as a message.
pub(crate) fn message_of(node: &Node, content: &NodeContent) -> Message {
    let facts = node.in_project.as_ref().map(|inside| inside.facts.clone()).unwrap_or_default();
    let author = match (facts.channel, facts.role) {
        (Some(channel), NodeRole::Assistant) => Author::Member(channel),
        _ => Author::Person(content.author.clone().unwrap_or_default()),
    };
    Message { author, text: content.text(), chain: content.chain }
}

impl Answer {
    /// The node of an answer whose text a hook has replaced. It has nothing in the provider's own form, which
    /// would contain the first text.
    fn replaced_node(&self, driven: &Driven, text: &str, project: &Project) -> Option<Node> {
        let driven = replaced(driven, text);
        self.node_of(&driven, project, Kept::Blocks)
    }

    /// Stores the end of an answer in a room: its node follows whatever is the newest by now.
    pub(super) async fn commit_end_in_room(
        &self,
        driven: &Driven,
        room: &RoomRun,
    ) -> Result<Outcome, StoreError> {
        let verdict = self.verdict(driven, room).await;
        let store = &self.projects.sealed_store.store;
        loop {
            let project = store.project(&self.content.project).await?;
            let branch = store.reference(&self.content.branch).await?;
            let mut commit = Commit { end: Some(self.run_end(driven)), ..Commit::default() };
            // A project or a branch that was purged meanwhile gets no node, and a closed room no event.
            let (Some(project), Some(branch)) = (project, branch) else {
                return store.commit(commit).await;
            };
            commit.cost = self.run_cost(driven);
            let node = match &verdict {
                Verdict::Continue => self.node(driven, &project),
                Verdict::Replace(text) => self.replaced_node(driven, text, &project),
                Verdict::Refuse(_) => None,
            };
            let node = node.map(|node| Node { parent: branch.head.clone(), ..node });
            if store.room(&room.room).await?.is_some() {
                let home = RoomHome {
                    room: room.room.clone(),
                    project,
                    branch: branch.id.clone(),
                    seal: self.seal.clone(),
                };
                let events = self.end_events(driven, room, node.as_ref(), &verdict);
                commit.entries = self.new_entries(&home, events).await?;
            }
            if let Some(node) = node {
                let to = Some(node.id.clone());
                commit.moves = Some(Move { reference: branch.id, from: branch.head, to });
                commit.nodes = vec![node];
            }
            commit.sealed_under = self.seal.sealed_under();
            match store.commit(commit).await? {
                // Others said something, or recorded a step. Look again.
                Outcome::Stale | Outcome::NameTaken => tokio::task::yield_now().await,
                Outcome::Busy { .. } => sleep(BUSY_PAUSE).await,
                outcome => return Ok(outcome),
            }
        }
    }

    /// Asks the hooks of the room once, however often the end has to be stored. Also the text of an answer that
    /// was stopped or cut is asked about.
    async fn verdict(&self, driven: &Driven, room: &RoomRun) -> Verdict {
        let has_text = !text_of(&driven.reply.content).is_empty();
        if driven.status != RunStatus::Completed && !has_text {
            return Verdict::Continue;
        }
        let Some(gate) = &self.gate else {
            return match room.needs_consent && has_text {
                true => Verdict::Refuse(NO_CONSENT.to_owned()),
                false => Verdict::Continue,
            };
        };
        let ask = || gate.before_broadcast(&driven.reply);
        self.verdict.get_or_init(ask).await.clone()
    }

    /// The events that the end of an answer adds to the log, with their names.
    fn end_events(
        &self,
        driven: &Driven,
        room: &RoomRun,
        node: Option<&Node>,
        verdict: &Verdict,
    ) -> Vec<(String, StoredEvent)> {
        let (channel, run) = (Some(&*room.channel), Some(&*self.id));
        let mut events = Vec::new();
        for step in steps(&driven.reply.content) {
            let event = StoredEvent::step(&step, &room.channel, &self.id);
            events.push((name_of_step(&step, &self.id), event));
        }
        if let Some(node) = node {
            let event = StoredEvent::message(&node.id, channel, run);
            events.push((format!("message:{}", self.id), event));
        }
        let error = match (verdict, &driven.reply.fault) {
            (Verdict::Refuse(reason), _) => Some(("refused", reason.clone())),
            (_, Some(Fault { message, .. })) => Some((status_word(driven.status), message.clone())),
            _ => None,
        };
        if let Some((kind, message)) = error {
            let event = StoredEvent::error(kind, &message, channel, run);
            events.push((name_of_failure(&self.id), event));
        }
        events
    }

    /// Those of these events that the log does not have yet, as entries.
    async fn new_entries(
        &self,
        home: &RoomHome,
        events: Vec<(String, StoredEvent)>,
    ) -> Result<Vec<RoomEntry>, StoreError> {
        let store = &self.projects.sealed_store.store;
        let mut number = store.last_entry(&home.room).await?;
        let mut entries = Vec::new();
        for (name, event) in events {
            if store.named_entry(&home.room, &name).await?.is_none() {
                number += 1;
                entries.push(home.entry(number, name, &event));
            }
        }
        Ok(entries)
    }
}

/// An answer whose text a hook has replaced. What the model thought stays.
fn replaced(driven: &Driven, text: &str) -> Driven {
    let mut reply = driven.reply.clone();
    reply.content.retain(|block| !matches!(block, Block::Text { .. } | Block::Refusal { .. }));
    reply.content.push(Block::text(text));
    let cut_blocks = Vec::new();
    Driven { reply, cut_blocks, status: driven.status, rounds: driven.rounds.clone() }
}

/// The word for the end of a run that failed.
fn status_word(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Interrupted => "interrupted",
        RunStatus::Cancelled => "cancelled",
        RunStatus::Running | RunStatus::Completed | RunStatus::Error => "failed",
    }
}

/// The steps of a tool loop that an answer has.
fn steps(blocks: &[Block]) -> Vec<Step> {
    let step = |block: &Block| match block {
        Block::ToolCall { id, name, arguments, .. } => Some(Step::Called {
            id: id.clone(),
            name: name.clone(),
            arguments: serde_json::from_str(arguments)
                .unwrap_or_else(|_| Value::from(arguments.as_str())),
        }),
        Block::ToolResult { id, content, is_error, .. } => {
            Some(Step::Returned { id: id.clone(), content: content.clone(), is_error: *is_error })
        }
        _ => None,
    };
    blocks.iter().filter_map(step).collect()
}

fn crowded() -> Problem {
    Problem::conflict("crowded", "too many messages were stored at the same time")
        .hint("send the message again")
}

/// The caller wrote `content`.
fn named_content(problem: Problem) -> Problem {
    problem.renamed("message", "content")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The record of a run is sealed under the server's keyring, also in a sealed project.
    #[test]
    fn record_of_a_run_has_no_prompt() {
        let system = Some("systemmark".to_owned());
        let run = RoomRun { room: "room_1".to_owned(), system, ..RoomRun::default() };
        let written = serde_json::to_string(&run).unwrap();
        assert!(written.contains("room_1") && !written.contains("systemmark"), "{written}");
    }
}
