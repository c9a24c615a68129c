//! The developer's commands: `cargo xtask` lists them. Here is only the dispatch;
//! each command lives in the file of its name. Nothing here is part of a release.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these commands talk to the person who typed them"
)]

mod bench_across;
mod bench_proxy;
mod bench_text;
mod bless;
mod children;
mod ci;
mod command;
mod conformance;
mod deny;
mod fuzz;
mod gateway;
mod packages;
mod ports;
mod real_model;
mod tidy;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  ci [STEP]...       everything CI checks, in order; named steps only when given
     --list          print the steps and what each one runs
     --keep-going    run the remaining steps after one has failed
  tidy               borders between crates, file shape, requirement coverage
  deny               licences, duplicate versions and sources of dependencies
  bless              rewrite the corpus goldens from what the code says now
  fuzz [TARGET]      run one fuzz target, or all of them in turn
     --seconds N     time for each target (60)
  conformance        official Python and Node SDKs against the release binary
  real-model         a small real model behind the gateway, three SDKs before it
  bench-across       what crossing from one dialect to another costs, as Markdown tables
  bench-proxy        the gateway beside nginx, as a Markdown table
     --quick         about 20 seconds instead of about two minutes
  bench-text         the reader of model text beside its peers, as Markdown tables
     --quick         about 20 seconds instead of about two minutes

A first change: edit, `cargo xtask ci fmt clippy tidy`, then `cargo xtask ci`.
";

/// What a command could not do, ready to be shown.
type Failure = String;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.split_first() {
        None | Some((&("help" | "--help" | "-h"), _)) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Some((&"ci", rest)) => ci::run(rest),
        Some((&"tidy", [])) => tidy::run(),
        Some((&"deny", [])) => deny::run(),
        Some((&"bless", [])) => bless::run(),
        Some((&"fuzz", rest)) => fuzz::run(rest),
        Some((&"conformance", [])) => conformance::run(),
        Some((&"real-model", [])) => real_model::run(),
        Some((&"bench-across", [])) => bench_across::run(),
        Some((&"bench-proxy", rest)) => bench_proxy::run(rest),
        Some((&"bench-text", rest)) => bench_text::run(rest),
        Some((command, _)) => {
            eprintln!("xtask: cannot run `{command}` with these arguments\n\n{HELP}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}
