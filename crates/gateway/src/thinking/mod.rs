//! Thinking memory: which blocks passed, who made them, and who may receive them.
//!
//! - [`lineage`]: which conversation a request belongs to;
//! - [`memory`]: the memory itself and its rules;
//! - [`capture`]: blocks out of a reply;
//! - [`guard`]: whether the conversation before a block has changed;
//! - [`store`]: the trait of a durable store;
//! - [`health`]: whether a store accepts writes;
//! - [`writer`]: writes to the store in the background;
//! - [`envelope`]: origins and signatures that the client holds;
//! - [`vault`]: whole turns, for clients that cannot hold all of a turn;
//! - [`random`]: random nonces and ids.

pub mod capture;
pub mod envelope;
pub(crate) mod fingerprint;
pub mod guard;
pub mod health;
pub mod lineage;
pub mod memory;
pub mod random;
pub mod store;
pub mod vault;
pub mod writer;

pub use envelope::{Envelope, EnvelopeKind, Envelopes, OpenResult};
pub use lineage::{Lineage, LineageId, SessionTag};
pub use memory::{Memory, Statistics, TargetIdentity, Verdict};
pub use vault::{Lookup, StoredTurn, Vault, VaultKey, VaultLimits, VaultStore};
