//! The OpenAI chat dialect over HTTP.
#![allow(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../common/mod.rs"]
mod common;

mod official;
mod reasoning;
mod refusals;
mod replies;
mod signed;
mod support;
