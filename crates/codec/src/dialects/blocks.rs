//! Requests in which every block is known, so that any of them can be edited in place.
//!
//! One dialect has such an outline today. The gateway uses it under this name.

pub use super::anthropic::client_reply::{PING, error_event};
pub use super::anthropic::upstream_reply::ReplyReader;
pub use super::anthropic::{
    BETA_BINDING_CONTROLS, BETA_HEADER, BETA_INTERLEAVED, outline, prefix, rewrite, settings,
    think_between_tools,
};

use super::UpstreamDialect;
use super::anthropic::Anthropic;

/// The dialect whose requests have an outline of blocks.
pub static DIALECT: &dyn UpstreamDialect = &Anthropic;
