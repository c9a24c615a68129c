//! The flows of a conversation whose backend changes, against two strict simulators of different
//! identity, through the real binary. Each flow runs under both policies where they differ, and
//! reads what the simulators received, since a recovery would hide a mistake from the client.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocks;
mod compat;
mod concurrency;
mod flows;
mod growth;
mod lifecycle;
mod lineages;
mod logs;
mod plans;
mod prefix;
mod repairs;
mod restart;
mod stubborn;
mod support;
mod switching;
mod unknown;
