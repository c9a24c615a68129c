//! Finds the spans of thinking in the events of a run. A span ends once: with its signature or its block, with
//! the next block, or with the run. A span without visible words shows that there was thinking.

use throughline_canonical::{BlockStart, Delta, Event, Usage};

use crate::projects::content::REDACTED_NOTICE;

/// What happens to a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanStep {
    /// It begins.
    Started,
    /// It goes on.
    Grew {
        /// What is added.
        text: String,
    },
    /// It ends.
    Ended {
        /// All of it.
        text: String,
        /// The provider's signature.
        signature: Option<String>,
        /// The tokens of all thinking of the run so far, if the provider has said.
        tokens: Option<u64>,
    },
}

/// The spans of a run.
#[derive(Debug, Default)]
pub struct ThinkingSpans {
    open: Option<Span>,
    usage: Usage,
}

/// Thinking that has not ended.
#[derive(Debug)]
struct Span {
    index: u32,
    text: String,
    signature: Option<String>,
}

impl ThinkingSpans {
    /// Takes the next event of a run.
    pub fn take(&mut self, event: &Event<'_>, out: &mut dyn FnMut(SpanStep)) {
        match event {
            Event::BlockStarted { index, block } => self.start_block(*index, block, out),
            Event::BlockDelta { index, delta: Delta::Thinking(text) } => {
                self.think(*index, text, out);
            }
            Event::BlockDelta { delta: Delta::ToolArguments(_), .. } => {}
            Event::BlockDelta { index, delta } => {
                // A signature is the last part of its thinking.
                if let (Delta::Signature(signature), Some(span)) = (delta, &mut self.open)
                    && span.index == *index
                {
                    span.signature = Some(signature.clone().into_owned());
                }
                self.end(out);
            }
            Event::BlockEnded { index } => {
                if self.open.as_ref().is_some_and(|span| span.index == *index) {
                    self.end(out);
                }
            }
            Event::ToolResult { .. } | Event::ApprovalNeeded { .. } | Event::Ended { .. } => {
                self.end(out);
            }
            Event::Usage(usage) => self.usage.update(*usage),
            _ => {}
        }
    }

    /// The tokens of all thinking so far, if the provider has said.
    pub fn tokens(&self) -> Option<u64> {
        self.usage.thinking
    }

    fn start_block(&mut self, index: u32, block: &BlockStart<'_>, out: &mut dyn FnMut(SpanStep)) {
        self.end(out);
        match block {
            BlockStart::Thinking { text, signature } => {
                self.think(index, text, out);
                if let (false, Some(span)) = (signature.is_empty(), &mut self.open) {
                    span.signature = Some(signature.clone().into_owned());
                    self.end(out);
                }
            }
            BlockStart::Redacted { .. } => self.think(index, REDACTED_NOTICE, out),
            _ => {}
        }
    }

    /// Adds to the span, and begins one if there is none.
    fn think(&mut self, index: u32, text: &str, out: &mut dyn FnMut(SpanStep)) {
        if self.open.as_ref().is_some_and(|span| span.index != index) {
            self.end(out);
        }
        let span = self.open.get_or_insert_with(|| {
            out(SpanStep::Started);
            Span { index, text: String::new(), signature: None }
        });
        if !text.is_empty() {
            span.text.push_str(text);
            out(SpanStep::Grew { text: text.to_owned() });
        }
    }

    /// Ends the span, if there is one.
    pub fn end(&mut self, out: &mut dyn FnMut(SpanStep)) {
        if let Some(Span { text, signature, .. }) = self.open.take() {
            out(SpanStep::Ended { text, signature, tokens: self.usage.thinking });
        }
    }
}

#[cfg(test)]
mod tests {
    use throughline_canonical::EndReason;

    use super::*;

    fn delta(index: u32, delta: Delta<'static>) -> Event<'static> {
        Event::BlockDelta { index, delta }
    }

    /// The signatures with which the spans of some events end.
    fn ends(events: &[Event<'static>]) -> Vec<Option<String>> {
        let (mut spans, mut ends) = (ThinkingSpans::default(), Vec::new());
        for event in events {
            spans.take(event, &mut |step| {
                if let SpanStep::Ended { signature, .. } = step {
                    ends.push(signature);
                }
            });
        }
        ends
    }

    /// Covers: C-12, S0-36
    #[test]
    fn span_ends_once_with_its_signature_if_it_has_one() {
        let thinking = |signature: &'static str| Event::BlockStarted {
            index: 0,
            block: BlockStart::Thinking { text: "Hm".into(), signature: signature.into() },
        };
        let signed = || delta(0, Delta::Signature("signed".into()));
        let block = Event::BlockStarted { index: 1, block: BlockStart::Text { text: "".into() } };
        let end = Event::Ended { reason: EndReason::Stop };
        let (ended, some) = (Event::BlockEnded { index: 0 }, Some("signed".to_owned()));
        for (events, expected) in [
            (vec![thinking(""), signed(), ended.clone(), end.clone()], vec![some.clone()]),
            (vec![thinking("signed"), ended.clone(), end.clone()], vec![some.clone()]),
            (vec![thinking(""), ended.clone(), end.clone()], vec![None]),
            (vec![thinking(""), block.clone(), end.clone()], vec![None]),
            (vec![thinking(""), end.clone()], vec![None]),
            // The signature of a text is not one of thinking.
            (vec![block, delta(1, Delta::Signature("signed".into())), end], vec![]),
        ] {
            assert_eq!(ends(&events), expected, "{events:?}");
        }
    }
}
