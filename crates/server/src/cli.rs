//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use throughline_simulator::{Dialect, Variant};

/// A transparent gateway that keeps a model's thinking across turns, backends and restarts.
///
/// Point a client at it, and its backends can change under a running conversation:
///
///   throughline serve
///   ANTHROPIC_BASE_URL=http://127.0.0.1:8484 claude
///   throughline switch glm
#[derive(Debug, Parser)]
#[command(name = "throughline", version, verbatim_doc_comment, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the gateway. Needs no key and no configuration: without either, a simulator answers.
    Serve(Serve),
    /// Run a strict provider that signs its thinking and refuses what the real ones refuse.
    Simulate(Simulate),
    /// Show the backends of a running gateway, and which one is active.
    Backends(Remote),
    /// Make another backend the active one. Streams in progress go on.
    Switch {
        /// The backend's name.
        name: String,
        /// Where the gateway is.
        #[command(flatten)]
        remote: Remote,
    },
    /// Show what the thinking memory of a running gateway holds.
    Stats {
        /// Only this conversation (its id is in `turns`).
        #[arg(long)]
        lineage: Option<String>,
        /// Where the gateway is.
        #[command(flatten)]
        remote: Remote,
    },
    /// Show the recent turns of a running gateway: route, losses, times.
    Turns {
        /// How many.
        #[arg(long, default_value_t = 20)]
        limit: usize,
        /// Where the gateway is.
        #[command(flatten)]
        remote: Remote,
    },
    /// Write the reply of a recent turn to a file, for `simulate` to replay.
    #[command(after_help = ROUND_TRIP)]
    Capture(Capture),
    /// Read a model's raw text from stdin; print reasoning, answer and tool calls as JSON lines.
    #[command(after_help = PARSING)]
    Parse(Parse),
    /// Check configuration, keys and reachability, and say what to do.
    Doctor {
        /// The configuration file.
        #[arg(long, env = "THROUGHLINE_CONFIG")]
        config: Option<PathBuf>,
    },
}

/// Options of `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The configuration file. Default: ./throughline.toml, then
    /// $XDG_CONFIG_HOME/throughline/config.toml, then none.
    #[arg(long, env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Where to listen, such as 127.0.0.1:8484.
    #[arg(long)]
    pub listen: Option<String>,
    /// Where state is kept.
    #[arg(long)]
    pub data_dir: Option<PathBuf>,
}

/// Options of `simulate`.
#[derive(Debug, Args)]
pub struct Simulate {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8585")]
    pub listen: String,
    /// Who signs. Simulators of one identity read each other's thinking, others refuse it.
    #[arg(long, default_value = "simulator")]
    pub identity: String,
    /// Which dialects to speak: anthropic, gemini, ollama, openai_chat, openai_responses. Several:
    /// given again. All by default.
    #[arg(long, value_parser = Dialect::named)]
    pub dialect: Vec<&'static Dialect>,
    /// Which server openai_chat pretends to be: openai, deepseek-v4, deepseek-r1, think-tags,
    /// reasoning-field, vllm, sglang, llamacpp, ollama, qwen, glm, mistral, openrouter, litellm, google, xai,
    /// groq. By default the model's name decides.
    #[arg(long, value_name = "NAME", value_parser = Variant::named)]
    pub variant: Option<&'static Variant>,
    /// Makes replies repeatable.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// How fast to write; 0 for as fast as possible.
    #[arg(long, default_value_t = 0)]
    pub tokens_per_second: u32,
    /// Bind thinking to everything before it, as the newest models do.
    #[arg(long)]
    pub prefix_binding: bool,
    /// Refuse what the real provider refuses.
    #[arg(long, default_value = "on")]
    pub strict: OnOff,
    /// Refuse requests without a key.
    #[arg(long)]
    pub require_key: bool,
    /// A file of scripted replies and faults.
    #[arg(long)]
    pub scenario: Option<PathBuf>,
}

/// Options of `capture`.
#[derive(Debug, Args)]
pub struct Capture {
    /// The turn (its id is in `turns`).
    #[arg(long, value_name = "ID", conflicts_with = "last")]
    pub turn: Option<String>,
    /// The newest turn whose reply is there. So it is without `--turn` too.
    #[arg(long)]
    pub last: bool,
    /// Writes NAME.sse or NAME.json, and NAME.about.toml beside it.
    #[arg(long, value_name = "NAME")]
    pub out: String,
    /// Write over files that are there.
    #[arg(long)]
    pub force: bool,
    /// The gateway's address. Default: `listen` of the configuration.
    #[arg(long, env = "THROUGHLINE_URL")]
    pub url: Option<String>,
    /// The configuration file to take the address from.
    #[arg(long, env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
}

const ROUND_TRIP: &str = "\
The way of a reply, from a provider to a test:

  1. throughline.toml of the gateway, before it starts:
       [debug_log]
       enabled = true
       full_body = true
  2. Let a client ask, then:
       throughline capture --last --out late-signature
  3. scenario.toml beside the capture:
       [[step]]
       replay = \"late-signature.sse\"
  4. throughline simulate --scenario scenario.toml

The capture holds what the model said, byte for byte as the provider wrote it (unpacked, where it
came compressed). It holds no headers and no keys; read it before you give it away.";

/// Options of `parse`.
#[derive(Debug, Args)]
pub struct Parse {
    /// How the model writes: a family such as `qwen3`, `auto` (by --model), `none`, or `list`.
    #[arg(long, value_name = "FAMILY")]
    pub family: Option<String>,
    /// The model's name, to find its family by.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The tags around reasoning, in place of the family's: `think`, ..., `none`, or `list`.
    #[arg(long, value_name = "TAGSET")]
    pub reasoning: Option<String>,
    /// The form of tool calls, in place of the family's: `hermes`, ..., `none`, or `list`. Several:
    /// with commas, or given again.
    #[arg(long, value_name = "FORMAT", value_delimiter = ',')]
    pub tool_format: Vec<String>,
    /// The tools that were offered: a JSON list of `{name, description?, parameters}`, or of tools as
    /// OpenAI's API takes them. Types parameters that the model writes as plain text.
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// The text begins inside reasoning: the prompt's template opened the tag.
    #[arg(long)]
    pub implicit_reasoning: bool,
    /// What becomes of reasoning: lines of its own, the same with its tags, or content.
    #[arg(long, value_name = "FORM", default_value = "split", ignore_case = true)]
    pub reasoning_format: ReasoningForm,
    /// A call that cannot be read: an error line, or its text.
    #[arg(long, value_name = "POLICY", default_value = "text", ignore_case = true)]
    pub on_error: OnError,
    /// Read pieces of so many bytes; 0 for all of the text at once. Default: as it arrives.
    #[arg(long, value_name = "BYTES", allow_negative_numbers = true)]
    pub chunk: Option<usize>,
    /// With `list`: print JSON.
    #[arg(long)]
    pub json: bool,
}

const PARSING: &str = "\
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
unclosed_tool_call or error. Deltas are cut anywhere; joined they are the same for every --chunk.
Text that is broken is told in the lines; the command itself succeeds.

Without --family and --model only what --reasoning and --tool-format name is looked for, and
without these the tags <think> alone. Names may be written in either case, with - or _.";

/// What becomes of reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReasoningForm {
    /// Lines of its own, without tags.
    Split,
    /// Lines of its own, as the model wrote it.
    Raw,
    /// Content, as the model wrote it.
    None,
}

/// What becomes of a call that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnError {
    /// An error in the place of its text.
    Error,
    /// Its text, as content.
    Text,
}

/// A switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnOff {
    /// On.
    On,
    /// Off.
    Off,
}

/// Where a running gateway is, and how to answer.
#[derive(Debug, Args)]
pub struct Remote {
    /// The gateway's address. Default: `listen` of the configuration.
    #[arg(long, env = "THROUGHLINE_URL")]
    pub url: Option<String>,
    /// The configuration file to take the address from.
    #[arg(long, env = "THROUGHLINE_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the gateway's own JSON.
    #[arg(long)]
    pub json: bool,
}
