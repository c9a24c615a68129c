//! The Anthropic Messages dialect.
//!
//! - [`outline`]: where the parts of a request stand, for editing it in place;
//! - [`rewrite`]: the edits themselves;
//! - [`prefix`]: what a thinking block was made under;
//! - [`upstream_reply`]: a provider's reply, as canonical events;
//! - [`refusal`]: which of a provider's errors speak of thinking;
//! - [`client_reply`]: what we say to a client ourselves: errors and signs of life.

pub mod client_reply;
pub mod outline;
pub mod prefix;
pub mod refusal;
pub mod rewrite;
pub mod upstream_reply;

/// Turns manual thinking into interleaved thinking on older models.
pub const BETA_INTERLEAVED: &str = "interleaved-thinking-2025-05-14";
/// Lets a request say what becomes of thinking that is bound to another conversation.
pub const BETA_BINDING_CONTROLS: &str = "thinking-binding-controls-2026-08-01";
