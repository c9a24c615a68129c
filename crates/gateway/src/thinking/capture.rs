//! Finds the thinking blocks in the events of a reply and computes their keys, in constant memory
//! for each block. Also finds summaries that the provider wrote, which only it can check.

use throughline_canonical::{BlockKey, BlockStart, Delta, Event, KeyHasher, Prefix, ThinkingKind};
use throughline_codec::dialects::blocks::prefix::after_block;
use throughline_codec::dialects::compaction::Compaction;

/// A complete block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedBlock {
    /// Its key.
    pub key: BlockKey,
    /// The kind of block.
    pub kind: ThinkingKind,
    /// The prefix it was made after, if prefixes are tracked.
    pub prefix: Option<Prefix>,
    /// The length of its text or data, in bytes.
    pub length: u64,
    /// The beginning of its text. Empty unless contents may be logged.
    pub preview: String,
}

/// Tracks the blocks of one reply.
#[derive(Debug)]
pub struct Capture {
    open: Vec<(u32, OpenBlock)>,
    prefix: Option<Prefix>,
    preview: usize,
    summary: Option<OpenSummary>,
}

/// A summary whose end has not arrived.
#[derive(Debug)]
struct OpenSummary {
    index: u32,
    dialect: String,
    json: String,
}

#[derive(Debug)]
struct OpenBlock {
    kind: ThinkingKind,
    hasher: KeyHasher,
    signature: String,
    preview: String,
}

impl Capture {
    /// Tracks a reply that follows this prefix, and stores `preview` characters of each block.
    pub fn new(prefix: Option<Prefix>, preview: usize) -> Self {
        Self { open: Vec::new(), prefix, preview, summary: None }
    }

    /// Takes an event. Returns a block if the event ended one.
    pub fn event(&mut self, event: &Event<'_>) -> Option<CapturedBlock> {
        if let Some(summary) = self.summary_event(event) {
            return Some(summary);
        }
        match event {
            Event::BlockStarted { index, block } => {
                let (kind, text, signature) = match block {
                    BlockStart::Thinking { text, signature } => {
                        (ThinkingKind::Thinking, text, signature.as_ref())
                    }
                    BlockStart::Redacted { data } => (ThinkingKind::Redacted, data, ""),
                    _ => return None,
                };
                let mut open = OpenBlock {
                    kind,
                    hasher: KeyHasher::new(kind),
                    signature: signature.to_owned(),
                    preview: String::new(),
                };
                open.push(text, self.preview);
                // A provider that reuses an index has abandoned the earlier block.
                self.open.retain(|(at, _)| at != index);
                self.open.push((*index, open));
                None
            }
            Event::BlockDelta { index, delta } => {
                let preview = self.preview;
                let (_, open) = self.open.iter_mut().find(|(at, _)| at == index)?;
                match delta {
                    // Some backends send text deltas in a thinking block. Clients add them to its
                    // text.
                    Delta::Thinking(text) | Delta::Text(text) => open.push(text, preview),
                    // Clients replace the signature, even by an empty one.
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

    /// Takes an event of a summary. Returns the summary if the event ended it.
    fn summary_event(&mut self, event: &Event<'_>) -> Option<CapturedBlock> {
        match event {
            Event::BlockStarted { index, block: BlockStart::Opaque { dialect, name } } => {
                let dialect = dialect.clone().into_owned();
                self.summary = (name == Compaction::NAME).then(|| OpenSummary {
                    index: *index,
                    dialect,
                    json: String::new(),
                });
            }
            Event::BlockDelta { index, delta: Delta::Opaque(more) } => {
                let open = self.summary.as_mut().filter(|open| open.index == *index)?;
                open.json.push_str(more);
            }
            Event::BlockEnded { index } => {
                let open = self.summary.take_if(|open| open.index == *index)?;
                let summary = serde_json::from_str(&open.json).ok()?;
                let compaction = Compaction::read(&open.dialect, &summary)?;
                return Some(CapturedBlock {
                    key: compaction.key(),
                    kind: ThinkingKind::Redacted,
                    prefix: None,
                    length: open.json.len() as u64,
                    preview: String::new(),
                });
            }
            _ => {}
        }
        None
    }

    /// The blocks that started and never ended.
    pub fn cut(&mut self) -> Vec<CapturedBlock> {
        self.open.drain(..).map(|(_, open)| open.close(None)).collect()
    }
}

impl OpenBlock {
    fn push(&mut self, text: &str, preview: usize) {
        self.hasher.push(text.as_bytes());
        let room = preview.saturating_sub(self.preview.chars().count());
        if room > 0 {
            self.preview.extend(text.chars().take(room));
        }
    }

    fn close(self, prefix: Option<Prefix>) -> CapturedBlock {
        CapturedBlock {
            length: self.hasher.length(),
            key: self.hasher.finish(&self.signature),
            kind: self.kind,
            prefix,
            preview: self.preview,
        }
    }
}
