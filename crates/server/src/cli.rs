//! The command line.

pub mod keys;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use throughline_simulator::{Dialect, Variant};

/// A gateway that keeps a model's thinking across turns, backends and restarts.
///
/// Point a client at the gateway, then switch backends in the middle of a conversation:
///
///   throughline serve
///   ANTHROPIC_BASE_URL=http://127.0.0.1:8484 claude
///   throughline switch glm
#[derive(Debug, Parser)]
#[command(name = "throughline", version, verbatim_doc_comment, arg_required_else_help = true)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway. Works without configuration or keys: then a simulator answers.
    ///
    /// Reads the configuration, listens on `listen`, and serves every client dialect. SIGHUP reloads
    /// the configuration; SIGTERM lets streams in progress end and then stops.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Serve),
    /// Run a strict provider for tests: it signs thinking and rejects what real ones reject.
    ///
    /// Speaks all upstream dialects on one port and needs no key. Use it as a backend of a gateway,
    /// or point a client at it directly.
    #[command(after_help = SIMULATE_EXAMPLES)]
    Simulate(Simulate),
    /// Run an MCP server with a few tools, to try tools without a real one.
    ///
    /// It speaks over its standard streams, or over HTTP with --listen, and refuses what the protocol
    /// forbids. Its tools add numbers, return long texts and images, ask a person, fail and never return.
    #[command(after_help = SIMULATE_MCP_EXAMPLES)]
    SimulateMcp(SimulateMcp),
    /// Show the backends of a running gateway, and which one is active.
    ///
    /// "reached" says whether the last requests to a backend succeeded, and when a failing one is tried
    /// again.
    #[command(after_help = "Example:\n\n  throughline backends --url http://127.0.0.1:8484")]
    Backends(Remote),
    /// Make another backend the active one. Streams in progress continue.
    ///
    /// Requests without a pin or a matching route rule go to the active backend. The choice survives
    /// a restart of the gateway.
    #[command(after_help = "Example:\n\n  throughline switch glm")]
    Switch {
        /// The name of the backend, as in `throughline backends`.
        name: String,
        /// Where the gateway is.
        #[command(flatten)]
        remote: Remote,
    },
    /// Show the thinking memory of a running gateway.
    ///
    /// Prints how many thinking blocks it holds, how many clients sent back, and how many were
    /// restored, tried or rejected.
    #[command(after_help = "Example:\n\n  throughline stats --json")]
    Stats {
        /// Show only this conversation; `throughline turns` prints its id.
        #[arg(long, value_name = "ID")]
        lineage: Option<String>,
        /// Where the gateway is.
        #[command(flatten)]
        remote: Remote,
    },
    /// Show the recent turns of a running gateway: route, model, tokens, times, losses, errors.
    ///
    /// The newest turn comes first. Tokens are input > output. The times are those to the first byte
    /// and to the end, in milliseconds.
    #[command(after_help = "Example:\n\n  throughline turns --limit 5 --blocks")]
    Turns {
        /// How many turns to show.
        #[arg(long, value_name = "NUMBER", default_value_t = 20)]
        limit: usize,
        /// Also show the fate of each thinking block.
        #[arg(long)]
        blocks: bool,
        /// Where the gateway is.
        #[command(flatten)]
        remote: Remote,
    },
    /// Show what a running gateway would send for a request, without sending it.
    ///
    /// Prints the lane, the thinking setting, what would be lost, and what would become of each
    /// thinking block.
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(Plan),
    /// Write the reply of a recent turn to a file that `simulate` can replay.
    ///
    /// Writes the provider's reply byte for byte, and a second file that describes it. The gateway
    /// must run with `enabled = true` and `full_body = true` in `[debug_log]`.
    #[command(after_help = CAPTURE_STEPS)]
    Capture(Capture),
    /// Read a model's raw text from stdin; print reasoning, answer and tool calls as JSON lines.
    ///
    /// Uses the same parsers as the gateway does for backends that reply with raw text.
    #[command(after_help = PARSE_EXAMPLES)]
    Parse(Parse),
    /// Bring the tables of the configured databases up to date.
    ///
    /// `serve` does this too. Run it first to upgrade the database in a separate step. Prints what it did for each database, and may be run again.
    #[command(after_help = "Example:\n\n  throughline migrate --config throughline.toml")]
    Migrate {
        /// The configuration file.
        #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
        config: Option<PathBuf>,
    },
    /// Show, change, back up and check the keys that seal what is stored.
    ///
    /// The keyring seals managed projects, stored responses and the vault. The key of a sealed project
    /// belongs to its people and is never stored.
    #[command(
        subcommand,
        after_help = "Start with:\n\n  throughline keys status\n  throughline keys verify"
    )]
    Keys(keys::Keys),
    /// Check configuration, data directory, keys and backends, and suggest fixes.
    ///
    /// Prints one line per check, `ok` or `FAIL`. Exits with 1 if a check fails, and with 2 if the
    /// configuration has mistakes.
    #[command(after_help = "Example:\n\n  throughline doctor --config throughline.toml")]
    Doctor {
        /// The configuration file.
        #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
        config: Option<PathBuf>,
    },
}

const SERVE_EXAMPLES: &str = "\
Examples:

  throughline serve
  throughline serve --config throughline.toml --listen 127.0.0.1:9000
  ANTHROPIC_API_KEY=... throughline serve";

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The configuration file. Default: ./throughline.toml, then
    /// $XDG_CONFIG_HOME/throughline/config.toml, then none.
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
    /// The address to listen on, such as 127.0.0.1:8484. Overrides `listen`.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The directory for all state. Overrides `data_dir`.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Start although the keyring that sealed the stored data is lost.
    ///
    /// Stored responses and turns that were sealed with it stay unreadable. Needed for one start
    /// only.
    #[arg(long)]
    pub new_keyring: bool,
}

const SIMULATE_EXAMPLES: &str = "\
Examples:

  throughline simulate
  throughline simulate --dialect openai_chat --variant vllm
  throughline simulate --scenario scenario.toml --tokens-per-second 50";

/// Options of `simulate`.
#[derive(Debug, Args)]
pub struct Simulate {
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8585")]
    pub listen: String,
    /// The name that signs thinking. Simulators with the same identity accept each other's thinking.
    #[arg(long, value_name = "NAME", default_value = "simulator")]
    pub identity: String,
    /// A dialect to speak: anthropic, gemini, ollama, openai_chat or openai_responses. Repeat the
    /// option for several. Default: all.
    #[arg(long, value_parser = Dialect::named)]
    pub dialect: Vec<&'static Dialect>,
    /// The server that openai_chat imitates: openai, deepseek-v4, deepseek-r1, think-tags,
    /// reasoning-field, vllm, sglang, llamacpp, ollama, qwen, glm, mistral, openrouter, litellm, google,
    /// xai or groq. Default: derived from the model's name.
    #[arg(long, value_name = "NAME", value_parser = Variant::named)]
    pub variant: Option<&'static Variant>,
    /// Seed of the replies. The same seed gives the same replies.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
    /// Speed of the replies; 0 is as fast as possible.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub tokens_per_second: u32,
    /// Bind thinking to the messages before it, as the newest models do.
    #[arg(long)]
    pub prefix_binding: bool,
    /// Keep message threads of the Anthropic dialect. Without it, requests that name one are rejected.
    #[arg(long)]
    pub threads: bool,
    /// Reject what the real provider rejects.
    #[arg(long, default_value = "on")]
    pub strict: OnOff,
    /// Reject requests without a key.
    #[arg(long)]
    pub require_key: bool,
    /// A TOML file of scripted replies and errors.
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
}

const SIMULATE_MCP_EXAMPLES: &str = "\
Examples:

  command = [\"throughline\", \"simulate-mcp\"]            in [[mcp]] of a configuration
  throughline simulate-mcp --listen 127.0.0.1:8686       then url = \"http://127.0.0.1:8686/mcp\"";

/// Options of `simulate-mcp`.
#[derive(Debug, Args)]
pub struct SimulateMcp {
    /// The address to listen on. Without it, the server speaks over its standard streams.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// The versions of the protocol to speak.
    #[arg(long, value_name = "WHICH", default_value = "both")]
    pub protocol: McpProtocol,
    /// The file that gets one line of JSON for each call, before the tool runs.
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// How many tools one page of the list has.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    pub page: usize,
}

/// The versions of MCP that a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum McpProtocol {
    /// Stateless, from 2026-07-28 on.
    Stateless,
    /// With the handshake of older versions.
    Handshake,
    /// Either, as the client wants.
    Both,
}

const PLAN_EXAMPLES: &str = "\
Examples:

  throughline plan request.json --backend glm
  throughline plan request.json --dialect openai_chat --json
  throughline plan - --dialect gemini --model gemini-3-pro < request.json";

/// Options of `plan`.
#[derive(Debug, Args)]
pub struct Plan {
    /// The request as a client sends it: the JSON body. `-` reads it from stdin.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The backend. Default: the one that the gateway would choose.
    #[arg(long, value_name = "NAME")]
    pub backend: Option<String>,
    /// The dialect of the request: anthropic, openai_chat, openai_responses, gemini, ...
    #[arg(long, value_name = "DIALECT", default_value = "anthropic")]
    pub dialect: String,
    /// The model, for dialects that name it in the path.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Where the gateway is.
    #[command(flatten)]
    pub remote: Remote,
}

/// Options of `capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// The turn to capture; `throughline turns` prints its id.
    #[arg(long, value_name = "ID", conflicts_with = "last")]
    pub turn: Option<String>,
    /// Capture the newest turn that has a reply. This is the default.
    #[arg(long)]
    pub last: bool,
    /// The name of the files: NAME.sse or NAME.json, and NAME.about.toml.
    #[arg(long, value_name = "NAME")]
    pub out: String,
    /// Overwrite existing files.
    #[arg(long)]
    pub force: bool,
    /// The gateway's URL. Default: `listen` of the configuration.
    #[arg(long, env = "THROUGHLINE_URL")]
    pub url: Option<String>,
    /// The configuration file that contains `listen`.
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
}

const CAPTURE_STEPS: &str = "\
From a provider's reply to a test:

  1. In throughline.toml, before the gateway starts:
       [debug_log]
       enabled = true
       full_body = true
  2. Send a request with any client, then:
       throughline capture --last --out late-signature
  3. In scenario.toml, next to the capture:
       [[step]]
       replay = \"late-signature.sse\"
  4. throughline simulate --scenario scenario.toml

A capture contains the provider's reply, decompressed. It contains no headers and no keys, but all
content: read it before you share it.";

/// Options of `parse`.
#[derive(Debug, Args)]
pub struct Parse {
    /// How the model writes: a family such as `qwen3`, `auto` (from --model), `none`, or `list`.
    #[arg(long, value_name = "FAMILY")]
    pub family: Option<String>,
    /// The model's name, from which the family is derived.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The tags around reasoning, instead of the family's: `think`, ..., `none`, or `list`.
    #[arg(long, value_name = "TAGSET")]
    pub reasoning: Option<String>,
    /// The format of tool calls, instead of the family's: `hermes`, ..., `none`, or `list`. For
    /// several, use commas or repeat the option.
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub tool_format: Vec<String>,
    /// The tools that were offered to the model: a JSON list of `{name, description?, parameters}` or
    /// of OpenAI tools. Their schemas give types to arguments that the model writes as plain text.
    /// `[]` means that none were offered: then JSON without a marker is content. Without the option,
    /// it is not known which tools were offered.
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// The text starts inside reasoning, because the prompt template opened the tag; with `=false`, it
    /// starts outside. Replaces the family's default.
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub implicit_reasoning: Option<bool>,
    /// What to print for reasoning: separate lines, separate lines with tags, or content.
    #[arg(long, value_name = "FORM", default_value = "split", ignore_case = true)]
    pub reasoning_format: ReasoningForm,
    /// What to print for a tool call that does not parse: an error line, or its text.
    #[arg(long, value_name = "POLICY", default_value = "text", ignore_case = true)]
    pub on_error: OnError,
    /// Feed the parser pieces of this many bytes; 0 for the whole text. Default: as it arrives.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub chunk: Option<usize>,
    /// Print JSON for `list`.
    #[arg(long)]
    pub json: bool,
}

const PARSE_EXAMPLES: &str = "\
Examples:

  llama-cli ... | throughline parse --family qwen3
  throughline parse --model deepseek-ai/DeepSeek-R1 < answer.txt
  throughline parse --model GLM-4.6 --tools tools.json --on-error error < answer.txt
  throughline parse --reasoning think --tool-format hermes,mistral < answer.txt
  throughline parse --family list

Each line is one event:

  {\"type\":\"reasoning\",\"delta\":\"...\"}
  {\"type\":\"content\",\"delta\":\"...\"}
  {\"type\":\"tool_call_start\",\"index\":0,\"id\":\"call_0\",\"name\":\"...\"}
  {\"type\":\"tool_call_args\",\"index\":0,\"delta\":\"...\"}
  {\"type\":\"tool_call_end\",\"index\":0}
  {\"type\":\"error\",\"kind\":\"tool_call_parse_error\",\"message\":\"...\"}
  {\"type\":\"end\",\"reason\":\"stop\"}

The last line is always `end`; its reason is stop, tool_calls, unclosed_reasoning,
unclosed_tool_call or error. Deltas may be cut anywhere; joined, they are the same for every --chunk.
Malformed text is reported in the output; the command still exits with 0.

Without --family and --model, only what --reasoning and --tool-format name is parsed. Without any of
these options, only the tags <think> are. Names may be in upper or lower case, with - or _.";

/// What to print for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReasoningForm {
    /// Separate lines, without tags.
    Split,
    /// Separate lines, as the model wrote it.
    Raw,
    /// Content, as the model wrote it.
    None,
}

/// What to print for a tool call that does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// An error line instead of its text.
    Error,
    /// Its text, as content.
    Text,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// Turned on.
    On,
    /// Turned off.
    Off,
}

/// Where a running gateway is, and how to print its answer.
#[derive(Debug, Args)]
pub struct Remote {
    /// The gateway's URL. Default: `listen` of the configuration.
    #[arg(long, env = "THROUGHLINE_URL")]
    pub url: Option<String>,
    /// The configuration file that contains `listen`.
    #[arg(long, value_name = "FILE", env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the gateway's JSON answer.
    #[arg(long)]
    pub json: bool,
}
