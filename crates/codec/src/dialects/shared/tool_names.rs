//! Limits for tool names.

/// The longest tool name that OpenAI accepts.
pub(crate) const OPENAI_MAX_NAME: usize = 64;
