//! Runs a private Postgres server with empty databases, for programs that are not tests: prints the
//! addresses of as many databases as the argument says, and ends when its input ends.

#![allow(clippy::print_stdout, reason = "the addresses are its output")]

use std::io::Read;

use throughline_testkit::PostgresDatabase;

fn main() {
    let count = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let databases: Vec<PostgresDatabase> = (0..count).map(|_| PostgresDatabase::new()).collect();
    for database in &databases {
        println!("{}", database.url);
    }
    // Reading fails only if the input is broken, which is an end, too.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
