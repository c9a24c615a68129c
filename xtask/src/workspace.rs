//! Where things are: the repository, cargo's target folder, and what
//! `cargo metadata` says. What the metadata *means* is `tidy`'s.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::Failure;
use crate::command;

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    // Cargo sets the variable when it runs us; the compiled-in value serves a binary started by hand.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map_or_else(|| PathBuf::from("."), PathBuf::from)
}

/// `cargo` with the repository as its working directory.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new("cargo");
    // What cargo told us about ourselves is not meant for the next cargo: build scripts that watch
    // these variables would run again, and with them whatever stands on their crates.
    for (name, _) in std::env::vars_os() {
        let about_us = name.to_str().is_some_and(|name| {
            name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
        });
        if about_us {
            cargo.env_remove(name);
        }
    }
    cargo.current_dir(root());
    cargo
}

/// What `cargo metadata` tells about the workspace and all its dependencies.
pub(crate) fn metadata() -> Result<Value, Failure> {
    let mut cargo = cargo();
    // A stale lock file is a finding, not something to repair on the way.
    cargo.args(["metadata", "--format-version", "1", "--locked"]);
    let text = command::output(&mut cargo)?;
    serde_json::from_str(&text).map_err(|error| format!("cannot read cargo metadata: {error}"))
}

/// Cargo's target folder, wherever the environment has put it.
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

/// Builds the release binary, which is nearly free when it is fresh, and says where it is.
/// `THROUGHLINE_BIN` names one that was built elsewhere, to compare two builds.
pub(crate) fn release_binary() -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os("THROUGHLINE_BIN") {
        println!("using `{}` from THROUGHLINE_BIN", given.display());
        return Ok(PathBuf::from(given));
    }
    command::run(cargo().args(["build", "--release", "--package", "throughline-server"]))?;
    Ok(target_directory()?.join("release").join("throughline"))
}
