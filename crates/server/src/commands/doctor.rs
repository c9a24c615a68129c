//! `throughline doctor`: checks everything that `serve` needs, and suggests fixes.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request};
use throughline_backends::postgres::PostgresStore;
use throughline_backends::redis::RedisBus;
use throughline_backends::sqlite::{DatabaseFault, SqliteConversations, SqliteStore};
use throughline_codec::dialects;
use throughline_gateway::backend::{Auth, join_url};
use throughline_gateway::upstream::{Client, whole};
use throughline_tools::{ServerView, Servers};

use super::{Failure, load, print};
use crate::config::{Backend, Config, Dialect, Overrides, RedisUrl, StoreUrl};
use crate::data_dir;
use crate::keyring::{self, Found};
use crate::stores;

/// The result of one check.
struct Finding {
    ok: bool,
    message: String,
    advice: Option<String>,
}

fn ok(message: impl Into<String>) -> Finding {
    Finding { ok: true, message: message.into(), advice: None }
}

fn failed(message: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { ok: false, message: message.into(), advice: Some(advice.into()) }
}

/// Runs every check and prints its result; fails if one fails.
pub async fn run(explicit: Option<&Path>) -> Result<(), Failure> {
    let config = load(explicit, Overrides::default())?;
    let mut findings = vec![ok(match config.backends.len() {
        1 => "configuration: one backend".to_owned(),
        count => format!("configuration: {count} backends"),
    })];
    findings.extend(config.notes.iter().map(|note| Finding {
        ok: true,
        message: "note".into(),
        advice: Some(note.clone()),
    }));
    findings.push(check_data_dir(&config));
    findings.push(check_keyring(&config).await);
    findings.extend(check_databases(&config).await);
    findings.extend(check_redis(&config).await);
    findings.push(check_listen(&config).await);
    for backend in &config.backends {
        findings.push(check_backend(backend).await);
    }
    findings.extend(check_tools(&config).await);
    let mut failures = 0;
    for finding in &findings {
        let label = if finding.ok { "ok  " } else { "FAIL" };
        match &finding.advice {
            Some(advice) => print(&format!("{label}  {}: {advice}", finding.message)),
            None => print(&format!("{label}  {}", finding.message)),
        }
        failures += u32::from(!finding.ok);
    }
    match failures {
        0 => Ok(()),
        1 => Err(Failure::Failed("one check failed".into())),
        count => Err(Failure::Failed(format!("{count} checks failed"))),
    }
}

/// Starts or connects to each MCP server, and asks for its tools.
async fn check_tools(config: &Config) -> Vec<Finding> {
    let servers = Servers::new(config.mcp.clone());
    let finding = |view: ServerView| match view.error {
        Some(error) => failed(
            format!("MCP server `{}`", view.name),
            format!("{error}; check its `command` or `url`"),
        ),
        None => ok(format!(
            "MCP server `{}` speaks version {} and has {} tools",
            view.name,
            view.protocol.unwrap_or_default(),
            view.tools.len()
        )),
    };
    let findings = servers.views().await.into_iter().map(finding).collect();
    servers.close().await;
    findings
}

fn check_data_dir(config: &Config) -> Finding {
    let shown = config.data_dir.display();
    let probe = config.data_dir.join(".doctor");
    match data_dir::create(&config.data_dir).and_then(|()| std::fs::write(&probe, b"")) {
        Ok(()) => {
            let _ = std::fs::remove_file(&probe);
            let advice = data_dir::is_open_to_others(&config.data_dir).then(|| {
                format!("other users can read it; run `chmod 700 {shown}` if they should not")
            });
            let message = format!("data directory `{shown}` is writable");
            Finding { ok: true, message, advice }
        }
        Err(error) => failed(
            format!("data directory `{shown}` is not writable ({error})"),
            "choose another one with `data_dir` or --data-dir",
        ),
    }
}

async fn check_keyring(config: &Config) -> Finding {
    let variable = std::env::var_os(keyring::VARIABLE);
    let found = keyring::find(&config.data_dir, variable.as_deref());
    // A damaged database has a finding of its own.
    let (location, last) = stores::read_last_key(config).await.unwrap_or_default();
    if let Ok(found) = &found
        && let Err(lost) = found.check_lost(&config.data_dir, &location, last)
    {
        return Finding { ok: false, message: lost.to_string(), advice: None };
    }
    match found {
        Ok(Found::InEnvironment(_)) => {
            ok(format!("keyring: from the variable `{}`", keyring::VARIABLE))
        }
        Ok(Found::InFile { path, is_open_to_others: true, .. }) => failed(
            format!("other users can read the keyring `{}`", path.display()),
            format!("run `chmod 600 {}`", path.display()),
        ),
        Ok(Found::InFile { path, .. }) => {
            ok(format!("keyring `{}` is readable only for you", path.display()))
        }
        Ok(Found::Missing) => ok("keyring: none yet, the first start creates it"),
        Err(error) => Finding { ok: false, message: error.to_string(), advice: None },
    }
}

/// Checks the databases that exist. The first start creates them.
async fn check_databases(config: &Config) -> Vec<Finding> {
    let conversations = match &config.store.url {
        StoreUrl::Sqlite(path) => path.clone(),
        StoreUrl::Postgres(url) => return vec![postgres_finding(url).await],
    };
    let memory = config.data_dir.join(stores::MEMORY_FILE);
    let mut findings = Vec::new();
    if memory.exists() {
        findings.push(database_finding(&memory, SqliteStore::check(&memory).await));
    }
    if conversations.exists() {
        let checked = SqliteConversations::check(&conversations).await;
        findings.push(database_finding(&conversations, checked));
    }
    findings
}

async fn postgres_finding(url: &str) -> Finding {
    match PostgresStore::check(url).await {
        Ok(name) => ok(format!("{name} answers")),
        Err(error) => failed(
            format!("{error}: {}", error.cause),
            "check `store.url`, and that the database is running and accepts this user",
        ),
    }
}

async fn check_redis(config: &Config) -> Option<Finding> {
    let RedisUrl(url) = &config.redis;
    if url.is_empty() {
        return None;
    }
    Some(match RedisBus::check(url).await {
        Ok(address) => ok(format!("the Redis server at {address} answers")),
        Err(error) => failed(
            error.to_string(),
            "check `redis.url`, and that the server is running and accepts this user",
        ),
    })
}

fn database_finding(path: &Path, checked: Result<(), DatabaseFault>) -> Finding {
    let shown = path.display();
    let Err(fault) = checked else {
        return ok(format!("database `{shown}` is intact"));
    };
    let advice = match fault {
        DatabaseFault::Corrupt(_) => {
            "stop the gateway, then restore the file from a backup; or move it and its `-wal` and \
             `-shm` files away, and the next start begins with an empty one"
        }
        DatabaseFault::Newer { .. } => {
            "run the version that wrote it, or restore a backup from before the upgrade"
        }
        DatabaseFault::Unreadable(_) => "check its permissions and the disk",
    };
    failed(format!("database `{shown}`: {fault}"), advice)
}

async fn check_listen(config: &Config) -> Finding {
    match tokio::net::TcpListener::bind(&config.listen).await {
        Ok(_) => ok(format!("address `{}` is free", config.listen)),
        Err(_) => {
            let health = format!("http://{}/healthz", config.listen);
            match send(Method::GET, &health, &[]).await {
                Ok(200) => ok(format!("a gateway is running at `{}`", config.listen)),
                _ => failed(
                    format!("address `{}` cannot be used", config.listen),
                    "another program uses it; choose another one with `listen` or --listen",
                ),
            }
        }
    }
}

async fn check_backend(backend: &Backend) -> Finding {
    let name = &backend.name;
    let Some(base) = &backend.base_url else {
        debug_assert_eq!(backend.dialect, Dialect::SIMULATOR);
        let speaks = match backend.wire_dialect {
            Dialect::DEFAULT => String::new(),
            dialect => format!(", which speaks `{dialect}`"),
        };
        return ok(format!("backend `{name}`: built-in simulator{speaks}"));
    };
    let required = backend.profile().headers.iter();
    let mut headers: Vec<_> = required.map(|(name, value)| (*name, (*value).to_owned())).collect();
    match &backend.auth {
        Auth::Key(key) => headers.push(backend.profile().key_header(key)),
        Auth::None | Auth::Passthrough => {}
        Auth::Missing(variable) => {
            return ok(format!("backend `{name}` is off; to use it, set {variable}"));
        }
    }
    let list = join_url(base, backend.models_path());
    match send(Method::GET, &list, &headers).await {
        Ok(404 | 405) => check_turn_path(backend, base, &list, &headers).await,
        answer => match status_of(backend, base, &answer) {
            Err(finding) => finding,
            Ok(status) => ok(format!("backend `{name}` at {base} answers (status {status})")),
        },
    }
}

/// Finds out whether a server without a list of models takes requests at all: an empty request is
/// refused as invalid.
async fn check_turn_path(
    backend: &Backend,
    base: &str,
    list: &str,
    headers: &[(&str, String)],
) -> Finding {
    let name = &backend.name;
    let dialect = backend.wire_dialect.upstream();
    let model = backend.default_model.as_deref().unwrap_or("model");
    let path = dialects::client(dialect.name()).map(|client| client.path_for(model));
    let path = path.unwrap_or_default();
    let path = dialect.passthrough().path(&path, model, true, backend.profile());
    let address = join_url(base, &path);
    match status_of(backend, base, &send(Method::POST, &address, headers).await) {
        Err(finding) => finding,
        Ok(404 | 405) => failed(
            format!("backend `{name}` answers 404 at {list} and at {address}"),
            "check `base_url`: the gateway adds the path of the dialect to it",
        ),
        Ok(200 | 400 | 422 | 429) => {
            ok(format!("backend `{name}` at {base} answers, but does not list its models"))
        }
        Ok(status) => failed(
            format!("backend `{name}` answers with status {status} at {address}"),
            "check `base_url`, and the account at the provider",
        ),
    }
}

/// The status of an answer, or the finding if the answer says enough about the backend.
fn status_of(backend: &Backend, base: &str, answer: &Result<u16, String>) -> Result<u16, Finding> {
    let name = &backend.name;
    Err(match (answer, &backend.auth) {
        (Ok(401 | 403), Auth::Key(_)) => failed(
            format!("backend `{name}` at {base} rejects the key"),
            "check the key, or the variable in `api_key_env`",
        ),
        (Ok(401 | 403), Auth::Passthrough) => {
            ok(format!("backend `{name}` at {base} answers; callers send their own key"))
        }
        (Ok(401 | 403), _) => failed(
            format!("backend `{name}` at {base} wants a key and has none"),
            "set `api_key_env`, or `auth = \"passthrough\"` if callers send their own key",
        ),
        (Ok(status), _) if *status >= 500 => failed(
            format!("backend `{name}` at {base} answers with status {status}"),
            "it is reachable but fails at the moment; try again later",
        ),
        (Ok(status), _) => return Ok(*status),
        (Err(error), _) => failed(
            format!("backend `{name}` at {base} cannot be reached ({error})"),
            "check `base_url` and the network, and that it is running",
        ),
    })
}

/// Sends an empty request and returns the status.
async fn send(method: Method, url: &str, headers: &[(&str, String)]) -> Result<u16, String> {
    let body = if method == Method::POST { "{}" } else { "" };
    let mut request = Request::builder().method(method).uri(url);
    if !body.is_empty() {
        request = request.header("content-type", "application/json");
    }
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request
        .body(whole(Bytes::from_static(body.as_bytes())))
        .map_err(|error| error.to_string())?;
    Client::new(Duration::from_secs(3))
        .send("", request, Duration::from_secs(10))
        .await
        .map(|response| response.status().as_u16())
        .map_err(|error| match error {
            throughline_gateway::upstream::SendError::Unreachable { .. } => {
                error.fault().message.trim_start_matches("cannot reach backend ``: ").to_owned()
            }
            other => other.to_string(),
        })
}
