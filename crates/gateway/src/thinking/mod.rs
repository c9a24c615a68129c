//! Thinking memory: which blocks passed, who made them, and so who may have them.
//!
//! - [`lineage`]: which conversation a request belongs to;
//! - [`memory`]: the memory itself and its rules;
//! - [`capture`]: blocks out of a reply;
//! - [`store`]: what a durable store must do;
//! - [`writer`]: writing to it off the path of requests.

pub mod capture;
pub mod lineage;
pub mod memory;
pub mod store;
pub mod writer;

pub use lineage::{Lineage, LineageId, MarkId};
pub use memory::{Memory, Statistics, Target, Verdict};
