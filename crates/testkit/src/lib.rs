//! Whole servers for tests: the real `throughline` binary as a process of its own, strict
//! simulators on real ports, and a plain HTTP client. No part of ours is replaced by a stand-in.
//!
//! Everything here panics on failure: it is used by tests only.

mod client;
mod conversation;
mod gateway;
mod simulator;

pub use client::{Answer, Client, Streamed};
pub use conversation::{Conversation, fold, sse_events};
pub use gateway::{Gateway, run_command};
pub use simulator::{Seen, Simulator};
