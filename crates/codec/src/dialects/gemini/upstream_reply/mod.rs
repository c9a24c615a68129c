//! Reads a provider's reply in pieces of any size: events, one growing list, or a whole reply.

use throughline_canonical::{Fault, FaultKind, Out};

use self::chunk::Answer;
use self::objects::Objects;
use crate::dialects::ReplyReader;
use crate::framing::sse::Framer;
use crate::framing::{MAX_EVENT_BYTES, MAX_REPLY_BYTES};

pub mod chunk;
pub mod cumulative;
mod finish_reason;
pub mod objects;
pub mod partial_arguments;
mod repeats;
mod usage;

/// Room for the bytes around the data of an event.
const AROUND: usize = 1 << 10;

/// Reads one reply.
#[derive(Debug)]
pub struct Reader {
    framing: Framing,
    answer: Answer,
    whole: bool,
    length: usize,
}

#[derive(Debug)]
enum Framing {
    /// No input so far.
    Unknown,
    Events {
        framer: Framer,
        /// Whether the last byte ended a line.
        line_start: bool,
    },
    Objects(Objects),
}

impl Reader {
    /// Creates a reader for a streamed or whole reply. `cumulative` providers repeat the answer in
    /// every chunk.
    pub fn new(streamed: bool, cumulative: bool) -> Self {
        Self {
            framing: if streamed {
                Framing::Unknown
            } else {
                Framing::Objects(Objects::new(MAX_REPLY_BYTES))
            },
            answer: Answer::new(cumulative),
            whole: !streamed,
            length: 0,
        }
    }

    fn read(&mut self, mut bytes: &[u8], out: Out<'_>) {
        if let Framing::Unknown = self.framing {
            bytes = bytes.trim_ascii_start();
            match bytes.first() {
                None => return,
                Some(b'[' | b'{') => self.framing = Framing::Objects(Objects::new(MAX_EVENT_BYTES)),
                Some(_) => {
                    self.framing = Framing::Events {
                        framer: Framer::new(MAX_EVENT_BYTES + AROUND),
                        line_start: false,
                    };
                }
            }
        }
        let answer = &mut self.answer;
        let rest = match &mut self.framing {
            Framing::Unknown => return,
            Framing::Events { framer, line_start } => {
                let bare = find_bare_json(bytes, *line_start);
                let (events, rest) = bytes.split_at(bare.unwrap_or(bytes.len()));
                if let Some(last) = events.last() {
                    *line_start = *last == b'\n';
                }
                let mut too_long = false;
                let mut read = |data: &[u8]| {
                    too_long |= data.len() > MAX_EVENT_BYTES;
                    if !too_long {
                        answer.read(data, out);
                    }
                };
                framer.push(events, |frame, _| read(frame.data));
                if bare.is_some() {
                    framer.finish(|frame, _| read(frame.data));
                }
                if too_long || framer.is_skipping() {
                    answer.fail(too_long_event(), out);
                }
                if bare.is_none() {
                    return;
                }
                rest
            }
            Framing::Objects(objects) => {
                if objects.push(bytes, |object| answer.read(object, out)).is_err() {
                    answer.fail(too_long_event(), out);
                }
                return;
            }
        };
        // An error without an event around it; nothing follows.
        self.framing = Framing::Objects(Objects::new(MAX_EVENT_BYTES));
        self.read(rest, out);
    }
}

/// The position of a line that starts with JSON, which no event line does.
fn find_bare_json(bytes: &[u8], line_start: bool) -> Option<usize> {
    let json = |at: usize| matches!(bytes.get(at), Some(b'{' | b'['));
    if line_start && json(0) {
        return Some(0);
    }
    memchr::memchr_iter(b'\n', bytes).map(|at| at + 1).find(|&at| json(at))
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
        self.read(bytes, out);
    }

    fn finish(&mut self, out: Out<'_>) {
        let answer = &mut self.answer;
        if let Framing::Events { framer, .. } = &mut self.framing {
            framer.finish(|frame, _| answer.read(frame.data, out));
        }
        answer.end(self.whole, out);
    }

    fn summarizes(&self) -> Option<bool> {
        Some(true)
    }
}
