//! The configuration: one TOML file, environment variables over it, a few command-line flags over those.
//!
//! Here lives everything between text and a checked [`Config`]: the keys (`schema`), reading, the
//! messages about mistakes. It starts nothing and reads no global state: the environment arrives
//! as a list, so a test is a table of texts. Acting on a setting lives with whoever acts.
//!
//! A file goes through in this order: `document` makes a tree with positions, `env` lays the
//! variables over it, `keys` refuses what no row of the schema allows, `read` turns the tree into
//! values. No step stops at a mistake; [`Mistakes`] holds them all.

mod address;
mod backends;
mod diagnostic;
mod document;
mod env;
mod keys;
mod mask;
mod models;
mod paths;
mod read;
mod routes;
mod schema;
mod settings;
mod suggest;
#[cfg(test)]
mod tests;
mod units;
mod upstream;
mod values;
mod zero;

pub use diagnostic::{Mistake, Mistakes, Place};
pub use paths::{FileError, Source, locate};
pub use read::{Overrides, read};
pub use schema::reference;
pub use settings::{
    Auth, Backend, Compat, CompatMode, Config, DebugLog, Dialect, Family, Format, Level, Limits,
    Log, OnToolParseError, Policy, ReasoningField, ReasoningFormat, Replay, Responses, Route, Rule,
    Secret, Thinking, Timeouts, ToolThinking, Unknown,
};
