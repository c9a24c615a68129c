//! One check of the release build: it compiles, starts and becomes ready in front of simulators.
//! All other checks drive the binary that is built for tests, which compiles faster.

use std::process::Command;

use crate::Failure;
use crate::command;
use crate::conformance;
use crate::workspace;

/// Builds the release binary and starts it.
pub(crate) fn run() -> Result<(), Failure> {
    let binary = workspace::release_binary()?;
    command::run(Command::new(&binary).arg("--version"))?;
    conformance::start_and_stop(&binary)?;
    println!("release: two simulators and a gateway started and became ready");
    Ok(())
}
