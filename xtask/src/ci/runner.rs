//! Runs the steps. Side by side, each one is a process of its own: its output goes to a file and is
//! printed when the step ends, so that the logs of two steps do not mix.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::schedule::Schedule;
use super::{Options, Outcome, Step, seconds};
use crate::Failure;
use crate::workspace;

/// How often a line says what runs, for those who watch.
const STILL_RUNNING: Duration = Duration::from_secs(60);

/// Runs one step after another in this process; output appears at once.
pub(super) fn in_turn(options: &Options) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for step in &options.steps {
        println!("\n=== {} · {}", step.name, step.about);
        let (started, cpu) = (Instant::now(), children_cpu());
        let result = (step.run)();
        if let Err(failure) = &result {
            println!("{failure}");
        }
        let outcome = Outcome {
            name: step.name,
            took: started.elapsed(),
            cpu: children_cpu().zip(cpu).map(|(after, before)| after.saturating_sub(before)),
            passed: result.is_ok(),
            closing_line: None,
        };
        println!("=== {} took {}", step.name, seconds(outcome.took));
        let failed = !outcome.passed;
        outcomes.push(outcome);
        if failed && !options.keep_going {
            break;
        }
    }
    outcomes
}

/// A step that runs as a process.
struct Running {
    step: &'static Step,
    child: Child,
    output: File,
    started: Instant,
}

/// Runs up to `options.jobs` steps at a time.
pub(super) fn side_by_side(options: &Options) -> Result<Vec<Outcome>, Failure> {
    let target = workspace::target_directory()?;
    let folder = tempfile::tempdir_in(&target)
        .map_err(|error| format!("cannot make a folder in `{}`: {error}", target.display()))?;
    // Steps build this program again, and replace its file while others start: use a copy.
    let program = folder.path().join("xtask");
    std::env::current_exe()
        .and_then(|itself| std::fs::copy(itself, &program))
        .map_err(|error| format!("cannot copy this program: {error}"))?;

    let begun = Instant::now();
    let mut schedule = Schedule::new(&options.steps, options.keep_going);
    let mut running: Vec<Running> = Vec::new();
    let mut outcomes = Vec::new();
    let mut last_line = Instant::now();
    loop {
        while running.len() < options.jobs
            && let Some(step) = schedule.start_next()
        {
            println!("[{:>9}] {} starts", seconds(begun.elapsed()), step.name);
            let has_built = outcomes.iter().any(|outcome: &Outcome| outcome.name == "build");
            let binary = has_built.then(|| target.join(workspace::TEST_BINARY));
            running.push(start(step, &program, binary.as_deref())?);
            last_line = Instant::now();
        }
        if running.is_empty() {
            return Ok(outcomes);
        }
        let mut still_running = Vec::new();
        for process in running {
            match finish_if_ended(process)? {
                Ended::No(process) => still_running.push(process),
                Ended::Yes(outcome) => {
                    let result = if outcome.passed { "ok" } else { "FAILED" };
                    let (now, took) = (seconds(begun.elapsed()), seconds(outcome.took));
                    println!("[{now:>9}] {} {result} after {took}", outcome.name);
                    schedule.finish(outcome.name, outcome.passed);
                    outcomes.push(outcome);
                    last_line = Instant::now();
                }
            }
        }
        running = still_running;
        if last_line.elapsed() > STILL_RUNNING {
            let names = schedule.running().join(", ");
            println!("[{:>9}] running: {names}", seconds(begun.elapsed()));
            last_line = Instant::now();
        }
        #[expect(clippy::disallowed_methods, reason = "no task runs on this thread")]
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn start(step: &'static Step, program: &Path, binary: Option<&Path>) -> Result<Running, Failure> {
    let cannot = |error: std::io::Error| format!("cannot start step `{}`: {error}", step.name);
    let output = tempfile::tempfile().map_err(cannot)?;
    let mut command = Command::new(program);
    command.args(["ci-step", step.name]).stdin(Stdio::null());
    command.stdout(output.try_clone().map_err(cannot)?);
    command.stderr(output.try_clone().map_err(cannot)?);
    if let Some(binary) = binary
        && step.needs.contains(&"build")
        && step.compiles_in.is_none()
    {
        // Asking cargo for the binary would wait for the step that compiles in its folder.
        command.env("THROUGHLINE_BIN", binary);
    }
    let child = command.spawn().map_err(cannot)?;
    Ok(Running { step, child, output, started: Instant::now() })
}

enum Ended {
    Yes(Outcome),
    No(Running),
}

/// Prints the output of a step that has ended.
fn finish_if_ended(mut process: Running) -> Result<Ended, Failure> {
    let name = process.step.name;
    let before = children_cpu();
    let ended = process
        .child
        .try_wait()
        .map_err(|error| format!("cannot wait for step `{name}`: {error}"))?;
    let Some(status) = ended else { return Ok(Ended::No(process)) };
    // The system adds a child's time to ours when we take its status.
    let cpu = children_cpu().zip(before).map(|(after, before)| after.saturating_sub(before));
    let mut text = Vec::new();
    process
        .output
        .rewind()
        .and_then(|()| process.output.read_to_end(&mut text))
        .map_err(|error| format!("cannot read the output of step `{name}`: {error}"))?;
    let text = String::from_utf8_lossy(&text);
    println!("\n=== {name} · {}\n{}\n", process.step.about, text.trim_end());
    Ok(Ended::Yes(Outcome {
        name,
        took: process.started.elapsed(),
        cpu,
        passed: status.success(),
        closing_line: closing_line(&text).map(ToOwned::to_owned),
    }))
}

/// The line in which nextest counts the tests.
fn closing_line(output: &str) -> Option<&str> {
    output.lines().rev().find(|line| line.contains("tests run:")).map(str::trim)
}

/// Processor time of all processes that we have started and that have ended.
fn children_cpu() -> Option<Duration> {
    children_ticks(&std::fs::read_to_string("/proc/self/stat").ok()?)
        // The kernel shows hundredths of a second to user space on every Linux we run on.
        .map(|ticks| Duration::from_millis(ticks * 10))
}

/// The name in brackets may hold spaces, so fields are counted after it.
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(13);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_ended_children_is_user_and_system_together() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 30 4 20 0";
        assert_eq!(children_ticks(stat), Some(34));
    }

    #[test]
    fn closing_line_counts_the_tests() {
        let output = "PASS a\n     Summary [   1.2s] 3 tests run: 3 passed, 0 skipped\ndoc tests\n";
        let line = "Summary [   1.2s] 3 tests run: 3 passed, 0 skipped";
        assert_eq!(closing_line(output), Some(line));
        assert_eq!(closing_line("nothing"), None);
    }
}
