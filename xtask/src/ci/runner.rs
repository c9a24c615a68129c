//! Runs the steps. Side by side, each one is a process of its own: its output goes to a file and is
//! printed when the step ends, so that the logs of two steps do not mix.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::schedule::Schedule;
use super::{Options, Outcome, Step, seconds};
use crate::Failure;
use crate::command;
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

/// Runs up to `options.jobs` steps at a time. After a failure, the steps that still run are ended,
/// unless the run keeps going.
pub(super) fn side_by_side(options: &Options) -> Result<Vec<Outcome>, Failure> {
    let target = workspace::target_directory()?;
    let folder = tempfile::tempdir_in(&target)
        .map_err(|error| format!("cannot make a folder in `{}`: {error}", target.display()))?;
    // Steps build this program again, and replace its file while others start: use a copy.
    let program = folder.path().join("xtask");
    std::env::current_exe()
        .and_then(|itself| std::fs::copy(itself, &program))
        .map_err(|error| format!("cannot copy this program: {error}"))?;

    let mut interruption = Interruption::new()?;
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
        let failed = outcomes.iter().any(|outcome| !outcome.passed);
        if failed && !options.keep_going && !running.is_empty() {
            println!("[{:>9}] ending {}", seconds(begun.elapsed()), schedule.running().join(", "));
            end_all(running);
            return Ok(outcomes);
        }
        if last_line.elapsed() > STILL_RUNNING {
            let names = schedule.running().join(", ");
            println!("[{:>9}] running: {names}", seconds(begun.elapsed()));
            last_line = Instant::now();
        }
        if interruption.within(Duration::from_millis(20)) {
            end_all(running);
            return Err("interrupted".to_owned());
        }
    }
}

/// Waits for a signal to end. Steps are process groups of their own, so a terminal does not send it
/// to them.
struct Interruption {
    runtime: Runtime,
    signals: [Signal; 2],
}

impl Interruption {
    fn new() -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| format!("cannot listen for signals: {error}");
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let signals = {
            let _context = runtime.enter();
            [
                signal(SignalKind::interrupt()).map_err(cannot)?,
                signal(SignalKind::terminate()).map_err(cannot)?,
            ]
        };
        Ok(Self { runtime, signals })
    }

    /// Waits this long; returns whether a signal arrived.
    fn within(&mut self, time: Duration) -> bool {
        let [interrupt, terminate] = &mut self.signals;
        self.runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => true,
                _ = terminate.recv() => true,
                () = tokio::time::sleep(time) => false,
            }
        })
    }
}

/// Ends steps with all processes they have started.
fn end_all(running: Vec<Running>) {
    for mut process in running {
        let group = format!("-{}", process.child.id());
        // Both fail only if the step has just ended by itself.
        let _ = command::output(Command::new("kill").args(["-s", "TERM", "--", &group]));
        let _ = process.child.wait();
    }
}

fn start(step: &'static Step, program: &Path, binary: Option<&Path>) -> Result<Running, Failure> {
    let cannot = |error: std::io::Error| format!("cannot start step `{}`: {error}", step.name);
    let output = tempfile::tempfile().map_err(cannot)?;
    let mut command = Command::new(program);
    // In a process group of its own, the step can be ended with all its processes.
    command.args(["ci-step", step.name]).stdin(Stdio::null()).process_group(0);
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
    fn ended_step_ends_with_its_processes() {
        static STEP: Step =
            Step { name: "slow", about: "", needs: &[], compiles_in: None, run: || Ok(()) };
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo started; wait"]).process_group(0);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut pipe = child.stdout.take().unwrap();
        pipe.read_exact(&mut [0; 8]).unwrap();
        let output = tempfile::tempfile().unwrap();
        let started = Instant::now();
        end_all(vec![Running { step: &STEP, child, output, started }]);
        // The pipe ends when the last process that holds it has ended.
        pipe.read_to_end(&mut Vec::new()).unwrap();
        assert!(started.elapsed() < Duration::from_secs(30), "a process kept running");
    }

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
