//! Emits the blocks of a reply: numbers them in order, and keeps at most one of them growing.

use std::borrow::Cow;

use throughline_canonical::{BlockStart, Delta, EndReason, Event, Fault, Out};

/// The blocks that a reader has emitted.
#[derive(Debug, Default)]
pub(crate) struct BlockEmitter {
    /// Index of the next block.
    pub(crate) next: u32,
    /// The growing block: its kind and its index.
    pub(crate) open: Option<(Growing, u32)>,
    /// Whether the end of the reply was emitted.
    pub(crate) ended: bool,
}

/// The kind of a block that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growing {
    Text,
    Refusal,
    Thinking,
    Call,
}

impl BlockEmitter {
    /// Index of the growing block, if it is of this kind.
    pub(crate) fn index_of(&self, kind: Growing) -> Option<u32> {
        self.open.filter(|(open, _)| *open == kind).map(|(_, index)| index)
    }

    /// Starts a block that the caller ends. The growing block stays open.
    pub(crate) fn start(&mut self, block: BlockStart<'_>, out: Out<'_>) -> u32 {
        let index = self.next;
        self.next += 1;
        out(Event::BlockStarted { index, block });
        index
    }

    /// Starts a block that grows. It replaces the one that grew before.
    pub(crate) fn start_growing(
        &mut self,
        kind: Growing,
        block: BlockStart<'_>,
        out: Out<'_>,
    ) -> u32 {
        self.close(out);
        let index = self.start(block, out);
        self.open = Some((kind, index));
        index
    }

    /// Adds text. An empty text neither grows nor ends a block.
    pub(crate) fn grow(&mut self, kind: Growing, text: Cow<'_, str>, out: Out<'_>) {
        if text.is_empty() {
            return;
        }
        let index = self.block_of(kind, out);
        let delta = match kind {
            Growing::Text | Growing::Refusal => Delta::Text(text),
            Growing::Thinking => Delta::Thinking(text),
            Growing::Call => Delta::ToolArguments(text),
        };
        out(Event::BlockDelta { index, delta });
    }

    /// Index of the growing block of this kind, which is started if necessary.
    pub(crate) fn block_of(&mut self, kind: Growing, out: Out<'_>) -> u32 {
        if let Some(index) = self.index_of(kind) {
            return index;
        }
        let text = "".into();
        let block = match kind {
            Growing::Refusal => BlockStart::Refusal { text },
            Growing::Thinking => BlockStart::Thinking { text, signature: "".into() },
            // Calls are started with their name.
            Growing::Text | Growing::Call => BlockStart::Text { text },
        };
        self.start_growing(kind, block, out)
    }

    /// Emits a complete block.
    pub(crate) fn whole(&mut self, block: BlockStart<'_>, delta: Option<Delta<'_>>, out: Out<'_>) {
        self.close(out);
        let index = self.start(block, out);
        if let Some(delta) = delta {
            out(Event::BlockDelta { index, delta });
        }
        out(Event::BlockEnded { index });
    }

    /// Ends the growing block.
    pub(crate) fn close(&mut self, out: Out<'_>) {
        if let Some((_, index)) = self.open.take() {
            out(Event::BlockEnded { index });
        }
    }

    /// Ends the reply with a fault, unless it has ended.
    pub(crate) fn fail(&mut self, fault: Fault, out: Out<'_>) {
        if !self.ended {
            out(Event::Fault(fault));
        }
        self.end(EndReason::Failed, out);
    }

    /// Ends the reply, unless it has ended. Growing blocks stay without an end.
    pub(crate) fn end(&mut self, reason: EndReason, out: Out<'_>) {
        if !std::mem::replace(&mut self.ended, true) {
            out(Event::Ended { reason });
        }
    }
}
