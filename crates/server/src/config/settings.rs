//! The plain values a running server works with, and the words its choices are written in.
//! How they are read, and what they are when nobody sets them, lives in `read` and `schema`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use throughline_codec::dialects::UpstreamDialect;
use throughline_codec::dialects::anthropic::Anthropic;
use throughline_codec::dialects::gemini::Gemini;
use throughline_codec::dialects::ollama::Ollama;
use throughline_codec::dialects::openai_chat::OpenAiChat;
use throughline_codec::dialects::openai_responses::OpenAiResponses;

use super::paths::Source;

/// Everything the server is told before it starts. Every value has passed its checks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The loopback address to serve on, as `host:port`.
    pub listen: String,
    /// Where state is kept; a relative path is relative to the current directory.
    pub data_dir: PathBuf,
    /// What is logged, and in which form.
    pub log: Log,
    /// Silence from an upstream after which the client gets a sign of life.
    pub keep_alive: Duration,
    /// `Host` headers accepted besides loopback names and the listen address, in lower case.
    pub allowed_hosts: Vec<String>,
    /// Origins whose pages may use this server, in lower case; `*` for all.
    pub cors_origins: Vec<String>,
    /// The upstreams, in the order they are written; at least one, names unique.
    pub backends: Vec<Backend>,
    /// Which backend answers which request.
    pub route: Route,
    /// What the operator says of models, over what is built in; read and checked.
    pub models: Option<Source>,
    /// How remembered thinking is judged and kept.
    pub thinking: Thinking,
    /// Responses that are kept.
    pub responses: Responses,
    /// Bounds on what a client may ask for.
    pub limits: Limits,
    /// What the debug log holds.
    pub debug_log: DebugLog,
    /// Facts worth a line at start: legal settings that may surprise.
    pub notes: Vec<String>,
}

/// What is logged, and in which form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Log {
    /// The least important messages still written.
    pub level: Level,
    /// One line of text or one JSON object per message.
    pub format: Format,
}

/// One upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// Unique, of `a-z`, `0-9`, `_` and `-`.
    pub name: String,
    /// What the upstream is: the language it speaks, or the simulator.
    pub dialect: Dialect,
    /// The language it is spoken to in: that same one, or the one the simulator was told to speak.
    pub spoken: Dialect,
    /// Which kind of server it is, in words of that language; empty for the language itself.
    pub variant: String,
    /// Origin and path prefix, ready for the dialect's path; `None` for the simulator.
    pub base_url: Option<String>,
    /// Whose key goes to the upstream.
    pub auth: Auth,
    /// A caller's key may come here from a passthrough backend of another origin.
    pub share_caller_key: bool,
    /// Backends of one domain read each other's thinking.
    pub signature_domain: String,
    /// Pattern and replacement of model names, in the order they are written.
    pub models: Vec<(String, String)>,
    /// The model for requests that name none.
    pub default_model: Option<String>,
    /// How the model writes reasoning and tool calls where replies are raw text.
    pub family: Family,
    /// Where reasoning found in raw text goes.
    pub reasoning_format: ReasoningFormat,
    /// What becomes of a tool call in raw text that does not parse.
    pub on_tool_parse_error: OnToolParseError,
    /// How a thinking setting the backend does not understand is rewritten.
    pub thinking_compat: Option<Compat>,
    /// How much past thinking goes back to the upstream.
    pub replay: Replay,
    /// Further attempts after 429 and 5xx.
    pub retries: u32,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

/// Whose key goes to an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Auth {
    /// No key at all.
    None,
    /// The gateway's own key.
    Key(Secret),
    /// The caller's, in the form the caller sent it.
    Passthrough,
}

/// A key that shows itself to nobody who does not ask by name.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a key.
    pub fn new(key: impl Into<String>) -> Self {
        Self(key.into())
    }

    /// The key itself, for the header it goes into and for nothing else.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(hidden)")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("hidden")
    }
}

/// How the model behind a backend writes reasoning and tool calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Family {
    /// As the model's name tells.
    #[default]
    Auto,
    /// Neither is looked for.
    None,
    /// As the models of this family, which is known.
    Named(String),
}

impl Family {
    /// The word for what the model's name tells.
    pub(super) const AUTO: &str = "auto";
    /// The word for not looking.
    pub(super) const NONE: &str = "none";
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Auto => Self::AUTO,
            Self::None => Self::NONE,
            Self::Named(name) => name,
        })
    }
}

/// How a thinking setting the backend does not understand is rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compat {
    /// The form the backend understands.
    pub mode: CompatMode,
    /// Tokens to think with where the request names none.
    pub budget: Option<u64>,
}

/// How long to wait for an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection.
    pub connect: Duration,
    /// From the request's end to the reply's first byte.
    pub first_byte: Duration,
    /// Whether `first_byte` was written, and so holds for whole replies too.
    pub first_byte_for_whole: bool,
    /// Between two pieces of a reply.
    pub idle: Duration,
    /// For the whole turn.
    pub total: Duration,
}

/// Which backend answers which request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The active backend until someone switches.
    pub default: String,
    /// Backends chosen by model name; the longest literal prefix wins.
    pub rules: Vec<Rule>,
    /// Tried in order when the active backend fails before its first byte.
    pub fallback: Vec<String>,
}

/// A backend chosen by model name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// A model's name, or a prefix that ends in `*`.
    pub model: String,
    /// The backend that answers.
    pub backend: String,
    /// Tried in order when that backend fails before its first byte.
    pub fallback: Vec<String>,
}

/// How remembered thinking is judged and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thinking {
    /// What makes a remembered block fit to be sent.
    pub policy: Policy,
    /// What happens to blocks never seen before.
    pub unknown: Unknown,
    /// Age at which an unconfirmed block is forgotten.
    pub orphan_threshold: Duration,
    /// Bytes of memory for blocks.
    pub memory_limit: u64,
    /// How thinking and tool calls follow each other.
    pub tool_thinking: ToolThinking,
    /// In which members clients of the chat dialect get reasoning, each once.
    pub reasoning_fields: Vec<ReasoningField>,
}

/// Responses that are kept for clients that keep no history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Responses {
    /// How long.
    pub retention: Duration,
    /// Bytes of them.
    pub limit: u64,
}

/// Bounds on what a client may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request's body.
    pub body: u64,
    /// Levels of nesting in a request's JSON.
    pub json_depth: usize,
    /// Requests under way at one time; as many WebSockets may be open besides.
    pub streams: usize,
}

/// What the debug log holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DebugLog {
    /// Write it at all.
    pub enabled: bool,
    /// Whole bodies, contents included.
    pub full_body: bool,
    /// JSON over several lines.
    pub pretty_print: bool,
}

/// A closed choice that is written as a word; the first word is the type's own default.
pub(super) trait Word: Copy + Default + 'static {
    /// The value of a word, if it is one of this choice.
    fn of(word: &str) -> Option<Self>;
}

/// One enum per choice with its words beside it, so that schema, reader and docs cannot differ.
macro_rules! words {
    ($($(#[$about:meta])* $name:ident { $($(#[$meaning:meta])* $variant:ident = $word:literal,)+ })+) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$meaning])* $variant,)+ }

        impl $name {
            /// The words, in the order they are documented.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word this value is written as.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl Word for $name {
            fn of(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                const FIRST: &[$name] = &[$($name::$variant),+];
                FIRST[0]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.word())
            }
        }
    )+};
}

words! {
    /// The language an upstream speaks.
    Dialect {
        /// The Anthropic Messages API.
        Anthropic = "anthropic",
        /// OpenAI's Chat Completions, and the many servers that speak it.
        OpenAiChat = "openai_chat",
        /// OpenAI's Responses API.
        OpenAiResponses = "openai_responses",
        /// Google's `generateContent`.
        Gemini = "gemini",
        /// Ollama's own `/api/chat`.
        Ollama = "ollama",
        /// The built-in provider that needs no network.
        Simulator = "simulator",
    }

    /// What makes a remembered block fit to be sent.
    Policy {
        /// The backend's signature domain is the block's.
        Origin = "origin",
        /// As origin, and the block is of the current session.
        Session = "session",
    }

    /// What happens to blocks never seen before.
    Unknown {
        /// They are sent; if they are refused, the request goes again without them.
        Try = "try",
        /// They are left out.
        Drop = "drop",
    }

    /// How thinking and tool calls follow each other.
    ToolThinking {
        /// As the client asks and the model can.
        Auto = "auto",
        /// All thinking comes before the first call.
        Sequential = "sequential",
        /// Thinking may come between calls too.
        Interleaved = "interleaved",
    }

    /// A member that carries reasoning to clients of the chat dialect.
    ReasoningField {
        /// The newer name.
        Reasoning = "reasoning",
        /// The older name.
        ReasoningContent = "reasoning_content",
    }

    /// How much past thinking goes back to an upstream.
    Replay {
        /// All of it, as it was received.
        Verbatim = "verbatim",
        /// That of the latest turn.
        LatestTurn = "latest_turn",
        /// Nothing.
        None = "none",
    }

    /// Where reasoning found in raw text goes.
    ReasoningFormat {
        /// Apart from the content, without its tags.
        Split = "split",
        /// Apart from the content, as written.
        Raw = "raw",
        /// Into the content, as written.
        None = "none",
    }

    /// What becomes of a tool call in raw text that does not parse.
    OnToolParseError {
        /// An error stands in its place.
        Error = "error",
        /// Its text is content.
        Text = "text",
    }

    /// The form of thinking setting a backend understands.
    CompatMode {
        /// A fixed number of tokens.
        Budget = "budget",
        /// The model decides.
        Adaptive = "adaptive",
        /// None: the setting is taken out.
        Off = "off",
    }

    /// The least important messages still logged.
    Level {
        /// Everything.
        Trace = "trace",
        /// What a developer wants to know.
        Debug = "debug",
        /// What an operator wants to know.
        Info = "info",
        /// What may become a problem.
        Warn = "warn",
        /// What is one.
        Error = "error",
    }

    /// The form of a log message.
    Format {
        /// A line for people.
        Text = "text",
        /// A JSON object for machines.
        Json = "json",
    }
}

impl Dialect {
    /// How it is spoken. The simulator speaks the first of all dialects unless it is told another.
    pub fn upstream(self) -> &'static dyn UpstreamDialect {
        match self {
            Self::Anthropic | Self::Simulator => &Anthropic,
            Self::OpenAiChat => &OpenAiChat,
            Self::OpenAiResponses => &OpenAiResponses,
            Self::Gemini => &Gemini,
            Self::Ollama => &Ollama,
        }
    }
}

impl Backend {
    /// Whether replies can be a model's raw text, with reasoning and tool calls still in it.
    pub fn has_raw_text(&self) -> bool {
        self.spoken.upstream().has_raw_text(&self.variant)
    }
}

/// The word of `auth` that hands the caller's key on.
pub(super) const PASSTHROUGH: &str = "passthrough";
