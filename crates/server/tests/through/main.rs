//! Requests that pass in place, in every dialect but Anthropic's (which `wire` and `flows` test): against
//! upstreams that show the very bytes they got, through the real binary.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bytes;
mod cuts;
mod envelopes;
mod lanes;
mod names;
mod refusals;
mod silence;
mod simulated;
mod support;
mod switching;
#[allow(dead_code, reason = "shared with `wire`, which needs more of it")]
#[path = "../wire/upstream.rs"]
mod upstream;
mod wants;
