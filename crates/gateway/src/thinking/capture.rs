//! Thinking blocks out of a reply's events, each with its name, in constant memory for each block.

use throughline_canonical::{BlockKey, BlockStart, Delta, Event, KeyHasher, Prefix, ThinkingKind};
use throughline_codec::dialects::anthropic::prefix::after_block;

/// A block that passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Its name.
    pub key: BlockKey,
    /// Its kind.
    pub kind: ThinkingKind,
    /// What it was made under, where that is followed.
    pub prefix: Option<Prefix>,
    /// Bytes of its text or data.
    pub length: u64,
    /// Its beginning; empty unless contents may be logged.
    pub preview: String,
}

/// Follows the blocks of one reply.
#[derive(Debug)]
pub struct Capture {
    open: Vec<(u32, Open)>,
    prefix: Option<Prefix>,
    preview: usize,
}

#[derive(Debug)]
struct Open {
    kind: ThinkingKind,
    hasher: KeyHasher,
    signature: String,
    preview: String,
}

impl Capture {
    /// A reply made under this prefix. `preview` characters of each block are kept.
    pub fn new(prefix: Option<Prefix>, preview: usize) -> Self {
        Self { open: Vec::new(), prefix, preview }
    }

    /// Takes an event; gives a block where one was closed.
    pub fn event(&mut self, event: &Event<'_>) -> Option<Captured> {
        match event {
            Event::BlockStarted { index, block } => {
                let (kind, text, signature) = match block {
                    BlockStart::Thinking { text, signature } => {
                        (ThinkingKind::Thinking, text, signature.as_ref())
                    }
                    BlockStart::Redacted { data } => (ThinkingKind::Redacted, data, ""),
                    _ => return None,
                };
                let mut open = Open {
                    kind,
                    hasher: KeyHasher::new(kind),
                    signature: signature.to_owned(),
                    preview: String::new(),
                };
                open.push(text, self.preview);
                // A provider that reuses an index has given up the block that had it.
                self.open.retain(|(at, _)| at != index);
                self.open.push((*index, open));
                None
            }
            Event::BlockDelta { index, delta } => {
                let preview = self.preview;
                let (_, open) = self.open.iter_mut().find(|(at, _)| at == index)?;
                match delta {
                    // Some backends put text deltas into a thinking block; the clients take them
                    // as its text.
                    Delta::Thinking(text) | Delta::Text(text) => open.push(text, preview),
                    // Clients replace the signature, also by an empty one.
                    Delta::Signature(signature) => {
                        open.signature = signature.clone().into_owned();
                    }
                    _ => {}
                }
                None
            }
            Event::BlockEnded { index } => {
                let at = self.open.iter().position(|(at, _)| at == index)?;
                let (_, open) = self.open.swap_remove(at);
                let captured = open.close(self.prefix);
                self.prefix = self.prefix.map(|prefix| after_block(prefix, &captured.key));
                Some(captured)
            }
            _ => None,
        }
    }

    /// The blocks that were begun and never closed.
    pub fn cut(&mut self) -> Vec<Captured> {
        self.open.drain(..).map(|(_, open)| open.close(None)).collect()
    }
}

impl Open {
    fn push(&mut self, text: &str, preview: usize) {
        self.hasher.push(text.as_bytes());
        let room = preview.saturating_sub(self.preview.chars().count());
        if room > 0 {
            self.preview.extend(text.chars().take(room));
        }
    }

    fn close(self, prefix: Option<Prefix>) -> Captured {
        Captured {
            length: self.hasher.length(),
            key: self.hasher.finish(&self.signature),
            kind: self.kind,
            prefix,
            preview: self.preview,
        }
    }
}
