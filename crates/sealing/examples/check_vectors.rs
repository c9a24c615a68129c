//! Checks vectors that another implementation of `docs/sealing.md` has made:
//! `check_vectors FIELDS.json KEYS.json`. The scripts of `conformance/` run it.

#![allow(clippy::print_stdout, reason = "the output of a program")]

use std::process::ExitCode;

use serde_json::Value;

#[path = "../tests/vectors/check.rs"]
mod check;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    let [fields, keys] = files.as_slice() else {
        println!("usage: check_vectors FIELDS.json KEYS.json");
        return ExitCode::from(2);
    };
    let mut problems = check::check_fields(&read(fields));
    problems.extend(check::check_keys(&read(keys)));
    for problem in &problems {
        println!("{problem}");
    }
    if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(file: &str) -> Value {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("`{file}`: {error}"));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("`{file}`: {error}"))
}
