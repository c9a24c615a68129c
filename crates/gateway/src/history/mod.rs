//! Decides which parts of the conversation so far go to this target, and in which form. Both lanes
//! use it.

pub(crate) mod adapt;
pub(crate) mod client_paths;
pub(crate) mod compaction;
pub(crate) mod missing_call_ids;
pub(crate) mod normalize;
pub(crate) mod prefix_guard;
pub(crate) mod recall;
pub mod replay_table;
pub(crate) mod restore;
pub(crate) mod turn_position;
pub(crate) mod vault_lookup;
