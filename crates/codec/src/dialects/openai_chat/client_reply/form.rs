//! What a client wants to see of a reply.

use throughline_canonical::{Request, Show};

use super::super::ChatSession;
use crate::dialects::ReplyIdentity;

/// What a client wants to see of a reply.
#[derive(Default)]
pub(crate) struct Form {
    /// Whether it wants token counts.
    pub(crate) include_usage: bool,
    /// Whether it uses the legacy `functions`.
    pub(crate) legacy: bool,
    /// Whether it wants no reasoning.
    pub(crate) hidden: bool,
    /// The members that carry reasoning as plain text.
    pub(crate) fields: Vec<String>,
}

impl Form {
    pub(crate) fn new(request: &Request, session: ChatSession, identity: &ReplyIdentity) -> Self {
        let fields = identity.reasoning_fields.iter();
        let known = |name: &&String| matches!(name.as_str(), "reasoning" | "reasoning_content");
        Self {
            include_usage: session.include_usage,
            legacy: session.legacy_functions,
            hidden: request.thinking.show == Some(Show::Hidden),
            fields: fields.filter(known).cloned().collect(),
        }
    }
}
