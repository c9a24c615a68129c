//! The configuration keys: one row each, with type, default, meaning and whether it works yet.
//! Diagnostics, names of environment variables, defaults and the reference in
//! `docs/configuration.md` all come from these rows. To make a planned key work, turn its `planned`
//! into `available` and read it in `read` or `backends`.

use std::fmt::Write as _;

use throughline_codec::json::MAX_TREE_DEPTH;
use throughline_codec::text::{OnError, ReasoningFormat};
use throughline_conversations::projects::{PreviousResponse, ProjectMode};
use throughline_conversations::users::RegistrationRule;
use throughline_gateway::backend::{Cache, Compat, Replay};
use throughline_gateway::settings::{Policy, ToolThinking, Unknown};

use super::config_enum::ConfigEnum;
use super::settings::{Dialect, Format, Level, Passthrough, ReasoningField};
use super::{units, upstream};

/// One key.
pub(super) struct Row {
    /// The dotted path; elements of a list have no index.
    pub(super) path: &'static str,
    pub(super) key_type: KeyType,
    pub(super) default: DefaultValue,
    pub(super) available: bool,
    pub(super) about: &'static str,
}

/// The type of a key, with the limits that its value alone can break.
#[derive(Clone, Copy)]
pub(super) enum KeyType {
    /// A string that is not empty; the field says what it is.
    Text(&'static str),
    /// A string that no message may show.
    Secret,
    /// One of these strings.
    OneOf(fn() -> Vec<&'static str>),
    /// A list of these strings.
    ListOf(fn() -> Vec<&'static str>),
    /// A string whose allowed values depend on `dialect`.
    Variant,
    Bool,
    Integer {
        min: i64,
        max: i64,
    },
    /// Longer than zero.
    Duration,
    /// A duration, or the word for none.
    DurationOr(&'static str),
    /// A number of bytes.
    Size {
        min: u64,
    },
    /// How text is cut into pieces: a word, or a table for a window.
    Pace,
    TextList,
    /// Strings under keys of the user's choice.
    TextMap,
    /// A table with rows of its own.
    Table,
    /// A list of such tables.
    TableList,
}

/// The value of a key that is not set.
#[derive(Clone, Copy)]
pub(super) enum DefaultValue {
    /// This TOML value.
    Toml(&'static str),
    /// A value found at start, described in words.
    Derived(&'static str),
    /// None: the table around the key needs it.
    Required,
    Unset,
}

use DefaultValue::{Derived, Required, Toml, Unset};
use KeyType::{Bool, Duration, DurationOr, Integer, ListOf, OneOf, Pace, Secret, Size};
use KeyType::{Table, TableList, Text, TextList, TextMap};

const fn available(
    path: &'static str,
    key_type: KeyType,
    default: DefaultValue,
    about: &'static str,
) -> Row {
    Row { path, key_type, default, available: true, about }
}

const fn planned(
    path: &'static str,
    key_type: KeyType,
    default: DefaultValue,
    about: &'static str,
) -> Row {
    Row { path, key_type, default, available: false, about }
}

const MIB: u64 = 1 << 20;

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    available("listen", Text("`host:port`"), Toml(r#""127.0.0.1:8484""#), "Loopback address to serve on; port 0 takes a free one."),
    available("data_dir", Text("path"), Derived("`$XDG_DATA_HOME/throughline`, else `~/.local/share/throughline`"), "Directory for all state. `~` is your home directory; a relative path is relative to the current directory."),
    available("log", Table, Unset, "What is logged."),
    available("log.level", OneOf(Level::names), Toml(r#""info""#), "Messages of this level and more severe ones are logged. `RUST_LOG` overrides it."),
    available("log.format", OneOf(Format::names), Toml(r#""text""#), "One line of text or one JSON object per message."),
    available("keep_alive", Duration, Toml(r#""15s""#), "After this much silence from an upstream, the client gets a keep-alive event."),
    available("shutdown_grace", Duration, Toml(r#""25s""#), "How long requests in progress may go on after a stop signal. Those that are left then end with an error."),
    available("allowed_hosts", TextList, Toml("[]"), "More `Host` headers to accept; loopback names and the listen address always are."),
    available("cors_origins", TextList, Toml("[]"), "Origins whose web pages may use this server, such as `https://app.example`; `null` allows pages opened as files (and frames without an origin on any site), `*` every page."),
    available("models_file", Text("path"), Unset, "A TOML file that describes what [models](models.md) can do; it overrides the built-in catalog. A relative path is relative to the configuration file."),
    planned("tls", Table, Unset, "Serve TLS."),
    planned("tls.cert", Text("path"), Required, "Certificate chain."),
    planned("tls.key", Text("path"), Required, "Private key."),
    planned("tls.client_ca", Text("path"), Unset, "Authority that signs client certificates."),

    available("backend", TableList, Derived("from API keys in the environment, and the simulator"), "An upstream."),
    available("backend.name", Text("string"), Required, "A unique name of `a-z`, `0-9`, `_` and `-`."),
    available("backend.dialect", OneOf(Dialect::names), Required, "The API the upstream speaks."),
    available("backend.variant", KeyType::Variant, Derived("derived from `base_url` where possible"), "Which server of its dialect the upstream is. [backends.md](backends.md#variants-by-address) lists the variant that each address implies. For the simulator: the dialect it speaks."),
    available("backend.base_url", Text("URL"), Unset, "Address of the upstream; required except for the simulator. The dialect's path is appended; a part of it that is already there, such as a trailing `/v1` or `/v1beta`, is not repeated."),
    available("backend.api_key", Secret, Unset, "The gateway's own key for this upstream, as plain text."),
    available("backend.api_key_env", Text("name of a variable"), Unset, "The environment variable that holds the key. Prefer this to `api_key`. If it is not set, the backend is off: `serve` logs a warning and requests for it fail. For the default backend it is an error."),
    available("backend.auth", OneOf(Passthrough::names), Unset, "Sends the caller's own key to the upstream, in the header the caller used. Excludes `api_key` and `api_key_env`."),
    available("backend.share_caller_key", Bool, Toml("false"), "With passthrough: accept callers' keys after a switch or fallback from a passthrough backend of another origin."),
    available("backend.signature_domain", Text("string"), Derived("the backend's name"), "Backends of the same domain can read each other's thinking."),
    available("backend.models", TextMap, Toml("{}"), "Model names to replace, as `\"pattern\" = \"name\"`. A pattern may end in `*`; the longest literal prefix wins. Replies carry the original name."),
    available("backend.default_model", Text("string"), Unset, "The model for requests that name none."),
    available("backend.family", Text(r#"`"auto"`, `"none"` or the name of a family"#), Toml(r#""auto""#), "How the model writes reasoning and tool calls in raw-text replies: `\"auto\"` derives it from the model's name, `\"none\"` turns parsing off. `throughline parse --family list` lists the families."),
    available("backend.reasoning_format", OneOf(ReasoningFormat::names), Toml(r#""split""#), "Where reasoning found in raw text goes: separate without its tags, separate with its tags, or into the content unchanged."),
    available("backend.on_tool_parse_error", OneOf(OnError::names), Toml(r#""error""#), "What a tool call in raw text that does not parse becomes: an error, or content."),
    available("backend.thinking_compat", Table, Unset, "Rewrites thinking settings for an upstream that understands only one form."),
    available("backend.thinking_compat.mode", OneOf(Compat::names), Required, "The form the upstream understands."),
    available("backend.thinking_compat.budget", Integer { min: 1024, max: i64::MAX }, Unset, "Thinking tokens for requests that name no budget."),
    available("backend.strict_settings", Bool, Toml("true"), "Refuse a request that asks for several answers, token probabilities, an answer format or stop sequences which this upstream cannot give. If false, the answer is given without them, and the losses say so."),
    available("backend.replay", OneOf(Replay::names), Toml(r#""verbatim""#), "How much earlier thinking is sent back to the upstream: all of it, that of the latest turn, or none. Thinking that this setting leaves out is not a loss: if a client dropped it too, no report counts it."),
    available("backend.cache", OneOf(Cache::names), Toml(r#""auto""#), "Breakpoints for the upstream's prompt cache ([caching.md](caching.md)). `auto`: a client's own are sent; a translated request without any gets them, if the upstream needs them. `client`: only a client's own are sent. `off`: none are sent."),
    available("backend.retries", Integer { min: 0, max: 10 }, Toml("0"), "Retries after 429 and 5xx. Most clients retry themselves."),
    available("backend.cumulative", Bool, Toml("false"), "For `gemini`: each chunk of a streamed reply repeats everything before it."),
    available("backend.timeouts", Table, Unset, "How long to wait for the upstream."),
    available("backend.timeouts.connect", Duration, Toml(r#""5s""#), "For the connection."),
    available("backend.timeouts.first_byte", Duration, Toml(r#""120s""#), "For the first byte of the reply. A reply that is not streamed sends its first byte when it is complete: unless this key is set, such a reply may take `total`."),
    available("backend.timeouts.idle", Duration, Toml(r#""120s""#), "Between two chunks of a reply."),
    available("backend.timeouts.total", Duration, Toml(r#""30m""#), "For the whole turn."),

    available("route", Table, Unset, "Which backend answers which request."),
    available("route.default", Text("backend"), Derived("the first backend that is on"), "The active backend until `throughline switch` changes it."),
    available("route.rules", TableList, Toml("[]"), "Backends chosen by model name."),
    available("route.rules.model", Text("pattern"), Required, "A model's name, or a prefix that ends in `*`; the longest literal prefix wins."),
    available("route.rules.backend", Text("backend"), Required, "The backend that answers."),
    available("route.rules.fallback", TextList, Toml("[]"), "Backends to try in order if that backend fails before its first byte."),
    available("route.cool_down", Duration, Toml(r#""2s""#), "How long a backend is not tried after it failed, if another one can answer. Doubles with each further failure, up to a minute, and is never shorter than the failed request took or than `retry-after`."),
    available("route.fallback", TextList, Toml("[]"), "Backends to try in order if the active backend fails before its first byte."),

    available("thinking", Table, Unset, "Which stored thinking is sent, and how much is stored."),
    available("thinking.policy", OneOf(Policy::names), Toml(r#""origin""#), "Which stored blocks are sent: those whose origin the target can read, or of these only the blocks of the current session."),
    available("thinking.unknown", OneOf(Unknown::names), Toml(r#""try""#), "What happens to blocks of unknown origin: they are sent and removed if the upstream rejects them, or dropped."),
    available("thinking.orphan_threshold", Duration, Toml(r#""5m""#), "Age at which an unconfirmed block is removed."),
    available("thinking.memory_limit", Size { min: MIB }, Toml(r#""256MiB""#), "Memory for blocks."),
    available("thinking.tool_thinking", OneOf(ToolThinking::names), Toml(r#""auto""#), "The order of thinking and tool calls: as client and model decide, all thinking before the first call, or also between calls."),
    available("thinking.reasoning_fields", ListOf(ReasoningField::names), Toml(r#"["reasoning", "reasoning_content"]"#), "The JSON members in which `openai_chat` clients get reasoning as plain text. `reasoning_details` is always sent."),

    available("pacing", Table, Unset, "How the replies of runs are cut into pieces. A window such as `{ window_ms = 80, bytes = 256 }` releases this many bytes at once, or what has waited this long."),
    available("pacing.text", Pace, Toml(r#""immediate""#), "Pieces of text."),
    available("pacing.thinking", Pace, Toml(r#""sentence""#), "Pieces of thinking."),
    available("pacing.tool_args", Pace, Toml(r#""json_boundary""#), "Pieces of tool arguments."),
    planned("pacing.proxy", Table, Unset, "The same for proxied requests."),

    available("store", Table, Unset, "Where everything is stored."),
    available("store.url", Text("URL"), Toml(r#""sqlite:throughline.db""#), "`sqlite:` and a file for conversations, relative to `data_dir`; or `postgres://user:password@host/database` for all data, which [several instances](data.md#several-instances) can share."),
    available("store.raw", Bool, Toml("true"), "Keep the providers' replies of projects as they arrived."),

    available("redis", Table, Unset, "The [bus between instances](redis.md)."),
    available("redis.url", Text("URL"), Toml(r#""""#), "Address of a Redis server, as in `redis://user:password@host:6379/0`; `rediss://` uses TLS. Empty: readers of other instances ask the store."),

    available("projects", Table, Unset, "Defaults of new [projects](conversations.md)."),
    available("projects.provider", Text("backend"), Derived("`route.default`"), "The backend of a first branch that names none."),
    available("projects.model", Text("string"), Derived("that backend's `default_model`"), "The model of a first branch that names neither a provider nor a model."),
    available("projects.previous_response", OneOf(PreviousResponse::names), Toml(r#""off""#), "Whether providers that can store replies are asked to, so that a request need not repeat the history: on a `branch`, or also where a branch begins (`fork`)."),
    available("projects.mode", OneOf(ProjectMode::names), Toml(r#""managed""#), "Who holds the keys of new projects: this server (`managed`), or their clients (`sealed`)."),

    available("mcp", TableList, Unset, "An MCP server whose [tools](tools.md) models may call."),
    available("mcp.name", Text("string"), Required, "A unique name of `a-z`, `0-9`, `_` and `-`."),
    available("mcp.command", TextList, Toml("[]"), "The program that is the server, with its arguments. It is started when it is first needed, and gets only a few variables of the environment, such as `PATH` and `HOME`."),
    available("mcp.env", TextMap, Toml("{}"), "More variables for the program."),
    available("mcp.url", Text("URL"), Unset, "The address of a server that is running (streamable HTTP), instead of `command`."),
    available("mcp.token_env", Text("name of a variable"), Unset, "With `url`: the environment variable that holds the bearer token."),
    available("mcp.allow", TextList, Toml(r#"["*"]"#), "Tools that may be called; `*` stands for any characters."),
    available("mcp.approve", TextList, Toml("[]"), "Tools whose calls wait until a person approves them; `*` stands for any characters."),
    available("mcp.timeout", Duration, Toml(r#""30s""#), "How long one call may take."),

    available("tools", Table, Unset, "Limits of the [tool loop](tools.md)."),
    available("tools.max_rounds", Integer { min: 1, max: 1_000 }, Toml("16"), "How often the model is asked for one answer. Calls of the last round are not run."),
    available("tools.max_time", Duration, Toml(r#""30m""#), "How long one answer with tools may take. Waiting for approvals counts."),
    available("tools.max_parallel", Integer { min: 1, max: 1_000 }, Toml("8"), "How many calls of one answer run at once."),
    available("tools.max_result", Size { min: 256 }, Toml(r#""256KiB""#), "The size of one result. A longer one is cut, with a mark."),
    available("tools.approval_timeout", Duration, Toml(r#""10m""#), "How long a call waits for an approval; then it is denied."),

    available("responses", Table, Unset, "Responses stored for clients that send no history."),
    available("responses.retention", Duration, Toml(r#""30d""#), "How long a conversation is stored after its last turn."),
    available("responses.limit", Size { min: 0 }, Toml(r#""1GiB""#), "Size of the store; the oldest responses are removed first. `0B` stores nothing."),
    available("threads", Table, Unset, "Message threads stored for clients that send no history. `responses.limit` includes their size."),
    available("threads.retention", Duration, Toml(r#""1h""#), "How long a thread is stored after its last turn."),

    available("users", Table, Unset, "[Users](users.md), who log in."),
    available("users.session", Duration, Toml(r#""30d""#), "How long a session lasts after the log-in. Use does not extend it."),
    available("users.registration", OneOf(RegistrationRule::names), Toml(r#""open""#), "Who may register: everyone who reaches the server (`open`), only the first user (`first`), or no one (`closed`)."),

    available("runs", Table, Unset, "Streamed replies of front ends, which clients can resume. `responses.limit` includes their size."),
    available("runs.log", Bool, Toml("true"), "Keep a log of each streamed reply. If false, a reply ends with its connection."),
    available("runs.retention", Duration, Toml(r#""10m""#), "How long the log is kept after the end of the reply."),
    available("runs.detached", DurationOr("until_end"), Toml(r#""2m""#), "How long a reply goes on without a reader; then it is cancelled. `\"until_end\"` never cancels it."),

    available("limits", Table, Unset, "Limits for requests."),
    available("limits.body", Size { min: 1024 }, Toml(r#""64MiB""#), "Size of a request body."),
    available("limits.json_depth", Integer { min: 8, max: MAX_TREE_DEPTH as i64 }, Toml("128"), "Levels of nesting in a request's JSON."),
    available("limits.streams", Integer { min: 1, max: 1_000_000 }, Toml("1000"), "Requests in progress at the same time, and as many open WebSockets."),
    planned("limits.queue", Integer { min: 0, max: 1_000_000 }, Toml("100"), "Requests that wait for a free slot."),
    available("limits.reader_queue", Integer { min: 1, max: 1_000_000 }, Toml("1000"), "How many events a reader may lag behind its run. If it lags more and reads nothing for 30 seconds, it is disconnected, and can resume."),
    planned("limits.requests_per_minute", Integer { min: 0, max: i64::MAX }, Toml("0"), "Per gateway key; 0 is no limit."),

    available("debug_log", Table, Unset, "A log of requests and replies, for debugging."),
    available("debug_log.enabled", Bool, Toml("false"), "Turn the debug log on."),
    available("debug_log.full_body", Bool, Toml("false"), "Log and keep whole bodies, with their content. Without this, no content is ever logged."),
    available("debug_log.pretty_print", Bool, Toml("false"), "Log JSON over several lines."),

    available("rooms", Table, Unset, "[Rooms](rooms.md): live conversations of people and models."),
    available("rooms.max_chain", Integer { min: 1, max: 1_000 }, Toml("4"), "How many answers of models may follow each other without a person in between."),
    available("hooks", Table, Unset, "[Webhooks](rooms.md#hooks) of rooms."),
    available("hooks.allow_private", Bool, Toml("false"), "Allow hooks at loopback and private addresses. People who may add hooks can then make this server call programs of its own network."),
    available("hooks.attempts", Integer { min: 1, max: 100 }, Toml("6"), "How often a call is tried before it is dead."),
    available("hooks.first_pause", Duration, Toml(r#""5s""#), "The pause after the first attempt. It grows fourfold with each one."),

    planned("telemetry", Table, Unset, "OpenTelemetry."),
    planned("telemetry.otlp_endpoint", Text("URL"), Unset, "Where traces are sent."),
];

/// The row of a key in a section; the top level is the empty section.
pub(super) fn row(section: &str, key: &str) -> Option<&'static Row> {
    rows_of(section).find(|row| row.key() == key)
}

/// The rows directly in a section.
pub(super) fn rows_of(section: &str) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.section() == section)
}

/// The header of a section, such as `[thinking]` or `[[backend]]`; `None` for the top level.
pub(super) fn header(section: &str) -> Option<String> {
    let row = ROWS.iter().find(|row| row.path == section)?;
    match row.key_type {
        TableList => Some(format!("[[{section}]]")),
        Table => Some(format!("[{section}]")),
        _ => None,
    }
}

impl Row {
    /// The last part of the path.
    pub(super) fn key(&self) -> &'static str {
        self.path.rsplit('.').next().unwrap_or(self.path)
    }

    /// The path without its last part.
    pub(super) fn section(&self) -> &'static str {
        self.path.rsplit_once('.').map_or("", |(section, _)| section)
    }

    /// The type of the key, for messages and the reference.
    pub(super) fn type_name(&self) -> String {
        match self.key_type {
            Text(what) => what.to_owned(),
            Secret => "string".to_owned(),
            OneOf(names) => quoted(names()),
            ListOf(names) => format!("list of {}", quoted(names())),
            KeyType::Variant => {
                let of_dialects = upstream::dialects_with_variants().map(|dialect| {
                    format!("for `{dialect}` {}", quoted(upstream::variants(dialect)))
                });
                of_dialects.collect::<Vec<_>>().join("; ")
            }
            Bool => "`true` or `false`".to_owned(),
            Integer { min, max: i64::MAX } => format!("integer from {min}"),
            Integer { min, max } => format!("integer from {min} to {max}"),
            Duration => "duration".to_owned(),
            DurationOr(word) => format!("duration, or `\"{word}\"`"),
            Pace => format!("{}, or a window", quoted(units::PACES.map(|(name, _)| name))),
            Size { min } => format!("size from {}", units::show_size(min)),
            TextList => "list of strings".to_owned(),
            TextMap => "table of strings".to_owned(),
            Table => "table".to_owned(),
            TableList => "list of tables".to_owned(),
        }
    }
}

/// Strings as they are written in a file.
fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| format!("`\"{name}\"`")).collect();
    names.join(", ")
}

/// The reference of all keys as Markdown, for `docs/configuration.md`.
#[allow(dead_code, reason = "used by the test that keeps the page up to date")]
pub fn reference() -> String {
    let mut page = String::new();
    let mut missing = Vec::new();
    let sections = ROWS.iter().filter(|row| matches!(row.key_type, Table | TableList));
    for section in std::iter::once("").chain(sections.map(|row| row.path)) {
        let heading = match header(section) {
            Some(header) => format!("`{header}`"),
            None => "Top level".to_owned(),
        };
        let rows = rows_of(section).filter(|row| row.available && !matches!(row.key_type, Table));
        let rows: Vec<&Row> = rows.filter(|row| !matches!(row.key_type, TableList)).collect();
        if !rows.is_empty() {
            let about = ROWS.iter().find(|row| row.path == section).map_or("", |row| row.about);
            let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
            // Writing to a string cannot fail.
            let _ = write!(
                page,
                "### {heading}\n\n{about}| key | type | default | meaning |\n|---|---|---|---|\n"
            );
            for row in rows {
                let default = match row.default {
                    Toml(toml) => format!("`{toml}`"),
                    Derived(text) => text.to_owned(),
                    Required => "required".to_owned(),
                    Unset => "not set".to_owned(),
                };
                let _ = writeln!(
                    page,
                    "| `{}` | {} | {default} | {} |",
                    row.key(),
                    row.type_name(),
                    row.about
                );
            }
            page.push('\n');
        }
        // A section without any available key is one entry, not one per key.
        missing.extend(rows_of(section).filter(|row| !row.available).filter_map(|row| {
            let whole = ROWS.iter().any(|parent| parent.path == section && !parent.available);
            match header(row.path) {
                _ if whole => None,
                Some(header) => Some(format!("`{header}`")),
                None => Some(format!("`{}`", row.path)),
            }
        }));
    }
    let _ = write!(
        page,
        "### Not available yet\n\nThese keys are rejected until they work: {}.\n",
        missing.join(", ")
    );
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::document::{Node, Position};
    use super::*;

    #[test]
    fn paths_are_unique_and_have_a_section() {
        let mut seen = BTreeSet::new();
        for row in ROWS {
            assert!(seen.insert(row.path), "{} twice", row.path);
            let section = row.section();
            if !section.is_empty() {
                let parent = ROWS.iter().find(|parent| parent.path == section).unwrap();
                assert!(matches!(parent.key_type, Table | TableList), "{section} holds no keys");
                assert!(parent.available || !row.available, "{} in a planned section", row.path);
            }
        }
    }

    #[test]
    fn defaults_are_toml() {
        for row in ROWS {
            if let Toml(toml) = row.default {
                let position = Position::Flag("default");
                assert!(Node::of_value(toml, &position).is_some(), "{}: {toml}", row.path);
            }
        }
    }

    #[test]
    fn documentation_lists_every_key() {
        let page = include_str!("../../../../docs/configuration.md");
        let (_, rest) = page.split_once("<!-- keys -->\n").unwrap();
        let (keys, _) = rest.split_once("<!-- /keys -->").unwrap();
        let reference = reference();
        assert!(
            keys.trim() == reference.trim(),
            "put this between the key markers of docs/configuration.md:\n\n{reference}"
        );
    }
}
