//! What stored conversations cost, beside a plain insert of the same bytes. `cargo xtask
//! bench-conversations` runs this program and prints tables.
//!
//! - `measure SIZE... STORE...`: measures stores whose branch has this many nodes, one size after the
//!   other. A store is a new SQLite file or the URL of an empty Postgres database. Prints a line for
//!   each figure: store, figure, nodes, nanoseconds, nanoseconds of the plain insert.
//! - `seed STORE PROJECT COUNT`: adds copies of the first two nodes of a project to its first branch,
//!   until the project has this many. `THROUGHLINE_KEYRING` has the keys.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a bench prints, and fails by panicking"
)]

mod measure;
mod plain;
mod seed;

use std::path::Path;
use std::sync::Arc;

use throughline_backends::postgres::PostgresStore;
use throughline_backends::sqlite::SqliteConversations;
use throughline_conversations::store::Store;

#[tokio::main]
async fn main() {
    // Cargo adds `--bench`.
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["measure", ref rest @ ..] => measure::run(rest).await,
        ["seed", store, project, count] => seed::run(store, project, count.parse().unwrap()).await,
        // `cargo test --benches` runs it without a command.
        _ => println!("run `cargo xtask bench-conversations`"),
    }
}

/// Whether a store is a Postgres database.
fn is_postgres(store: &str) -> bool {
    store.starts_with("postgres:")
}

async fn open(store: &str) -> Arc<dyn Store> {
    match is_postgres(store) {
        true => Arc::new(PostgresStore::open(store).await.unwrap().conversations()),
        false => Arc::new(SqliteConversations::open(Path::new(store)).await.unwrap()),
    }
}
