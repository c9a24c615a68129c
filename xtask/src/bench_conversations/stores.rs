//! The stores alone: runs the bench of `crates/backends` and prints what it measured.

use std::process::Command;

use crate::Failure;
use crate::command;
use crate::workspace;

/// A figure of a store, and the time of a plain insert of the same bytes, in nanoseconds.
#[derive(Debug, PartialEq)]
pub(super) struct Figure {
    store: String,
    name: String,
    nodes: usize,
    time: f64,
    plain: f64,
}

/// The command that runs the bench program. `CONVERSATIONS_BENCH` names one that is built already, for
/// example to compare two builds.
pub(super) fn program() -> Command {
    if let Some(program) = std::env::var_os("CONVERSATIONS_BENCH") {
        return Command::new(program);
    }
    let mut bench = workspace::cargo();
    bench.args(["bench", "--quiet", "--package", "throughline-backends"]);
    bench.args(["--bench", "conversations", "--"]);
    bench
}

/// Measures stores that are empty now.
pub(super) fn measure(sizes: &[usize], stores: &[&str]) -> Result<Vec<Figure>, Failure> {
    let mut bench = program();
    bench.arg("measure").args(sizes.iter().map(usize::to_string)).args(stores);
    Ok(read(&command::output(&mut bench)?))
}

/// Reads the lines of the bench program.
fn read(printed: &str) -> Vec<Figure> {
    let figure = |line: &str| {
        let [store, name, nodes, time, plain] = line.split('\t').collect::<Vec<_>>()[..] else {
            return None;
        };
        Some(Figure {
            store: store.to_owned(),
            name: name.to_owned(),
            nodes: nodes.parse().ok()?,
            time: time.parse().ok()?,
            plain: plain.parse().ok()?,
        })
    };
    printed.lines().filter_map(figure).collect()
}

/// The figures as a table.
pub(super) fn table(figures: &[Figure]) -> String {
    let mut table = "| store | figure | nodes before | time | plain insert of the same bytes | ratio | per second |\n|---|---|---:|---:|---:|---:|---:|\n".to_owned();
    for Figure { store, name, nodes, time, plain } in figures {
        table.push_str(&format!(
            "| {store} | {name} | {nodes} | {} | {} | {:.1} | {:.0} |\n",
            shown(*time),
            shown(*plain),
            time / plain,
            1e9 / time
        ));
    }
    table
}

/// Nanoseconds as a person reads them.
fn shown(nanoseconds: f64) -> String {
    if nanoseconds < 1e6 {
        format!("{:.1} µs", nanoseconds / 1e3)
    } else {
        format!("{:.2} ms", nanoseconds / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_bench_become_a_table() {
        let printed = "running\nSQLite\tappend of a node\t1000\t50000\t20000\nSQLite\twalk\t10000\t2e7\t1e7\n";
        let table = table(&read(printed));
        let rows = [
            "| SQLite | append of a node | 1000 | 50.0 µs | 20.0 µs | 2.5 | 20000 |",
            "| SQLite | walk | 10000 | 20.00 ms | 10.00 ms | 2.0 | 50 |",
        ];
        assert_eq!(table.lines().skip(2).collect::<Vec<_>>(), rows);
    }
}
