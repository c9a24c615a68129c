//! Paths of blocks in the client's own body. They differ from the canonical positions: canonical
//! requests keep system messages apart and join the messages of one model turn.

use throughline_codec::dialects;
use throughline_codec::dialects::anthropic::outline::Role;
use throughline_codec::dialects::opaque_outline::OpaqueKind;
use throughline_codec::dialects::passthrough::Passthrough;

use crate::turn::log::KeptBlock;
use crate::turn::request::ParsedRequest;

/// The positions of the model's output in the client's body, in order.
pub(crate) struct ClientPaths {
    dialect: &'static dyn Passthrough,
    /// The message index where each model turn begins.
    turns: std::vec::IntoIter<usize>,
    /// The position of each thinking block.
    thinking: std::vec::IntoIter<(usize, usize)>,
}

impl ClientPaths {
    /// Finds the positions in a request.
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

    /// Sets the paths of the next turn's blocks. The client sent `sent` of them.
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
        // Skip the positions of blocks that were not reported.
        thinking.for_each(drop);
    }
}
