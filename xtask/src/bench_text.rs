//! Our reader of model text beside its peers. They are built in `bench/`, a workspace of its own, so
//! that nobody else builds them; what is measured is told there.

use crate::Failure;
use crate::command;
use crate::workspace;

/// `bench-text [--quick]`
pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    if !matches!(arguments, [] | ["--quick"]) {
        return Err("bench-text takes only `--quick`".to_owned());
    }
    let mut bench = workspace::cargo();
    bench.current_dir(workspace::root().join("bench"));
    bench.args(["run", "--release", "--"]);
    bench.args(arguments);
    command::run(&mut bench)
}
