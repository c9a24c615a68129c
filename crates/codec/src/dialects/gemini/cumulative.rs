//! Providers whose every piece repeats all that was said before: what is new in it.

use std::collections::HashSet;

/// What was said so far.
#[derive(Debug, Default)]
pub(crate) struct Said {
    thought: String,
    text: String,
    signatures: HashSet<String>,
    /// Calls, and parts of other kinds.
    pub(crate) parts: usize,
}

impl Said {
    /// What is new in a text that repeats what was said before.
    pub(crate) fn new_text<'a>(&mut self, thought: bool, text: &'a str) -> &'a str {
        let said = if thought { &mut self.thought } else { &mut self.text };
        let fresh = match text.strip_prefix(said.as_str()) {
            Some(fresh) => fresh,
            None if said.starts_with(text) => "",
            // It does not repeat itself after all.
            None => text,
        };
        said.push_str(fresh);
        fresh
    }

    /// Whether a signature is new.
    pub(crate) fn is_new_signature(&mut self, signature: &str) -> bool {
        self.signatures.insert(signature.to_owned())
    }
}
