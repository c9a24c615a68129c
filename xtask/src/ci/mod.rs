//! Continuous integration as a list of steps. `schedule` decides which steps run at the same time; `runner` runs
//! their processes and shows the output.

mod runner;
mod schedule;

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::command;
use crate::conformance;
use crate::deny;
use crate::fuzz;
use crate::packages;
use crate::release;
use crate::tidy;
use crate::web;
use crate::workspace;

/// One check of CI.
struct Step {
    name: &'static str,
    about: &'static str,
    /// Steps that have to pass first, if they run at all.
    needs: &'static [&'static str],
    /// Cargo locks a build folder, so two steps that compile in the same one never run together.
    compiles_in: Option<Folder>,
    run: fn() -> Result<(), Failure>,
}

/// A build folder of cargo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Folder {
    /// `target/debug`: lints, tests, documentation, and the binary that tests and SDKs drive.
    Debug,
    /// `target/release`
    Release,
    /// `target/fuzz`
    Fuzz,
}

/// Of the steps that can start, the first in this list does: cheap ones, then the longest chain of
/// those that share a folder.
const STEPS: &[Step] = &[
    Step {
        name: "fmt",
        about: "cargo fmt --all --check",
        needs: &[],
        compiles_in: None,
        run: format,
    },
    Step {
        name: "tidy",
        about: "rules that no compiler checks: crate borders, files, words, coverage",
        needs: &[],
        compiles_in: None,
        run: tidy::run,
    },
    Step {
        name: "deny",
        about: "licences, duplicate versions and sources of dependencies",
        needs: &[],
        compiles_in: None,
        run: deny::run,
    },
    Step {
        name: "clippy",
        about: "cargo clippy --workspace --all-targets --all-features -- -D warnings",
        needs: &["fmt"],
        compiles_in: Some(Folder::Debug),
        run: clippy,
    },
    Step {
        name: "build",
        about: "all tests, and the programs that tests and SDKs drive",
        needs: &["fmt"],
        compiles_in: Some(Folder::Debug),
        run: build,
    },
    Step {
        name: "tests",
        about: "unit, corpus and whole-server tests, then documentation examples",
        needs: &["build"],
        compiles_in: Some(Folder::Debug),
        run: tests,
    },
    Step {
        name: "docs",
        about: "cargo doc --workspace --no-deps, without warnings",
        needs: &["build"],
        compiles_in: Some(Folder::Debug),
        run: docs,
    },
    Step {
        name: "conformance",
        about: "official Python and Node SDKs through the gateway, over every other dialect",
        needs: &["build"],
        compiles_in: None,
        run: conformance::run,
    },
    Step {
        name: "web",
        about: "the web page: types, unit tests, size, and a browser against the program",
        needs: &["build"],
        compiles_in: None,
        run: web::run,
    },
    Step {
        name: "fuzz",
        about: "the fuzz targets compile without warnings; `cargo xtask fuzz` runs them",
        needs: &["fmt"],
        compiles_in: Some(Folder::Fuzz),
        run: fuzz::check,
    },
    Step {
        name: "release",
        about: "the release build compiles, starts and answers a request",
        needs: &["fmt"],
        compiles_in: Some(Folder::Release),
        run: release::run,
    },
];

/// How many steps run side by side unless `--jobs` says otherwise. Each step uses several cores
/// while it compiles; a second one fills the gaps.
const DEFAULT_JOBS: usize = 2;

/// What the command line asks for.
struct Options {
    steps: Vec<&'static Step>,
    keep_going: bool,
    jobs: usize,
}

/// `ci [--list] [--keep-going] [--jobs N] [STEP]...`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if arguments.contains(&"--list") {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(());
    }
    let options = read(arguments)?;
    let started = Instant::now();
    let outcomes = if options.jobs == 1 || options.steps.len() == 1 {
        runner::in_turn(&options)
    } else {
        runner::side_by_side(&options)?
    };
    summary(&options.steps, &outcomes, started.elapsed())
}

/// Runs one step in this process; the scheduler starts steps this way.
pub(crate) fn run_step(name: &str) -> Result<(), Failure> {
    let step = STEPS.iter().find(|step| step.name == name).ok_or_else(|| unknown_step(name))?;
    (step.run)()
}

fn read(arguments: &[&str]) -> Result<Options, Failure> {
    let mut names: Vec<&str> = Vec::new();
    let (mut keep_going, mut jobs) = (false, DEFAULT_JOBS);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match *argument {
            "--keep-going" => keep_going = true,
            "--jobs" => {
                jobs = rest
                    .next()
                    .and_then(|number| number.parse().ok())
                    .filter(|jobs| *jobs > 0)
                    .ok_or("`--jobs` needs a number from 1")?;
            }
            name if STEPS.iter().any(|step| step.name == name) => names.push(name),
            name => return Err(unknown_step(name)),
        }
    }
    let chosen = |step: &&Step| names.is_empty() || names.contains(&step.name);
    Ok(Options { steps: STEPS.iter().filter(chosen).collect(), keep_going, jobs })
}

fn unknown_step(name: &str) -> Failure {
    format!("no step `{name}`; `cargo xtask ci --list` shows them")
}

/// How a step ended.
struct Outcome {
    name: &'static str,
    took: Duration,
    /// Processor time of the step and all its processes, where the system reports it.
    cpu: Option<Duration>,
    passed: bool,
    /// The line in which the test runner counts the tests.
    closing_line: Option<String>,
}

/// Prints the result of each step. `elapsed` is less than the sum of the steps, which overlap.
fn summary(steps: &[&Step], outcomes: &[Outcome], elapsed: Duration) -> Result<(), Failure> {
    println!("\nstep         result       time        CPU");
    for step in steps {
        let Some(outcome) = outcomes.iter().find(|outcome| outcome.name == step.name) else {
            println!("{:<12} not finished", step.name);
            continue;
        };
        let result = if outcome.passed { "ok" } else { "FAILED" };
        let cpu = outcome.cpu.map_or_else(String::new, seconds);
        println!("{:<12} {result:<8} {:>8} {cpu:>10}", step.name, seconds(outcome.took));
    }
    let cpu: Duration = outcomes.iter().filter_map(|outcome| outcome.cpu).sum();
    println!("{:<12} {:<8} {:>8} {:>10}", "all", "", seconds(elapsed), seconds(cpu));
    for line in outcomes.iter().filter_map(|outcome| outcome.closing_line.as_ref()) {
        println!("{line}");
    }
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| !outcome.passed).map(|outcome| outcome.name).collect();
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {0}; run one alone with `cargo xtask ci {0}`", failed.join(" ")))
    }
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

fn format() -> Result<(), Failure> {
    command::run(workspace::cargo().args(["fmt", "--all", "--check"]))
}

fn clippy() -> Result<(), Failure> {
    let mut clippy = workspace::cargo();
    clippy.args(["clippy", "--workspace", "--all-targets", "--all-features", "--locked"]);
    clippy.args(["--", "-D", "warnings"]);
    command::run(&mut clippy)
}

/// The test runner: nextest, or `cargo test` where it is missing.
fn test_runner() -> Command {
    let mut runner = workspace::cargo();
    if command::answers(Command::new("cargo").args(["nextest", "--version"])) {
        runner.args(["nextest", "run", "--workspace"]);
    } else {
        println!("cargo-nextest is not installed: using cargo test");
        runner.args(["test", "--workspace", "--tests"]);
    }
    runner
}

/// Tests of the server need its binary, so cargo builds it with them. The step `conformance` needs the
/// checker of sealing.
fn build() -> Result<(), Failure> {
    command::run(test_runner().arg("--no-run"))?;
    workspace::build_sealing_checker()
}

fn tests() -> Result<(), Failure> {
    packages::postgres()?;
    packages::redis()?;
    command::run(test_runner().arg("--no-fail-fast"))?;
    command::run(workspace::cargo().args(["test", "--workspace", "--doc"]))?;
    // The conversation API has the same tests on both databases. One process shares one Postgres server.
    let mut on_postgres = workspace::cargo();
    on_postgres.args(["test", "--workspace", "--test", "conversations", "--quiet"]);
    command::run(on_postgres.env("TEST_STORE", "postgres"))
}

fn docs() -> Result<(), Failure> {
    let mut doc = workspace::cargo();
    doc.args(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    command::run(&mut doc)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(arguments: &[&str]) -> Vec<&'static str> {
        read(arguments).unwrap().steps.iter().map(|step| step.name).collect()
    }

    #[test]
    fn all_steps_run_when_none_is_named() {
        assert_eq!(names(&["--keep-going"]).len(), STEPS.len());
    }

    #[test]
    fn named_steps_run_in_the_order_of_the_list() {
        assert_eq!(names(&["clippy", "fmt"]), ["fmt", "clippy"]);
    }

    #[test]
    fn jobs_are_read() {
        assert_eq!(read(&["--jobs", "3"]).unwrap().jobs, 3);
        assert_eq!(read(&[]).unwrap().jobs, DEFAULT_JOBS);
        assert!(read(&["--jobs", "0"]).is_err());
        assert!(read(&["--jobs"]).is_err());
    }

    #[test]
    fn unknown_step_is_refused_with_a_hint() {
        let failure = read(&["lint"]).err().unwrap();
        assert!(failure.contains("--list"), "{failure}");
    }

    #[test]
    fn a_failed_step_fails_the_run_and_is_named() {
        let outcome = |name, passed| Outcome {
            name,
            took: Duration::ZERO,
            cpu: None,
            passed,
            closing_line: None,
        };
        let steps: Vec<&Step> = STEPS.iter().collect();
        assert!(summary(&steps, &[outcome("fmt", true)], Duration::ZERO).is_ok());
        let outcomes = [outcome("fmt", true), outcome("tidy", false)];
        let failure = summary(&steps, &outcomes, Duration::ZERO).unwrap_err();
        assert!(failure.contains("cargo xtask ci tidy"), "{failure}");
    }
}
