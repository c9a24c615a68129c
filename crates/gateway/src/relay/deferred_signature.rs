//! Delays the end of a thinking block. Some models sign their calls, and clients of some dialects
//! can only hold signatures on thinking. The envelope of the thinking therefore waits for the
//! signature of the call after it.

use throughline_canonical::{Block, BlockStart, Delta, Event, Fold};

use crate::thinking::envelope::SignedCall;

/// A thinking block that has ended but whose end was not sent to the client yet.
#[derive(Debug)]
pub(crate) struct DeferredBlock {
    /// Its index in the stream.
    pub(crate) index: u32,
    /// Its index in the turn.
    pub(crate) position: usize,
    /// The call that started after it.
    pub(crate) call: Option<DeferredCall>,
}

/// The start of a call, which is sent after the thinking block.
#[derive(Debug)]
pub(crate) struct DeferredCall {
    pub(crate) index: u32,
    pub(crate) position: usize,
    pub(crate) id: String,
    pub(crate) name: String,
}

impl DeferredBlock {
    pub(crate) fn new(index: u32, position: usize) -> Self {
        Self { index, position, call: None }
    }

    /// Whether this event does not yet show what follows.
    pub(crate) fn waits(&self, event: &Event<'_>) -> bool {
        match event {
            Event::Usage(_) | Event::Transformed { .. } => true,
            Event::BlockStarted { block: BlockStart::ToolCall { .. }, .. } => self.call.is_none(),
            Event::BlockDelta { index, delta: Delta::Signature(_) } => {
                self.call.as_ref().is_some_and(|call| call.index == *index)
            }
            _ => false,
        }
    }
}

impl DeferredCall {
    /// The call's signature, if it has arrived.
    pub(crate) fn signed(&self, turn: &Fold) -> Option<SignedCall> {
        match turn.reply().content.get(self.position)? {
            Block::ToolCall { signature, .. } => {
                Some(SignedCall { id: self.id.clone(), signature: signature.clone()? })
            }
            _ => None,
        }
    }

    /// The start event of the call.
    pub(crate) fn start(&self) -> Event<'_> {
        Event::BlockStarted {
            index: self.index,
            block: BlockStart::ToolCall {
                id: self.id.as_str().into(),
                name: self.name.as_str().into(),
            },
        }
    }
}
