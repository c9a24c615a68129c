//! The corpus runner: every file under `corpus/` is read by a rule, and every rule is a row in
//! [`rules`].
//!
//! To add a capture, put the file into a folder of `corpus/`, describe it in `<name>.about.toml`, run
//! `cargo xtask bless` and read the golden that appears beside it. To add a dialect, add its folders.
//! No Rust changes in either case.
//!
//! - [`rules`]: which folder is checked how; fails on a file that no rule reads;
//! - [`folder`]: captures, their goldens and their `about.toml`;
//! - [`client_request`]: requests of clients, and how they are read;
//! - [`upstream_request`]: requests as each upstream dialect writes them;
//! - [`upstream_reply`]: replies of providers, in every split and every cut;
//! - [`native_turn`]: turns of providers, in the request that follows them;
//! - [`raw_reply`]: replies as stored conversations keep them, read back;
//! - [`client_reply`]: replies as each client dialect writes them;
//! - [`refusal`]: errors of providers, and what they are classified as;
//! - [`malformed`]: requests that are refused, and the path of their mistake;
//! - [`shared`]: the canonical requests and replies that every dialect writes and reads back;
//! - [`resumable`]: replies that are cut and resumed, in each format of a run;
//! - [`opaque`]: the outline of a request finds the same thinking as its reader;
//! - [`text`]: raw text of models, by family.
//!
//! The Anthropic dialect edits requests in place, which has proofs of its own: [`anthropic_request`],
//! [`anthropic_prefix`], [`anthropic_keys`], [`anthropic_random`] and [`anthropic_tree`].

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod anthropic_keys;
mod anthropic_prefix;
mod anthropic_random;
mod anthropic_request;
mod anthropic_tree;
mod client_reply;
mod client_request;
mod folder;
mod malformed;
mod native_turn;
mod opaque;
mod raw_reply;
mod refusal;
mod resumable;
mod rules;
mod shared;
mod text;
mod upstream_reply;
mod upstream_request;
