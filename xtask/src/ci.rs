//! All of CI, as a list of steps. A step that needs a tool installs it and says so.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::command;
use crate::conformance;
use crate::deny;
use crate::fuzz;
use crate::tidy;
use crate::workspace;

struct Step {
    name: &'static str,
    about: &'static str,
    run: fn() -> Result<(), Failure>,
}

/// Cheap steps come first, so that a slip is told within seconds.
const STEPS: &[Step] = &[
    Step { name: "fmt", about: "cargo fmt --all --check", run: format },
    Step {
        name: "tidy",
        about: "borders between crates, file shape, requirement coverage",
        run: tidy::run,
    },
    Step {
        name: "deny",
        about: "licences, duplicate versions and sources of dependencies",
        run: deny::run,
    },
    Step {
        name: "clippy",
        about: "cargo clippy --workspace --all-targets -- -D warnings",
        run: clippy,
    },
    Step {
        name: "fuzz",
        about: "the fuzz targets are clean; `cargo xtask fuzz` runs them",
        run: fuzz::check,
    },
    Step {
        name: "release",
        about: "the release binary, which the kill-and-restart tests drive",
        run: || workspace::release_binary().map(drop),
    },
    Step {
        name: "tests",
        about: "unit, corpus and whole-server tests, then documentation examples",
        run: tests,
    },
    Step { name: "docs", about: "cargo doc --workspace --no-deps, without warnings", run: docs },
    Step {
        name: "conformance",
        about: "official Python and Node SDKs through the gateway, over every other dialect",
        run: conformance::run,
    },
];

/// `ci [--list] [--keep-going] [STEP]...`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if arguments.contains(&"--list") {
        for step in STEPS {
            println!("{:<12} {}", step.name, step.about);
        }
        return Ok(());
    }
    let keep_going = arguments.contains(&"--keep-going");
    let chosen = choose(arguments)?;
    let mut results = Vec::new();
    for step in &chosen {
        println!("\n=== {} · {}", step.name, step.about);
        let started = Instant::now();
        let outcome = (step.run)();
        let took = started.elapsed();
        if let Err(failure) = &outcome {
            println!("{failure}");
        }
        println!("=== {} took {}", step.name, seconds(took));
        let failed = outcome.is_err();
        results.push((step.name, took, failed));
        if failed && !keep_going {
            break;
        }
    }
    summary(&chosen, &results)
}

fn choose(arguments: &[&str]) -> Result<Vec<&'static Step>, Failure> {
    let mut names: Vec<&str> = Vec::new();
    for argument in arguments {
        if *argument == "--keep-going" {
            continue;
        }
        if !STEPS.iter().any(|step| step.name == *argument) {
            return Err(format!("no step `{argument}`; `cargo xtask ci --list` shows them"));
        }
        names.push(argument);
    }
    Ok(STEPS.iter().filter(|step| names.is_empty() || names.contains(&step.name)).collect())
}

fn summary(chosen: &[&Step], results: &[(&str, Duration, bool)]) -> Result<(), Failure> {
    println!("\nstep         result       time");
    for step in chosen {
        match results.iter().find(|(name, ..)| *name == step.name) {
            Some((name, took, failed)) => {
                let word = if *failed { "FAILED" } else { "ok" };
                println!("{name:<12} {word:<8} {:>8}", seconds(*took));
            }
            None => println!("{:<12} not run", step.name),
        }
    }
    let total: Duration = results.iter().map(|(_, took, _)| *took).sum();
    println!("{:<12} {:<8} {:>8}", "all", "", seconds(total));
    let failed: Vec<&str> =
        results.iter().filter(|(.., failed)| *failed).map(|(name, ..)| *name).collect();
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
    command::run(workspace::cargo().args([
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))
}

fn tests() -> Result<(), Failure> {
    let binary = workspace::release_binary()?;
    let mut runner = workspace::cargo();
    if command::answers(Command::new("cargo").args(["nextest", "--version"])) {
        runner.args(["nextest", "run", "--workspace", "--no-fail-fast"]);
    } else {
        println!("cargo-nextest is not installed: using cargo test");
        runner.args(["test", "--workspace", "--no-fail-fast", "--tests"]);
    }
    command::run(runner.env("THROUGHLINE_BIN", binary))?;
    command::run(workspace::cargo().args(["test", "--workspace", "--doc"]))
}

fn docs() -> Result<(), Failure> {
    command::run(
        workspace::cargo()
            .args(["doc", "--workspace", "--no-deps"])
            .env("RUSTDOCFLAGS", "-D warnings"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_names_choose_every_step() {
        let chosen = choose(&["--keep-going"]).unwrap();
        assert_eq!(chosen.len(), STEPS.len());
    }

    #[test]
    fn named_steps_run_in_the_order_of_the_list() {
        let names: Vec<&str> =
            choose(&["clippy", "fmt"]).unwrap().iter().map(|step| step.name).collect();
        assert_eq!(names, ["fmt", "clippy"]);
    }

    #[test]
    fn unknown_step_is_refused_with_a_hint() {
        let failure = choose(&["lint"]).err().unwrap();
        assert!(failure.contains("--list"), "{failure}");
    }
}
