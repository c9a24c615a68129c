//! Official client libraries against the release binary: the packages they are,
//! the processes around them, and running each of their scripts. What is
//! asserted is in `conformance/`, what the gateway is told in
//! `conformance/throughline.toml`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::children::Guard;
use crate::command;
use crate::gateway;
use crate::packages::{self, Missing};
use crate::ports;
use crate::workspace;

/// For one script; the slowest takes a few seconds on an idle machine.
const SCRIPT: Duration = Duration::from_secs(90);

/// A language's scripts, with the environment that runs them.
struct Language {
    name: &'static str,
    prepare: fn() -> Result<Scripts, Missing>,
}

/// What is started, once for each file.
struct Scripts {
    interpreter: PathBuf,
    files: Vec<PathBuf>,
    /// Where what they share is found.
    shared: PathBuf,
}

const LANGUAGES: &[Language] =
    &[Language { name: "Python", prepare: python }, Language { name: "Node", prepare: node }];

/// Starts two simulators and a gateway, then lets each library talk through them.
pub(crate) fn run() -> Result<(), Failure> {
    let binary = workspace::release_binary()?;
    let mut ready = Vec::new();
    for language in LANGUAGES {
        match (language.prepare)() {
            Ok(scripts) => ready.push(scripts),
            Err(Missing::Unreachable(reason)) => {
                println!("conformance of {} libraries NOT CHECKED: {reason}", language.name);
            }
            Err(Missing::Failed(failure)) => return Err(failure),
        }
    }
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let mut children = Vec::new();
    let outcome =
        start(&binary, folder.path(), &mut children).and_then(|gateway| run_all(&ready, gateway));
    outcome.map_err(|failure: Failure| {
        let words: Vec<String> = children.iter().map(Guard::last_words).collect();
        format!("{}\n{failure}", words.join("\n"))
    })
}

/// Every script runs, whatever became of those before it.
fn run_all(ready: &[Scripts], gateway: SocketAddr) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut passed = 0;
    let started = Instant::now();
    for scripts in ready {
        for file in &scripts.files {
            let mut script = Command::new(&scripts.interpreter);
            script
                .arg(file)
                .env("PYTHONPATH", &scripts.shared)
                .env("THROUGHLINE_URL", format!("http://{gateway}"));
            isolate(&mut script);
            match command::run_within(&mut script, SCRIPT) {
                Ok(()) => passed += 1,
                Err(failure) => failures.push(failure),
            }
        }
    }
    println!(
        "conformance: {passed} scripts passed, {} failed, in {:.1} s",
        failures.len(),
        started.elapsed().as_secs_f64()
    );
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// A library must find neither a real key nor another address by itself, and
/// must not ask a proxy for what is on this machine.
pub(crate) fn isolate(command: &mut Command) {
    // What Python compiles would otherwise be kept beside the scripts, in the repository.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    for (name, _) in std::env::vars_os() {
        let theirs = name.to_str().is_some_and(|name| {
            let name = name.to_ascii_uppercase();
            name.ends_with("_PROXY")
                || ["ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "OLLAMA_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        });
        if theirs {
            command.env_remove(name);
        }
    }
}

/// Answers the gateway's address.
fn start(binary: &Path, folder: &Path, children: &mut Vec<Guard>) -> Result<SocketAddr, Failure> {
    let first = simulator(binary, "a", folder, children)?;
    let second = simulator(binary, "b", folder, children)?;
    let (guard, address) = gateway::start(
        binary,
        &source().join("throughline.toml"),
        &[("SIMULATOR_A", first), ("SIMULATOR_B", second)],
        folder,
    )?;
    children.push(guard);
    Ok(address)
}

fn simulator(
    binary: &Path,
    identity: &str,
    folder: &Path,
    children: &mut Vec<Guard>,
) -> Result<SocketAddr, Failure> {
    let address = ports::free()?;
    let name = format!("simulator-{identity}");
    let mut simulate = Command::new(binary);
    simulate.args(["simulate", "--identity", identity, "--listen"]);
    simulate.arg(address.to_string());
    children.push(Guard::start(&name, &mut simulate, folder)?);
    ports::wait_until_ready(&name, address, "/simulator/requests", gateway::START)?;
    Ok(address)
}

fn python() -> Result<Scripts, Missing> {
    let folder = source().join("python");
    Ok(Scripts {
        interpreter: packages::python("conformance-python", &folder.join("requirements.txt"))?,
        files: packages::scripts(&folder.join("sdks"), "py")?,
        shared: folder,
    })
}

fn node() -> Result<Scripts, Missing> {
    let folder = packages::node("conformance-node", &source().join("node"))?;
    Ok(Scripts {
        interpreter: PathBuf::from("node"),
        files: packages::scripts(&folder.join("sdks"), "js")?,
        shared: folder,
    })
}

fn source() -> PathBuf {
    workspace::root().join("conformance")
}
