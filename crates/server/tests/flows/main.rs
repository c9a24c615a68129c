//! Conversations whose backend changes, with the real binary over two strict simulators that read
//! none of each other's signatures. Each flow runs under both policies where they differ. The tests
//! check what the simulators received, because a retry would hide a mistake from the client.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod backend_settings;
mod blocks;
mod concurrency;
mod dropped_thinking;
mod example_flows;
mod lifecycle;
mod lineages;
mod logs;
mod memory_load;
mod plans;
mod prefix;
mod repairs;
mod repeated_refusals;
mod restart;
mod several_instances;
mod support;
mod switching;
mod unknown;
