//! Runs SDKs against a small real model through the gateway. The assertions are in
//! `conformance/real-model`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::command;
use crate::conformance;
use crate::gateway;
use crate::packages::{self, Missing};
use crate::ports;
use crate::workspace;

/// Loading the weights takes long on a busy machine.
const LOAD_TIMEOUT: Duration = Duration::from_secs(120);

/// For three clients with three turns each, which take a minute on an idle machine.
const RUN_TIMEOUT: Duration = Duration::from_secs(600);

/// How the server returns reasoning: as tags in the content, or in a field of its own.
const REASONING_FORMATS: &[&str] = &["inline", "field"];

/// Runs three SDKs against the model, once for each format of its reasoning.
pub(crate) fn run() -> Result<(), Failure> {
    let binary = workspace::release_binary()?;
    let source = workspace::root().join("conformance");
    let clients =
        installed(packages::python("conformance-python", &source.join("python/requirements.txt")))?;
    let server =
        installed(packages::python("real-model", &source.join("real-model/requirements.txt")))?;
    let mut failures = Vec::new();
    for format in REASONING_FORMATS {
        if let Err(failure) = run_clients(&binary, &source, &clients, &server, format) {
            failures.push(failure);
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn installed(outcome: Result<PathBuf, Missing>) -> Result<PathBuf, Failure> {
    outcome.map_err(|missing| match missing {
        Missing::Unreachable(reason) => format!(
            "the real model was not tried: its packages cannot be installed ({reason}); \
             try again where the registry of Python packages can be reached"
        ),
        Missing::Failed(failure) => format!(
            "the real model was not tried: its packages cannot be installed, \
             which needs Linux on x86-64 or ARM64 and Python 3.10 or newer\n{failure}"
        ),
    })
}

fn run_clients(
    binary: &Path,
    source: &Path,
    clients: &Path,
    server: &Path,
    format: &str,
) -> Result<(), Failure> {
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let address = ports::free()?;
    println!("loading the model, with reasoning {format}");
    let mut serve = Command::new(server);
    serve.arg(source.join("real-model/server.py"));
    serve.args(["--port", &address.port().to_string(), "--reasoning", format]);
    let model = Guard::start("model", &mut serve, folder.path())?;
    let with_log = |failure: Failure| format!("{}\n{failure}", model.last_lines());
    ports::wait_until_ready("the model", address, "/health", LOAD_TIMEOUT).map_err(with_log)?;
    let (gateway, listening) = gateway::start(
        binary,
        &source.join("real-model/throughline.toml"),
        &[("MODEL", address)],
        folder.path(),
    )
    .map_err(with_log)?;
    println!("three clients send three requests each, which takes about half a minute");
    let path = std::env::join_paths([source.join("python"), source.join("python/sdks")])
        .map_err(|error| format!("cannot set the path of the scripts: {error}"))?;
    let mut script = Command::new(clients);
    script.arg(source.join("real-model/three_turns.py"));
    script.arg(format).env("PYTHONPATH", path);
    script.env("THROUGHLINE_URL", format!("http://{listening}"));
    conformance::isolate(&mut script);
    command::run_within(&mut script, RUN_TIMEOUT)
        .map_err(|failure| with_log(format!("{}\n{failure}", gateway.last_lines())))
}
