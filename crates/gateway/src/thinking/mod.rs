//! Thinking memory: which blocks passed, who made them, and so who may have them.
//!
//! - [`lineage`]: which conversation a request belongs to;
//! - [`memory`]: the memory itself and its rules;
//! - [`capture`]: blocks out of a reply;
//! - [`guard`]: whether a block still stands where it was made;
//! - [`store`]: what a durable store must do;
//! - [`writer`]: writing to it off the path of requests;
//! - [`envelope`]: origins and signatures that ride with the client;
//! - [`vault`]: whole turns for clients that lose them;
//! - [`dice`]: nonces for both.

pub mod capture;
pub mod envelope;
pub mod guard;
pub mod lineage;
pub mod memory;
pub mod random;
pub mod store;
pub mod vault;
pub mod writer;

pub use envelope::{Envelope, EnvelopeKind, Envelopes, OpenResult};
pub use lineage::{Lineage, LineageId, SessionTag};
pub use memory::{Memory, Statistics, Target, Verdict};
pub use vault::{Kept, Vault, VaultKey, VaultLimits, VaultStore};
