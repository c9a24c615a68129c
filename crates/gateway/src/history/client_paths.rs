//! Paths of blocks in the client's own body. They differ from the canonical positions: canonical
//! requests keep system messages apart and join the messages of one model turn.

use std::cell::OnceCell;

use throughline_codec::dialects;
use throughline_codec::dialects::blocks::outline::Role;
use throughline_codec::dialects::opaque_outline::OpaqueKind;

use crate::turn::log::BlockRecord;
use crate::turn::request::ParsedRequest;

/// The positions of the model's output in the client's body. They are found when a block needs
/// its path, because most turns have none.
pub(crate) struct ClientPaths<'a> {
    request: &'a ParsedRequest,
    positions: OnceCell<Positions>,
    /// How many turns and thinking blocks came before.
    turns: usize,
    thinking: usize,
}

/// Positions in the client's body, in order.
struct Positions {
    /// The message index where each model turn begins.
    turns: Vec<usize>,
    /// The position of each thinking block.
    thinking: Vec<(usize, usize)>,
}

impl Positions {
    fn find(request: &ParsedRequest) -> Self {
        let (assistant, thinking): (Vec<_>, Vec<_>) =
            match (&request.outline, request.opaque_outline()) {
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
        let turns = (0..assistant.len()).filter(begins).map(|at| assistant[at]).collect();
        Self { turns, thinking }
    }
}

impl<'a> ClientPaths<'a> {
    /// The positions in a request.
    pub(crate) fn new(request: &'a ParsedRequest) -> Self {
        Self { request, positions: OnceCell::new(), turns: 0, thinking: 0 }
    }

    /// Sets the paths of the next turn's blocks. The client sent `sent` of them.
    pub(crate) fn set_paths(&mut self, blocks: &mut [BlockRecord], sent: usize) {
        let (turn, first) = (self.turns, self.thinking);
        self.turns += 1;
        self.thinking += sent;
        if blocks.is_empty() {
            return;
        }
        let positions = self.positions.get_or_init(|| Positions::find(self.request));
        let turn = positions.turns.get(turn);
        let mut thinking = positions.thinking.iter().skip(first).take(sent);
        let dialect = dialects::spelling(self.request.incoming.dialect.name());
        for block in blocks {
            let position = match block.is_from_client() {
                true => thinking.next(),
                false => None,
            };
            let position = position.map(|(at, index)| (*at, Some(*index)));
            if let Some(at) = position.or(turn.map(|at| (*at, None))) {
                block.set_path(at, dialect);
            }
        }
    }
}
