//! What may come in from outside: cargo-deny over `deny.toml`. The rules are
//! in that file; here is only having the tool and being honest about its reach.

use crate::Failure;
use crate::command;
use crate::workspace;

/// The version whose rules `deny.toml` is written for.
const VERSION: &str = "0.20.2";

/// Checks versions, licences and sources, and advisories where their database can be had.
pub(crate) fn run() -> Result<(), Failure> {
    have_cargo_deny()?;
    command::run(
        workspace::cargo()
            .args(["deny", "--color", "never", "--locked", "check", "bans", "licenses", "sources"]),
    )?;
    advisories()
}

fn have_cargo_deny() -> Result<(), Failure> {
    if command::answers(workspace::cargo().args(["deny", "--version"])) {
        return Ok(());
    }
    println!("installing cargo-deny {VERSION} (first time only, about three minutes)");
    command::run(workspace::cargo().args([
        "install",
        "cargo-deny",
        "--version",
        VERSION,
        "--locked",
        "--no-default-features",
        "--quiet",
    ]))
}

/// The database is a repository that a closed network does not reach. Not
/// reaching it says nothing about the dependencies, so it does not fail the run.
fn advisories() -> Result<(), Failure> {
    let mut check = workspace::cargo();
    check.args(["deny", "--color", "never", "--locked"]);
    check.args(["check", "advisories"]);
    match command::output(&mut check) {
        Ok(_) => {
            println!("advisories ok");
            Ok(())
        }
        Err(failure) if failure.contains("failed to fetch advisory database") => {
            println!("advisories NOT CHECKED: their database cannot be reached from here");
            Ok(())
        }
        Err(failure) => Err(failure),
    }
}
