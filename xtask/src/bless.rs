//! Rewriting the corpus goldens. What a golden holds is decided by the codec's corpus test.

use std::process::Command;

use crate::Failure;
use crate::command;
use crate::workspace;

/// Runs the corpus test in its rewriting mode and shows which files changed.
pub(crate) fn run() -> Result<(), Failure> {
    command::run(
        workspace::cargo()
            .args(["test", "--package", "throughline-codec", "--test", "corpus"])
            .env("BLESS", "1"),
    )?;
    let changed = command::output(
        Command::new("git").current_dir(workspace::root()).args(["status", "--short", "corpus"]),
    )?;
    if changed.is_empty() {
        println!("no golden changed");
    } else {
        print!("{changed}");
        println!("read each one before you commit it: a golden is a claim");
    }
    Ok(())
}
