//! Reads text, environment and flags into a checked [`Config`], or into all mistakes. Backends and
//! routes have files of their own.

use std::path::{Path, PathBuf};

use throughline_codec::pacing::Pacing;
use throughline_conversations::front_doors::RunSettings;
use throughline_conversations::rooms::{HookSettings, RoomSettings};
use throughline_conversations::sealed_store::Retention;
use throughline_conversations::users::UserSettings;
use throughline_gateway::settings::{Limits, Thinking};

use super::diagnostic::{Diagnostics, Problem, Report};
use super::document::{Node, Position};
use super::paths::{self, Environment, Source};
use super::settings::{Config, DebugLog, Log, Store, StoreUrl};
use super::values::{LocatedText, MaybeDuration, PaceValue, Section, Size};
use super::{address, backends, defaults_from_env, env, keys, mcp, models, routes};

/// Values from the command line; they override environment and file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`.
    pub listen: Option<String>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
}

/// Reads a configuration. Without a source, everything comes from defaults and environment.
pub fn read(
    source: Option<&Source>,
    env: impl IntoIterator<Item = (String, String)>,
    overrides: Overrides,
) -> Result<Config, Diagnostics> {
    let env: Environment = env.into_iter().collect();
    let mut report = Report::new(source);
    let parsed = match source {
        Some(source) => Node::of_source(source, &mut report),
        None => Some(Node::empty(Position::File(0..0))),
    };
    // Without a tree, further messages would report settings as missing that are in the file.
    let config = parsed.map(|root| read_tree(root, source, &env, overrides, &mut report));
    report.finish(config)
}

fn read_tree(
    mut root: Node,
    source: Option<&Source>,
    env: &Environment,
    overrides: Overrides,
    report: &mut Report<'_>,
) -> Config {
    env::apply(&mut root, env, report);
    if let Some(listen) = overrides.listen {
        root.set(&["listen"], Node::text(listen, Position::Flag("--listen")));
    }
    let mut notes = defaults_from_env::add_backends(&mut root, env);
    env::apply_to_backends(&mut root, env, report);
    keys::check(&root, report);

    let top = Section::root(&root);
    let log = top.table("log");
    let thinking = top.table("thinking");
    let limits = top.table("limits");
    let store = top.table("store");
    let responses = top.table("responses");
    let threads = top.table("threads");
    let users = top.table("users");
    let debug_log = top.table("debug_log");
    let backends = backends::read(top, env, report);
    let route = routes::read(top, &backends, report);
    backends::check_default(&route.default, &backends, top, env, report);
    notes.extend(backends::notes(&backends, env));
    notes.extend(routes::notes(&route, &backends));
    let (mcp, mcp_notes) = mcp::read(top, env, report);
    notes.extend(mcp_notes);
    let data_dir = data_dir(top, overrides.data_dir.as_deref(), env, report);
    Config {
        listen: listen(top, report),
        store: Store { url: store_url(store, &data_dir, report), raw: store.value("raw", report) },
        data_dir,
        redis: top.table("redis").value("url", report),
        log: Log { level: log.choice("level", report), format: log.choice("format", report) },
        keep_alive: top.value("keep_alive", report),
        shutdown_grace: top.value("shutdown_grace", report),
        allowed_hosts: read_checked_list(top, "allowed_hosts", address::allowed_host, report),
        cors_origins: read_checked_list(top, "cors_origins", address::page_origin, report),
        backends,
        route,
        models: models::read(top, source, env, report),
        thinking: Thinking {
            policy: thinking.choice("policy", report),
            unknown: thinking.choice("unknown", report),
            orphan_threshold: thinking.value("orphan_threshold", report),
            memory_limit: thinking.value::<Size>("memory_limit", report).in_memory(),
            tool_thinking: thinking.choice("tool_thinking", report),
        },
        reasoning_fields: thinking.value("reasoning_fields", report),
        responses: Retention {
            time: responses.value("retention", report),
            limit: responses.value::<Size>("limit", report).0,
        },
        threads: threads.value("retention", report),
        users: UserSettings {
            session: users.value("session", report),
            registration: users.choice("registration", report),
        },
        projects: routes::read_projects(top, report),
        mcp,
        tools: mcp::read_limits(top, report),
        rooms: read_rooms(top, report),
        runs: read_runs(top, report),
        limits: Limits {
            body: limits.value::<Size>("body", report).in_memory(),
            json_depth: limits.value("json_depth", report),
            streams: limits.value("streams", report),
        },
        debug_log: DebugLog {
            enabled: debug_log.value("enabled", report),
            full_body: debug_log.value("full_body", report),
            pretty_print: debug_log.value("pretty_print", report),
        },
        notes,
    }
}

/// How runs are logged, paced and read.
fn read_runs(top: Section<'_>, report: &mut Report<'_>) -> RunSettings {
    let (runs, pacing) = (top.table("runs"), top.table("pacing"));
    RunSettings {
        log: runs.value("log", report),
        retention: runs.value("retention", report),
        detached: runs.value::<MaybeDuration>("detached", report).0,
        pacing: Pacing {
            text: pacing.value::<PaceValue>("text", report).0,
            thinking: pacing.value::<PaceValue>("thinking", report).0,
            tool_args: pacing.value::<PaceValue>("tool_args", report).0,
        },
        reader_queue: top.table("limits").value("reader_queue", report),
    }
}

impl Config {
    /// The configuration without a file: backends from API keys in the environment, and the simulator.
    pub fn from_env(env: impl IntoIterator<Item = (String, String)>) -> Result<Self, Diagnostics> {
        read(None, env, Overrides::default())
    }
}

fn listen(top: Section<'_>, report: &mut Report<'_>) -> String {
    let listen: String = top.value("listen", report);
    if let (Some(node), Err(problem)) = (top.node("listen"), address::listen(&listen)) {
        report.add(&node.position, problem);
    }
    listen
}

fn data_dir(
    top: Section<'_>,
    flag: Option<&Path>,
    env: &Environment,
    report: &mut Report<'_>,
) -> PathBuf {
    let written: Option<LocatedText> = top.optional("data_dir", report);
    let (expanded, position) = match (flag, written) {
        (Some(path), _) => (paths::expand("data_dir", path, env), Position::Flag("--data-dir")),
        (None, Some(written)) => {
            (paths::expand("data_dir", Path::new(&written.text), env), written.position)
        }
        // Reported already as a mistake of its own.
        (None, None) if top.node("data_dir").is_some() => return PathBuf::new(),
        (None, None) => {
            let found = paths::default_data_dir(env).ok_or_else(|| {
                Problem::new("not set, so `data_dir` has no default").hint("set `data_dir`")
            });
            (found, Position::Variable("HOME".to_owned()))
        }
    };
    expanded.unwrap_or_else(|problem| {
        report.add(&position, problem);
        PathBuf::new()
    })
}

fn read_rooms(top: Section<'_>, report: &mut Report<'_>) -> RoomSettings {
    let hooks = top.table("hooks");
    RoomSettings {
        max_chain: top.table("rooms").value("max_chain", report),
        hooks: HookSettings {
            allow_private: hooks.value("allow_private", report),
            attempts: hooks.value("attempts", report),
            first_pause: hooks.value("first_pause", report),
        },
    }
}

/// Reads the address of the database. A SQLite file is relative to the data directory.
fn store_url(store: Section<'_>, data_dir: &Path, report: &mut Report<'_>) -> StoreUrl {
    let written: String = store.value("url", report);
    if written.starts_with("postgres://") || written.starts_with("postgresql://") {
        return StoreUrl::Postgres(written);
    }
    let file = written.strip_prefix("sqlite:").unwrap_or_default();
    let file = file.strip_prefix("//").unwrap_or(file);
    if let Some(node) = store.node("url").filter(|_| file.is_empty() || file.contains('?')) {
        // The value is not shown, because it may contain a password.
        let problem = Problem::new("`url` names no database")
            .expected(r#""sqlite:throughline.db" or "postgres://user:password@host/database""#);
        report.add(&node.position, problem);
    }
    StoreUrl::Sqlite(data_dir.join(file))
}

/// Reads a list of strings and checks each of them.
fn read_checked_list(
    top: Section<'_>,
    key: &'static str,
    check: fn(&str) -> Result<String, Problem>,
    report: &mut Report<'_>,
) -> Vec<String> {
    let written: Vec<LocatedText> = top.value(key, report);
    let mut accepted = Vec::new();
    for one in written {
        match check(&one.text) {
            Ok(text) => accepted.push(text),
            Err(problem) => report.add(&one.position, problem),
        }
    }
    accepted
}
