//! Compactions: parts of a conversation that stand for turns before them.
//!
//! One dialect writes a readable summary as a block, which replaces everything before it. Another
//! encrypts it as an item that only its maker reads, and its client drops the turns itself.

use serde_json::Value;
use throughline_canonical::{BlockKey, Fault, KeyHasher, ThinkingKind};

use super::shared::names;

/// The item by which a client asks for a compaction within a turn.
const TRIGGER: &str = "compaction_trigger";

/// A compaction, read from a part of its dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// The summary, if it can be read.
    pub summary: Option<String>,
    /// The encrypted summary, or the signature of a readable one.
    pub sealed: Option<String>,
    /// Whether it replaces everything before it.
    pub replaces_earlier: bool,
    /// Whether it failed and means nothing.
    pub failed: bool,
    /// The error of its dialect if it cannot be read.
    error_code: &'static str,
}

impl Compaction {
    /// The type of the part, in every dialect.
    pub const NAME: &'static str = "compaction";

    /// Reads a part of this dialect. `None` if it is not a compaction.
    pub fn read(dialect: &str, part: &Value) -> Option<Self> {
        let text = |member: &str| part.get(member)?.as_str().map(str::to_owned);
        match (dialect, part.get("type")?.as_str()?) {
            (names::ANTHROPIC, Self::NAME) => {
                let summary = text("content");
                Some(Self {
                    sealed: text("signature").or_else(|| text("encrypted_content")),
                    replaces_earlier: summary.is_some(),
                    failed: summary.is_none(),
                    summary,
                    error_code: "compaction_signature_invalid",
                })
            }
            (names::OPENAI_RESPONSES, Self::NAME) => {
                let sealed = text("encrypted_content").filter(|sealed| !sealed.is_empty());
                Some(Self {
                    summary: None,
                    replaces_earlier: false,
                    failed: sealed.is_none(),
                    sealed,
                    error_code: "invalid_encrypted_content",
                })
            }
            _ => None,
        }
    }

    /// Its identity, for the memory of who made it.
    pub fn key(&self) -> BlockKey {
        let mut hasher = KeyHasher::new(ThinkingKind::Redacted);
        hasher.push(b"compaction\xff");
        hasher.push(self.summary.as_deref().unwrap_or_default().as_bytes());
        hasher.finish(self.sealed.as_deref().unwrap_or_default())
    }

    /// The error if a request has it and the backend cannot read it.
    pub fn refusal(&self, backend: &str) -> Fault {
        Fault::invalid(format!(
            "The encrypted content of a compaction could not be verified: backend `{backend}` did \
             not make it, and no other backend can read it. Send the conversation itself, or go back to \
             the backend that made it."
        ))
        .with_code(self.error_code)
    }
}

/// Whether a part asks for a compaction within a turn. Only a backend of its dialect can do that.
pub fn is_trigger(dialect: &str, part: &Value) -> bool {
    dialect == names::OPENAI_RESPONSES && part.get("type").is_some_and(|kind| kind == TRIGGER)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compaction_is_read_in_the_form_of_its_dialect() {
        let read = |dialect, part: Value| Compaction::read(dialect, &part);
        let readable = json!({"type": "compaction", "content": "in short", "signature": "s"});
        let readable = read(names::ANTHROPIC, readable).unwrap();
        assert_eq!(readable.summary.as_deref(), Some("in short"));
        assert!(readable.replaces_earlier && !readable.failed);
        let failed = json!({"type": "compaction", "content": null, "encrypted_content": "x"});
        let failed = read(names::ANTHROPIC, failed).unwrap();
        assert!(failed.failed && !failed.replaces_earlier);
        let encrypted = json!({"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"});
        let encrypted = read(names::OPENAI_RESPONSES, encrypted).unwrap();
        assert!(!encrypted.failed && !encrypted.replaces_earlier);
        assert_ne!(encrypted.key(), readable.key());
        let code = encrypted.refusal("b").code;
        assert_eq!(code.as_deref(), Some("invalid_encrypted_content"));
        assert_eq!(read(names::GEMINI, json!({"type": "compaction"})), None);
        assert_eq!(read(names::ANTHROPIC, json!({"type": "text"})), None);
        assert!(is_trigger(names::OPENAI_RESPONSES, &json!({"type": "compaction_trigger"})));
    }
}
