//! The values of a checked configuration. Enums and structs that the gateway uses as they are come
//! from there. How values are read lives in `read`, their defaults in `schema`.

use std::path::PathBuf;
use std::time::Duration;

use throughline_codec::dialects::profile::Profile;
use throughline_codec::dialects::{self, UpstreamDialect, anthropic};
use throughline_conversations::front_doors::RunSettings;
use throughline_conversations::projects::{PreviousResponse, ProjectMode};
use throughline_conversations::rooms::RoomSettings;
use throughline_conversations::sealed_store::Retention;
use throughline_conversations::tool_loop;
use throughline_conversations::users::UserSettings;
use throughline_gateway::backend::{Auth, Cache, Compat, RawText, Replay, Timeouts};
use throughline_gateway::route::Routes;
use throughline_gateway::settings::{Limits, Thinking};
use throughline_tools::ServerConfig;

use super::paths::Source;
use super::values::RedisUrl;

/// The whole configuration. Every value has passed its checks. Many fields: one for each key or
/// table at the top of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The loopback address to serve on, as `host:port`.
    pub listen: String,
    /// Directory for all state; a relative path is relative to the current directory.
    pub data_dir: PathBuf,
    /// What is logged, and in which format.
    pub log: Log,
    /// Silence from an upstream after which the client gets a keep-alive event.
    pub keep_alive: Duration,
    /// How long requests in progress may go on after a stop signal.
    pub shutdown_grace: Duration,
    /// More `Host` headers to accept, in lower case.
    pub allowed_hosts: Vec<String>,
    /// Origins whose web pages may use this server, in lower case; `*` for all.
    pub cors_origins: Vec<String>,
    /// The upstreams, in the order of the file: at least one, with unique names.
    pub backends: Vec<Backend>,
    /// Which backend answers which request.
    pub route: Routes,
    /// The operator's models file, read and checked.
    pub models: Option<Source>,
    /// Which stored thinking is sent, and how much is stored.
    pub thinking: Thinking,
    /// The JSON members in which chat clients get reasoning, without repetitions.
    pub reasoning_fields: Vec<ReasoningField>,
    /// Where everything is stored.
    pub store: Store,
    /// The bus between instances.
    pub redis: RedisUrl,
    /// Responses stored for clients that send no history.
    pub responses: Retention,
    /// How long message threads are stored after their last turn.
    pub threads: Duration,
    /// Users, who log in.
    pub users: UserSettings,
    /// Defaults of new projects.
    pub projects: ProjectDefaults,
    /// MCP servers whose tools models may call.
    pub mcp: Vec<ServerConfig>,
    /// The limits of tool loops.
    pub tools: tool_loop::Limits,
    /// Rooms, and their hooks.
    pub rooms: RoomSettings,
    /// How replies of front ends are logged, paced and read.
    pub runs: RunSettings,
    /// Limits for requests.
    pub limits: Limits,
    /// What the debug log contains.
    pub debug_log: DebugLog,
    /// Valid settings that may surprise; logged at start.
    pub notes: Vec<String>,
}

/// Where everything is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The database.
    pub url: StoreUrl,
    /// Whether the providers' replies of projects are kept as they arrived.
    pub raw: bool,
}

/// The address of a database.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file for conversations. The thinking memory has a file of its own.
    Sqlite(PathBuf),
    /// A Postgres database for everything. It may contain a password.
    Postgres(String),
}

/// Never shows a password.
impl std::fmt::Debug for StoreUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(path) => write!(formatter, "Sqlite({})", path.display()),
            Self::Postgres(_) => formatter.write_str("Postgres"),
        }
    }
}

/// Defaults of new projects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectDefaults {
    /// The backend of a first branch that names none; empty for the default backend.
    pub provider: String,
    /// Its model; empty for the default model of the backend.
    pub model: String,
    /// Who holds the key of a project.
    pub mode: ProjectMode,
    /// Whether providers store replies.
    pub previous_response: PreviousResponse,
}

/// What is logged, and in which format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// Messages of this level and more severe ones are logged.
    pub level: Level,
    /// One line of text or one JSON object per message.
    pub format: Format,
}

/// One upstream. Many fields: each one is a key of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// A unique name of `a-z`, `0-9`, `_` and `-`.
    pub name: String,
    /// The key `dialect`: the upstream's API, or the simulator.
    pub dialect: Dialect,
    /// The API on the wire. It differs from `dialect` for the simulator only.
    pub wire_dialect: Dialect,
    /// Which server of the wire dialect it is; empty for the dialect itself.
    pub variant: String,
    /// Origin and path prefix, to which the dialect's path is appended; `None` for the simulator.
    pub base_url: Option<String>,
    /// Whose key is sent to the upstream.
    pub auth: Auth,
    /// Whether callers' keys may come here from a passthrough backend of another origin.
    pub share_caller_key: bool,
    /// Backends of the same domain can read each other's thinking.
    pub signature_domain: String,
    /// Patterns and replacements of model names, in the order of the file.
    pub models: Vec<(String, String)>,
    /// The model for requests that name none.
    pub default_model: Option<String>,
    /// How raw-text replies are parsed.
    pub raw_text: RawText,
    /// How a thinking setting that the backend does not understand is rewritten.
    pub thinking_compat: Option<Compat>,
    /// Whether a request is refused if the caller would get something else than it asked for.
    pub strict_settings: bool,
    /// How much earlier thinking is sent back to the upstream.
    pub replay: Replay,
    /// What happens to breakpoints for the prompt cache.
    pub cache: Cache,
    /// Retries after 429 and 5xx.
    pub retries: u32,
    /// How long to wait for the upstream.
    pub timeouts: Timeouts,
}

/// What the debug log contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebugLog {
    /// Whether it is written at all.
    pub enabled: bool,
    /// Whole bodies, with their content.
    pub full_body: bool,
    /// JSON over several lines.
    pub pretty_print: bool,
}

/// The API of an upstream, by its name: a dialect of the codec's table, or the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dialect(pub(super) &'static str);

impl Dialect {
    /// The built-in provider, which needs no network.
    pub const SIMULATOR: Self = Self("simulator");

    /// The first dialect of the table. The simulator speaks it unless `variant` names another.
    pub const DEFAULT: Self = Self(anthropic::NAME);

    /// The codec of the dialect.
    pub fn upstream(self) -> &'static dyn UpstreamDialect {
        dialects::upstream(self.0).unwrap_or(&anthropic::Anthropic)
    }
}

/// A JSON member in which chat clients get reasoning as plain text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningField {
    /// `reasoning`, the newer name.
    Reasoning,
    /// `reasoning_content`, the older name.
    ReasoningContent,
}

/// The severity of log messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Each decision about a block.
    Trace,
    /// Details for developers.
    Debug,
    /// Events for operators.
    Info,
    /// Possible problems.
    Warn,
    /// Failures.
    Error,
}

/// The format of a log message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A line of text.
    Text,
    /// A JSON object.
    Json,
}

impl Backend {
    /// What is known about the variant.
    pub fn profile(&self) -> &'static Profile {
        self.wire_dialect.upstream().profile(&self.variant)
    }

    /// Whether replies can be a model's raw text, with reasoning and tool calls still in it.
    pub fn has_raw_text(&self) -> bool {
        self.profile().raw_text
    }

    /// The path where the upstream lists its models.
    pub fn models_path(&self) -> &'static str {
        self.profile().models_path
    }
}

/// The only value of the key `auth`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passthrough;

/// The name of that value.
pub(super) const PASSTHROUGH: &str = "passthrough";
