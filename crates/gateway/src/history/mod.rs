//! What of the past goes to this target, for every plan.

pub(crate) mod adapt;
pub(crate) mod client_paths;
pub(crate) mod missing_call_ids;
pub(crate) mod normalize;
pub(crate) mod prefix_guard;
pub(crate) mod recall;
pub mod replay_table;
mod restore;
pub(crate) mod vault_lookup;
