//! Finds the repository, cargo's target folder and our binaries, and reads `cargo metadata`.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::Failure;
use crate::command;

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs us. A binary started by hand uses the compiled-in value.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// `cargo` with the repository as its working directory.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    // Cargo describes this package to us in variables. If the next cargo inherited them, build
    // scripts that watch them would run again, and all crates that depend on theirs would rebuild.
    for (name, _) in std::env::vars_os() {
        let describes_us = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if describes_us {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root());
    cargo
}

/// `cargo metadata` of the workspace and all its dependencies.
pub(crate) fn metadata() -> Result<Value, Failure> {
    let mut cargo = cargo();
    // A stale lock file must fail, not be repaired in silence.
    cargo.args(["metadata", "--format-version", "1", "--locked"]);
    let text = command::output(&mut cargo)?;
    serde_json::from_str(&text).map_err(|error| format!("cannot read cargo metadata: {error}"))
}

/// Cargo's target folder, which the environment may have moved.
pub(crate) fn target_directory() -> Result<PathBuf, Failure> {
    let mut cargo = cargo();
    cargo.args(["metadata", "--format-version", "1", "--no-deps"]);
    let text = command::output(&mut cargo)?;
    let metadata: Value = serde_json::from_str(&text)
        .map_err(|error| format!("cannot read cargo metadata: {error}"))?;
    metadata["target_directory"]
        .as_str()
        .map(PathBuf::from)
        .ok_or_else(|| "cargo metadata names no target directory".to_owned())
}

/// The binary that tests drive, relative to the target folder.
pub(crate) const TEST_BINARY: &str = "debug/throughline";

/// An example of the crate `sealing`.
const SEALING_CHECKER: &str = "check_vectors";

/// Builds the binary in the profile of tests and returns its path. `THROUGHLINE_BIN` names another
/// binary instead: CI names the one that was built with the tests, because tests enable more features
/// of dependencies and building without them would compile our crates again.
pub(crate) fn test_binary() -> Result<PathBuf, Failure> {
    if let Some(given) = given_binary() {
        return Ok(given);
    }
    command::run(cargo().args(["build", "--workspace", "--bins", "--locked"]))?;
    Ok(target_directory()?.join(TEST_BINARY))
}

/// The program that checks what other implementations have sealed. It is built here, unless CI has
/// built it with the tests.
pub(crate) fn sealing_checker() -> Result<PathBuf, Failure> {
    let program = target_directory()?.join("debug/examples").join(SEALING_CHECKER);
    if std::env::var_os("THROUGHLINE_BIN").is_none() || !program.exists() {
        build_sealing_checker()?;
    }
    Ok(program)
}

/// Builds that program with the features of tests, so that nothing else is compiled for it.
pub(crate) fn build_sealing_checker() -> Result<(), Failure> {
    command::run(cargo().args(["build", "--workspace", "--locked", "--example", SEALING_CHECKER]))
}

/// Builds the release binary and returns its path. `THROUGHLINE_BIN` names another one, for example
/// to compare two builds.
pub(crate) fn release_binary() -> Result<PathBuf, Failure> {
    if let Some(given) = given_binary() {
        return Ok(given);
    }
    command::run(cargo().args(["build", "--release", "--package", "throughline-server"]))?;
    Ok(target_directory()?.join("release").join("throughline"))
}

fn given_binary() -> Option<PathBuf> {
    let given = PathBuf::from(std::env::var_os("THROUGHLINE_BIN")?);
    println!("using `{}` from THROUGHLINE_BIN", given.display());
    Some(given)
}
