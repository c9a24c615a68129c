//! Puts the concrete parts together: configuration, keyring, store, memory, simulators, gateway.

use std::collections::HashMap;
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Uri};
use parking_lot::{Mutex, RwLock};
use throughline_backends::sqlite::{SqliteConversations, SqliteStore};

use throughline_canonical::Fault;
use throughline_codec::text::{OnError, ReasoningFormat};
use throughline_conversations::responses::{Responses, Rules};
use throughline_gateway::Gateway;
use throughline_gateway::backend::{self, Backend};
use throughline_gateway::catalog::{Catalog, CatalogError};
use throughline_gateway::route::{Routes, Rule};
use throughline_gateway::settings::{self, Settings};
use throughline_gateway::thinking::store::Store;
use throughline_gateway::thinking::writer::Changes;
use throughline_gateway::upstream::Client;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

use crate::config::{self, Config};
use crate::cors::Origins;
use crate::hosts::Hosts;
use crate::keyring;

/// How fast the built-in simulator writes: about as fast as a model.
const SIMULATED_SPEED: u32 = 80;

/// The running application.
#[derive(Debug)]
pub struct App {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// What is kept for clients that keep no history.
    pub responses: Arc<Responses>,
    /// Places for WebSockets.
    pub sockets: Arc<Semaphore>,
    hosts: RwLock<Hosts>,
    origins: RwLock<Origins>,
    /// The configuration it was built with.
    built_with: Config,
    listen: SocketAddr,
    /// Becomes true when the server stops, so that those who only watch let go of it.
    pub stopping: watch::Sender<bool>,
    simulators: Mutex<HashMap<String, String>>,
    /// Held as long as the server runs: two servers on one directory would forget each other's
    /// blocks.
    _lock: File,
}

/// Why the app could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The data directory cannot be used.
    #[error("cannot use the data directory `{path}`: {cause}")]
    DataDir {
        /// Which.
        path: String,
        /// The cause.
        cause: std::io::Error,
    },
    /// Another server uses it.
    #[error(
        "the data directory `{path}` is used by another throughline; give this one its own with --data-dir"
    )]
    InUse {
        /// Which.
        path: String,
    },
    /// The store does not open.
    #[error("{what}: {cause}")]
    Store {
        /// What could not be done.
        what: String,
        /// The cause.
        cause: String,
    },
    /// There are no keys.
    #[error(transparent)]
    Keyring(#[from] keyring::Trouble),
    /// The models file is wrong.
    #[error("the models file has a mistake: {0}")]
    Models(#[from] CatalogError),
    /// A simulator does not start.
    #[error("cannot start the simulator: {0}")]
    Simulator(std::io::Error),
    /// A running gateway does not take it.
    #[error("{}", .0.message)]
    Refused(Fault),
}

impl App {
    /// Builds everything and starts what runs in the background.
    pub async fn build(config: &Config, listen: SocketAddr) -> Result<Self, BuildError> {
        let lock = take_data_dir(&config.data_dir)?;
        let variable = std::env::var_os(keyring::VARIABLE);
        let keyring = keyring::take(&config.data_dir, variable.as_deref())?;
        let failed = |error: throughline_gateway::thinking::store::StoreError| BuildError::Store {
            cause: error.cause.to_string(),
            what: error.what,
        };
        let store = SqliteStore::open(&config.data_dir.join("memory.db")).await.map_err(failed)?;
        let snapshot = store.load().await.map_err(failed)?;
        tracing::debug!(blocks = snapshot.blocks.len(), "thinking memory read");
        let simulators = Mutex::default();
        let settings = settings(config, catalog(config)?, &simulators).await?;
        let changes = Changes::default();
        let store = Arc::new(store);
        tokio::spawn(changes.clone().write_to(store.clone()));
        let keyring = Arc::new(keyring);
        let gateway = Gateway::new(settings, snapshot, changes, keyring.clone(), store);
        let gateway = Arc::new(gateway);
        let conversations = SqliteConversations::open(&config.data_dir.join("throughline.db"))
            .await
            .map_err(failed)?;
        let rules =
            Rules { retention: Some(config.responses.retention), limit: config.responses.limit };
        let responses = Responses::new(gateway.clone(), Arc::new(conversations), keyring, rules);
        let responses = Arc::new(responses);
        responses.close_abandoned().await;
        tokio::spawn(responses.clone().keep_house());
        Ok(Self {
            gateway,
            responses,
            sockets: Arc::new(Semaphore::new(config.limits.streams)),
            hosts: RwLock::new(Hosts::new(listen, &config.allowed_hosts)),
            origins: RwLock::new(Origins::new(&config.cors_origins)),
            built_with: config.clone(),
            listen,
            stopping: watch::Sender::new(false),
            simulators,
            _lock: lock,
        })
    }

    /// Takes a new configuration while running.
    pub async fn configure(&self, config: &Config) -> Result<(), BuildError> {
        // What servers told of their models stays known.
        let catalog = catalog(config)?.sharing(&self.gateway.settings().catalog);
        let settings = settings(config, catalog, &self.simulators).await?;
        self.gateway.configure(settings).map_err(BuildError::Refused)?;
        *self.hosts.write() = Hosts::new(self.listen, &config.allowed_hosts);
        *self.origins.write() = Origins::new(&config.cors_origins);
        let fixed = fixed_keys(&self.built_with, config);
        if !fixed.is_empty() {
            tracing::warn!(
                "these settings have changed, and stay as they were until a restart: {}",
                fixed.join(", ")
            );
        }
        Ok(())
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

    /// Whether a request comes from a web page of another host.
    pub fn is_cross_origin(&self, headers: &HeaderMap) -> bool {
        self.hosts.read().is_cross_origin(headers)
    }
}

/// The settings that differ and that a running server cannot change.
fn fixed_keys(before: &Config, after: &Config) -> Vec<&'static str> {
    [
        ("listen", before.listen != after.listen),
        ("data_dir", before.data_dir != after.data_dir),
        ("log", before.log != after.log),
        ("responses", before.responses != after.responses),
        ("limits.streams", before.limits.streams != after.limits.streams),
    ]
    .into_iter()
    .filter_map(|(key, differs)| differs.then_some(key))
    .collect()
}

fn take_data_dir(path: &Path) -> Result<File, BuildError> {
    let shown = path.display().to_string();
    let failed = |cause| BuildError::DataDir { path: shown.clone(), cause };
    std::fs::create_dir_all(path).map_err(failed)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Who talked to whom is nobody else's business. A directory of somebody else stays as it is.
        let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700));
    }
    let lock = File::create(path.join("lock")).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(BuildError::InUse { path: shown }),
        Err(std::fs::TryLockError::Error(cause)) => Err(failed(cause)),
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
            None => simulator(&configured.name, simulators).await?,
        };
        backends.push(Arc::new(backend(configured, base_url)));
    }
    let route = &config.route;
    Ok(Settings {
        backends,
        catalog: Arc::new(catalog),
        routes: Routes {
            default: route.default.clone(),
            rules: route
                .rules
                .iter()
                .map(|rule| Rule {
                    model: rule.model.clone(),
                    backend: rule.backend.clone(),
                    fallback: rule.fallback.clone(),
                })
                .collect(),
            fallback: route.fallback.clone(),
        },
        thinking: settings::Thinking {
            policy: match config.thinking.policy {
                config::Policy::Origin => settings::Policy::Origin,
                config::Policy::Session => settings::Policy::Session,
            },
            unknown: match config.thinking.unknown {
                config::Unknown::Try => settings::Unknown::Try,
                config::Unknown::Drop => settings::Unknown::Drop,
            },
            orphan_threshold: config.thinking.orphan_threshold,
            memory_limit: size(config.thinking.memory_limit),
            tool_thinking: match config.thinking.tool_thinking {
                config::ToolThinking::Auto => settings::ToolThinking::Auto,
                config::ToolThinking::Sequential => settings::ToolThinking::Sequential,
                config::ToolThinking::Interleaved => settings::ToolThinking::Interleaved,
            },
        },
        reasoning_fields: config
            .thinking
            .reasoning_fields
            .iter()
            .map(|field| field.word().to_owned())
            .collect(),
        limits: settings::Limits {
            body: size(config.limits.body),
            json_depth: config.limits.json_depth,
            streams: config.limits.streams,
        },
        keep_alive: config.keep_alive,
        full_body: config.debug_log.enabled && config.debug_log.full_body,
        pretty_print: config.debug_log.pretty_print,
    })
}

fn backend(configured: &config::Backend, base_url: String) -> Backend {
    Backend {
        name: configured.name.clone(),
        dialect: configured.spoken.upstream(),
        variant: configured.variant.clone(),
        raw_text: raw_text(configured),
        base_url,
        domain: configured.signature_domain.clone(),
        auth: match &configured.auth {
            config::Auth::None => backend::Auth::None,
            config::Auth::Key(secret) => backend::Auth::Key(secret.expose().to_owned()),
            config::Auth::Passthrough => backend::Auth::Passthrough,
        },
        share_caller_key: configured.share_caller_key,
        models: configured.models.clone(),
        default_model: configured.default_model.clone(),
        compat: configured.thinking_compat.map(|compat| match compat.mode {
            config::CompatMode::Budget => backend::Compat::Budget(compat.budget),
            config::CompatMode::Adaptive => backend::Compat::Adaptive,
            config::CompatMode::Off => backend::Compat::Off,
        }),
        replay: match configured.replay {
            config::Replay::Verbatim => backend::Replay::Verbatim,
            config::Replay::LatestTurn => backend::Replay::LatestTurn,
            config::Replay::None => backend::Replay::None,
        },
        retries: configured.retries,
        timeouts: backend::Timeouts {
            connect: configured.timeouts.connect,
            first_byte: configured.timeouts.first_byte,
            first_byte_for_whole: configured.timeouts.first_byte_for_whole,
            idle: configured.timeouts.idle,
            total: configured.timeouts.total,
        },
        client: Client::new(configured.timeouts.connect),
    }
}

fn raw_text(configured: &config::Backend) -> backend::RawText {
    backend::RawText {
        family: match &configured.family {
            config::Family::Auto => None,
            named => Some(named.to_string()),
        },
        reasoning_format: match configured.reasoning_format {
            config::ReasoningFormat::Split => ReasoningFormat::Split,
            config::ReasoningFormat::Raw => ReasoningFormat::Raw,
            config::ReasoningFormat::None => ReasoningFormat::None,
        },
        on_error: match configured.on_tool_parse_error {
            config::OnToolParseError::Error => OnError::Error,
            config::OnToolParseError::Text => OnError::Text,
        },
    }
}

/// A simulator speaks real HTTP on a port of its own, as any provider does.
async fn simulator(
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
        tokens_per_second: SIMULATED_SPEED,
        ..throughline_simulator::Options::default()
    };
    tokio::spawn(throughline_simulator::serve(listener, options, std::future::pending()));
    let url = format!("http://{address}");
    running.lock().insert(name.to_owned(), url.clone());
    Ok(url)
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, Source, read};

    async fn settings_of(text: &str) -> Settings {
        let source = Source { name: "throughline.toml".to_owned(), text: text.to_owned() };
        let env = [("HOME".to_owned(), "/h".to_owned())];
        let config = read(Some(&source), env, Overrides::default()).unwrap();
        settings(&config, Catalog::embedded(), &Mutex::default()).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_configured_reaches_the_gateway() {
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
        let raw_text = |family: Option<&str>, reasoning_format, on_error| backend::RawText {
            family: family.map(str::to_owned),
            reasoning_format,
            on_error,
        };
        let found: Vec<_> = settings
            .backends
            .iter()
            .map(|backend| {
                let dialect = backend.dialect.name();
                (dialect, backend.variant.as_str(), backend.raw_text.clone())
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
        assert_eq!(settings.thinking.tool_thinking, settings::ToolThinking::Sequential);
        let address = settings.backends[0].address("/v1/chat/completions", None);
        assert_eq!(address.unwrap().to_string(), "http://127.0.0.1:8000/v1/chat/completions");
    }

    #[tokio::test]
    async fn unset_settings_are_those_of_a_proxy() {
        let settings = settings_of("").await;
        assert_eq!(settings.reasoning_fields, ["reasoning", "reasoning_content"]);
        assert_eq!(settings.thinking.tool_thinking, settings::ToolThinking::Auto);
    }
}
