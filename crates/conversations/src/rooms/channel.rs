//! Channels: members that many rooms can have.

use serde::{Deserialize, Serialize};
use throughline_gateway::unix_ms;
use utoipa::ToSchema;

use super::Rooms;
use crate::projects::Caller;
use crate::projects::problem::Problem;
use crate::projects::unreadable::{Unreadable, or_unreadable};
use crate::sealed_store::SealedKind;
use crate::store::{Changed, Channel, Page};

/// The longest id of a channel or name of a person, in characters.
pub(super) const MAX_ID: usize = 64;
/// The longest system prompt, in bytes.
const MAX_PROMPT: usize = 1 << 20;

/// A new channel.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NewChannel {
    /// The id, which people write after `@`: letters, digits, `-` and `_`.
    pub id: String,
    /// The backend. Empty: the default one.
    pub provider: Option<String>,
    /// The model. Empty: the default one of the backend.
    pub model: Option<String>,
    /// The system text.
    pub system_prompt: Option<String>,
    /// The largest number of tokens for thinking. 0 turns thinking off; without it, the model decides.
    pub thinking_budget: Option<u64>,
    /// Tools of MCP servers: `server`, or `server/tool`.
    pub tools: Vec<String>,
}

/// A change of a channel. What is missing stays.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ChannelChange {
    /// The backend.
    pub provider: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The system text. An empty one removes it.
    pub system_prompt: Option<String>,
    /// The largest number of tokens for thinking.
    pub thinking_budget: Option<u64>,
    /// Tools of MCP servers.
    pub tools: Option<Vec<String>>,
}

/// What is sealed of a channel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ChannelContent {
    pub(super) provider: Option<String>,
    pub(super) model: Option<String>,
    pub(super) system_prompt: Option<String>,
    pub(super) thinking_budget: Option<u64>,
    pub(super) tools: Vec<String>,
}

/// A channel as the API shows it.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChannelView {
    /// The id.
    pub id: String,
    /// The backend. `null`: the default one.
    pub provider: Option<String>,
    /// The model. `null`: the default one of the backend.
    pub model: Option<String>,
    /// The system text.
    pub system_prompt: Option<String>,
    /// The largest number of tokens for thinking. `null`: the model decides.
    pub thinking_budget: Option<u64>,
    /// Tools of MCP servers.
    pub tools: Vec<String>,
    /// When it was created, in milliseconds since 1970.
    pub created_at: u64,
    /// Why the rest is missing. Only lists show such channels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<Unreadable>,
}

/// A page of channels.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ChannelList {
    /// The channels, by their id.
    pub channels: Vec<ChannelView>,
    /// The value of `after` for the next page.
    pub next: Option<String>,
}

impl ChannelView {
    fn new(channel: &Channel, content: ChannelContent) -> Self {
        Self {
            id: channel.id.clone(),
            provider: content.provider,
            model: content.model,
            system_prompt: content.system_prompt,
            thinking_budget: content.thinking_budget,
            tools: content.tools,
            created_at: channel.created,
            problem: None,
        }
    }
}

/// The id that seals a channel: ids of channels are unique only for their owner.
fn sealed_id(owner: &str, id: &str) -> String {
    format!("{owner}/{id}")
}

fn given(text: Option<String>) -> Option<String> {
    text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Checks the id of a channel.
fn check_id(id: &str) -> Result<(), Problem> {
    let is_part = |part: char| part.is_ascii_alphanumeric() || matches!(part, '-' | '_');
    match !id.is_empty() && id.len() <= MAX_ID && id.chars().all(is_part) {
        true => Ok(()),
        false => {
            let wrong = format!("must be 1 to {MAX_ID} letters, digits, `-` and `_`");
            Err(Problem::invalid("id", wrong))
        }
    }
}

impl ChannelContent {
    fn check(&self, rooms: &Rooms) -> Result<(), Problem> {
        let (provider, model) = (self.provider.as_deref(), self.model.as_deref());
        if provider.is_some() || model.is_some() {
            rooms.projects.resolve_lock(provider, model, None)?;
        }
        match self.system_prompt.as_ref().is_some_and(|prompt| prompt.len() > MAX_PROMPT) {
            true => Err(Problem::invalid(
                "systemPrompt",
                format!("must have at most {MAX_PROMPT} bytes"),
            )),
            false => Ok(()),
        }
    }
}

impl Rooms {
    /// Creates a channel.
    pub async fn create_channel(
        &self,
        caller: &Caller,
        new: NewChannel,
    ) -> Result<ChannelView, Problem> {
        check_id(&new.id)?;
        let content = ChannelContent {
            provider: given(new.provider),
            model: given(new.model),
            system_prompt: new.system_prompt.filter(|prompt| !prompt.is_empty()),
            thinking_budget: new.thinking_budget,
            tools: new.tools,
        };
        content.check(self)?;
        let channel = Channel {
            sealed: self.seal_channel(&caller.owner, &new.id, &content),
            owner: caller.owner.clone(),
            created: unix_ms(),
            id: new.id,
        };
        match self.sealed_store.store.add_channel(channel.clone()).await? {
            true => Ok(ChannelView::new(&channel, content)),
            false => {
                let taken = format!("there is a channel `{}` already", channel.id);
                Err(Problem::conflict("name-taken", taken)
                    .hint("change it with PATCH /api/channels/{id}, or choose another id"))
            }
        }
    }

    /// A channel.
    pub async fn get_channel(&self, caller: &Caller, id: &str) -> Result<ChannelView, Problem> {
        let (channel, content) = self.own_channel(&caller.owner, id).await?;
        Ok(ChannelView::new(&channel, content))
    }

    /// The channels of the caller.
    pub async fn list_channels(&self, caller: &Caller, page: Page) -> Result<ChannelList, Problem> {
        let limit = page.limit;
        let page = Page { limit: limit + 1, ..page };
        let mut found = self.sealed_store.store.channels(&caller.owner, page).await?;
        let has_more = found.len() > limit;
        found.truncate(limit);
        let next = found.last().filter(|_| has_more).map(|channel| channel.id.clone());
        let show = |channel: &Channel| {
            let (content, problem) = or_unreadable(self.open_channel(channel))?;
            Ok(ChannelView { problem, ..ChannelView::new(channel, content) })
        };
        let channels = found.iter().map(show).collect::<Result<_, Problem>>()?;
        Ok(ChannelList { channels, next })
    }

    /// Changes a channel. Rooms use it from their next answer on.
    pub async fn change_channel(
        &self,
        caller: &Caller,
        id: &str,
        change: ChannelChange,
    ) -> Result<ChannelView, Problem> {
        loop {
            let (channel, mut content) = self.own_channel(&caller.owner, id).await?;
            if let Some(provider) = change.provider.clone() {
                content.provider = given(Some(provider));
            }
            if let Some(model) = change.model.clone() {
                content.model = given(Some(model));
            }
            if let Some(prompt) = change.system_prompt.clone() {
                content.system_prompt = Some(prompt).filter(|prompt| !prompt.is_empty());
            }
            content.thinking_budget = change.thinking_budget.or(content.thinking_budget);
            if let Some(tools) = change.tools.clone() {
                content.tools = tools;
            }
            content.check(self)?;
            let sealed = self.seal_channel(&caller.owner, id, &content);
            let to = Channel { sealed, ..channel.clone() };
            let changed = self.sealed_store.store.change_channel(channel, to.clone()).await?;
            if changed == Changed::Yes {
                return Ok(ChannelView::new(&to, content));
            }
        }
    }

    /// Removes a channel. Rooms that have it keep their messages, and it answers no more.
    pub async fn delete_channel(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        match self.sealed_store.store.remove_channel(&caller.owner, id).await? {
            true => Ok(()),
            false => Err(Problem::not_found("channel", id)),
        }
    }

    pub(super) async fn own_channel(
        &self,
        owner: &str,
        id: &str,
    ) -> Result<(Channel, ChannelContent), Problem> {
        let channel = self.sealed_store.store.channel(owner, id).await?;
        let channel = channel.ok_or_else(|| Problem::not_found("channel", id))?;
        let content = self.open_channel(&channel)?;
        Ok((channel, content))
    }

    fn open_channel(&self, channel: &Channel) -> Result<ChannelContent, Problem> {
        let id = sealed_id(&channel.owner, &channel.id);
        Ok(self.sealed_store.open(SealedKind::Channel, &id, &channel.sealed)?)
    }

    fn seal_channel(&self, owner: &str, id: &str, content: &ChannelContent) -> Vec<u8> {
        self.sealed_store.seal(SealedKind::Channel, &sealed_id(owner, id), content)
    }
}
