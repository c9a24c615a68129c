//! Running one command to its end. Commands that stay alive are `children`'s.

use std::process::{Command, Stdio};

use crate::Failure;

/// Runs a command with its output going to the terminal, and shows what is run.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("`{shown}` failed ({status})"))
    }
}

/// Runs a command quietly and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, Failure> {
    let shown = shown(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{shown}` failed ({})\n{errors}", output.status));
    }
    String::from_utf8(output.stdout).map_err(|_| format!("`{shown}` did not print text"))
}

/// Whether a command exists and answers with success.
pub(crate) fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as a person would type it.
fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned()),
    );
    words.join(" ")
}
