//! Rejects keys that are unknown or not available yet, and values that should be tables. The values of
//! known keys are checked where they are read.

use super::diagnostic::{Problem, Report, one_of};
use super::document::{Entry, Node, Position, Value};
use super::schema::{self, KeyType, Row};
use super::suggest;

/// Checks a whole tree.
pub(super) fn check(root: &Node, report: &mut Report<'_>) {
    check_table(root, "", report);
}

fn check_table(table: &Node, section: &'static str, report: &mut Report<'_>) {
    for entry in table.entries() {
        match schema::row(section, &entry.key) {
            None => report.add(&entry.position, unknown(section, entry)),
            Some(row) if !row.available => report.add(&entry.position, not_available(row)),
            Some(row) => check_nested(&entry.node, row, report),
        }
    }
}

fn check_nested(node: &Node, row: &'static Row, report: &mut Report<'_>) {
    let header = || schema::header(row.path).unwrap_or_default();
    match (row.key_type, &node.value) {
        (KeyType::Table, Value::Table(_)) => check_table(node, row.path, report),
        (KeyType::Table, other) => {
            let message = format!("`{}` is {}", row.key(), other.type_name());
            report.add(
                &node.position,
                Problem::new(message).expected(format!("a table, {}", header())),
            );
        }
        (KeyType::TableList, Value::List(elements)) => {
            for element in elements {
                if let Value::Table(_) = element.value {
                    check_table(element, row.path, report);
                } else {
                    let message =
                        format!("an element of `{}` is {}", row.key(), element.value.type_name());
                    report.add(&element.position, Problem::new(message).expected("a table"));
                }
            }
        }
        (KeyType::TableList, other) => {
            let message = format!("`{}` is {}", row.key(), other.type_name());
            let expected = format!("a list of tables, each under {}", header());
            report.add(&node.position, Problem::new(message).expected(expected));
        }
        _ => {}
    }
}

fn not_available(row: &Row) -> Problem {
    Problem::new(format!("`{}` is not available yet", row.key()))
        .hint("remove it until a release supports it")
}

fn unknown(section: &str, entry: &Entry) -> Problem {
    let key = entry.key.as_str();
    let header = schema::header(section);
    let section_name =
        header.map_or_else(|| "at the top level".to_owned(), |header| format!("in {header}"));
    let problem = Problem::new(format!("unknown key `{key}` {section_name}"));
    let here = || schema::rows_of(section).filter(|row| row.available).map(Row::key);
    // A known key in the wrong section is more likely than a typo: in TOML, every line after a header
    // belongs to that section.
    let same_key: Vec<&Row> = schema::ROWS
        .iter()
        .filter(|row| {
            row.available && row.key() == key && matches!(entry.position, Position::File(_))
        })
        .collect();
    match (same_key.as_slice(), suggest::nearest(key, here())) {
        ([row], _) => problem.hint(match schema::header(row.section()) {
            Some(header) => format!("it belongs in {header}"),
            None => "it belongs at the top level, above the first [section]".to_owned(),
        }),
        (_, Some(nearest)) => problem.did_you_mean(Some(nearest)),
        (_, None) => problem.expected(one_of(here())),
    }
}
