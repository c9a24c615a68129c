//! Paths of blocks in the client's own body. They differ from the canonical positions: canonical
//! requests keep system messages apart and join the messages of one model turn.

use throughline_codec::dialects;
use throughline_codec::dialects::blocks::outline::Role;
use throughline_codec::dialects::opaque_outline::OpaqueKind;
use throughline_codec::dialects::passthrough::Passthrough;

use crate::turn::log::BlockRecord;
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
    pub(crate) fn new(request: &ParsedRequest) -> Self {
        let (assistant, thinking): (Vec<_>, Vec<_>) =
            match (&request.outline, &request.opaque_outline) {
                (Some(outline), _) => {
                    let messages = outline.messages.iter().enumerate();
                    let assistant = messages.filter(|(_, message)| message.role == Role::Assistant);
                    let thinking = outline.thinking_blocks();
                    (
                        assistant.map(|(at, _)| at).collect(),
                        thinking.map(|(at, index, ..)| (at, index)).collect(),
                    )
                }
                (None, Some(outline)) => {
                    let thinks = |kind| matches!(kind, OpaqueKind::Thinking | OpaqueKind::Redacted);
                    let parts = outline.parts.iter().filter(|part| thinks(part.kind));
                    (outline.assistant_messages.clone(), parts.map(|part| part.at).collect())
                }
                (None, None) => Default::default(),
            };
        let begins = |index: &usize| {
            let before = assistant.get(index.wrapping_sub(1));
            before.is_none_or(|before| before + 1 != assistant[*index])
        };
        let turns: Vec<usize> =
            (0..assistant.len()).filter(begins).map(|at| assistant[at]).collect();
        Self {
            dialect: dialects::spelling(request.incoming.dialect.name()),
            turns: turns.into_iter(),
            thinking: thinking.into_iter(),
        }
    }

    /// Sets the paths of the next turn's blocks. The client sent `sent` of them.
    pub(crate) fn set_paths(&mut self, blocks: &mut [BlockRecord], sent: usize) {
        let turn = self.turns.next();
        let mut thinking = self.thinking.by_ref().take(sent);
        for block in blocks {
            let position = match block.is_from_client() {
                true => thinking.next(),
                false => None,
            };
            let position = position.map(|(at, index)| (at, Some(index)));
            if let Some(at) = position.or(turn.map(|at| (at, None))) {
                block.set_path(at, self.dialect);
            }
        }
        // Skip the positions of blocks that were not reported.
        thinking.for_each(drop);
    }
}
