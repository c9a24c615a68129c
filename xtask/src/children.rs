//! Processes that run beside this one. Each ends when its guard is dropped, on success and on
//! failure alike.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::command;

/// A running process that does not outlive this value.
pub(crate) struct Guard {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Guard {
    /// Starts `command` with its output in `folder/NAME.log`.
    pub(crate) fn start(name: &str, command: &mut Command, folder: &Path) -> Result<Self, Failure> {
        let log = folder.join(format!("{name}.log"));
        let cannot = |error: std::io::Error| format!("cannot start {name}: {error}");
        let output = File::create(&log).map_err(cannot)?;
        let errors = output.try_clone().map_err(cannot)?;
        let child =
            command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn().map_err(cannot)?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// The last lines this process has written, for a failure message.
    pub(crate) fn last_lines(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(15)..];
        format!("last lines of {}:\n  {}", self.name, tail.join("\n  "))
    }

    /// Asks the process to end, and waits until it has.
    pub(crate) fn stop(mut self, limit: Duration) -> Result<(), Failure> {
        let id = self.id().to_string();
        command::output(Command::new("kill").args(["-s", "TERM", &id]))?;
        let started = Instant::now();
        while started.elapsed() < limit {
            if self.child.try_wait().is_ok_and(|status| status.is_some()) {
                return Ok(());
            }
            #[expect(clippy::disallowed_methods, reason = "no task runs on this thread")]
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} did not end within {limit:?}\n{}", self.name, self.last_lines()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
