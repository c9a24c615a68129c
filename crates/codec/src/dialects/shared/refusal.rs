//! A provider's refusal of thinking, as far as something follows from it.

/// A refusal of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the provider did not like.
    pub kind: RefusalKind,
    /// The block it names: message, then block, in the request it received.
    pub at: Option<(usize, usize)>,
}

/// What the provider did not like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// It does not read this signature, or the block was altered.
    Signature,
    /// The signature is good, but made in another conversation.
    Bound,
    /// What it wants to see is not there, or not where it belongs. What is there may be good.
    MissingThinking,
}

impl From<RefusalKind> for Refusal {
    fn from(kind: RefusalKind) -> Self {
        Self { kind, at: None }
    }
}
