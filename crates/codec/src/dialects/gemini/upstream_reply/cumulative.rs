//! Finds the new text in chunks of providers that repeat the answer in every chunk.

use std::collections::HashSet;

/// The answer so far.
#[derive(Debug, Default)]
pub(crate) struct AnswerSoFar {
    thought: String,
    text: String,
    signatures: HashSet<String>,
    /// Number of calls and other parts.
    pub(crate) parts: usize,
}

impl AnswerSoFar {
    /// The new suffix of a repeated text.
    pub(crate) fn new_text<'a>(&mut self, thought: bool, text: &'a str) -> &'a str {
        let before = if thought { &mut self.thought } else { &mut self.text };
        let fresh = match text.strip_prefix(before.as_str()) {
            Some(fresh) => fresh,
            None if before.starts_with(text) => "",
            // It does not repeat after all.
            None => text,
        };
        before.push_str(fresh);
        fresh
    }

    /// Whether a signature is new.
    pub(crate) fn is_new_signature(&mut self, signature: &str) -> bool {
        self.signatures.insert(signature.to_owned())
    }
}
