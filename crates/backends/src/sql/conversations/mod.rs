//! Stored conversations in a database.
//!
//! - `rows`: reads nodes, references, projects and runs from rows;
//! - `commit`: writes changes together;
//! - `paths`: reads a node and those before it;
//! - `nodes`, `projects`, `runs`, `rooms`, `users`, `members`: the traits of the store.

#![allow(
    private_bounds,
    reason = "callers name the store of a product, never the trait of databases"
)]

mod commit;
mod members;
mod nodes;
mod paths;
mod projects;
mod rooms;
mod rows;
mod runs;
mod users;

use throughline_gateway::thinking::store::StoreError;

use super::{Database, error};

/// Stored conversations in a database.
#[derive(Clone, Debug)]
pub struct SqlConversations<D> {
    pub(crate) database: D,
}

impl<D: Database> SqlConversations<D> {
    pub(crate) fn new(database: D) -> Self {
        Self { database }
    }
}

fn read_error(cause: sqlx::Error) -> StoreError {
    error("cannot read stored conversations", cause)
}

fn write_error(cause: sqlx::Error) -> StoreError {
    error("cannot write stored conversations", cause)
}
