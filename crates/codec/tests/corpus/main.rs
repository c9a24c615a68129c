//! The corpus, and the properties that hold for every file in it.
//!
//! To add a capture: put the file in a folder of `corpus/`, describe it in `<name>.about.toml`, run
//! with `BLESS=1`, and read the golden that appears next to it. No Rust code changes.
//!
//! - [`dialects`]: the shared requests and replies, written and read back by every dialect.
//! - [`folder`]: captures, their goldens and their descriptions.
//! - [`malformed`]: invalid requests, and the paths in their error messages.
//! - [`reply`]: replies of providers, in every split and every cut.
//! - [`remembered`]: a thinking block has one name, in the reply and when it is sent back.
//! - [`request`]: requests of clients. An edit changes only its own span.
//! - [`prefix`]: what changes the prefix of a thinking block, and what does not.
//! - [`refusal`]: error replies of providers.
//! - [`tree`]: the same edits on a tree of values, for comparison.
//! - [`rendered`]: random requests in random spellings, for the same properties.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod dialects;
mod folder;
mod malformed;
mod marks;
mod prefix;
mod refusal;
mod remembered;
mod rendered;
mod reply;
mod request;
mod text;
mod tree;
