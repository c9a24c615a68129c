//! `throughline doctor`: checks everything that `serve` needs, and suggests fixes.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use throughline_gateway::backend::{Auth, join_url};
use throughline_gateway::upstream::{Client, whole};

use super::{Failure, load, print};
use crate::config::{Backend, Config, Dialect, Overrides};
use crate::keyring::{self, Found};

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
    findings.push(check_keyring(&config));
    findings.push(check_listen(&config).await);
    for backend in &config.backends {
        findings.push(check_backend(backend).await);
    }
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

fn check_data_dir(config: &Config) -> Finding {
    let shown = config.data_dir.display();
    let probe = config.data_dir.join(".doctor");
    match std::fs::create_dir_all(&config.data_dir).and_then(|()| std::fs::write(&probe, b"")) {
        Ok(()) => {
            let _ = std::fs::remove_file(&probe);
            ok(format!("data directory `{shown}` is writable"))
        }
        Err(error) => failed(
            format!("data directory `{shown}` is not writable ({error})"),
            "choose another one with `data_dir` or --data-dir",
        ),
    }
}

fn check_keyring(config: &Config) -> Finding {
    let variable = std::env::var_os(keyring::VARIABLE);
    match keyring::find(&config.data_dir, variable.as_deref()) {
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

async fn check_listen(config: &Config) -> Finding {
    match tokio::net::TcpListener::bind(&config.listen).await {
        Ok(_) => ok(format!("address `{}` is free", config.listen)),
        Err(_) => {
            let health = format!("http://{}/healthz", config.listen);
            match get(&health, &[]).await {
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
    let mut headers = backend.wire_dialect.upstream().list_headers();
    let has_key = match &backend.auth {
        Auth::Key(key) => {
            headers.push(backend.profile().key_header(key));
            true
        }
        Auth::None | Auth::Passthrough => false,
        Auth::Missing(variable) => {
            return ok(format!("backend `{name}` is off; to use it, set {variable}"));
        }
    };
    match get(&join_url(base, backend.models_path()), &headers).await {
        Ok(401 | 403) if has_key => failed(
            format!("backend `{name}` at {base} rejects the key"),
            "check the key, or the variable in `api_key_env`",
        ),
        Ok(401 | 403) => {
            ok(format!("backend `{name}` at {base} answers; callers send their own key"))
        }
        Ok(status) if status >= 500 => failed(
            format!("backend `{name}` at {base} answers with status {status}"),
            "it is reachable but fails at the moment; try again later",
        ),
        Ok(status) => ok(format!("backend `{name}` at {base} answers (status {status})")),
        Err(error) => failed(
            format!("backend `{name}` at {base} cannot be reached ({error})"),
            "check `base_url` and the network, and that it is running",
        ),
    }
}

/// Sends a GET request and returns the status.
async fn get(url: &str, headers: &[(&str, String)]) -> Result<u16, String> {
    let mut request = Request::get(url);
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(whole(Bytes::new())).map_err(|error| error.to_string())?;
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
