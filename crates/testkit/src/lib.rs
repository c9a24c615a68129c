//! Harness for whole-server tests: the real `throughline` binary as a process of its own, strict
//! simulators and raw TCP upstreams on real ports, and a plain HTTP client. Nothing is mocked.
//!
//! Everything here panics on failure, because only tests use it.

mod client;
mod conversation;
mod gateway;
mod metrics;
pub mod open_responses;
mod postgres;
mod raw_upstream;
mod redis;
mod server_process;
mod simulator;
mod small_disk;

use std::time::Duration;

pub use client::{Answer, Client, StreamedAnswer};
pub use conversation::{Conversation, message_from_sse, sse_events};
pub use gateway::{Gateway, block_fates, run_command};
pub use metrics::Metrics;
pub use postgres::{Postgres, PostgresDatabase};
pub use raw_upstream::{Exchange, RawUpstream, check_cut_reply, ok_head, ok_reply};
pub use redis::{Redis, RedisMessages};
pub use simulator::{CacheShare, ReceivedRequest, Simulator};
pub use small_disk::DiskKind;

/// The time limit for one step of a test, such as one answer.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Polls a condition until it holds.
///
/// # Panics
/// If the condition does not hold after five seconds.
pub async fn wait_until(description: &str, mut condition: impl AsyncFnMut() -> bool) {
    for _ in 0..500 {
        if condition().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out waiting until {description}");
}
