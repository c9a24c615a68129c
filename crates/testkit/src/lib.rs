//! Whole servers for tests: the real `throughline` binary as a process of its own, strict
//! simulators on real ports, and a plain HTTP client. No part of ours is replaced by a stand-in.
//!
//! Everything here panics on failure: it is used by tests only.

mod client;
mod conversation;
mod gateway;
mod simulator;

use std::time::Duration;

pub use client::{Answer, Client, Streamed};
pub use conversation::{Conversation, fold, sse_events};
pub use gateway::{Gateway, run_command};
pub use simulator::{Seen, Simulator};

/// Asks again and again, for a while, until something is so.
///
/// # Panics
/// If it never is.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
