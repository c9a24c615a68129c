//! The configuration: one TOML file, overridden by environment variables, overridden by a few
//! command-line flags.
//!
//! This module turns text into a checked [`Config`]. It starts nothing and reads no global state: the
//! environment arrives as a list, so that a test is a table of texts.
//!
//! The steps: `document` parses a file into a tree with positions, `env` applies the variables,
//! `defaults_from_env` adds backends if there are none, `keys` rejects keys that `schema` does not
//! list, and `read` turns the tree into values. No step stops at the first mistake; [`Diagnostics`]
//! holds them all.

mod address;
mod backends;
mod config_enum;
mod defaults_from_env;
mod diagnostic;
mod document;
mod env;
mod keys;
mod mask;
mod mcp;
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

pub use config_enum::ConfigEnum;
pub use diagnostic::{Diagnostic, Diagnostics, Location};
pub use paths::{FileError, Source, locate};
pub use read::{Overrides, read};
pub use schema::reference;
pub use settings::{
    Backend, Config, DebugLog, Dialect, Format, Level, Log, ReasoningField, Store, StoreUrl,
};
pub use values::RedisUrl;
