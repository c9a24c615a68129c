//! Runs one command to its end. Processes that keep running are in `children`.

use std::io::{Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;

/// Prints a command and runs it; its output goes to the terminal.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command
        .stdin(Stdio::null())
        .status()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Like [`run`], but ends the command after `limit`.
pub(crate) fn run_within(command: &mut Command, limit: Duration) -> Result<(), Failure> {
    let shown = shown(command);
    println!("$ {shown}");
    let child = command
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    let status = wait(child, limit, &shown)?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
}

/// Runs a command, shows its output only if it fails, and ends it after `limit`.
pub(crate) fn run_quietly(command: &mut Command, limit: Duration) -> Result<(), Failure> {
    let shown = shown(command);
    let cannot = |error: std::io::Error| format!("cannot start `{shown}`: {error}");
    let mut printed = tempfile::tempfile().map_err(cannot)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(printed.try_clone().map_err(cannot)?)
        .stderr(printed.try_clone().map_err(cannot)?)
        .spawn()
        .map_err(cannot)?;
    let outcome = wait(child, limit, &shown).and_then(|status| {
        if status.success() { Ok(()) } else { Err(format!("`{shown}` failed ({status})")) }
    });
    outcome.map_err(|failure| {
        let mut text = Vec::new();
        // The failure is shown even if the output cannot be read.
        let _ = printed.rewind();
        let _ = printed.read_to_end(&mut text);
        format!("{failure}\n{}", String::from_utf8_lossy(&text))
    })
}

fn wait(mut child: Child, limit: Duration, shown: &str) -> Result<ExitStatus, Failure> {
    let started = Instant::now();
    loop {
        let ended =
            child.try_wait().map_err(|error| format!("cannot wait for `{shown}`: {error}"))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        if started.elapsed() > limit {
            // Both fail only if the command has just ended by itself.
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!("`{shown}` took more than {limit:?} and was ended"));
        }
        #[expect(clippy::disallowed_methods, reason = "no task runs on this thread")]
        std::thread::sleep(Duration::from_millis(20));
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

/// Whether a command exists and succeeds.
pub(crate) fn answers(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The command as a person types it.
fn shown(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_command_is_ended_and_its_output_shown() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; exec sleep 60"]);
        let failure = run_quietly(&mut command, Duration::from_millis(300)).unwrap_err();
        assert!(failure.contains("was ended"), "{failure}");
        assert!(failure.contains("started"), "{failure}");
    }
}
