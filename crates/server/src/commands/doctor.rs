//! `throughline doctor`: checks what a start would need, and says what to do.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use throughline_gateway::backend::behind;
use throughline_gateway::upstream::{Client, whole};

use super::{Failure, load, print};
use crate::config::{Auth, Backend, Config, Dialect, Overrides};
use crate::keyring::{self, Found};

struct Finding {
    good: bool,
    what: String,
    advice: Option<String>,
}

fn good(what: impl Into<String>) -> Finding {
    Finding { good: true, what: what.into(), advice: None }
}

fn bad(what: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { good: false, what: what.into(), advice: Some(advice.into()) }
}

/// Checks everything and reports; fails if anything is wrong.
pub async fn run(explicit: Option<&Path>) -> Result<(), Failure> {
    let config = load(explicit, Overrides::default())?;
    let mut findings = vec![good(match config.backends.len() {
        1 => "configuration: one backend".to_owned(),
        count => format!("configuration: {count} backends"),
    })];
    findings.extend(config.notes.iter().map(|note| Finding {
        good: true,
        what: "note".into(),
        advice: Some(note.clone()),
    }));
    findings.push(data_dir(&config));
    findings.push(keys(&config));
    findings.push(listen(&config).await);
    for backend in &config.backends {
        findings.push(reach(backend).await);
    }
    let mut failures = 0;
    for finding in &findings {
        let mark = if finding.good { "ok  " } else { "FAIL" };
        match &finding.advice {
            Some(advice) => print(&format!("{mark}  {}: {advice}", finding.what)),
            None => print(&format!("{mark}  {}", finding.what)),
        }
        failures += u32::from(!finding.good);
    }
    match failures {
        0 => Ok(()),
        1 => Err(Failure::Failed("one thing needs attention".into())),
        count => Err(Failure::Failed(format!("{count} things need attention"))),
    }
}

fn data_dir(config: &Config) -> Finding {
    let shown = config.data_dir.display();
    let probe = config.data_dir.join(".doctor");
    match std::fs::create_dir_all(&config.data_dir).and_then(|()| std::fs::write(&probe, b"")) {
        Ok(()) => {
            let _ = std::fs::remove_file(&probe);
            good(format!("data directory `{shown}` can be written"))
        }
        Err(error) => bad(
            format!("data directory `{shown}` cannot be written ({error})"),
            "give another one with `data_dir` or --data-dir",
        ),
    }
}

fn keys(config: &Config) -> Finding {
    let variable = std::env::var_os(keyring::VARIABLE);
    match keyring::look(&config.data_dir, variable.as_deref()) {
        Ok(Found::InEnvironment(_)) => {
            good(format!("keyring: from the variable {}", keyring::VARIABLE))
        }
        Ok(Found::InFile { path, open_to_others: true, .. }) => bad(
            format!("keyring `{}` is open to other users", path.display()),
            format!("close it with `chmod 600 {}`", path.display()),
        ),
        Ok(Found::InFile { path, .. }) => {
            good(format!("keyring `{}` is yours alone", path.display()))
        }
        Ok(Found::Nowhere) => good("keyring: none yet, the first start makes it"),
        Err(trouble) => Finding { good: false, what: trouble.to_string(), advice: None },
    }
}

async fn listen(config: &Config) -> Finding {
    match tokio::net::TcpListener::bind(&config.listen).await {
        Ok(_) => good(format!("address `{}` is free", config.listen)),
        Err(_) => {
            let health = format!("http://{}/healthz", config.listen);
            match get(&health, &[]).await {
                Ok(200) => good(format!("a gateway is running at `{}`", config.listen)),
                _ => bad(
                    format!("address `{}` cannot be used", config.listen),
                    "another program has it; choose one with `listen` or --listen",
                ),
            }
        }
    }
}

async fn reach(backend: &Backend) -> Finding {
    let name = &backend.name;
    let Some(base) = &backend.base_url else {
        debug_assert_eq!(backend.dialect, Dialect::Simulator);
        let speaks = match backend.spoken {
            Dialect::Anthropic => String::new(),
            dialect => format!(", spoken to in `{dialect}`"),
        };
        return good(format!("backend `{name}`: built-in simulator{speaks}"));
    };
    let dialect = backend.spoken.upstream();
    let mut headers = Vec::new();
    if backend.spoken == Dialect::Anthropic {
        headers.push(("anthropic-version", "2023-06-01".to_owned()));
    }
    let has_key = match &backend.auth {
        Auth::Key(secret) => {
            headers.push(dialect.key_header(secret.expose(), &backend.variant));
            true
        }
        Auth::None | Auth::Passthrough => false,
    };
    match get(&behind(base, &backend.models_path()), &headers).await {
        Ok(401 | 403) if has_key => bad(
            format!("backend `{name}` at {base} refuses the key"),
            "check the key, or the variable that `api_key_env` names",
        ),
        Ok(401 | 403) => {
            good(format!("backend `{name}` at {base} answers; the key comes from the caller"))
        }
        Ok(status) if status >= 500 => bad(
            format!("backend `{name}` at {base} answers with {status}"),
            "it can be reached but does not work now; try again later",
        ),
        Ok(status) => good(format!("backend `{name}` at {base} answers ({status})")),
        Err(error) => bad(
            format!("backend `{name}` at {base} cannot be reached ({error})"),
            "check `base_url`, the network and whether it is running",
        ),
    }
}

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
