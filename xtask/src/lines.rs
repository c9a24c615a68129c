//! Counts the lines of production code in each crate: without tests, comments and blank lines.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::Failure;
use crate::command;
use crate::tidy::lexer::{self, Kind};
use crate::workspace;

/// Prints the count of each crate, and how it differs from an earlier commit.
pub(crate) fn run(base: Option<&str>) -> Result<(), Failure> {
    let counts = count(None)?;
    let earlier = base.map(|commit| count(Some(commit))).transpose()?;
    let total: usize = counts.values().sum();
    for (name, lines) in counts.iter().map(|(name, lines)| (name.as_str(), *lines)) {
        print_row(name, lines, earlier.as_ref().map(|old| old.get(name).copied().unwrap_or(0)));
    }
    print_row("all", total, earlier.map(|old| old.values().sum()));
    Ok(())
}

fn print_row(name: &str, lines: usize, earlier: Option<usize>) {
    match earlier {
        Some(earlier) => {
            println!("{name:14} {lines:7} {:+7}", lines.cast_signed() - earlier.cast_signed());
        }
        None => println!("{name:14} {lines:7}"),
    }
}

/// The lines of each crate in the work tree, or in a commit.
fn count(commit: Option<&str>) -> Result<BTreeMap<String, usize>, Failure> {
    let listed = match commit {
        Some(commit) => git(&["ls-tree", "-r", "--name-only", commit])?,
        None => git(&["ls-files", "--cached", "--others", "--exclude-standard"])?,
    };
    let mut sources = Vec::new();
    for path in listed.lines() {
        let Some(name) = crate_of(path) else { continue };
        let text = match commit {
            Some(commit) => git(&["show", &format!("{commit}:{path}")])?,
            // A deleted file may still be in the index.
            None => std::fs::read_to_string(workspace::root().join(path)).unwrap_or_default(),
        };
        sources.push((name, path, text));
    }
    let tests: BTreeSet<String> =
        sources.iter().flat_map(|(_, path, text)| test_modules(path, text)).collect();
    let mut counts = BTreeMap::new();
    for (name, path, text) in &sources {
        let lines = if tests.contains(*path) { 0 } else { code_lines(text) };
        *counts.entry((*name).to_owned()).or_default() += lines;
    }
    Ok(counts)
}

/// The files of modules that a source declares for tests only.
fn test_modules(path: &str, text: &str) -> Vec<String> {
    let (folder, _) = path.rsplit_once('/').unwrap_or_default();
    let names = text.split("#[cfg(test)]\nmod ").skip(1).filter_map(|rest| rest.split_once(';'));
    names.map(|(name, _)| format!("{folder}/{name}.rs")).collect()
}

fn git(arguments: &[&str]) -> Result<String, Failure> {
    command::output(Command::new("git").current_dir(workspace::root()).args(arguments))
}

/// The crate that a file of production code belongs to.
fn crate_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix("crates/").unwrap_or(path).split('/').next()?;
    let inside = path.contains("/src/") || path.ends_with("/build.rs");
    let ours = path.starts_with("crates/") || name == "xtask";
    let production = name != "testkit" && !lexer::is_test_file(path);
    (ours && inside && production && path.ends_with(".rs")).then_some(name)
}

fn code_lines(text: &str) -> usize {
    let tokens = lexer::tokens(text);
    let mut lines = BTreeSet::new();
    for token in lexer::without_tests(&tokens) {
        match token.kind {
            Kind::Comment(_) => {}
            Kind::Text(text) => lines.extend(token.line..=token.line + text.matches('\n').count()),
            Kind::Name(_) | Kind::Punctuation(_) => drop(lines.insert(token.line)),
        }
    }
    lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_comments_and_blank_lines_do_not_count() {
        let text = "//! Why.\n\nuse a;\n/* b\n */\nconst C: &str = \"d\n\ne\"; // f\n\
            #[cfg(test)]\nmod tests {\n    fn g() {}\n}\n";
        assert_eq!(code_lines(text), 4);
    }

    #[test]
    fn modules_for_tests_are_found() {
        let text = "mod a;\n#[cfg(test)]\nmod b;\n#[cfg(test)]\nmod c {\n    use d;\n}\n";
        assert_eq!(test_modules("xtask/src/e/mod.rs", text)[0], "xtask/src/e/b.rs");
    }

    #[test]
    fn only_production_sources_count() {
        assert_eq!(crate_of("crates/codec/src/dialects/mod.rs"), Some("codec"));
        assert_eq!(crate_of("crates/server/build.rs"), Some("server"));
        assert_eq!(crate_of("xtask/src/main.rs"), Some("xtask"));
        for other in [
            "crates/codec/src/text/tests.rs",
            "crates/codec/src/text/tests/calls.rs",
            "crates/codec/tests/corpus/main.rs",
            "crates/testkit/src/lib.rs",
            "bench/src/main.rs",
            "crates/gateway/src/catalog/models.toml",
        ] {
            assert_eq!(crate_of(other), None, "{other}");
        }
    }
}
