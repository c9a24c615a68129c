//! Token counts of a reply.

use throughline_canonical::Usage;

use crate::json::{JsonError, Span, each_member, number, slice};

/// The latest counts of the provider.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) prompt: Option<u64>,
    pub(super) cached: Option<u64>,
    candidates: Option<u64>,
    thoughts: Option<u64>,
    tool_use: Option<u64>,
}

impl Counts {
    /// Reads the counts.
    pub(super) fn read(&mut self, json: &[u8], usage: &Span) -> Result<(), JsonError> {
        each_member(json, usage.start, |key, _, span| {
            let slot = match key {
                b"promptTokenCount" | b"prompt_token_count" => &mut self.prompt,
                b"cachedContentTokenCount" | b"cached_content_token_count" => &mut self.cached,
                b"candidatesTokenCount" | b"candidates_token_count" => &mut self.candidates,
                b"thoughtsTokenCount" | b"thoughts_token_count" => &mut self.thoughts,
                b"toolUsePromptTokenCount" | b"tool_use_prompt_token_count" => &mut self.tool_use,
                _ => return,
            };
            *slot = count(json, &span).or(*slot);
        })
    }

    /// The canonical counts: input without cached tokens, output with thoughts.
    pub(super) fn usage(&self) -> Option<Usage> {
        let sum = |one: Option<u64>, two: Option<u64>| match (one, two) {
            (None, None) => None,
            (one, two) => Some(one.unwrap_or(0).saturating_add(two.unwrap_or(0))),
        };
        let input = sum(self.prompt, self.tool_use);
        let usage = Usage {
            input: input.map(|input| input.saturating_sub(self.cached.unwrap_or(0))),
            cache_read: self.cached,
            cache_write: None,
            cache_write_1h: None,
            output: sum(self.candidates, self.thoughts),
            thinking: self.thoughts,
        };
        (usage != Usage::default()).then_some(usage)
    }
}

/// Reads a count, which may be a string.
pub(super) fn count(json: &[u8], span: &Span) -> Option<u64> {
    match slice(json, span).first() {
        Some(b'"') => number(json, &(span.start + 1..span.end.saturating_sub(1))),
        _ => number(json, span),
    }
}
