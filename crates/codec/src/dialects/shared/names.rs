//! The names of the dialects that share code with others.

pub(crate) const ANTHROPIC: &str = "anthropic";
pub(crate) const GEMINI: &str = "gemini";
pub(crate) const OPENAI_CHAT: &str = "openai_chat";
pub(crate) const OPENAI_RESPONSES: &str = "openai_responses";
