//! Where blocks stand in the client's own body. What was read of it counts otherwise: messages of the
//! system stand apart, and what the model said in one turn is one message.

use throughline_codec::dialects;
use throughline_codec::dialects::anthropic::outline::Role;
use throughline_codec::dialects::opaque_outline::OpaqueKind;
use throughline_codec::dialects::passthrough::Passthrough;

use crate::turn::log::KeptBlock;
use crate::turn::request::ParsedRequest;

/// The places of what the model has said, in the order of the conversation.
pub(crate) struct ClientPaths {
    dialect: &'static dyn Passthrough,
    /// Where each of its turns begins.
    turns: std::vec::IntoIter<usize>,
    /// Where each piece of its thinking stands.
    thinking: std::vec::IntoIter<(usize, usize)>,
}

impl ClientPaths {
    /// The places in a request.
    pub(crate) fn new(read: &ParsedRequest) -> Self {
        let (said, thinking): (Vec<_>, Vec<_>) = match (&read.outline, &read.places) {
            (Some(outline), _) => {
                let messages = outline.messages.iter().enumerate();
                let said = messages.filter(|(_, message)| message.role == Role::Assistant);
                let thinking = outline.thinking_blocks();
                (
                    said.map(|(at, _)| at).collect(),
                    thinking.map(|(at, index, ..)| (at, index)).collect(),
                )
            }
            (None, Some(places)) => {
                let thinks = |kind| matches!(kind, OpaqueKind::Thinking | OpaqueKind::Redacted);
                let marks = places.marks.iter().filter(|mark| thinks(mark.kind));
                (places.said.clone(), marks.map(|mark| mark.at).collect())
            }
            (None, None) => Default::default(),
        };
        let begins = |place: &usize| {
            let before = said.get(place.wrapping_sub(1));
            before.is_none_or(|before| before + 1 != said[*place])
        };
        let turns: Vec<usize> = (0..said.len()).filter(begins).map(|at| said[at]).collect();
        Self {
            dialect: dialects::spelling(read.asked.dialect.name()),
            turns: turns.into_iter(),
            thinking: thinking.into_iter(),
        }
    }

    /// Tells the places of the next turn's blocks, of which the client sent so many.
    pub(crate) fn tell(&mut self, blocks: &mut [KeptBlock], sent: usize) {
        let turn = self.turns.next();
        let mut thinking = self.thinking.by_ref().take(sent);
        for block in blocks {
            let place = match block.is_clients() {
                true => thinking.next(),
                false => None,
            };
            let place = place.map(|(at, index)| (at, Some(index)));
            if let Some(at) = place.or(turn.map(|at| (at, None))) {
                block.set_path(at, self.dialect);
            }
        }
        // What was not told of stands behind us all the same.
        thinking.for_each(drop);
    }
}
