//! Runs the scripts of official client libraries against the gateway: installs the libraries, starts
//! simulators and the gateway, runs each script. The assertions are in `conformance/`, the gateway's
//! configuration is `conformance/throughline.toml`.

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

/// Limit for one script. The slowest starts an agent five times, which takes half a minute on an idle
/// machine.
const SCRIPT_TIMEOUT: Duration = Duration::from_secs(180);

/// A language and how to prepare its scripts.
struct Language {
    name: &'static str,
    prepare: fn() -> Result<Scripts, Missing>,
}

/// Scripts that are ready to run, each as its own process.
struct Scripts {
    interpreter: PathBuf,
    files: Vec<PathBuf>,
    /// The folder of the code that scripts share.
    shared: PathBuf,
}

/// The programs that scripts start by themselves.
struct Programs {
    gateway: PathBuf,
    /// Checks what scripts have sealed.
    sealing: PathBuf,
}

const LANGUAGES: &[Language] = &[
    Language { name: "Python", prepare: python },
    Language { name: "OpenAPI", prepare: openapi },
    Language { name: "MCP", prepare: mcp },
    Language { name: "Node", prepare: node },
];

/// Starts two simulators and a gateway, then runs each library's script against the gateway.
pub(crate) fn run() -> Result<(), Failure> {
    let programs =
        Programs { gateway: workspace::test_binary()?, sealing: workspace::sealing_checker()? };
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
    with_gateway(&programs.gateway, |gateway| run_all(&ready, &programs, gateway))
}

/// Starts two simulators and a gateway, waits until they are ready, and ends them.
pub(crate) fn start_and_stop(binary: &Path) -> Result<(), Failure> {
    with_gateway(binary, |_| Ok(()))
}

/// Calls `work` with the address of a gateway that runs in front of two simulators.
fn with_gateway(
    binary: &Path,
    work: impl FnOnce(SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let mut children = Vec::new();
    let outcome = start(binary, folder.path(), &mut children).and_then(work);
    outcome.map_err(|failure: Failure| {
        let logs: Vec<String> = children.iter().map(Guard::last_lines).collect();
        format!("{}\n{failure}", logs.join("\n"))
    })
}

/// Runs every script, also after one has failed.
fn run_all(ready: &[Scripts], programs: &Programs, gateway: SocketAddr) -> Result<(), Failure> {
    let mut failures = Vec::new();
    let mut passed = 0;
    let started = Instant::now();
    for scripts in ready {
        for file in &scripts.files {
            let mut script = Command::new(&scripts.interpreter);
            script
                .arg(file)
                .env("PYTHONPATH", &scripts.shared)
                .env("THROUGHLINE_URL", format!("http://{gateway}"))
                .env("CONFORMANCE_BINARY", &programs.gateway)
                .env("CONFORMANCE_SEALING", &programs.sealing);
            isolate(&mut script);
            match command::run_within(&mut script, SCRIPT_TIMEOUT) {
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

/// Removes real keys, other addresses and proxies from the environment: libraries read them by
/// themselves.
pub(crate) fn isolate(command: &mut Command) {
    // Python would otherwise write compiled files into the repository.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    for (name, _) in std::env::vars_os() {
        let is_read_by_a_library = name.to_str().is_some_and(|name| {
            let name = name.to_ascii_uppercase();
            name.ends_with("_PROXY")
                || ["ANTHROPIC_", "OPENAI_", "GOOGLE_", "GEMINI_", "OLLAMA_"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        });
        if is_read_by_a_library {
            command.env_remove(name);
        }
    }
}

/// Returns the gateway's address.
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
    ports::wait_until_ready(&name, address, "/simulator/requests", gateway::START_TIMEOUT)?;
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

/// The script that compares the conversation API with its OpenAPI document.
fn openapi() -> Result<Scripts, Missing> {
    separate_python("openapi")
}

fn mcp() -> Result<Scripts, Missing> {
    separate_python("mcp")
}

/// Scripts in Python with an environment of their own.
fn separate_python(name: &str) -> Result<Scripts, Missing> {
    let folder = source().join("python");
    let requirements = folder.join(format!("requirements-{name}.txt"));
    Ok(Scripts {
        interpreter: packages::python(&format!("conformance-{name}"), &requirements)?,
        files: packages::scripts(&folder.join(name), "py")?,
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
