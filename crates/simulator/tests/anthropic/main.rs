//! The Anthropic dialect over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../common/mod.rs"]
mod common;

mod compaction;
mod refusals;
mod replies;
mod thinking;
mod threads;
