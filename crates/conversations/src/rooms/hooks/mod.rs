//! Hooks: programs that learn what happens in rooms, and may decide about it.
//!
//! - [`Hook`]: a hook in this process; `webhook`: one that is called over HTTP, signed after the scheme of
//!   Standard Webhooks;
//! - [`deliveries`]: calls of webhooks that no room waits for, which are repeated until they succeed.
//!
//! A *blocking* hook answers `continue`, `replace` or `refuse` before the room goes on. Others hear
//! of what has happened.

pub mod deliveries;
pub(crate) mod webhook;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline_canonical::{Block, Reply};
use utoipa::ToSchema;

use self::deliveries::Deliveries;
use self::webhook::{CallError, Webhooks};
use crate::projects::content::{NodeContent, text_of};
use crate::projects::room_turn::RoomHome;
use crate::store::Node;

/// When a hook is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Before a message of a person is stored.
    BeforeMessage,
    /// After a model has thought.
    OnAiThinking,
    /// Before the answer of a model is stored and shown.
    BeforeBroadcast,
    /// After the answer of a model is stored.
    AfterResponse,
    /// When a model calls a tool.
    OnToolCall,
    /// After something failed.
    OnError,
    /// After the room has changed: its members, hooks or people.
    OnRoomChange,
}

impl Trigger {
    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BeforeMessage => "before_message",
            Self::OnAiThinking => "on_ai_thinking",
            Self::BeforeBroadcast => "before_broadcast",
            Self::AfterResponse => "after_response",
            Self::OnToolCall => "on_tool_call",
            Self::OnError => "on_error",
            Self::OnRoomChange => "on_room_change",
        }
    }

    /// Whether the room can wait for an answer.
    pub fn can_block(self) -> bool {
        matches!(self, Self::BeforeMessage | Self::BeforeBroadcast | Self::OnToolCall)
    }
}

/// What happens if a blocking hook does not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The room goes on.
    #[default]
    Open,
    /// It is as if the hook had refused.
    Closed,
}

/// A webhook of a room.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookConfig {
    /// The id.
    pub id: String,
    /// When it is called.
    pub trigger: Trigger,
    /// The address.
    pub url: String,
    /// The secret that signs calls.
    pub secret: String,
    /// Whether the room waits for its answer.
    pub blocking: bool,
    /// What happens if it does not answer.
    pub on_failure: OnFailure,
    /// How long it may take.
    pub timeout_ms: u64,
}

/// The secret never reaches a log.
impl Debug for HookConfig {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { id, trigger, url, blocking, .. } = self;
        write!(formatter, "HookConfig({id}, {}, {url}, blocking: {blocking})", trigger.as_str())
    }
}

/// What a hook decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The room goes on.
    Continue,
    /// It goes on with another text.
    Replace(String),
    /// It does not go on, for this reason.
    Refuse(String),
}

/// A call of a hook.
#[derive(Clone, Debug)]
pub struct HookCall {
    /// When it is called.
    pub trigger: Trigger,
    /// What happened. Blocking hooks that replace something replace `content`.
    pub data: Value,
}

/// A hook in this process. It is called for all rooms.
pub trait Hook: Debug + Send + Sync {
    /// When it is called.
    fn trigger(&self) -> Trigger;
    /// Takes a call. The verdict counts if the trigger can block.
    fn call<'a>(&'a self, call: &'a HookCall) -> BoxFuture<'a, Verdict>;
}

/// Asked before the answer of a model is stored and shown.
pub(crate) trait Gate: Debug + Send + Sync {
    /// Decides about an answer.
    fn before_broadcast<'a>(&'a self, reply: &'a Reply) -> BoxFuture<'a, Verdict>;
    /// Whether it may change an answer, or refuse it.
    fn decides_about_answers(&self) -> bool;
    /// Decides about a call of a tool.
    fn on_tool_call<'a>(&'a self, call: Value) -> BoxFuture<'a, Verdict>;
}

/// How webhooks are repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HookSettings {
    /// Whether hooks may be at loopback and private addresses.
    pub allow_private: bool,
    /// How often a call is tried.
    pub attempts: u64,
    /// The pause after the first attempt. It grows fourfold with each one.
    pub first_pause: Duration,
}

impl Default for HookSettings {
    fn default() -> Self {
        Self { allow_private: false, attempts: 6, first_pause: Duration::from_secs(5) }
    }
}

/// All hooks.
#[derive(Debug)]
pub struct Hooks {
    webhooks: Arc<Webhooks>,
    pub(super) deliveries: Arc<Deliveries>,
    own: RwLock<Vec<Arc<dyn Hook>>>,
}

impl Hooks {
    pub(super) fn new(webhooks: Arc<Webhooks>, deliveries: Arc<Deliveries>) -> Self {
        Self { webhooks, deliveries, own: RwLock::default() }
    }

    /// Adds a hook of this process.
    pub fn add(&self, hook: Arc<dyn Hook>) {
        self.own.write().push(hook);
    }

    /// Whether a webhook may have this address.
    pub(super) fn may_call(&self, url: &http::Uri) -> bool {
        self.webhooks.may_call(url)
    }

    fn own(&self, trigger: Trigger) -> Vec<Arc<dyn Hook>> {
        let own = self.own.read();
        own.iter().filter(|hook| hook.trigger() == trigger).cloned().collect()
    }

    /// Asks the blocking hooks, one after the other, and notifies the others. Each one sees what those before
    /// it have replaced.
    pub(super) async fn ask(
        &self,
        home: &RoomHome,
        hooks: &[HookConfig],
        mut call: HookCall,
    ) -> Verdict {
        let trigger = call.trigger;
        let mut verdict = Verdict::Continue;
        for hook in self.own(trigger) {
            let next = hook.call(&call).await;
            if !take(&mut verdict, &mut call, next) {
                return verdict;
            }
        }
        let of_trigger = || hooks.iter().filter(|hook| hook.trigger == trigger);
        for hook in of_trigger().filter(|hook| hook.blocking) {
            let next = self.ask_webhook(hook, &call).await;
            if !take(&mut verdict, &mut call, next) {
                return verdict;
            }
        }
        for hook in of_trigger().filter(|hook| !hook.blocking) {
            self.deliveries.send(home, hook, &call).await;
        }
        verdict
    }

    async fn ask_webhook(&self, hook: &HookConfig, call: &HookCall) -> Verdict {
        match self.webhooks.ask(hook, call).await {
            Ok(verdict) => verdict,
            Err(error) => {
                let (id, trigger) = (&hook.id, hook.trigger.as_str());
                tracing::warn!(hook = id, trigger, %error, "a blocking hook did not answer");
                match hook.on_failure {
                    OnFailure::Open => Verdict::Continue,
                    OnFailure::Closed => Verdict::Refuse(closed(&error)),
                }
            }
        }
    }

    /// Whether a hook decides when this happens.
    pub(super) fn decides(&self, hooks: &[HookConfig], trigger: Trigger) -> bool {
        let blocks = |hook: &HookConfig| hook.trigger == trigger && hook.blocking;
        !self.own(trigger).is_empty() || hooks.iter().any(blocks)
    }

    /// Notifies hooks.
    pub(super) async fn notify(&self, home: &RoomHome, hooks: &[HookConfig], call: HookCall) {
        self.ask(home, hooks, call).await;
    }
}

fn closed(error: &CallError) -> String {
    format!("a hook that must agree did not answer: {error}")
}

/// Takes the verdict of one hook. Returns false if no other is asked.
fn take(verdict: &mut Verdict, call: &mut HookCall, next: Verdict) -> bool {
    match next {
        Verdict::Continue => true,
        Verdict::Replace(text) => {
            call.data["content"] = json!(text);
            *verdict = Verdict::Replace(text);
            true
        }
        Verdict::Refuse(reason) => {
            *verdict = Verdict::Refuse(reason);
            false
        }
    }
}

/// The calls of hooks when an answer is stored: each span of thinking, then the answer.
pub(super) fn calls_at_end(node: &Node, content: &NodeContent) -> Vec<(Trigger, Value)> {
    let facts = node.in_project.as_ref().map(|inside| inside.facts.clone()).unwrap_or_default();
    let spans = content.blocks.iter().filter_map(|block| match block {
        Block::Thinking { text, signature } => Some((text, signature.is_some())),
        _ => None,
    });
    let spans: Vec<(&String, bool)> = spans.collect();
    // The provider counts the thinking of the whole answer.
    let counted = facts.usage.and_then(|usage| usage.thinking).filter(|_| spans.len() == 1);
    let mut calls: Vec<(Trigger, Value)> = Vec::with_capacity(spans.len() + 1);
    for (text, signed) in spans {
        let data = json!({"node": node.id, "text": text, "tokens": counted, "signed": signed});
        calls.push((Trigger::OnAiThinking, data));
    }
    let data = json!({
        "node": node.id,
        "content": content.text(),
        "status": facts.status,
        "usage": facts.usage,
    });
    calls.push((Trigger::AfterResponse, data));
    calls
}

/// The data of an answer, for hooks.
pub(super) fn answer_data(reply: &Reply) -> Value {
    json!({ "content": text_of(&reply.content) })
}
