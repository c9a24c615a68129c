//! The passthrough lane in every dialect but Anthropic's (`wire` and `flows` test that one): the
//! real binary over upstreams that show the exact bytes they received.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bytes;
mod conversations;
mod cuts;
mod envelopes;
mod keep_alive;
mod lanes;
mod lost_summaries;
mod model_names;
mod refusals;
mod required_members;
mod sloppy_servers;
mod support;
mod switching;
