//! A private Postgres server, which the testkit starts (`crates/testkit/examples/postgres.rs`).

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::Failure;
use crate::command;
use crate::workspace;

const EXAMPLE: &str = "postgres";

/// A running server. It ends when this is dropped.
pub(super) struct Postgres {
    child: Child,
    /// The addresses of its databases.
    pub(super) databases: Vec<String>,
}

impl Postgres {
    /// Starts a server with this many empty databases.
    pub(super) fn start(databases: usize) -> Result<Self, Failure> {
        // The features of tests, so that nothing else is compiled for it.
        let mut build = workspace::cargo();
        command::run(build.args(["build", "--workspace", "--locked", "--example", EXAMPLE]))?;
        let program = workspace::target_directory()?.join("debug/examples").join(EXAMPLE);
        let cannot = |error: std::io::Error| format!("cannot start Postgres: {error}");
        let mut child = Command::new(program)
            .arg(databases.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(cannot)?;
        let output = child.stdout.take().into_iter().map(BufReader::new);
        let lines = output.flat_map(BufRead::lines).take(databases);
        let databases = lines.collect::<Result<_, _>>().map_err(cannot)?;
        Ok(Self { child, databases })
    }

    /// The process that has the server below it.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The server ends when its input does. Waiting fails only if it has ended already.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
