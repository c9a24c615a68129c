//! Commands for developers; `cargo xtask` lists them. This file only dispatches: each command has a
//! file of its name. Nothing here is part of a release.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "these commands print to a terminal")]

mod bench_across;
mod bench_conversations;
mod bench_proxy;
mod bench_rooms;
mod bench_text;
mod bless;
mod children;
mod ci;
mod command;
mod conformance;
mod deny;
mod fuzz;
mod gateway;
mod lines;
mod packages;
mod ports;
mod real_model;
mod release;
mod tidy;
mod web;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
Usage: cargo xtask COMMAND

  ci [STEP]...       run all checks of CI, or only the named steps
     --list          print the steps
     --jobs N        run N steps side by side (2); 1 prints output as it is written
     --keep-going    run the remaining steps after one has failed
  tidy               check rules that no compiler checks: borders, files, words, coverage
  lines              count the lines of production code in each crate
     --base COMMIT   also print the difference from this commit
  deny               check licences, duplicate versions and sources of dependencies
  advisories         check security advisories with cargo-deny, installing it if needed
  bless              rewrite the golden files of the corpus with the current output
  fuzz [TARGET]      run one fuzz target, or each of them in turn
     --seconds N     time for each target (60)
  conformance        run official Python and Node SDKs against the gateway
  real-model         run clients against a small real model through the gateway
  bench-across       measure translation between every two dialects
  bench-conversations
                     measure stored conversations on SQLite and Postgres
     --quick         fewer nodes and runs
     --sealed        only sealed projects beside managed ones
  bench-proxy        compare the gateway with nginx
     --quick         one short round for each case
     --case NAME     run only this case; may be given several times
     --list          print the cases
  bench-rooms        measure rooms with many readers
     --quick         fewer readers and messages
  bench-text         compare our reader of model text with other readers
     --quick         about 20 seconds instead of about two minutes
  instructions       count instructions per delta and per request with valgrind

For a first change: edit, run `cargo xtask ci fmt clippy tidy`, then `cargo xtask ci`.
";

/// Why a command failed, as text for the terminal.
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
        Some((&"ci-step", [name])) => ci::run_step(name),
        Some((&"tidy", [])) => tidy::run(),
        Some((&"lines", [])) => lines::run(None),
        Some((&"lines", ["--base", commit])) => lines::run(Some(commit)),
        Some((&"deny", [])) => deny::run(),
        Some((&"advisories", [])) => deny::run_advisories(),
        Some((&"bless", [])) => bless::run(),
        Some((&"fuzz", rest)) => fuzz::run(rest),
        Some((&"conformance", [])) => conformance::run(),
        Some((&"real-model", [])) => real_model::run(),
        Some((&"bench-across", [])) => bench_across::run(),
        Some((&"bench-conversations", rest)) => bench_conversations::run(rest),
        Some((&"bench-proxy", rest)) => bench_proxy::run(rest),
        Some((&"bench-rooms", rest)) => bench_rooms::run(rest),
        Some((&"bench-text", rest)) => bench_text::run(rest),
        Some((&"instructions", [])) => bench_proxy::instructions::run(),
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
