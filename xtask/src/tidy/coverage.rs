//! Every requirement has a test that names it in a line `/// Covers: S1-3, case 2`. Tests of the web page
//! write `/** Covers: S0-4 */`.

use std::collections::BTreeSet;

use super::sources::{function_name, is_test_attribute};
use super::{File, Finding};

/// One requirement in each line: its id and a short reminder.
const REQUIREMENTS: &str = include_str!("../requirements.txt");
const REQUIREMENTS_PATH: &str = "xtask/src/requirements.txt";
const COVERS: &str = "/// Covers:";
/// The same in tests of the web page. It is written on one line.
const PAGE_COVERS: &str = "/** Covers:";

/// Finds requirements without a test, unknown ids, and `Covers` lines outside of tests.
pub(super) fn check(files: &[File]) -> Vec<Finding> {
    check_against(&requirements(), files)
}

struct Requirement {
    id: String,
    reminder: String,
    line: usize,
}

fn requirements() -> Vec<Requirement> {
    let read = |(index, line): (usize, &str)| {
        let (id, reminder) = match line.strip_prefix("case ") {
            Some(rest) => {
                let (number, reminder) = rest.split_once(' ')?;
                (format!("case {number}"), reminder)
            }
            None => {
                let (id, reminder) = line.split_once(' ')?;
                (id.to_owned(), reminder)
            }
        };
        Some(Requirement { id, reminder: reminder.to_owned(), line: index + 1 })
    };
    REQUIREMENTS.lines().enumerate().filter_map(read).collect()
}

fn check_against(requirements: &[Requirement], files: &[File]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut covered = BTreeSet::new();
    for file in files {
        let is_rust = file.path.ends_with(".rs");
        if !is_rust && !is_page_test(&file.path) {
            continue;
        }
        let prefix = if is_rust { COVERS } else { PAGE_COVERS };
        let lines: Vec<&str> = file.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            if !line.trim_start().starts_with(prefix) {
                continue;
            }
            let belongs = match is_rust {
                true => belongs_to_a_test(&lines, index),
                false => lines.get(index + 1).is_some_and(|line| begins_page_test(line)),
            };
            if !belongs {
                findings.push(Finding::new(
                    &file.path,
                    index + 1,
                    "a `Covers` line that belongs to no test",
                    "put it in the doc comment of the test function itself",
                ));
                continue;
            }
            for id in ids(&lines, index) {
                if requirements.iter().any(|known| known.id == id) || is_of_later_work(&id) {
                    covered.insert(id);
                } else {
                    findings.push(Finding::new(
                        &file.path,
                        index + 1,
                        format!("no requirement `{id}`"),
                        format!("write ids as in `{REQUIREMENTS_PATH}`: `S1-3, S1-17, case 2`"),
                    ));
                }
            }
        }
    }
    let missing = requirements.iter().filter(|requirement| !covered.contains(&requirement.id)).map(
        |requirement| {
            let Requirement { id, reminder, line } = requirement;
            Finding::new(
                REQUIREMENTS_PATH,
                *line,
                format!("no test covers {id} ({reminder})"),
                format!("write the test, or add `{COVERS} {id}` above the one that shows it"),
            )
        },
    );
    findings.extend(missing);
    findings
}

/// Ids that tests may name already, though no test has to.
fn is_of_later_work(id: &str) -> bool {
    let Some((family, number)) = id.rsplit_once(['-', ' ']) else {
        return false;
    };
    let Ok(number) = number.parse::<u32>() else {
        return false;
    };
    match family {
        "case" => (18..=48).contains(&number),
        "S0" | "S2" | "S3" | "S4" | "C" | "X" => number > 0,
        _ => false,
    }
}

/// The ids of a `Covers` line. After a comma at the end, the next line continues it.
fn ids(lines: &[&str], index: usize) -> Vec<String> {
    let line = lines[index].trim().trim_start_matches(COVERS);
    let mut text = line.trim_start_matches(PAGE_COVERS).trim_end_matches("*/").to_owned();
    let mut following = lines[index + 1..].iter();
    while text.trim_end().ends_with(',') {
        let Some(next) = following.next().and_then(|line| line.trim().strip_prefix("///")) else {
            break;
        };
        text.push_str(next);
    }
    text.split(',')
        .map(|id| id.trim().trim_end_matches('.').to_owned())
        .filter(|id| !id.is_empty())
        .collect()
}

fn is_page_test(path: &str) -> bool {
    path.starts_with("web/tests/")
        && [".test.mjs", ".test.ts"].iter().any(|end| path.ends_with(end))
}

/// Whether a line begins a test of the page, or a loop over such tests.
fn begins_page_test(line: &str) -> bool {
    ["test(", "for ("].iter().any(|start| line.trim_start().starts_with(start))
}

/// Whether the doc comment and attributes around the line belong to a test function.
fn belongs_to_a_test(lines: &[&str], index: usize) -> bool {
    let belongs = |line: &&&str| {
        let line = line.trim_start();
        line.starts_with("///") || line.starts_with("#[")
    };
    let before = lines[..index].iter().rev().take_while(belongs);
    let after = &lines[index..];
    let Some(function) = after.iter().position(|line| function_name(line).is_some()) else {
        return false;
    };
    // Only attributes, which may span lines, and comments come between the line and its function.
    let between = &after[..function];
    let whole =
        between.iter().all(|line| !line.trim().is_empty() && !line.trim_start().starts_with('}'));
    whole && before.chain(between).any(|line| is_test_attribute(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_text(text: &str) -> Vec<String> {
        let wanted = ["S1-1", "S1-2", "case 1"].map(|id| Requirement {
            id: id.to_owned(),
            reminder: "a reminder".to_owned(),
            line: 1,
        });
        let file = File { path: "a.rs".to_owned(), text: text.replace("MARK", COVERS) };
        check_against(&wanted, &[file]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn list_holds_each_id_once_with_a_short_reminder() {
        let known = requirements();
        let ids: BTreeSet<&str> = known.iter().map(|known| known.id.as_str()).collect();
        assert_eq!(ids.len(), known.len());
        // Requirements are never removed from the list.
        let first = (1..=44)
            .map(|number| format!("S1-{number}"))
            .chain((1..=30).map(|number| format!("case {number}")));
        for id in first {
            assert!(ids.contains(id.as_str()), "{id}");
        }
        for requirement in known {
            let words = requirement.reminder.split(' ').count();
            assert!((3..=6).contains(&words), "{}", requirement.reminder);
        }
    }

    #[test]
    fn covers_lines_above_tests_count() {
        let text = "\
            MARK S1-1, case 1\n#[test]\nfn one() {}\n\n\
            /// Why.\nMARK S1-2\n#[tokio::test(\n    start_paused = true,\n)]\nasync fn two() {}\n";
        assert!(check_text(text).is_empty());
    }

    #[test]
    fn covers_line_continues_after_a_comma() {
        let text = "MARK S1-1,\n/// S1-2, case 1\n#[test]\nfn one() {}\n";
        assert!(check_text(text).is_empty());
    }

    #[test]
    fn missing_requirement_is_found_with_its_reminder() {
        let text = "MARK S1-1, S1-2\n#[test]\nfn one() {}\n";
        assert_eq!(check_text(text), ["no test covers case 1 (a reminder)"]);
    }

    #[test]
    fn unknown_id_is_found() {
        let text = "MARK S1-1, S1-2, case 1, S9-9\n#[test]\nfn one() {}\n";
        assert_eq!(check_text(text), ["no requirement `S9-9`"]);
    }

    #[test]
    fn id_of_later_work_is_accepted() {
        let text = "MARK S1-1, S1-2, case 1, case 36, S0-20, C-2, X-13\n#[test]\nfn one() {}\n";
        assert!(check_text(text).is_empty());
        let text = "MARK S1-1, S1-2, case 1, case 49, S1-45, case x\n#[test]\nfn one() {}\n";
        assert_eq!(check_text(text).len(), 3);
    }

    #[test]
    fn covers_lines_above_tests_of_the_page_count() {
        let wanted = [Requirement { id: "S0-4".into(), reminder: "a box".into(), line: 1 }];
        let found = |path: &str, text: &str| {
            let text = text.replace("MARK", PAGE_COVERS);
            check_against(&wanted, &[File { path: path.to_owned(), text }]).len()
        };
        let text = "MARK S0-4 */\ntest(\"box_opens\", () => {});\n";
        assert_eq!(found("web/tests/browser/a.test.mjs", text), 0);
        assert_eq!(found("web/tests/browser/harness.mjs", text), 1);
        let helper = "MARK S0-4 */\nfunction help() {}\n";
        assert_eq!(found("web/tests/unit/a.test.ts", helper), 2);
    }

    #[test]
    fn covers_line_on_a_helper_covers_nothing() {
        let text = "MARK S1-1, S1-2, case 1\nfn helper() {}\n\n#[test]\nfn one() {}\n";
        assert_eq!(check_text(text).len(), 4);
    }
}
