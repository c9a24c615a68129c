//! Compares our reader of model text with other readers. `bench/` is a workspace of its own, so that
//! the other readers are compiled only for this command.

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
