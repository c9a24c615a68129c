//! Refusals of thinking blocks that the gateway can act on.

/// A refusal of thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What the provider rejects.
    pub kind: RefusalKind,
    /// The rejected block: index of the message, index of the block in it.
    pub at: Option<(usize, usize)>,
}

/// What the provider rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The provider cannot read the signature, or the block was altered.
    Signature,
    /// The signature is valid but belongs to another conversation.
    Bound,
    /// A required block is missing or misplaced. The blocks that are present may be valid.
    MissingThinking,
    /// The provider cannot read a summary of earlier turns.
    Compaction,
}

impl From<RefusalKind> for Refusal {
    fn from(kind: RefusalKind) -> Self {
        Self { kind, at: None }
    }
}

/// Recognises a refusal in Anthropic's error texts. Servers in between pass these texts on.
pub(crate) fn in_anthropic_text(message: &str) -> Option<RefusalKind> {
    let about_thinking = message.contains("thinking");
    if about_thinking && message.contains("bound to a different conversation") {
        Some(RefusalKind::Bound)
    } else if about_thinking
        && (message.to_ascii_lowercase().contains("signature")
            || message.contains("Invalid `data`")
            || message.contains("cannot be modified"))
    {
        Some(RefusalKind::Signature)
    } else if message.contains("Expected `thinking` or `redacted_thinking`") {
        Some(RefusalKind::MissingThinking)
    } else if message.contains("compaction") && message.contains("ignature") {
        Some(RefusalKind::Compaction)
    } else {
        None
    }
}

/// Recognises a refusal in Gemini's error texts. Servers in between pass these texts on.
pub(crate) fn in_gemini_text(message: &str) -> Option<RefusalKind> {
    let message = message.to_ascii_lowercase();
    let signed = ["thought signature", "thought_signature"];
    if !signed.iter().any(|words| message.contains(words)) {
        return None;
    }
    Some(match message.contains("is missing a") {
        true => RefusalKind::MissingThinking,
        false => RefusalKind::Signature,
    })
}
