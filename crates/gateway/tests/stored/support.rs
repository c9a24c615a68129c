//! A gateway in this process, upstreams for it, and a store with one conversation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use throughline_canonical::{
    Amount, Block, Loss, Message, Origin, Request, Role, Show, ThinkingSetting, Tool,
};
use throughline_codec::dialects::stored::Stored;
use throughline_codec::dialects::{self, Accepted};
use throughline_gateway::backend::{Auth, Cache, Pricing, RawText, Replay, Timeouts};
use throughline_gateway::catalog::Catalog;
use throughline_gateway::gateway::Stores;
use throughline_gateway::route::Routes;
use throughline_gateway::settings::{Limits, Policy, Thinking, ToolThinking, Unknown};
use throughline_gateway::thinking::Statistics;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::{InMemory, Snapshot};
use throughline_gateway::thinking::vault::store::InMemoryVault;
use throughline_gateway::turn::turn_reply::UnreadReply;
use throughline_gateway::upstream::Client;
use throughline_gateway::{Backend, Gateway, IncomingRequest, Settings};
use throughline_sealing::Keyring;
use throughline_simulator::{Options, Scenario, Variant};
use throughline_testkit::Simulator;

/// The key of every backend.
pub(crate) const KEY: &str = "sk-secret";

/// What the simulators say. The last user message selects the step.
const SCENARIO: &str = r#"
[[step]]
when = { contains = "plain" }
say = [{ text = "Just a text." }]
[[step]]
when = { contains = "ponder" }
say = [{ thinking = "First this, then that." }, { text = "I have thought." }]
[[step]]
when = { contains = "hidden" }
say = [{ redacted = true }, { thinking = "This may be seen." }, { text = "Some was hidden." }]
[[step]]
when = { contains = "one tool" }
say = [{ thinking = "I need a \"row\"." }, { tool = { name = "lookup", input = { key = "7" } } }]
[[step]]
when = { contains = "row blue" }
say = [{ thinking = "Another row." }, { tool = { name = "lookup", input = { key = "9" } } }]
[[step]]
when = { contains = "row green" }
say = [{ thinking = "That is all." }, { text = "Blue, then green." }]
"#;

/// A provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Upstream {
    pub(crate) dialect: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) model: &'static str,
}

impl Upstream {
    pub(crate) const fn new(
        dialect: &'static str,
        variant: &'static str,
        model: &'static str,
    ) -> Self {
        Self { dialect, variant, model }
    }

    /// Starts its simulator.
    pub(crate) async fn start(&self, identity: &str) -> Simulator {
        let variant = || Variant::named(self.variant).expect("a variant of the simulator");
        Simulator::with(Options {
            identity: identity.to_owned(),
            variant: (self.dialect == "openai_chat").then(variant),
            scenario: Some(Scenario::from_toml(SCENARIO).expect("a scenario")),
            ..Options::default()
        })
        .await
    }

    fn backend(&self, name: &str, url: &str) -> Backend {
        let dialect = dialects::upstream(self.dialect).expect("a dialect");
        let minute = Duration::from_secs(60);
        let timeouts = Timeouts {
            connect: minute,
            first_byte: minute,
            first_byte_for_whole: false,
            idle: minute,
            total: minute,
        };
        Backend {
            name: name.to_owned(),
            dialect,
            profile: dialect.profile(self.variant),
            raw_text: RawText::default(),
            base_url: url.to_owned(),
            domain: name.to_owned(),
            auth: Auth::Key(KEY.to_owned()),
            share_caller_key: false,
            models: Vec::new(),
            default_model: None,
            compat: None,
            strict_settings: false,
            replay: Replay::Verbatim,
            cache: Cache::Client,
            pricing: Pricing::List,
            retries: 0,
            timeouts,
            client: Client::new(minute),
        }
    }
}

/// A gateway with its stores.
pub(crate) struct Instance {
    pub(crate) gateway: Gateway,
    vault: Arc<InMemoryVault>,
}

impl Instance {
    /// Starts a gateway with these backends: name, provider and URL.
    pub(crate) fn start(backends: &[(&str, &Upstream, &str)]) -> Self {
        Self::start_with(backends, Unknown::Try)
    }

    /// As [`Instance::start`], with a rule for blocks that the memory does not know.
    pub(crate) fn start_with(backends: &[(&str, &Upstream, &str)], unknown: Unknown) -> Self {
        let backend =
            |(name, upstream, url): &(&str, &Upstream, &str)| Arc::new(upstream.backend(name, url));
        let settings = Settings {
            backends: backends.iter().map(backend).collect(),
            catalog: Arc::new(Catalog::embedded()),
            routes: Routes { default: backends[0].0.to_owned(), ..Routes::default() },
            thinking: Thinking {
                policy: Policy::Origin,
                unknown,
                orphan_threshold: Duration::from_secs(300),
                memory_limit: 1 << 20,
                tool_thinking: ToolThinking::Auto,
            },
            reasoning_fields: Vec::new(),
            limits: Limits { body: 1 << 20, json_depth: 128, streams: 4 },
            keep_alive: Duration::from_secs(15),
            full_body: false,
            pretty_print: false,
        };
        let vault = Arc::new(InMemoryVault::default());
        let stores = Stores { memory: Arc::new(InMemory::default()), vault: vault.clone() };
        let keyring = Arc::new(Keyring::new([1; 32]));
        Self { gateway: Gateway::new(settings, Snapshot::default(), stores, keyring), vault }
    }

    /// Whether nothing was ever stored in the vault.
    pub(crate) async fn vault_is_empty(&self) -> bool {
        self.gateway.flush().await;
        format!("{:?}", self.vault) == format!("{:?}", InMemoryVault::default())
    }

    /// The fate of each block of the last request.
    pub(crate) fn last_fates(&self) -> Vec<String> {
        let last = self.gateway.turns.list(1, None).pop().expect("a turn");
        let turn = serde_json::to_value(&last).expect("JSON");
        let blocks = turn["blocks"].as_array().cloned().unwrap_or_default();
        blocks.iter().map(|block| block["fate"].as_str().unwrap_or_default().to_owned()).collect()
    }

    pub(crate) fn statistics(&self) -> Statistics {
        self.gateway.memory.statistics(None).expect("statistics")
    }
}

/// A reply, as the store keeps it.
#[derive(Debug)]
pub(crate) struct StoredReply {
    pub(crate) content: Vec<Block>,
    pub(crate) origin: Arc<Origin>,
    pub(crate) backend: String,
    pub(crate) turn_id: String,
    pub(crate) losses: Vec<Loss>,
}

/// A conversation of the store.
pub(crate) struct Conversation {
    /// The settings of every request. Its messages are empty.
    pub(crate) request: Request,
    /// Every message, with the maker of those that a model wrote.
    messages: Vec<(Message, Option<Arc<Origin>>)>,
}

impl Conversation {
    pub(crate) fn new(upstream: &Upstream) -> Self {
        let parameters = json!({"type": "object", "properties": {"key": {"type": "string"}}});
        let tool = Tool::Function {
            name: "lookup".to_owned(),
            description: None,
            parameters,
            strict: None,
        };
        let request = Request {
            model: upstream.model.to_owned(),
            tools: vec![tool],
            max_tokens: Some(8000),
            stream: true,
            thread: Some("thread 1".to_owned()),
            thinking: ThinkingSetting { amount: Some(Amount::On), show: Some(Show::Summary) },
            ..Request::default()
        };
        Self { request, messages: Vec::new() }
    }

    /// Adds a question, as the result of the last call if there is one.
    pub(crate) fn add_question(&mut self, question: &str) {
        let text = Block::text(question);
        let last = self.messages.last().and_then(|(message, _)| message.content.last());
        let block = match last {
            Some(Block::ToolCall { id, name, .. }) => Block::ToolResult {
                id: id.clone(),
                name: Some(name.clone()),
                content: vec![text],
                is_error: false,
            },
            _ => text,
        };
        self.messages.push((Message::new(Role::User, vec![block]), None));
    }

    /// The request, with every earlier block of a model in an envelope.
    pub(crate) fn accepted(&self, house: &Instance) -> Accepted {
        let wrap = |(message, origin): &(Message, Option<Arc<Origin>>)| {
            let wrap = |block: &Block| match origin {
                Some(origin) => house.gateway.envelopes.wrap(block.clone(), origin),
                None => block.clone(),
            };
            Message::new(message.role, message.content.iter().map(wrap).collect())
        };
        let messages = self.messages.iter().map(wrap).collect();
        Stored::accept(Request { messages, ..self.request.clone() }, Vec::new(), Vec::new())
    }

    /// Asks a question and keeps the reply.
    pub(crate) async fn ask(
        &mut self,
        house: &Instance,
        backend: &str,
        question: &str,
    ) -> StoredReply {
        self.add_question(question);
        let unread = self.send(house, backend).await;
        let (head, reply) = unread.fold().await;
        let reply = reply.expect("a reply without a fault");
        let content = reply.content;
        let message = Message::new(Role::Assistant, content.clone());
        self.messages.push((message, Some(head.origin().clone())));
        StoredReply {
            content,
            origin: head.origin().clone(),
            backend: head.backend().to_owned(),
            turn_id: head.turn_id().to_owned(),
            losses: head.losses().to_vec(),
        }
    }

    /// Sends the conversation as it is.
    pub(crate) async fn send(&self, house: &Instance, backend: &str) -> UnreadReply {
        let permit = house.gateway.admit().expect("room");
        let accepted = self.accepted(house);
        match house.gateway.turn_events(incoming(backend), accepted, permit).await {
            Ok(unread) => unread,
            Err(finished) => panic!("{:?}", finished.fault),
        }
    }

    /// Asks a question that fails. Returns status, content type and body of the error.
    pub(crate) async fn fail(
        &mut self,
        house: &Instance,
        backend: &str,
        question: &str,
    ) -> (u16, String, Value) {
        self.add_question(question);
        let permit = house.gateway.admit().expect("room");
        let accepted = self.accepted(house);
        let finished = house.gateway.turn_events(incoming(backend), accepted, permit).await;
        let reply = finished.expect_err("a failed turn").reply;
        let kind = reply.headers()["content-type"].to_str().expect("text").to_owned();
        let status = reply.status().as_u16();
        let body = reply.into_body().collect().await.expect("a body").to_bytes();
        (status, kind, serde_json::from_slice(&body).expect("JSON"))
    }
}

/// A request of the store to a backend.
pub(crate) fn incoming(backend: &str) -> IncomingRequest {
    IncomingRequest {
        id: format!("turn_{}", random::id()),
        method: Method::POST,
        dialect: &Stored,
        path: String::new(),
        query: None,
        headers: HeaderMap::new(),
        pin: Some(backend.to_owned()),
        private: false,
        began: Instant::now(),
    }
}
