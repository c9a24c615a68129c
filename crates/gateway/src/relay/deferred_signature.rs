//! Thinking whose end the client is not told yet. Some models sign their calls, and clients of some
//! dialects have no room for that but on thinking: so the mark of the thinking before a call waits for
//! the call's signature, which its reader tells next.

use throughline_canonical::{Block, BlockStart, Delta, Event, Fold};

use crate::thinking::envelope::SignedCall;

/// A thinking block that has ended.
#[derive(Debug)]
pub(crate) struct Held {
    /// Its number in the stream.
    pub(crate) index: u32,
    /// Its place in the turn.
    pub(crate) place: usize,
    /// The call that began behind it.
    pub(crate) call: Option<HeldCall>,
}

/// The start of a call, which comes after.
#[derive(Debug)]
pub(crate) struct HeldCall {
    pub(crate) index: u32,
    pub(crate) place: usize,
    pub(crate) id: String,
    pub(crate) name: String,
}

impl Held {
    pub(crate) fn new(index: u32, place: usize) -> Self {
        Self { index, place, call: None }
    }

    /// Whether it is not known yet what follows, even with this event.
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

impl HeldCall {
    /// What its maker signed it with, if that was told.
    pub(crate) fn signed(&self, turn: &Fold) -> Option<SignedCall> {
        match turn.reply().content.get(self.place)? {
            Block::ToolCall { signature, .. } => {
                Some(SignedCall { id: self.id.clone(), signature: signature.clone()? })
            }
            _ => None,
        }
    }

    /// The start itself.
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
