//! Requests in which every block is known, so that any of them can be edited in place.
//!
//! One dialect has such an outline today. The gateway uses it under this name.

pub use super::anthropic::client_reply::{PING, error_event};
pub use super::anthropic::upstream_reply::ReplyReader;
pub use super::anthropic::{
    BETA_BINDING_CONTROLS, BETA_HEADER, BETA_INTERLEAVED, outline, prefix, rewrite, settings,
    think_between_tools,
};

use throughline_canonical::{Fault, Reason, Transformation};

use super::UpstreamDialect;
use super::anthropic::{Anthropic, threads};

/// The dialect whose requests have an outline of blocks.
pub static DIALECT: &dyn UpstreamDialect = &Anthropic;

/// Whether an entry of the beta header asks for adaptive thinking.
pub fn is_adaptive_beta(entry: &str) -> bool {
    entry.starts_with("adaptive-thinking")
}

/// Why the provider dropped a block, if that is what it reports.
pub fn dropped_reason(reported: &Transformation) -> Option<Reason> {
    let is_dropped = reported.action == "thinking_dropped";
    is_dropped.then_some(match reported.reason.as_str() {
        "prefix_binding_mismatch" => Reason::Prefix,
        // It is bound to another model, organisation or user, so this target cannot read it.
        _ => Reason::Origin,
    })
}

/// The refusal of a request that relies on a thread. The conversation of a thread is put in before, so
/// a backend would answer without it.
pub fn thread_refusal() -> Fault {
    Fault::at(threads::MEMBER, "send the whole conversation instead")
        .with_code(threads::UNSUPPORTED)
}
