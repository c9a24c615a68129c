//! Rules that no compiler checks. This file reads the repository; each rule is a pure function over
//! text and metadata, in a file of its name.

mod banned_words;
mod borders;
mod corpus_files;
mod coverage;
mod dialect_imports;
mod dialects;
mod doc_paths;
mod functions;
pub(crate) mod lexer;
mod migrations;
mod orphans;
mod sources;
mod vendor_names;

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

use crate::Failure;
use crate::command;
use crate::workspace;

/// A broken rule: where, what is wrong and what to do.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
    remedy: String,
}

impl Finding {
    fn new(
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, remedy } = self;
        write!(formatter, "{path}:{line}: {what}\n    {remedy}")
    }
}

/// A file of the repository, as text.
struct File {
    path: String,
    text: String,
}

/// Checks all rules and prints every finding.
pub(crate) fn run() -> Result<(), Failure> {
    let files = files()?;
    let dialect_folders = folders("crates/codec/src/dialects");
    let mut findings = borders::check(&workspace::metadata()?);
    findings.extend(dialects::check(&dialect_folders, &folders("corpus")));
    findings.extend(dialect_imports::check(&files, &dialect_folders));
    findings.extend(vendor_names::check(&files));
    findings.extend(banned_words::check(&files));
    findings.extend(corpus_files::check(&files));
    findings.extend(doc_paths::check(&files));
    findings.extend(functions::check(&files));
    findings.extend(orphans::check(&files));
    for file in &files {
        findings.extend(sources::check(&file.path, &file.text));
    }
    findings.extend(coverage::check(&files));
    findings.extend(migrations::check(&files));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, no findings", files.len());
        Ok(())
    } else {
        Err(format!("tidy: {} findings", findings.len()))
    }
}

/// Every text file that git tracks, or would track.
fn files() -> Result<Vec<File>, Failure> {
    let root = workspace::root();
    let listed = command::output(Command::new("git").current_dir(&root).args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
    ]))?;
    let mut files = Vec::new();
    for path in listed.lines().collect::<BTreeSet<_>>() {
        // Skips what is deleted but still in the index, and what is not text.
        if let Ok(text) = std::fs::read_to_string(root.join(path)) {
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// The names of the folders directly under `path`.
fn folders(path: &str) -> BTreeSet<String> {
    let Ok(entries) = std::fs::read_dir(workspace::root().join(path)) else {
        return BTreeSet::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}
