//! The keys: one row each, with type, default, meaning and whether it is available yet.
//! Unknown keys, refusals of later ones, variable names, defaults and the reference in
//! `docs/configuration.md` all come from these rows. To make a later key work, turn its `later`
//! into `now` and read it in `read` or `backends`.

use std::fmt::Write as _;

use throughline_codec::json::MAX_TREE_DEPTH;

use super::settings::{
    CompatMode, Dialect, Format, Level, OnToolParseError, PASSTHROUGH, Policy, ReasoningField,
    ReasoningFormat, Replay, ToolThinking, Unknown,
};
use super::{units, upstream};

/// One key.
pub(super) struct Row {
    /// The dotted path; elements of a list have no index.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    pub(super) initial: Initial,
    pub(super) available: bool,
    pub(super) about: &'static str,
}

/// What a key holds, and the bounds that one value alone can break.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Text that is not empty; the word says what it stands for.
    Text(&'static str),
    /// Text that no message may show.
    Secret,
    /// One of these words; those of `later` are known but refused.
    Words {
        now: &'static [&'static str],
        later: &'static [&'static str],
    },
    /// Some of these words.
    WordList(&'static [&'static str]),
    /// A word that another key decides about.
    Variant,
    Flag,
    Whole {
        least: i64,
        most: i64,
    },
    /// Longer than nothing.
    Duration,
    /// Bytes, at least so many.
    Size {
        least: u64,
    },
    Texts,
    /// Texts by keys of the user's choice.
    TextMap,
    /// A table with rows of its own.
    Table,
    /// A list of such tables.
    Tables,
}

/// What holds when nobody sets the key.
#[derive(Clone, Copy)]
pub(super) enum Initial {
    /// This TOML value.
    Value(&'static str),
    /// Something found out at start, in words.
    Derived(&'static str),
    /// The table around it is useless without.
    Required,
    Unset,
}

use Initial::{Derived, Required, Unset, Value};
use Kind::{Duration, Flag, Secret, Size, Table, Tables, Text, TextMap, Texts, Whole};

const fn now(path: &'static str, kind: Kind, initial: Initial, about: &'static str) -> Row {
    Row { path, kind, initial, available: true, about }
}

const fn later(path: &'static str, kind: Kind, initial: Initial, about: &'static str) -> Row {
    Row { path, kind, initial, available: false, about }
}

const fn words(now: &'static [&'static str]) -> Kind {
    Kind::Words { now, later: &[] }
}

const MIB: u64 = 1 << 20;

#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    now("listen", Text("`host:port`"), Value(r#""127.0.0.1:8484""#), "Loopback address to serve on; port 0 takes a free one."),
    now("data_dir", Text("path"), Derived("`$XDG_DATA_HOME/throughline`, else `~/.local/share/throughline`"), "Where state is kept. `~` is your home; a relative path is relative to the current directory."),
    now("log", Table, Unset, "What is logged."),
    now("log.level", words(Level::WORDS), Value(r#""info""#), "Least important messages still written. `RUST_LOG` wins."),
    now("log.format", words(Format::WORDS), Value(r#""text""#), "A line for people or a JSON object for machines."),
    now("keep_alive", Duration, Value(r#""15s""#), "Silence from an upstream after which the client gets a sign of life."),
    now("allowed_hosts", Texts, Value("[]"), "`Host` headers accepted besides loopback names and the listen address."),
    now("cors_origins", Texts, Value("[]"), "Origins whose pages may use this server from a browser, as `https://app.example`; `*` lets in every page there is."),
    now("models_file", Text("path"), Unset, "A TOML file that says what [models](models.md) can do, over what is built in. A relative path is relative to the file it stands in."),
    later("tls", Table, Unset, "Serve TLS."),
    later("tls.cert", Text("path"), Required, "Certificate chain."),
    later("tls.key", Text("path"), Required, "Private key."),
    later("tls.client_ca", Text("path"), Unset, "Authority that signs client certificates."),

    now("backend", Tables, Derived("from keys in the environment, and the simulator"), "An upstream."),
    now("backend.name", Text("text"), Required, "Unique; of `a-z`, `0-9`, `_` and `-`."),
    now("backend.dialect", words(Dialect::WORDS), Required, "The language the upstream speaks."),
    now("backend.variant", Kind::Variant, Derived("told by `base_url`, where it can be"), "Which kind of server of its dialect the upstream is. [backends.md](backends.md#what-an-address-tells) says what an address tells. For the simulator: the dialect it is spoken to in."),
    now("backend.base_url", Text("URL"), Unset, "Where the upstream is; needed except for the simulator. The dialect's path is appended; what of it stands there already, such as a trailing `/v1` or `/v1beta`, is left out."),
    now("backend.api_key", Secret, Unset, "The gateway's key for this upstream, written out."),
    now("backend.api_key_env", Text("variable's name"), Unset, "The variable that holds that key. The better place for it."),
    now("backend.auth", words(&[PASSTHROUGH]), Unset, "The caller's own key goes to the upstream, in the caller's form. Not together with a key."),
    now("backend.share_caller_key", Flag, Value("false"), "With passthrough: a caller's key may come here from a passthrough backend of another origin."),
    now("backend.signature_domain", Text("text"), Derived("the backend's name"), "Backends of one domain read each other's thinking."),
    now("backend.models", TextMap, Value("{}"), "Model names to replace, as `\"pattern\" = \"name\"`. A pattern may end in `*`; the longest literal prefix wins. Reversed in replies."),
    now("backend.default_model", Text("text"), Unset, "The model for requests that name none."),
    now("backend.family", Text(r#"`"auto"`, `"none"` or a family's name"#), Value(r#""auto""#), "How the model writes reasoning and tool calls where replies are raw text: told by the model's name, not looked for, or as this family does. `throughline parse --family list` shows the names."),
    now("backend.reasoning_format", words(ReasoningFormat::WORDS), Value(r#""split""#), "Where reasoning found in raw text goes: apart and without its tags, apart and as written, or into the content as written."),
    now("backend.on_tool_parse_error", words(OnToolParseError::WORDS), Value(r#""error""#), "What becomes of a tool call in raw text that does not parse: an error, or content."),
    now("backend.thinking_compat", Table, Unset, "Rewrites thinking settings for an upstream that understands only one form."),
    now("backend.thinking_compat.mode", words(CompatMode::WORDS), Required, "The form it understands."),
    now("backend.thinking_compat.budget", Whole { least: 1024, most: i64::MAX }, Unset, "Tokens to think with where the request names none."),
    now("backend.replay", words(Replay::WORDS), Value(r#""verbatim""#), "How much past thinking goes back to the upstream."),
    now("backend.retries", Whole { least: 0, most: 10 }, Value("0"), "Further attempts after 429 and 5xx. Clients retry by themselves."),
    now("backend.cumulative", Flag, Value("false"), "For `gemini`: each piece of a streamed reply repeats all that was sent before."),
    now("backend.timeouts", Table, Unset, "How long to wait for the upstream."),
    now("backend.timeouts.connect", Duration, Value(r#""5s""#), "For the connection."),
    now("backend.timeouts.first_byte", Duration, Value(r#""120s""#), "For the reply's first byte. A whole reply has its first byte when it is complete: unless this is set, such a reply may take `total`."),
    now("backend.timeouts.idle", Duration, Value(r#""120s""#), "Between two pieces of a reply."),
    now("backend.timeouts.total", Duration, Value(r#""30m""#), "For the whole turn."),

    now("route", Table, Unset, "Which backend answers which request."),
    now("route.default", Text("backend"), Derived("the first backend"), "The active backend until someone switches."),
    now("route.rules", Tables, Value("[]"), "Backends chosen by model name."),
    now("route.rules.model", Text("pattern"), Required, "A model's name, or a prefix that ends in `*`; the longest literal prefix wins."),
    now("route.rules.backend", Text("backend"), Required, "The backend that answers."),
    now("route.rules.fallback", Texts, Value("[]"), "Backends tried in order when it fails before its first byte."),
    now("route.fallback", Texts, Value("[]"), "Backends tried in order when the active one fails before its first byte."),

    now("thinking", Table, Unset, "How remembered thinking is judged and kept."),
    now("thinking.policy", words(Policy::WORDS), Value(r#""origin""#), "What makes a remembered block fit to be sent: its origin, or its origin and the current session."),
    now("thinking.unknown", words(Unknown::WORDS), Value(r#""try""#), "What happens to blocks never seen before."),
    now("thinking.orphan_threshold", Duration, Value(r#""5m""#), "Age at which an unconfirmed block is forgotten."),
    now("thinking.memory_limit", Size { least: MIB }, Value(r#""256MiB""#), "Memory for blocks."),
    now("thinking.tool_thinking", words(ToolThinking::WORDS), Value(r#""auto""#), "How thinking and tool calls follow each other: as client and model have it, all thinking before the first call, or thinking between calls too."),
    now("thinking.reasoning_fields", Kind::WordList(ReasoningField::WORDS), Value(r#"["reasoning", "reasoning_content"]"#), "In which members clients of `openai_chat` get reasoning as plain text. `reasoning_details` come in any case."),

    later("pacing", Table, Unset, "How runs are cut into pieces."),
    later("pacing.text", Text("text"), Value(r#""immediate""#), "Pieces of text."),
    later("pacing.thinking", Text("text"), Value(r#""sentence""#), "Pieces of thinking."),
    later("pacing.tool_args", Text("text"), Value(r#""json_boundary""#), "Pieces of tool arguments."),
    later("pacing.proxy", Table, Unset, "The same for proxied requests."),

    later("store", Table, Unset, "Where conversations are kept."),
    later("store.url", Text("URL"), Value(r#""sqlite:throughline.db""#), "The store."),
    later("store.raw", Flag, Value("true"), "Keep raw replies."),

    later("redis", Table, Unset, "The bus between instances."),
    later("redis.url", Text("URL"), Unset, "The server."),

    later("projects", Table, Unset, "Defaults of new projects."),
    later("projects.provider", Text("backend"), Derived("`route.default`"), "The backend."),
    later("projects.model", Text("text"), Derived("that backend's `default_model`"), "The model."),
    later("projects.mode", words(&["managed", "sealed"]), Value(r#""managed""#), "Who holds the key."),

    later("mcp", Tables, Unset, "A tool server."),
    later("mcp.name", Text("text"), Required, "Its name."),
    later("mcp.command", Texts, Unset, "The program to start."),
    later("mcp.url", Text("URL"), Unset, "Or where it is."),
    later("mcp.allow", Texts, Value(r#"["*"]"#), "Tools that may be called."),
    later("mcp.approve", Texts, Value("[]"), "Tools that need approval."),
    later("mcp.timeout", Duration, Value(r#""30s""#), "For one call."),

    now("responses", Table, Unset, "Responses that are kept for clients that keep no history."),
    now("responses.retention", Duration, Value(r#""30d""#), "How long, counted from the last turn of a conversation."),
    now("responses.limit", Size { least: 0 }, Value(r#""1GiB""#), "How much; the oldest go first. `0B` keeps nothing."),

    now("limits", Table, Unset, "Bounds on what a client may ask for."),
    now("limits.body", Size { least: 1024 }, Value(r#""64MiB""#), "A request's body."),
    now("limits.json_depth", Whole { least: 8, most: MAX_TREE_DEPTH as i64 }, Value("128"), "Levels of nesting in a request's JSON."),
    now("limits.streams", Whole { least: 1, most: 1_000_000 }, Value("1000"), "Requests under way at one time; as many WebSockets may be open besides."),
    later("limits.queue", Whole { least: 0, most: 1_000_000 }, Value("100"), "Requests that wait for a place."),
    later("limits.reader_queue", Whole { least: 1, most: 1_000_000 }, Value("1000"), "Events that wait for a slow reader."),
    later("limits.requests_per_minute", Whole { least: 0, most: i64::MAX }, Value("0"), "Per gateway key; 0 is no limit."),

    now("debug_log", Table, Unset, "A log of requests and replies, for finding faults."),
    now("debug_log.enabled", Flag, Value("false"), "Write it."),
    now("debug_log.full_body", Flag, Value("false"), "Whole bodies, contents included. Without it no content is ever logged."),
    now("debug_log.pretty_print", Flag, Value("false"), "JSON over several lines."),

    later("hooks", Table, Unset, "Webhooks."),
    later("hooks.allow_private", Flag, Value("false"), "To loopback and private addresses too."),

    later("telemetry", Table, Unset, "OpenTelemetry."),
    later("telemetry.otlp_endpoint", Text("URL"), Unset, "Where traces go."),
];

/// The row of a key in a section; the top level is the empty section.
pub(super) fn row(section: &str, key: &str) -> Option<&'static Row> {
    rows_of(section).find(|row| row.key() == key)
}

/// The rows directly in a section.
pub(super) fn rows_of(section: &str) -> impl Iterator<Item = &'static Row> {
    ROWS.iter().filter(move |row| row.section() == section)
}

/// How a section is written: `[thinking]`, `[[backend]]`; nothing for the top level.
pub(super) fn header(section: &str) -> Option<String> {
    let row = ROWS.iter().find(|row| row.path == section)?;
    match row.kind {
        Tables => Some(format!("[[{section}]]")),
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

    /// What the key holds, in words.
    pub(super) fn holds(&self) -> String {
        match self.kind {
            Text(what) => what.to_owned(),
            Secret => "text".to_owned(),
            Kind::Words { now, .. } => quoted(now.iter().copied()),
            Kind::WordList(words) => format!("list of {}", quoted(words.iter().copied())),
            Kind::Variant => {
                let of_dialects = upstream::dialects_with_variants().map(|dialect| {
                    format!("for `{dialect}` {}", quoted(upstream::variants(dialect)))
                });
                of_dialects.collect::<Vec<_>>().join("; ")
            }
            Flag => "`true` or `false`".to_owned(),
            Whole { least, most: i64::MAX } => format!("whole number from {least}"),
            Whole { least, most } => format!("whole number {least} to {most}"),
            Duration => "duration".to_owned(),
            Size { least } => format!("size from {}", units::show_size(least)),
            Texts => "list of texts".to_owned(),
            TextMap => "table of texts".to_owned(),
            Table => "table".to_owned(),
            Tables => "list of tables".to_owned(),
        }
    }
}

/// Words as they are written in a file.
fn quoted<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`\"{word}\"`")).collect();
    words.join(", ")
}

/// The keys as Markdown, for `docs/configuration.md`.
#[allow(dead_code, reason = "its reader is the test that keeps the page in step")]
pub fn reference() -> String {
    let mut page = String::new();
    let mut missing = Vec::new();
    let sections = ROWS.iter().filter(|row| matches!(row.kind, Table | Tables));
    for section in std::iter::once("").chain(sections.map(|row| row.path)) {
        let heading = match header(section) {
            Some(header) => format!("`{header}`"),
            None => "Top level".to_owned(),
        };
        let rows = rows_of(section).filter(|row| row.available && !matches!(row.kind, Table));
        let rows: Vec<&Row> = rows.filter(|row| !matches!(row.kind, Tables)).collect();
        if !rows.is_empty() {
            let about = ROWS.iter().find(|row| row.path == section).map_or("", |row| row.about);
            let about = if about.is_empty() { String::new() } else { format!("{about}\n\n") };
            // Writing to a string cannot fail.
            let _ = write!(
                page,
                "### {heading}\n\n{about}| key | type | default | meaning |\n|---|---|---|---|\n"
            );
            for row in rows {
                let initial = match row.initial {
                    Value(toml) => format!("`{toml}`"),
                    Derived(text) => text.to_owned(),
                    Required => "required".to_owned(),
                    Unset => "not set".to_owned(),
                };
                let _ = writeln!(
                    page,
                    "| `{}` | {} | {initial} | {} |",
                    row.key(),
                    row.holds(),
                    row.about
                );
            }
            page.push('\n');
        }
        // A section that is missing as a whole is one entry, not one per key.
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
        "### Not available yet\n\nThese are refused until they work: {}.\n",
        missing.join(", ")
    );
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::document::{Node, Spot};
    use super::*;

    #[test]
    fn paths_are_unique_and_have_their_section() {
        let mut seen = BTreeSet::new();
        for row in ROWS {
            assert!(seen.insert(row.path), "{} twice", row.path);
            let section = row.section();
            if !section.is_empty() {
                let parent = ROWS.iter().find(|parent| parent.path == section).unwrap();
                assert!(matches!(parent.kind, Table | Tables), "{section} holds no keys");
                assert!(parent.available || !row.available, "{} in a later section", row.path);
            }
        }
    }

    #[test]
    fn defaults_are_toml() {
        for row in ROWS {
            if let Value(toml) = row.initial {
                let spot = Spot::Flag("default");
                assert!(Node::of_value(toml, &spot).is_some(), "{}: {toml}", row.path);
            }
        }
    }

    #[test]
    fn documentation_is_in_step() {
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
