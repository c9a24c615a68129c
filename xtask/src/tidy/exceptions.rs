//! Lists of exceptions from a rule. A line that is no longer needed is a finding, so
//! the lists only get shorter.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::Failure;
use crate::workspace;

/// How the finding for a line that is not needed begins.
const UNUSED: &str = "exception ";

/// Exceptions of one rule: a path, or the beginning of paths if it ends in `/`, and in some lists a
/// name after it.
pub(super) struct Exceptions {
    /// Where the list is, for messages.
    pub(super) path: &'static str,
    pub(super) text: &'static str,
}

impl Exceptions {
    /// Removes findings that are on the list, and adds one for each line that is not needed.
    pub(super) fn apply(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let rows: Vec<(usize, &str)> = self
            .text
            .lines()
            .enumerate()
            .map(|(index, line)| (index + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let mut used = BTreeSet::new();
        let mut left: Vec<Finding> = Vec::new();
        for finding in findings {
            match rows.iter().find(|(_, row)| covers(row, &finding)) {
                Some((line, _)) => drop(used.insert(*line)),
                None => left.push(finding),
            }
        }
        let unused = rows.iter().filter(|(line, _)| !used.contains(line)).map(|(line, row)| {
            Finding::new(
                self.path,
                *line,
                format!("{UNUSED}`{row}` is not needed"),
                "remove the line, or run `cargo xtask tidy --shrink`",
            )
        });
        left.extend(unused);
        left
    }
}

/// Removes lines that are not needed from their lists; returns the other findings.
pub(super) fn shrink(findings: Vec<Finding>) -> Result<Vec<Finding>, Failure> {
    let (unused, left): (Vec<Finding>, Vec<Finding>) = findings
        .into_iter()
        .partition(|finding| finding.path.ends_with(".txt") && finding.what.starts_with(UNUSED));
    let mut lists: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for finding in &unused {
        lists.entry(&finding.path).or_default().insert(finding.line);
    }
    for (path, lines) in lists {
        let file = workspace::root().join(path);
        let cannot = |error: std::io::Error| format!("cannot change `{path}`: {error}");
        let text = std::fs::read_to_string(&file).map_err(cannot)?;
        std::fs::write(&file, without_lines(&text, &lines)).map_err(cannot)?;
        println!("{path}: {} lines removed", lines.len());
    }
    Ok(left)
}

fn without_lines(text: &str, lines: &BTreeSet<usize>) -> String {
    let kept = text.lines().enumerate().filter(|(index, _)| !lines.contains(&(index + 1)));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

fn covers(row: &str, finding: &Finding) -> bool {
    let (path, name) = row.split_once(' ').unwrap_or((row, ""));
    let same_path =
        if path.ends_with('/') { finding.path.starts_with(path) } else { finding.path == path };
    // A name is compared with the first text in backticks.
    same_path && (name.is_empty() || finding.what.split('`').nth(1) == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(text: &'static str, findings: &[(&str, &str)]) -> Vec<String> {
        let findings =
            findings.iter().map(|(path, what)| Finding::new(*path, 1, *what, "")).collect();
        let list = Exceptions { path: "list.txt", text };
        list.apply(findings).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn listed_findings_are_removed() {
        let findings = [("a.rs", "name `x`"), ("b/c.rs", "name `y`"), ("d.rs", "name `z`")];
        assert_eq!(apply("# why\na.rs\nb/\n", &findings), ["name `z`"]);
    }

    #[test]
    fn exception_may_name_one_finding_of_a_file() {
        let findings = [("a.rs", "name `x`"), ("a.rs", "name `y`")];
        assert_eq!(apply("a.rs x\n", &findings), ["name `y`"]);
    }

    #[test]
    fn unused_lines_are_removed() {
        assert_eq!(without_lines("# why\na\nb\nc\n", &[2, 4].into()), "# why\nb\n");
    }

    #[test]
    fn unused_exception_is_found() {
        assert_eq!(apply("a.rs\n", &[]), ["exception `a.rs` is not needed"]);
    }
}
