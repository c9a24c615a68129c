//! Builds the running application from its configuration: keyring, stores, simulators and gateway.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Uri};
use parking_lot::{Mutex, RwLock};
use throughline_backends::redis::{RedisBus, RedisError};
use throughline_canonical::Fault;
use throughline_conversations::bus::Bus;
use throughline_conversations::bus::in_process::InProcess;
use throughline_conversations::front_doors::FrontDoors;
use throughline_conversations::projects::{ProjectSettings, Projects};
use throughline_conversations::responses::Responses;
use throughline_conversations::rooms::Rooms;
use throughline_conversations::runs::Runs;
use throughline_conversations::runs::abandoned::CloseRun;
use throughline_conversations::runs::reader::Readers;
use throughline_conversations::sealed_store::{Retention, SealedStore};
use throughline_conversations::threads::Threads;
use throughline_conversations::users::Users;
use throughline_gateway::backend::Backend;
use throughline_gateway::catalog::{Catalog, CatalogError};
use throughline_gateway::gateway::{Gateway, Stores};
use throughline_gateway::settings::Settings;
use throughline_gateway::thinking::store::{Change, Snapshot, Store, StoreError};
use throughline_gateway::upstream::Client;
use throughline_sealing::Keyring;
use throughline_tools::Servers;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::config::{self, Config, ConfigEnum};
use crate::cors::{Origins, RefusedOrigins};
use crate::data_dir;
use crate::hosts::Hosts;
use crate::keyring;
use crate::stores::OpenStores;

/// Tokens per second of the built-in simulator, about as fast as a real model.
const SIMULATOR_SPEED: u32 = 80;

/// The running application. Many fields: each one is a part that handlers use.
#[derive(Debug)]
pub struct App {
    /// Runs turns.
    pub gateway: Arc<Gateway>,
    /// Responses and conversations stored for clients that send no history.
    pub responses: Arc<Responses>,
    /// The endpoints of front ends, whose replies can be resumed.
    pub front_doors: Arc<FrontDoors>,
    /// Replies that go on without their client.
    pub runs: Arc<Runs>,
    /// The readers of these replies.
    pub readers: Arc<Readers>,
    /// Message threads, stored for clients that send no history.
    pub threads: Arc<Threads>,
    /// Projects: conversations with branches.
    pub projects: Arc<Projects>,
    /// Rooms: live conversations with members and hooks.
    pub rooms: Arc<Rooms>,
    /// MCP servers whose tools models may call.
    pub tools: Arc<Servers>,
    /// People who log in.
    pub users: Users,
    /// Slots for open WebSockets.
    pub sockets: Arc<Semaphore>,
    /// How long requests in progress may go on after a stop signal.
    shutdown_grace: RwLock<Duration>,
    hosts: RwLock<Hosts>,
    origins: RwLock<Origins>,
    /// The origins whose pages were refused.
    pub refused_origins: RefusedOrigins,
    /// The configuration at start; some of its settings need a restart to change.
    started_with: Config,
    listen: SocketAddr,
    /// Becomes true when the server stops, so that endless streams such as `/admin/turns/stream` end.
    pub stopping: watch::Sender<bool>,
    /// URLs of running simulators, by backend name.
    simulators: Mutex<HashMap<String, String>>,
    /// Held while the server runs: two servers on one directory would lose each other's blocks.
    _lock: File,
}

/// Why the application cannot start or take a new configuration.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The data directory cannot be used.
    #[error("cannot use the data directory `{path}`: {cause}")]
    DataDir {
        /// The directory.
        path: String,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Another server uses the data directory.
    #[error(
        "the data directory `{path}` is used by another throughline; choose another one with --data-dir"
    )]
    InUse {
        /// The directory.
        path: String,
    },
    /// A store cannot be opened.
    #[error("{what}: {cause}")]
    Store {
        /// What could not be done.
        what: String,
        /// The cause.
        cause: String,
    },
    /// The bus cannot be used.
    #[error("{0}; check `redis.url`, or leave it out to run without a bus")]
    Bus(#[from] RedisError),
    /// The keyring cannot be loaded.
    #[error(transparent)]
    Keyring(#[from] keyring::KeyringError),
    /// The models file has a mistake.
    #[error("the models file has a mistake: {0}")]
    Models(#[from] CatalogError),
    /// A simulator cannot start.
    #[error("cannot start the simulator: {0}")]
    Simulator(std::io::Error),
    /// The running gateway rejects the new configuration.
    #[error("{}", .0.message)]
    Refused(Fault),
}

impl App {
    /// Builds all parts and starts the background tasks. `new_keyring` accepts that the keyring of
    /// the stored data is lost.
    pub async fn build(
        config: &Config,
        listen: SocketAddr,
        new_keyring: bool,
    ) -> Result<Self, BuildError> {
        let lock = lock_data_dir(&config.data_dir)?;
        let failed = |error: StoreError| BuildError::Store {
            cause: error.cause.to_string(),
            what: error.what,
        };
        let stores = OpenStores::open(config).await.map_err(failed)?;
        let snapshot = stores.load().await.map_err(failed)?;
        tracing::debug!(blocks = snapshot.blocks.len(), "thinking memory loaded");
        let last = stores.last_key(&snapshot).await.map_err(failed)?;
        let variable = std::env::var_os(keyring::VARIABLE);
        let last = (stores.location.as_str(), last);
        let keyring =
            keyring::load_or_create(&config.data_dir, variable.as_deref(), new_keyring, last)?;
        record_key(&*stores.memory, &snapshot, &keyring).await;
        let simulators = Mutex::default();
        let settings = settings(config, catalog(config)?, &simulators).await?;
        let OpenStores { memory, vault, conversations, .. } = stores;
        let is_shared = memory.is_shared();
        let keyring = Arc::new(keyring);
        let stores = Stores { memory, vault };
        let gateway = Arc::new(Gateway::new(settings, snapshot, stores, keyring.clone()));
        if is_shared {
            tokio::spawn(gateway.clone().follow_others());
        }
        let Retention { time, limit } = config.responses;
        let conversations = Arc::new(SealedStore::new(conversations, keyring.clone(), limit));
        let users = Users::new(conversations.store.clone(), keyring, config.users);
        let bus = bus(config).await?;
        let runs = Arc::new(Runs::new(conversations.clone()).with_bus(bus));
        let responses = Arc::new(Responses::new(gateway.clone(), runs.clone(), time));
        let tools = Arc::new(Servers::new(config.mcp.clone()));
        let settings = project_settings(config);
        let projects =
            Arc::new(Projects::new(gateway.clone(), runs.clone(), tools.clone(), settings));
        let rooms = Arc::new(Rooms::new(projects.clone(), runs.clone(), config.rooms));
        tokio::spawn(rooms.clone().run());
        let stopping = watch::Sender::new(false);
        let queue = config.runs.reader_queue;
        let readers = Arc::new(Readers::new(gateway.clone(), runs.clone(), queue));
        let front_doors = FrontDoors::new(
            gateway.clone(),
            runs.clone(),
            readers.clone(),
            config.runs,
            stopping.subscribe(),
        );
        let front_doors = Arc::new(front_doors);
        let closers: Vec<Arc<dyn CloseRun>> =
            vec![responses.clone(), front_doors.clone(), projects.clone()];
        runs.close_left_runs(&closers).await;
        tokio::spawn(runs.clone().watch_instances(closers));
        let threads = Threads::new(gateway.clone(), conversations.clone(), config.threads);
        tokio::spawn(conversations.run_eviction());
        Ok(Self {
            gateway,
            responses,
            front_doors,
            runs,
            readers,
            threads: Arc::new(threads),
            projects,
            rooms,
            tools,
            users,
            sockets: Arc::new(Semaphore::new(config.limits.streams)),
            shutdown_grace: RwLock::new(config.shutdown_grace),
            hosts: RwLock::new(Hosts::new(listen, &config.allowed_hosts)),
            origins: RwLock::new(Origins::new(&config.cors_origins)),
            refused_origins: RefusedOrigins::default(),
            started_with: config.clone(),
            listen,
            stopping,
            simulators,
            _lock: lock,
        })
    }

    /// Applies a new configuration while running.
    pub async fn configure(&self, config: &Config) -> Result<(), BuildError> {
        // What upstreams reported about their models is kept.
        let catalog = catalog(config)?.sharing(&self.gateway.settings().catalog);
        let settings = settings(config, catalog, &self.simulators).await?;
        self.gateway.configure(settings).await.map_err(BuildError::Refused)?;
        self.projects.configure(project_settings(config));
        self.tools.configure(config.mcp.clone());
        *self.hosts.write() = Hosts::new(self.listen, &config.allowed_hosts);
        *self.origins.write() = Origins::new(&config.cors_origins);
        *self.shutdown_grace.write() = config.shutdown_grace;
        let unchanged = keys_needing_restart(&self.started_with, config);
        if !unchanged.is_empty() {
            tracing::warn!(
                "these settings have changed but stay as they are until a restart: {}",
                unchanged.join(", ")
            );
        }
        Ok(())
    }

    /// How long requests in progress may go on after a stop signal.
    pub fn shutdown_grace(&self) -> Duration {
        *self.shutdown_grace.read()
    }

    /// Waits until no turn, no background run and no WebSocket is left. Call this when the server
    /// accepts no more connections.
    pub async fn drained(&self) {
        // Some turns outlive their connection, and background runs have none.
        self.gateway.wait_until_idle().await;
        self.runs.all_ended().await;
        let all = u32::try_from(self.started_with.limits.streams).unwrap_or(u32::MAX);
        drop(self.sockets.acquire_many(all).await);
    }

    /// Whether a request names a host that this server answers to.
    pub fn is_allowed_host(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        self.hosts.read().is_allowed_host(uri, headers)
    }

    /// The origin of the web page that sends a request, if `cors_origins` allows it.
    pub fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        self.origins.read().allowed(headers)
    }

    /// Whether a request comes from a web page that may not use this server. Where browsers send a
    /// preflight, they enforce this themselves.
    pub fn is_disallowed_origin(&self, headers: &HeaderMap) -> bool {
        self.is_cross_origin(headers) && self.allowed_origin(headers).is_none()
    }

    /// Whether a request comes from a web page of another origin.
    pub fn is_cross_origin(&self, headers: &HeaderMap) -> bool {
        self.hosts.read().is_cross_origin(headers)
    }
}

/// Connects to the bus. A server that cannot be reached now is a mistake; later it is an outage.
async fn bus(config: &Config) -> Result<Arc<dyn Bus>, BuildError> {
    match config.redis.0.as_str() {
        "" => Ok(Arc::new(InProcess::default())),
        url => Ok(Arc::new(RedisBus::connect(url, config.runs.retention).await?)),
    }
}

/// The changed settings that a running server cannot apply.
fn keys_needing_restart(before: &Config, after: &Config) -> Vec<&'static str> {
    [
        ("listen", before.listen != after.listen),
        ("data_dir", before.data_dir != after.data_dir),
        ("log", before.log != after.log),
        // A file of the store moves with the directory.
        ("store", before.data_dir == after.data_dir && before.store != after.store),
        ("redis", before.redis != after.redis),
        ("responses", before.responses != after.responses),
        ("threads", before.threads != after.threads),
        ("users", before.users != after.users),
        ("rooms", before.rooms != after.rooms),
        ("runs, pacing or limits.reader_queue", before.runs != after.runs),
        ("limits.streams", before.limits.streams != after.limits.streams),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}

/// Creates the data directory and locks it.
pub fn lock_data_dir(path: &Path) -> Result<File, BuildError> {
    let shown = path.display().to_string();
    let failed = |cause| BuildError::DataDir { path: shown.clone(), cause };
    data_dir::create(path).map_err(failed)?;
    if data_dir::is_open_to_others(path) {
        tracing::warn!(
            "other users of this machine can read the data directory `{shown}`; run `chmod 700 {shown}` \
             if they should not"
        );
    }
    data_dir::lock(path).map_err(failed)?.ok_or(BuildError::InUse { path: shown })
}

/// Records the key that seals from now on.
async fn record_key(store: &dyn Store, snapshot: &Snapshot, keyring: &Keyring) {
    let key = keyring::write_id(keyring.newest_id());
    if snapshot.facts.get(keyring::FACT) == Some(&key) {
        return;
    }
    let written = store.write(vec![Change::Fact(keyring::FACT.to_owned(), Some(key))]).await;
    if let Err(error) = written {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot record the newest key");
    }
}

fn project_settings(config: &Config) -> ProjectSettings {
    ProjectSettings {
        provider: config.projects.provider.clone(),
        model: config.projects.model.clone(),
        mode: config.projects.mode,
        previous_response: config.projects.previous_response,
        raw: config.store.raw,
        retention: config.runs.retention,
        pacing: config.runs.pacing,
        tool_limits: config.tools,
    }
}

fn catalog(config: &Config) -> Result<Catalog, CatalogError> {
    match &config.models {
        Some(file) => Catalog::with(&file.text),
        None => Ok(Catalog::embedded()),
    }
}

async fn settings(
    config: &Config,
    catalog: Catalog,
    simulators: &Mutex<HashMap<String, String>>,
) -> Result<Settings, BuildError> {
    let mut backends = Vec::new();
    for configured in &config.backends {
        let base_url = match &configured.base_url {
            Some(url) => url.clone(),
            None => simulator_url(&configured.name, simulators).await?,
        };
        backends.push(Arc::new(backend(configured, base_url)));
    }
    Ok(Settings {
        backends,
        catalog: Arc::new(catalog),
        routes: config.route.clone(),
        thinking: config.thinking,
        reasoning_fields: config
            .reasoning_fields
            .iter()
            .map(|field| field.name().to_owned())
            .collect(),
        limits: config.limits,
        keep_alive: config.keep_alive,
        full_body: config.debug_log.enabled && config.debug_log.full_body,
        pretty_print: config.debug_log.pretty_print,
    })
}

fn backend(configured: &config::Backend, base_url: String) -> Backend {
    Backend {
        name: configured.name.clone(),
        dialect: configured.wire_dialect.upstream(),
        profile: configured.profile(),
        raw_text: configured.raw_text.clone(),
        base_url,
        domain: configured.signature_domain.clone(),
        auth: configured.auth.clone(),
        share_caller_key: configured.share_caller_key,
        models: configured.models.clone(),
        default_model: configured.default_model.clone(),
        compat: configured.thinking_compat,
        strict_settings: configured.strict_settings,
        replay: configured.replay,
        cache: configured.cache,
        retries: configured.retries,
        timeouts: configured.timeouts,
        client: Client::new(configured.timeouts.connect),
    }
}

/// The URL of the simulator of a backend, which is started on first use. It speaks real HTTP on a port
/// of its own, as any provider does.
async fn simulator_url(
    name: &str,
    running: &Mutex<HashMap<String, String>>,
) -> Result<String, BuildError> {
    if let Some(url) = running.lock().get(name) {
        return Ok(url.clone());
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(BuildError::Simulator)?;
    let address = listener.local_addr().map_err(BuildError::Simulator)?;
    let options = throughline_simulator::Options {
        identity: name.to_owned(),
        tokens_per_second: SIMULATOR_SPEED,
        ..throughline_simulator::Options::default()
    };
    tokio::spawn(throughline_simulator::serve(listener, options, std::future::pending()));
    let url = format!("http://{address}");
    running.lock().insert(name.to_owned(), url.clone());
    Ok(url)
}

#[cfg(test)]
mod tests {
    use throughline_codec::text::{OnError, ReasoningFormat};
    use throughline_gateway::backend::RawText;
    use throughline_gateway::settings::ToolThinking;

    use super::*;
    use crate::config::{Overrides, Source, read};

    async fn settings_of(text: &str) -> Settings {
        let source = Source { name: "throughline.toml".to_owned(), text: text.to_owned() };
        let env = [("HOME".to_owned(), "/h".to_owned())];
        let config = read(Some(&source), env, Overrides::default()).unwrap();
        settings(&config, Catalog::embedded(), &Mutex::default()).await.unwrap()
    }

    #[tokio::test]
    async fn configured_values_reach_the_gateway() {
        let settings = settings_of(
            r#"
            [[backend]]
            name = "own"
            dialect = "openai_chat"
            base_url = "http://127.0.0.1:8000/v1"
            family = "qwen3"
            reasoning_format = "raw"
            on_tool_parse_error = "text"

            [[backend]]
            name = "vertex"
            dialect = "gemini"
            variant = "vertex"
            cumulative = true
            base_url = "https://aiplatform.googleapis.com/v1/projects/p/locations/l"
            family = "none"

            [[backend]]
            name = "pretended"
            dialect = "simulator"
            variant = "openai_responses"

            [thinking]
            tool_thinking = "sequential"
            reasoning_fields = ["reasoning_content"]
            "#,
        )
        .await;
        let raw_text = |family: Option<&str>, reasoning_format, on_error| RawText {
            family: family.map(str::to_owned),
            reasoning_format,
            on_error,
        };
        let found: Vec<_> = settings
            .backends
            .iter()
            .map(|backend| {
                let dialect = backend.dialect.name();
                (dialect, backend.profile.name, backend.raw_text.clone())
            })
            .collect();
        let expected = [
            ("openai_chat", "vllm", raw_text(Some("qwen3"), ReasoningFormat::Raw, OnError::Text)),
            (
                "gemini",
                "vertex cumulative",
                raw_text(Some("none"), ReasoningFormat::Split, OnError::Error),
            ),
            ("openai_responses", "", raw_text(None, ReasoningFormat::Split, OnError::Error)),
        ];
        assert_eq!(found, expected);
        assert_eq!(settings.reasoning_fields, ["reasoning_content"]);
        assert_eq!(settings.thinking.tool_thinking, ToolThinking::Sequential);
        let address = settings.backends[0].address("/v1/chat/completions", None);
        assert_eq!(address.unwrap().to_string(), "http://127.0.0.1:8000/v1/chat/completions");
    }

    #[tokio::test]
    async fn unset_settings_have_the_defaults_of_a_proxy() {
        let settings = settings_of("").await;
        assert_eq!(settings.reasoning_fields, ["reasoning", "reasoning_content"]);
        assert_eq!(settings.thinking.tool_thinking, ToolThinking::Auto);
    }
}
