//! Rewrites the goldens of the corpus. The content of a golden is decided by the codec's corpus test.

use std::process::Command;

use crate::Failure;
use crate::command;
use crate::workspace;

/// The corpus test that compares all goldens, and writes them if `BLESS` is set.
const GOLDENS: &str = "rules::every_file_is_read_and_equals_its_golden";

/// Runs that test in its writing mode and shows which files changed.
pub(crate) fn run() -> Result<(), Failure> {
    command::run(
        workspace::cargo()
            .args(["test", "--package", "throughline-codec", "--test", "corpus", "--", GOLDENS])
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
