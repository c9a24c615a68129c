//! What no compiler checks: the borders between crates, the shape of files, the words of losses, that
//! every requirement has a test and no migration changes. Here is only gathering; the rules are in
//! the files of their nouns, as pure functions over text and metadata.

mod borders;
mod coverage;
mod dialects;
mod losses;
mod migrations;
mod sources;

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

use crate::Failure;
use crate::command;
use crate::workspace;

/// One thing to put right, and where.
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

/// Checks everything and tells all findings at once.
pub(crate) fn run() -> Result<(), Failure> {
    let files = files()?;
    let mut findings = borders::check(&workspace::metadata()?);
    let dialects = folders("crates/codec/src/dialects");
    findings.extend(dialects::check(&dialects, &folders("corpus")));
    findings.extend(dialects::check_imports(&dialects, &files));
    for file in &files {
        findings.extend(sources::check(&file.path, &file.text));
    }
    findings.extend(coverage::check(&files));
    findings.extend(losses::check(&files));
    findings.extend(migrations::check(&files));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        println!("tidy: {} files, nothing to say", files.len());
        Ok(())
    } else {
        Err(format!("tidy: {} findings", findings.len()))
    }
}

/// Every text file that is tracked or about to be.
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
        // Gone from the work tree but not yet from the index, or not text: not ours to judge.
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
