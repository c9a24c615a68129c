//! The list of losses in `docs/api.md` has exactly the names and reasons that the sources use.

use std::collections::BTreeSet;

use super::{File, Finding};

/// The file with the list, and the lines around it.
const DOCS: &str = "docs/api.md";
const BEGIN: &str = "<!-- losses -->";
const END: &str = "<!-- /losses -->";

/// The sources that report losses.
const SOURCES: [&str; 2] = ["crates/codec/src/dialects/", "crates/gateway/src/"];

/// Calls that report a loss with a name and a reason.
const CALLS: [&str; 5] = ["omit(", "omitted(", "adapt(", "adapted(", "of_part("];

/// A word of a loss in a source.
#[derive(Debug, PartialEq, Eq)]
enum Word<'a> {
    /// A part or a setting.
    Name(&'a str),
    Reason(&'a str),
}

/// Compares the list with the sources.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    let Some(docs) = files.iter().find(|file| file.path == DOCS) else {
        return Vec::new();
    };
    let (names, reasons) = listed(&docs.text);
    let sources: Vec<&File> = files
        .iter()
        .filter(|file| SOURCES.iter().any(|start| file.path.starts_with(start)))
        .filter(|file| file.path.ends_with(".rs") && !file.path.contains("/tests"))
        .collect();
    let mut findings = Vec::new();
    for file in &sources {
        for (line, word) in words(&file.text) {
            let (known, word) = match word {
                Word::Name(word) => (names.contains(word), word),
                Word::Reason(word) => (reasons.contains(word), word),
            };
            if !known {
                findings.push(Finding::new(
                    &file.path,
                    line,
                    format!("`{word}` is not in the list of losses"),
                    format!("use one of the list in `{DOCS}`, or add it there"),
                ));
            }
        }
    }
    for word in names.iter().chain(&reasons) {
        let literal = format!("\"{word}\"");
        if !sources.iter().any(|file| file.text.contains(&literal)) {
            findings.push(Finding::new(
                DOCS,
                1,
                format!("no loss uses `{word}`"),
                "remove it from the list",
            ));
        }
    }
    findings
}

/// The names and the reasons of the list: the words in backticks in the first column of its first
/// table, and of its second.
fn listed(docs: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let list = docs.split_once(BEGIN).map_or("", |(_, list)| list);
    let list = list.split_once(END).map_or("", |(list, _)| list);
    let mut tables = [BTreeSet::new(), BTreeSet::new()];
    let mut table = 0;
    for line in list.lines() {
        if line.starts_with("| reason ") {
            table = 1;
        }
        let column = line.split('|').nth(1).unwrap_or_default();
        let words = column.split('`').skip(1).step_by(2);
        tables[table].extend(words.map(ToOwned::to_owned));
    }
    let [names, reasons] = tables;
    (names, reasons)
}

/// The words of losses in a source, each with its line.
fn words(source: &str) -> Vec<(usize, Word<'_>)> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut words = Vec::new();
    let line = |at: usize| code[..at].matches('\n').count() + 1;
    for call in CALLS {
        for (at, _) in code.match_indices(call) {
            let begins = |before: char| !before.is_alphanumeric() && before != '_';
            if !code[..at].chars().next_back().is_none_or(begins) {
                continue;
            }
            let arguments = code[at + call.len()..].split(')').next().unwrap_or_default();
            if arguments.contains(['[', '(']) {
                continue;
            }
            let arguments: Vec<&str> = arguments
                .split(',')
                .map(str::trim)
                .filter(|argument| !argument.is_empty())
                .collect();
            if let [.., name, reason] = arguments.as_slice() {
                words.extend(literal(name).map(|word| (line(at), Word::Name(word))));
                words.extend(literal(reason).map(|word| (line(at), Word::Reason(word))));
            }
        }
    }
    for (member, is_name) in [("part: ", true), ("setting: ", true), ("reason: ", false)] {
        for (at, _) in code.match_indices(member) {
            let value = code[at + member.len()..].split([',', '\n']).next();
            let word = literal(value.unwrap_or_default().trim());
            words.extend(word.map(|word| match is_name {
                true => (line(at), Word::Name(word)),
                false => (line(at), Word::Reason(word)),
            }));
        }
    }
    words
}

/// The text of a string literal, if the argument is nothing else.
fn literal(argument: &str) -> Option<&str> {
    let argument = argument.strip_suffix(".into()").unwrap_or(argument);
    let word = argument.strip_prefix('"')?.strip_suffix('"')?;
    let fits = |byte: u8| byte.is_ascii_lowercase() || b"_.".contains(&byte);
    word.bytes().all(fits).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    const LIST: &str = "<!-- losses -->\n| part | what |\n|---|---|\n| `user`, `seed` | x |\n\n\
        | reason | why |\n|---|---|\n| `no_place` | y |\n<!-- /losses -->\n";

    #[test]
    fn words_are_found_in_every_form() {
        let source = "self.omitted(\"user\", \"no_place\");\nomit(losses, name, \"range\");\n\
            Loss::PartOmitted {\n    part: \"seed\",\n    reason: \"empty\",\n};\nvomit(\"a\", \"b\");\n\
            #[cfg(test)]\nomit(\"x\", \"y\")";
        assert_eq!(
            words(source),
            [
                (2, Word::Reason("range")),
                (1, Word::Name("user")),
                (1, Word::Reason("no_place")),
                (4, Word::Name("seed")),
                (5, Word::Reason("empty")),
            ]
        );
    }

    #[test]
    fn word_on_one_side_only_is_found() {
        let docs = file("docs/api.md", LIST);
        let source = file(
            "crates/gateway/src/x.rs",
            "adapted(\"user\", \"no_place\"); adapted(\"usr\", \"no_room\");",
        );
        let found: Vec<String> =
            check(&[docs, source]).into_iter().map(|finding| finding.what).collect();
        assert_eq!(
            found,
            [
                "`usr` is not in the list of losses",
                "`no_room` is not in the list of losses",
                "no loss uses `seed`",
            ]
        );
    }
}
