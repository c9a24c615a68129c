//! Rules for one file: its first line, its length, and text that must not be in it.

use super::Finding;

/// Lines of a source file.
const MAX_LINES: usize = 800;

/// Signs of unfinished work. Each one is put together from two parts, so that this file passes its
/// own check.
const UNFINISHED: &[(&str, Border)] = &[
    (concat!("TO", "DO"), Border::Word),
    (concat!("FIX", "ME"), Border::Word),
    (concat!("to", "do!"), Border::Word),
    (concat!("unimpl", "emented!"), Border::Word),
    (concat!("#[ign", "ore"), Border::None),
];

/// Folders that exist only on one machine.
const MACHINE_PATHS: &[&str] = &[
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/tmp/", "bash"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Border {
    Word,
    None,
}

/// Checks one file by its path and text.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    // Captures are recorded bytes.
    if path.starts_with("corpus/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    let rust = path.ends_with(".rs");
    let source = rust || path.ends_with(".py") || path.ends_with(".js");
    if rust && !text.starts_with("//!") {
        findings.push(Finding::new(
            path,
            1,
            "the file does not begin with a comment",
            "begin it with `//!` and say what it holds",
        ));
    }
    let length = text.lines().count();
    if source && length > MAX_LINES {
        findings.push(Finding::new(
            path,
            MAX_LINES + 1,
            format!("{length} lines, more than {MAX_LINES}"),
            "split it",
        ));
    }
    for (index, line) in text.lines().enumerate() {
        findings.extend(check_line(path, index + 1, line, source));
    }
    if rust {
        findings.extend(check_test_names(path, text));
    }
    findings
}

fn check_line(path: &str, number: usize, line: &str, source: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if line.contains('\t') {
        findings.push(Finding::new(
            path,
            number,
            "a tab",
            "indent with spaces; write `\\t` in a string",
        ));
    }
    for machine in MACHINE_PATHS {
        if has(line, machine, starts_a_path) {
            findings.push(Finding::new(
                path,
                number,
                format!("`{machine}` is a folder on one machine"),
                "use a path in the repository, or read it from the environment",
            ));
        }
    }
    for (word, border) in UNFINISHED.iter().filter(|_| source) {
        let found = match border {
            Border::Word => has(line, word, |before| !is_word(before)),
            Border::None => line.contains(word),
        };
        if found {
            findings.push(Finding::new(
                path,
                number,
                format!("`{word}`"),
                "finish it, or open an issue",
            ));
        }
    }
    findings
}

/// Whether `needle` occurs where the character before it passes `border`.
fn has(line: &str, needle: &str, border: fn(char) -> bool) -> bool {
    line.match_indices(needle).any(|(at, _)| line[..at].chars().next_back().is_none_or(border))
}

/// After `docs` in `docs/home/…` a slash continues a path; after a quote or a space it starts one.
fn starts_a_path(before: char) -> bool {
    !is_word(before) && !matches!(before, '.' | '-' | '~' | '}' | ']' | '>')
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn check_test_names(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut after_attribute = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim_start();
        if is_test_attribute(line) {
            after_attribute = true;
        } else if let Some(name) = function_name(line) {
            if after_attribute && name.starts_with("test_") {
                findings.push(Finding::new(
                    path,
                    index + 1,
                    format!("test name `{name}`"),
                    "state the fact in the present tense, without `test_`",
                ));
            }
            after_attribute = false;
        }
    }
    findings
}

/// `#[test]`, `#[tokio::test]`, `#[tokio::test(start_paused = true)]` and the like.
pub(super) fn is_test_attribute(line: &str) -> bool {
    let Some(attribute) = line.trim_start().strip_prefix("#[") else {
        return false;
    };
    let name: String = attribute
        .chars()
        .take_while(|character| is_word(*character) || *character == ':')
        .collect();
    name == "test" || name.ends_with("::test")
}

/// The name in a line that begins a function.
pub(super) fn function_name(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in ["pub(crate) ", "pub ", "const ", "async ", "unsafe "] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let name = rest.strip_prefix("fn ")?;
    let end = name.find(|character| !is_word(character)).unwrap_or(name.len());
    Some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, text).iter().map(|found| found.line).collect()
    }

    #[test]
    fn plain_file_has_no_finding() {
        assert!(lines("crates/codec/src/lib.rs", "//! Translation.\n\nfn main() {}\n").is_empty());
    }

    #[test]
    fn rust_file_must_begin_with_a_comment() {
        assert_eq!(lines("build.rs", "fn main() {}\n"), [1]);
        assert!(lines("notes.md", "No such rule here.\n").is_empty());
    }

    #[test]
    fn long_file_is_found() {
        let text = "//! Long.\n".repeat(MAX_LINES + 5);
        assert_eq!(lines("long.rs", &text), [MAX_LINES + 1]);
        assert!(lines("Cargo.lock", &text).is_empty());
    }

    #[test]
    fn unfinished_words_are_found_as_words_only() {
        for (word, _) in UNFINISHED {
            let text = format!("//! Text.\n// {word} x\n");
            assert_eq!(lines("a.rs", &text), [2], "{word}");
        }
        let method = format!("//! Text.\n// MAS{}NT\n", UNFINISHED[0].0);
        assert!(lines("a.rs", &method).is_empty());
    }

    #[test]
    fn machine_path_is_found_only_at_its_beginning() {
        for machine in MACHINE_PATHS {
            let text = format!("see `{machine}x`\n");
            assert_eq!(lines("README.md", &text), [1], "{machine}");
        }
        let inside = format!("docs{}x, ..{}y\n", MACHINE_PATHS[1], MACHINE_PATHS[1]);
        assert!(lines("README.md", &inside).is_empty());
    }

    #[test]
    fn captures_are_not_checked() {
        assert!(lines("corpus/anthropic/client_request/odd.json", "\t\n").is_empty());
    }

    #[test]
    fn tab_is_found() {
        assert_eq!(lines("README.md", "one\n\ttwo\n"), [2]);
    }

    #[test]
    fn prefix_is_found_only_on_tests() {
        let prefix = "test_";
        let text = format!(
            "//! Text.\n#[tokio::test(start_paused = true)]\nasync fn {prefix}one() {{}}\nfn {prefix}server() {{}}\n"
        );
        assert_eq!(lines("a.rs", &text), [3]);
    }
}
