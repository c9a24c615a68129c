//! The official Python SDK against the release binary: the environment it runs
//! in and the processes around it. What is asserted is in `conformance/python`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Failure;
use crate::children::Guard;
use crate::command;
use crate::ports;
use crate::workspace;

/// Starts two simulators and a gateway, then lets the SDK talk through them.
pub(crate) fn run() -> Result<(), Failure> {
    let binary = workspace::release_binary()?;
    let python = python_with_sdk()?;
    let folder =
        tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let limit = Duration::from_secs(20);

    let mut children = Vec::new();
    let outcome = (|| {
        let first = simulator(&binary, "a", folder.path(), &mut children)?;
        let second = simulator(&binary, "b", folder.path(), &mut children)?;
        let gateway = ports::free()?;
        let config = folder.path().join("throughline.toml");
        let text = configuration(gateway, &folder.path().join("data"), first, second);
        std::fs::write(&config, text)
            .map_err(|error| format!("cannot write the configuration: {error}"))?;
        children.push(Guard::start(
            "gateway",
            Command::new(&binary)
                .args(["serve", "--config"])
                .arg(&config),
            folder.path(),
        )?);
        ports::wait_until_ready("gateway", gateway, "/readyz", limit)?;
        command::run(
            Command::new(&python)
                .arg(script())
                .env("THROUGHLINE_URL", format!("http://{gateway}"))
                .env("SIM_A", format!("http://{first}"))
                .env("SIM_B", format!("http://{second}"))
                // The SDK must not find a real key or another address by itself.
                .env_remove("ANTHROPIC_API_KEY")
                .env_remove("ANTHROPIC_AUTH_TOKEN")
                .env_remove("ANTHROPIC_BASE_URL"),
        )
    })();
    outcome.map_err(|failure: Failure| {
        let words: Vec<String> = children.iter().map(Guard::last_words).collect();
        format!("{failure}\n{}", words.join("\n"))
    })
}

fn simulator(
    binary: &Path,
    identity: &str,
    folder: &Path,
    children: &mut Vec<Guard>,
) -> Result<SocketAddr, Failure> {
    let address = ports::free()?;
    let name = format!("simulator-{identity}");
    children.push(Guard::start(
        &name,
        Command::new(binary).args([
            "simulate",
            "--identity",
            identity,
            "--listen",
            &address.to_string(),
        ]),
        folder,
    )?);
    ports::wait_until_ready(
        &name,
        address,
        "/simulator/requests",
        Duration::from_secs(20),
    )?;
    Ok(address)
}

fn configuration(
    gateway: SocketAddr,
    data: &Path,
    first: SocketAddr,
    second: SocketAddr,
) -> String {
    let data = data.display();
    format!(
        r#"listen = "{gateway}"
data_dir = "{data}"

[[backend]]
name = "a"
dialect = "anthropic"
base_url = "http://{first}"
api_key = "conformance-a"

[[backend]]
name = "b"
dialect = "anthropic"
base_url = "http://{second}"
api_key = "conformance-b"

[route]
default = "a"
"#
    )
}

fn script() -> PathBuf {
    workspace::root().join("conformance/python/two_turn_tool_loop.py")
}

/// A virtual environment with the pinned SDK, kept until the pins change.
fn python_with_sdk() -> Result<PathBuf, Failure> {
    let wanted = workspace::root().join("conformance/python/requirements.txt");
    let pins = std::fs::read_to_string(&wanted)
        .map_err(|error| format!("cannot read `{}`: {error}", wanted.display()))?;
    let folder = workspace::target_directory()?.join("conformance-venv");
    let python = folder.join("bin/python");
    let installed = folder.join("installed.txt");
    if std::fs::read_to_string(&installed).is_ok_and(|text| text == pins) {
        return Ok(python);
    }
    println!("installing the Python SDK (first time only)");
    command::run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(&folder),
    )?;
    command::run(
        Command::new(&python)
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
            ])
            .arg(&wanted),
    )?;
    // Written last: a broken install is tried again.
    std::fs::write(&installed, pins)
        .map_err(|error| format!("cannot write `{}`: {error}", installed.display()))?;
    Ok(python)
}
