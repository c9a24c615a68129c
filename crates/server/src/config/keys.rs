//! Which keys may stand where: refuses unknown keys and those of later work, and tables that are
//! something else. What a known key holds is judged where it is read.

use super::diagnostic::{Report, Trouble, one_of};
use super::document::{Entry, Node, Spot, Value};
use super::schema::{self, Kind, Row};
use super::suggest;

/// Checks a whole tree.
pub(super) fn check(root: &Node, report: &mut Report<'_>) {
    check_table(root, "", report);
}

fn check_table(table: &Node, section: &'static str, report: &mut Report<'_>) {
    for entry in table.entries() {
        match schema::row(section, &entry.key) {
            None => report.add(&entry.spot, unknown(section, entry)),
            Some(row) if !row.available => report.add(&entry.spot, not_yet(row)),
            Some(row) => check_nested(&entry.node, row, report),
        }
    }
}

fn check_nested(node: &Node, row: &'static Row, report: &mut Report<'_>) {
    let header = || schema::header(row.path).unwrap_or_default();
    match (row.kind, &node.value) {
        (Kind::Table, Value::Table(_)) => check_table(node, row.path, report),
        (Kind::Table, other) => {
            let message = format!("`{}` is {}", row.key(), other.kind());
            report
                .add(&node.spot, Trouble::new(message).expected(format!("a table, {}", header())));
        }
        (Kind::Tables, Value::List(elements)) => {
            for element in elements {
                if let Value::Table(_) = element.value {
                    check_table(element, row.path, report);
                } else {
                    let message =
                        format!("an element of `{}` is {}", row.key(), element.value.kind());
                    report.add(&element.spot, Trouble::new(message).expected("a table"));
                }
            }
        }
        (Kind::Tables, other) => {
            let message = format!("`{}` is {}", row.key(), other.kind());
            let expected = format!("a list of tables, each under {}", header());
            report.add(&node.spot, Trouble::new(message).expected(expected));
        }
        _ => {}
    }
}

fn not_yet(row: &Row) -> Trouble {
    Trouble::new(format!("`{}` is not available yet", row.key()))
        .hint("take it out until a release has it")
}

fn unknown(section: &str, entry: &Entry) -> Trouble {
    let key = entry.key.as_str();
    let place = schema::header(section);
    let place =
        place.map_or_else(|| "at the top level".to_owned(), |header| format!("in {header}"));
    let trouble = Trouble::new(format!("unknown key `{key}` {place}"));
    let here = || schema::rows_of(section).filter(|row| row.available).map(Row::key);
    // A known key under the wrong header is commoner than a slip that makes another key's name:
    // in TOML every line after a header belongs to it.
    let elsewhere: Vec<&Row> = schema::ROWS
        .iter()
        .filter(|row| row.available && row.key() == key && matches!(entry.spot, Spot::File(_)))
        .collect();
    match (elsewhere.as_slice(), suggest::nearest(key, here())) {
        ([row], _) => trouble.hint(match schema::header(row.section()) {
            Some(header) => format!("it belongs in {header}"),
            None => "it belongs at the top level, above the first [section]".to_owned(),
        }),
        (_, Some(meant)) => trouble.meant(Some(meant)),
        (_, None) => trouble.expected(one_of(here())),
    }
}
