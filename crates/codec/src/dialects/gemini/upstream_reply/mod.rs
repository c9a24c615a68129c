//! Reads a provider's reply in pieces of any size: events, one growing list, or a whole reply.

use throughline_canonical::{Fault, FaultKind, Out};

use self::chunk::Answer;
use crate::dialects::ReplyReader;
use crate::dialects::shared::chunk_framing::ChunkFraming;
use crate::framing::MAX_REPLY_BYTES;

pub mod chunk;
pub mod cumulative;
mod finish_reason;
pub mod partial_arguments;
mod repeats;
mod usage;

/// Reads one reply.
#[derive(Debug)]
pub struct Reader {
    framing: ChunkFraming,
    answer: Answer,
    whole: bool,
    length: usize,
}

impl Reader {
    /// Creates a reader for a streamed or whole reply. `cumulative` providers repeat the answer in
    /// every chunk.
    pub fn new(streamed: bool, cumulative: bool) -> Self {
        Self {
            framing: ChunkFraming::new(streamed),
            answer: Answer::new(cumulative),
            whole: !streamed,
            length: 0,
        }
    }
}

fn too_long_event() -> Fault {
    Fault::new(FaultKind::Unreachable, "an event of the provider's reply is too long")
}

impl ReplyReader for Reader {
    fn push(&mut self, bytes: &[u8], out: Out<'_>) {
        if self.answer.blocks.ended {
            return;
        }
        self.length = self.length.saturating_add(bytes.len());
        if self.length > MAX_REPLY_BYTES {
            let fault = Fault::new(FaultKind::Unreachable, "the provider's reply is too long");
            self.answer.fail(fault, out);
            return;
        }
        let answer = &mut self.answer;
        if self.framing.push(bytes, &mut |chunk| answer.read(chunk, out)).is_err() {
            answer.fail(too_long_event(), out);
        }
    }

    fn finish(&mut self, out: Out<'_>) {
        let answer = &mut self.answer;
        self.framing.finish(|chunk| answer.read(chunk, out));
        answer.end(self.whole, out);
    }

    fn summarizes(&self) -> Option<bool> {
        Some(true)
    }
}
