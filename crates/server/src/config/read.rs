//! From text, environment and flags to a checked [`Config`], or to everything that is wrong.
//! Backends and routes have files of their own.

use std::path::{Path, PathBuf};

use super::diagnostic::{Mistakes, Report, Trouble};
use super::document::{Node, Spot};
use super::paths::{self, Environment, Source};
use super::settings::{Config, DebugLog, Limits, Log, Responses, Thinking};
use super::values::{Located, Section, Size};
use super::{address, backends, env, keys, models, routes, zero};

/// What the command line says; it wins over environment and file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `--listen`.
    pub listen: Option<String>,
    /// `--data-dir`.
    pub data_dir: Option<PathBuf>,
}

/// Reads a configuration; without a source it is zero configuration.
pub fn read(
    source: Option<&Source>,
    env: impl IntoIterator<Item = (String, String)>,
    overrides: Overrides,
) -> Result<Config, Mistakes> {
    let env: Environment = env.into_iter().collect();
    let mut report = Report::new(source);
    let parsed = match source {
        Some(source) => Node::of_source(source, &mut report),
        None => Some(Node::empty(Spot::File(0..0))),
    };
    // Without a tree every further message would be about things that may well be in the file.
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
        root.set(&["listen"], Node::text(listen, Spot::Flag("--listen")));
    }
    let mut notes = zero::add_backends(&mut root, env);
    env::apply_to_backends(&mut root, env, report);
    keys::check(&root, report);

    let top = Section::root(&root);
    let log = top.table("log");
    let thinking = top.table("thinking");
    let limits = top.table("limits");
    let responses = top.table("responses");
    let debug_log = top.table("debug_log");
    let backends = backends::read(top, env, report);
    let route = routes::read(top, report);
    notes.extend(backends::notes(&backends));
    notes.extend(routes::notes(&route, &backends));
    Config {
        listen: listen(top, report),
        data_dir: data_dir(top, overrides.data_dir.as_deref(), env, report),
        log: Log { level: log.value("level", report), format: log.value("format", report) },
        keep_alive: top.value("keep_alive", report),
        allowed_hosts: each(top, "allowed_hosts", address::allowed_host, report),
        cors_origins: each(top, "cors_origins", address::page_origin, report),
        backends,
        route,
        models: models::read(top, source, env, report),
        thinking: Thinking {
            policy: thinking.value("policy", report),
            unknown: thinking.value("unknown", report),
            orphan_threshold: thinking.value("orphan_threshold", report),
            memory_limit: thinking.value::<Size>("memory_limit", report).0,
            tool_thinking: thinking.value("tool_thinking", report),
            reasoning_fields: thinking.value("reasoning_fields", report),
        },
        responses: Responses {
            retention: responses.value("retention", report),
            limit: responses.value::<Size>("limit", report).0,
        },
        limits: Limits {
            body: limits.value::<Size>("body", report).0,
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

impl Config {
    /// The configuration without a file: backends from keys in the environment, and the simulator.
    pub fn zero(env: impl IntoIterator<Item = (String, String)>) -> Result<Self, Mistakes> {
        read(None, env, Overrides::default())
    }
}

fn listen(top: Section<'_>, report: &mut Report<'_>) -> String {
    let listen: String = top.value("listen", report);
    if let (Some(node), Err(trouble)) = (top.node("listen"), address::listen(&listen)) {
        report.add(&node.spot, trouble);
    }
    listen
}

fn data_dir(
    top: Section<'_>,
    flag: Option<&Path>,
    env: &Environment,
    report: &mut Report<'_>,
) -> PathBuf {
    let written: Option<Located> = top.optional("data_dir", report);
    let (expanded, spot) = match (flag, written) {
        (Some(path), _) => (paths::expand("data_dir", path, env), Spot::Flag("--data-dir")),
        (None, Some(written)) => {
            (paths::expand("data_dir", Path::new(&written.text), env), written.spot)
        }
        // A mistake of its own, reported already.
        (None, None) if top.node("data_dir").is_some() => return PathBuf::new(),
        (None, None) => {
            let found = paths::default_data_dir(env).ok_or_else(|| {
                Trouble::new("not set, so there is no place for `data_dir`").hint("set `data_dir`")
            });
            (found, Spot::Variable("HOME".to_owned()))
        }
    };
    expanded.unwrap_or_else(|trouble| {
        report.add(&spot, trouble);
        PathBuf::new()
    })
}

/// A list of texts, each of which has to pass a check.
fn each(
    top: Section<'_>,
    key: &'static str,
    check: fn(&str) -> Result<String, Trouble>,
    report: &mut Report<'_>,
) -> Vec<String> {
    let written: Vec<Located> = top.value(key, report);
    let mut accepted = Vec::new();
    for one in written {
        match check(&one.text) {
            Ok(text) => accepted.push(text),
            Err(trouble) => report.add(&one.spot, trouble),
        }
    }
    accepted
}
