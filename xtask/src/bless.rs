//! Rewrites the golden files of the corpus, by running the codec's corpus test.

use std::process::Command;

use crate::Failure;
use crate::command;
use crate::workspace;

/// Runs the corpus test with `BLESS` set and lists the files that changed.
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
        println!("no golden file changed");
    } else {
        print!("{changed}");
        println!("read each file before you commit it: nothing else checks that it is right");
    }
    Ok(())
}
