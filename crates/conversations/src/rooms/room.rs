//! Rooms with their members and hooks: create, read, change, remove.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use throughline_gateway::unix_ms;
use utoipa::ToSchema;

use super::Rooms;
use super::hooks::webhook::is_secret;
use super::hooks::{HookCall, HookConfig, OnFailure, Trigger};
use super::machine::{Member, ReplyRule};
use crate::chat_seal::{ChatSeal, Field, SealedFields};
use crate::projects::ids::new_id;
use crate::projects::problem::Problem;
use crate::projects::room_turn::RoomHome;
use crate::projects::unreadable::{Unreadable, or_unreadable};
use crate::projects::{Caller, CostView, NewProject};
use crate::sealed_store::SealedKind;
use crate::store::{BranchFacts, Changed, Page, Project, Room};

/// How many people a room remembers.
const MAX_PARTICIPANTS: usize = 1_000;
/// How many members a room has at most.
const MAX_BINDINGS: usize = 100;
/// How many hooks a room has at most.
const MAX_HOOKS: usize = 100;
/// The time that a hook may take, if it does not say.
const DEFAULT_TIMEOUT_MS: u64 = 5_000;
/// The longest time that a hook may take.
const MAX_TIMEOUT_MS: u64 = 60_000;

/// A new room.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NewRoom {
    /// The title.
    pub title: String,
    /// The project that gets its messages. Without it, the room gets a project of its own.
    pub project: Option<String>,
    /// The branch of the project. Default: `main`.
    pub branch: Option<String>,
}

/// A change of a room.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RoomChange {
    /// The new title.
    pub title: Option<String>,
}

/// What a channel does in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// It answers.
    Intelligence,
    /// It carries messages to people. It gets what models think only if its metadata say so.
    Transport,
    /// It only reads, as a transport does.
    Observer,
}

/// What a room changes of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Metadata {
    /// The system text, instead of that of the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt: Option<String>,
    /// The largest number of tokens for thinking, instead of that of the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_budget: Option<u64>,
    /// The model, instead of that of the channel. Not on a branch that is locked to another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// When a channel of the category `intelligence` answers: `addressed` (the default) or `always`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// Whether a transport or an observer gets what models think.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<bool>,
}

/// When a member answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Reply {
    /// When a message has its name, as in `@tutor`.
    Addressed,
    /// To every message of others.
    Always,
}

/// A channel that becomes a member.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewBinding {
    /// The channel.
    pub channel: String,
    /// What it does.
    pub category: Category,
    /// What the room changes of it.
    #[serde(default)]
    pub metadata: Metadata,
}

/// A member of a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Binding {
    pub(super) channel: String,
    /// The owner of the channel.
    pub(super) owner: String,
    pub(super) category: Category,
    pub(super) metadata: Metadata,
}

/// What is sealed of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RoomContent {
    pub(super) title: String,
    pub(super) bindings: Vec<Binding>,
    pub(super) participants: Vec<String>,
    pub(super) hooks: Vec<HookConfig>,
}

impl RoomContent {
    /// The members that answer.
    pub(super) fn members(&self) -> Vec<Member> {
        let answers = |binding: &&Binding| binding.category == Category::Intelligence;
        let member = |binding: &Binding| Member {
            channel: binding.channel.clone(),
            reply: match binding.metadata.reply {
                Some(Reply::Always) => ReplyRule::Always,
                Some(Reply::Addressed) | None => ReplyRule::Addressed,
            },
        };
        self.bindings.iter().filter(answers).map(member).collect()
    }

    /// Whether models have to see who speaks: several people do, or several models.
    pub(super) fn shows_authors(&self) -> bool {
        self.participants.len() > 1 || self.members().len() > 1
    }

    pub(super) fn binding(&self, channel: &str) -> Option<&Binding> {
        self.bindings.iter().find(|binding| binding.channel == channel)
    }
}

/// A member as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct BindingView {
    /// The channel.
    pub channel: String,
    /// What it does.
    pub category: Category,
    /// What the room changes of it.
    pub metadata: Metadata,
}

/// A new webhook.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewHook {
    /// When it is called.
    pub trigger: Trigger,
    /// The address: `http` or `https`.
    pub url: String,
    /// The secret that signs calls, as `whsec_` and base64, or any text.
    pub secret: String,
    /// Whether the room waits for its answer.
    #[serde(default)]
    pub blocking: bool,
    /// What happens if a blocking hook does not answer: `open` (the room goes on) or `closed`.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// How long it may take. Default: 5000.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 60000)]
    pub timeout_ms: Option<u64>,
}

/// The secret never reaches a log.
impl std::fmt::Debug for NewHook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "NewHook({}, {})", self.trigger.as_str(), self.url)
    }
}

/// A webhook as the API shows it, without its secret.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookView {
    /// The id.
    pub id: String,
    /// When it is called.
    pub trigger: Trigger,
    /// The address.
    pub url: String,
    /// Whether the room waits for its answer.
    pub blocking: bool,
    /// What happens if it does not answer.
    pub on_failure: OnFailure,
    /// How long it may take.
    pub timeout_ms: u64,
}

impl From<&HookConfig> for HookView {
    fn from(hook: &HookConfig) -> Self {
        Self {
            id: hook.id.clone(),
            trigger: hook.trigger,
            url: hook.url.clone(),
            blocking: hook.blocking,
            on_failure: hook.on_failure,
            timeout_ms: hook.timeout_ms,
        }
    }
}

/// A room as the API shows it. Without the key of a sealed project it has no members and people.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoomView {
    /// The id.
    pub id: String,
    /// The title. `null` if the project is sealed and the request has no key.
    pub title: Option<String>,
    /// The title in a sealed project, sealed.
    #[serde(rename = "encrypted_title", skip_serializing_if = "Option::is_none")]
    pub encrypted_title: Option<String>,
    /// The project that has its messages.
    pub project: String,
    /// The name of the branch that has them.
    pub branch: String,
    /// The members.
    pub channels: Vec<BindingView>,
    /// The people who have said something.
    pub participants: Vec<String>,
    /// The number of the last stored event: a reader that begins here gets only what is new.
    pub seq: u64,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// Why the title, the members and the people are missing. Only lists show such rooms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Unreadable>,
}

/// A page of rooms.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RoomList {
    /// The rooms, newest first.
    pub rooms: Vec<RoomView>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
}

/// A room that the caller may use.
#[derive(Clone, Debug)]
pub(super) struct OpenRoom {
    pub(super) room: Room,
    pub(super) content: RoomContent,
    pub(super) home: RoomHome,
}

impl Rooms {
    /// Creates a room.
    pub async fn create(&self, caller: &Caller, new: NewRoom) -> Result<RoomView, Problem> {
        let projects = &self.projects;
        crate::projects::check_name("title", &new.title)?;
        let project = match &new.project {
            Some(project) => project.clone(),
            None if new.branch.is_some() => {
                return Err(Problem::invalid("branch", "needs `project`"));
            }
            None => {
                let own = NewProject { title: new.title.clone(), ..NewProject::default() };
                // Its members have models of their own.
                projects.create_locked(caller, own, Default::default()).await?.id
            }
        };
        let project = projects.own_project(caller, &project).await?;
        let name = new.branch.as_deref().unwrap_or(crate::projects::FIRST_BRANCH);
        let branch = projects.branch(&project, name).await?;
        let seal = projects.unlock(caller, &project)?;
        let content = RoomContent { title: new.title, ..RoomContent::default() };
        let id = new_id("room");
        let room = Room {
            owner: project.owner.clone(),
            project: project.id.clone(),
            branch: branch.id,
            created: unix_ms(),
            version: 1,
            sealed: self.seal_content(&seal, &id, &content),
            id,
        };
        self.sealed_store.store.add_room(room.clone()).await?;
        self.show(&room, Some(content)).await
    }

    /// A room.
    pub async fn get(&self, caller: &Caller, id: &str) -> Result<RoomView, Problem> {
        let (room, project) = self.own_room(caller, id).await?;
        let content = match self.projects.seal_of(caller, &project)? {
            Some(seal) => Some(self.content(&room, &project, &seal).await?),
            None => None,
        };
        self.show(&room, content).await
    }

    /// The rooms of the caller, and those in projects that are shared with the caller.
    pub async fn list(&self, caller: &Caller, page: Page) -> Result<RoomList, Problem> {
        let limit = page.limit;
        let page = Page { limit: limit + 1, ..page };
        let mut found = self.sealed_store.store.rooms(&caller.owner, page).await?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|room| room.id.clone());
        let mut rooms = Vec::with_capacity(found.len());
        for room in found {
            rooms.push(self.summary(caller, &room).await?);
        }
        Ok(RoomList { rooms, next })
    }

    /// What the answers in a room have cost.
    pub async fn cost(&self, caller: &Caller, id: &str) -> Result<CostView, Problem> {
        let (room, _) = self.own_room(caller, id).await?;
        Ok(self.projects.cost_of(&room.project, Some(&room.id)).await?)
    }

    /// A room of a list. The key of another project opens nothing, and is no error.
    async fn summary(&self, caller: &Caller, room: &Room) -> Result<RoomView, Problem> {
        let project = self.sealed_store.store.project(&room.project).await?;
        let project = project.ok_or_else(|| Problem::not_found("project", &room.project))?;
        let (content, problem) = match self.projects.seal_of(caller, &project).ok().flatten() {
            Some(seal) => {
                let opened = or_unreadable(self.content(room, &project, &seal).await)?;
                (Some(opened.0), opened.1)
            }
            None => (None, None),
        };
        Ok(RoomView { problem, ..self.show(room, content).await? })
    }

    /// Changes a room.
    pub async fn change(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        change: RoomChange,
    ) -> Result<RoomView, Problem> {
        if let Some(title) = &change.title {
            crate::projects::check_name("title", title)?;
        }
        let what = json!({ "change": "title" });
        let (room, content) = self
            .edit(caller, id, what, |content| {
                if let Some(title) = &change.title {
                    content.title.clone_from(title);
                }
                Ok(())
            })
            .await?;
        self.show(&room, Some(content)).await
    }

    /// Removes a room. Its messages stay in the project.
    pub async fn delete(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        let open = self.open(caller, id).await?;
        self.sealed_store.store.remove_room(&open.room.id).await?;
        self.close(id);
        Ok(())
    }

    /// Makes a channel a member, or changes what the room changes of it.
    pub async fn bind(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        new: NewBinding,
    ) -> Result<RoomView, Problem> {
        let OpenRoom { room, .. } = self.open(caller, id).await?;
        let binding = Binding {
            channel: new.channel,
            owner: caller.owner.clone(),
            category: new.category,
            metadata: new.metadata,
        };
        if binding.category == Category::Intelligence {
            self.member_lock(&room, &binding).await?;
        } else {
            self.own_channel(&caller.owner, &binding.channel).await?;
        }
        let what = json!({"change": "channel_bound", "channel": binding.channel});
        let (room, content) = self
            .edit(caller, id, what, |content| {
                let bindings = &mut content.bindings;
                let known = bindings.iter().position(|known| known.channel == binding.channel);
                match known {
                    Some(at) => bindings[at] = binding.clone(),
                    None if bindings.len() >= MAX_BINDINGS => {
                        let full = format!("the room has {MAX_BINDINGS} channels already");
                        return Err(Problem::conflict("full", full).hint("remove one first"));
                    }
                    None => bindings.push(binding.clone()),
                }
                Ok(())
            })
            .await?;
        self.show(&room, Some(content)).await
    }

    /// Removes a member.
    pub async fn unbind(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        channel: &str,
    ) -> Result<(), Problem> {
        let what = json!({"change": "channel_unbound", "channel": channel});
        let edited = self.edit(caller, id, what, |content| {
            let before = content.bindings.len();
            content.bindings.retain(|binding| binding.channel != channel);
            match content.bindings.len() < before {
                true => Ok(()),
                false => Err(Problem::not_found("channel in this room", channel)),
            }
        });
        edited.await.map(drop)
    }

    /// The provider and the model of a member. The branch of a room may be locked to another one.
    pub(super) async fn member_lock(
        &self,
        room: &Room,
        binding: &Binding,
    ) -> Result<(String, String), Problem> {
        let (_, channel) = self.own_channel(&binding.owner, &binding.channel).await?;
        let branch = self.sealed_store.store.reference(&room.branch).await?;
        let branch = branch.ok_or_else(|| Problem::not_found("branch", &room.branch))?;
        let facts = branch.branch.map(|branch| branch.facts).unwrap_or_default();
        let locked = Some(&facts).filter(|facts| !facts.provider.is_empty());
        let model = binding.metadata.model.as_deref().or(channel.model.as_deref());
        let wanted = self.projects.resolve_lock(channel.provider.as_deref(), model, locked)?;
        match locked {
            Some(BranchFacts { provider, model, .. })
                if (provider, model) != (&wanted.0, &wanted.1) =>
            {
                Err(crate::projects::locked_branch(&facts))
            }
            _ => Ok(wanted),
        }
    }

    /// The settings of the answers of a member, and its system text.
    pub(super) async fn member_settings(
        &self,
        binding: &Binding,
    ) -> Result<(Map<String, Value>, Option<String>), Problem> {
        let (_, channel) = self.own_channel(&binding.owner, &binding.channel).await?;
        let mut settings = Map::new();
        let budget = binding.metadata.thinking_budget.or(channel.thinking_budget);
        if let Some(budget) = budget {
            let thinking = if budget == 0 { json!(false) } else { json!({ "budget": budget }) };
            settings.insert("thinking".to_owned(), thinking);
        }
        if !channel.tools.is_empty() {
            settings.insert("tools".to_owned(), json!(channel.tools));
        }
        let system = binding.metadata.system_prompt.clone().or(channel.system_prompt);
        Ok((settings, system))
    }

    /// The webhooks of a room.
    pub async fn list_hooks(&self, caller: &Caller, id: &str) -> Result<Vec<HookView>, Problem> {
        let OpenRoom { content, .. } = self.open(caller, id).await?;
        Ok(content.hooks.iter().map(HookView::from).collect())
    }

    /// Adds a webhook.
    pub async fn add_hook(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        new: NewHook,
    ) -> Result<HookView, Problem> {
        let hook = self.check_hook(caller, new)?;
        let what = json!({"change": "hook_added", "hook": hook.id});
        let edited = self.edit(caller, id, what, |content| {
            if content.hooks.len() >= MAX_HOOKS {
                let full = format!("the room has {MAX_HOOKS} hooks already");
                return Err(Problem::conflict("full", full).hint("remove one first"));
            }
            content.hooks.push(hook.clone());
            Ok(())
        });
        edited.await?;
        Ok(HookView::from(&hook))
    }

    /// Removes a webhook. Calls that are waiting are still made.
    pub async fn remove_hook(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        hook: &str,
    ) -> Result<(), Problem> {
        let what = json!({"change": "hook_removed", "hook": hook});
        let edited = self.edit(caller, id, what, |content| {
            let before = content.hooks.len();
            content.hooks.retain(|known| known.id != hook);
            match content.hooks.len() < before {
                true => Ok(()),
                false => Err(Problem::not_found("hook", hook)),
            }
        });
        edited.await.map(drop)
    }

    /// The calls of webhooks that failed too often, oldest first.
    pub async fn dead_calls(
        &self,
        caller: &Caller,
        id: &str,
        page: Page,
    ) -> Result<Vec<Value>, Problem> {
        let open = self.open(caller, id).await?;
        self.hooks.deliveries.dead(&open.home, page).await
    }

    /// Makes a dead call again.
    pub async fn replay_call(&self, caller: &Caller, id: &str, call: &str) -> Result<(), Problem> {
        let open = self.open(caller, id).await?;
        self.hooks.deliveries.replay(&open.home, call).await
    }

    /// Remembers a person who speaks for the first time.
    pub(super) async fn join(
        self: &Arc<Self>,
        caller: &Caller,
        open: OpenRoom,
        name: &str,
    ) -> Result<OpenRoom, Problem> {
        let participants = &open.content.participants;
        let is_known = participants.iter().any(|known| known == name);
        if is_known || participants.len() >= MAX_PARTICIPANTS {
            return Ok(open);
        }
        let what = json!({"change": "participant_joined", "participant": name});
        let (room, content) = self
            .edit(caller, &open.room.id, what, |content| {
                if !content.participants.iter().any(|known| known == name) {
                    content.participants.push(name.to_owned());
                }
                Ok(())
            })
            .await?;
        Ok(OpenRoom { room, content, ..open })
    }

    /// Changes the content of a room. What others change at the same time stays.
    async fn edit(
        self: &Arc<Self>,
        caller: &Caller,
        id: &str,
        what: Value,
        edit: impl Fn(&mut RoomContent) -> Result<(), Problem>,
    ) -> Result<(Room, RoomContent), Problem> {
        loop {
            let OpenRoom { room, mut content, home } = self.open(caller, id).await?;
            edit(&mut content)?;
            let sealed = self.seal_content(&home.seal, &room.id, &content);
            let to = Room { version: room.version + 1, sealed, ..room };
            if self.sealed_store.store.change_room(to.clone()).await? == Changed::Yes {
                self.wake(id);
                self.tell_change(&home, &to, &content, what).await;
                return Ok((to, content));
            }
        }
    }

    async fn tell_change(&self, home: &RoomHome, room: &Room, content: &RoomContent, what: Value) {
        let mut data = what;
        data["room"] = json!(room.id);
        data["version"] = json!(room.version);
        let call = HookCall { trigger: Trigger::OnRoomChange, data };
        self.hooks.notify(home, &content.hooks, call).await;
    }

    /// A room that the caller may use, with its project.
    pub(super) async fn own_room(
        &self,
        caller: &Caller,
        id: &str,
    ) -> Result<(Room, Project), Problem> {
        let not_found = || Problem::not_found("room", id);
        let room = self.sealed_store.store.room(id).await?.ok_or_else(not_found)?;
        let project = self.projects.own_project(caller, &room.project).await;
        Ok((room, project.map_err(|_| not_found())?))
    }

    /// A room that the caller may use, with the key of its project. Everything that changes a room needs it.
    pub(super) async fn open(&self, caller: &Caller, id: &str) -> Result<OpenRoom, Problem> {
        let (room, project) = self.own_room(caller, id).await?;
        let seal = self.projects.unlock(caller, &project)?;
        let content = self.content(&room, &project, &seal).await?;
        let home = RoomHome { room: id.to_owned(), project, branch: room.branch.clone(), seal };
        Ok(OpenRoom { room, content, home })
    }

    /// The opened content of a room, without the hooks of people who may not read it any more.
    pub(super) async fn content(
        &self,
        room: &Room,
        project: &Project,
        seal: &ChatSeal,
    ) -> Result<RoomContent, Problem> {
        let mut content: RoomContent = match seal.is_clients() {
            true => {
                let fields = SealedFields::read(&room.sealed).unwrap_or_default();
                let sealed = fields.get(Field::Room).unwrap_or_default();
                seal.open_json(Field::Room, &room.id, sealed)?
            }
            false => self.sealed_store.open(SealedKind::Room, &room.id, &room.sealed)?,
        };
        content.hooks = self.allowed_hooks(project, content.hooks).await?;
        Ok(content)
    }

    /// Those of these hooks whose owners may still read the project.
    pub(super) async fn allowed_hooks(
        &self,
        project: &Project,
        hooks: impl IntoIterator<Item = HookConfig>,
    ) -> Result<Vec<HookConfig>, Problem> {
        let mut allowed = Vec::new();
        for hook in hooks {
            if hook.owner.is_empty() || self.projects.is_member(project, &hook.owner).await? {
                allowed.push(hook);
            }
        }
        Ok(allowed)
    }

    /// Seals the content of a room: under the key of its people, or under the server's.
    fn seal_content(&self, seal: &ChatSeal, room: &str, content: &RoomContent) -> Vec<u8> {
        match seal.is_clients() {
            true => SealedFields::default()
                .with(Field::Room, seal.seal_json(Field::Room, room, content))
                .with(Field::Title, seal.seal(Field::Title, room, content.title.as_bytes()))
                .write(),
            false => self.sealed_store.seal(SealedKind::Room, room, content),
        }
    }

    /// Shows a room with its opened content, if there is a key.
    async fn show(&self, room: &Room, content: Option<RoomContent>) -> Result<RoomView, Problem> {
        let fields = SealedFields::read(&room.sealed).unwrap_or_default();
        let encrypted_title =
            fields.get(Field::Title).map(|title| BASE64_URL_SAFE_NO_PAD.encode(title));
        let title = content.as_ref().map(|content| content.title.clone());
        let content = content.unwrap_or_default();
        let store = &self.sealed_store.store;
        let branch = store.reference(&room.branch).await?.and_then(|branch| branch.branch);
        let view = |binding: Binding| BindingView {
            channel: binding.channel,
            category: binding.category,
            metadata: binding.metadata,
        };
        Ok(RoomView {
            id: room.id.clone(),
            title,
            encrypted_title,
            project: room.project.clone(),
            branch: branch.map_or_else(String::new, |branch| branch.name),
            channels: content.bindings.into_iter().map(view).collect(),
            participants: content.participants,
            seq: store.last_entry(&room.id).await?,
            created_at: room.created,
            problem: None,
        })
    }

    /// Checks a new webhook.
    fn check_hook(&self, caller: &Caller, new: NewHook) -> Result<HookConfig, Problem> {
        let is_http = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https");
        let Some(url) = new.url.parse::<reqwest::Url>().ok().filter(is_http) else {
            return Err(Problem::invalid("url", "must be an `http` or `https` address"));
        };
        if !self.hooks.may_call(&url) {
            return Err(Problem::invalid("url", "must not be a loopback or private address")
                .hint("the operator can allow such addresses with `hooks.allow_private`"));
        }
        if !is_secret(&new.secret) {
            return Err(Problem::invalid("secret", "is missing, or has no base64 after `whsec_`")
                .hint("the usual form is `whsec_` and the base64 of 24 to 64 random bytes"));
        }
        if new.blocking && !new.trigger.can_block() {
            let wrong =
                format!("`{}` hears of what has happened, and cannot block", new.trigger.as_str());
            return Err(Problem::invalid("blocking", wrong)
                .hint("`before_message`, `before_broadcast` and `on_tool_call` can"));
        }
        let timeout_ms = new.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MS);
        if !(1..=MAX_TIMEOUT_MS).contains(&timeout_ms) {
            return Err(Problem::invalid("timeoutMs", format!("must be 1 to {MAX_TIMEOUT_MS}")));
        }
        Ok(HookConfig {
            id: new_id("hook"),
            owner: caller.owner.clone(),
            trigger: new.trigger,
            url: new.url,
            secret: new.secret,
            blocking: new.blocking,
            on_failure: new.on_failure,
            timeout_ms,
        })
    }
}
