//! Rebuilds one turn from what the client sent and what the vault holds: each block in its
//! position, none twice. Blocks that cannot be restored are reported.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_canonical::{Block, Origin, Prefix, Reason};

use crate::history::recall::{
    PastBlock, Recall, foreign, is_thinking, known_verdict, pass_block, plain, signature_of,
    with_signature,
};
use crate::history::vault_lookup::{LostParts, StoredCall, StoredThought};
use crate::thinking::envelope::{EnvelopeKind, Envelopes, OpenResult};
use crate::thinking::memory::Verdict;
use crate::thinking::vault::StoredTurn;

/// Identifies one thinking block of a turn: by its text and signature, or by its data if it is
/// encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Identity {
    Readable([u8; 16], Option<String>),
    Encrypted(String),
}

impl Identity {
    fn of(block: &Block) -> Option<Self> {
        match block {
            Block::Thinking { text, signature } => {
                Some(Self::Readable(Envelopes::content_hash(text), signature.clone()))
            }
            Block::Redacted { data } => Some(Self::Encrypted(data.clone())),
            _ => None,
        }
    }
}

/// For each stored block, the index of the client's block that matches it. A client block without a
/// match counts as the next stored one.
fn align(theirs: &[Option<Identity>], kept: &[Identity]) -> Vec<Option<usize>> {
    // Of two equal blocks, use the first.
    let indexes: HashMap<&Identity, usize> =
        kept.iter().enumerate().rev().map(|(at, identity)| (identity, at)).collect();
    let mut next = 0;
    kept.iter()
        .enumerate()
        .map(|(at, _)| {
            let theirs = theirs.get(next)?;
            let index = theirs.as_ref().and_then(|theirs| indexes.get(theirs));
            // The client has lost this block and kept a later one.
            if index.is_some_and(|index| *index > at) {
                return None;
            }
            next += 1;
            Some(next - 1)
        })
        .collect()
}

/// The thinking of a stored turn that a client's message lacks.
#[derive(Default)]
pub(crate) struct LostThinking<'a> {
    /// Whole blocks, by their position.
    pub(crate) insert: Vec<LostBlock<'a>>,
    /// Blocks of which the client still has the text or the signature.
    pub(crate) replace: Vec<LostBlock<'a>>,
    /// Whether the client's calls are those that the thinking led to.
    pub(crate) led_here: bool,
}

/// A thinking block that a client has lost.
pub(crate) struct LostBlock<'a> {
    /// The index in the message: of the block before which it belongs, or of the block it replaces.
    pub(crate) at: usize,
    pub(crate) block: &'a Block,
    /// The prefix it was made after, if known.
    pub(crate) made: Option<Prefix>,
}

impl Recall<'_> {
    /// Restores a turn that the vault holds unchanged.
    pub(crate) fn restore_unchanged(
        &self,
        content: &[Block],
        kept: StoredTurn,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let origin = Arc::new(kept.origin);
        let declines = |block: &Block| matches!(block, Block::Refusal { .. });
        let declined = kept.blocks.iter().any(declines);
        let unnamed = |block: &Block| matches!(block, Block::Opaque { .. });
        let kept_unnamed = kept.blocks.iter().any(unnamed);
        let theirs = client_thinking(content, verdicts);
        let stored: Vec<_> = kept.blocks.iter().filter(|block| is_thinking(block)).collect();
        let aligned = self.align(theirs.iter().map(|(block, _)| *block), &stored);
        let left_over = aligned.iter().flatten().count();
        let mut aligned = aligned.into_iter();
        let mut prefix = kept.prefix;
        let mut past: Vec<PastBlock> = kept
            .blocks
            .into_iter()
            .map(|block| {
                let thinks = is_thinking(&block);
                let made = pass_block(&mut prefix, &block);
                let sent = thinks.then(|| aligned.next().flatten()).flatten();
                let mut past = match sent.and_then(|at| theirs.get(at)) {
                    // The vault adds only what the client has lost.
                    Some((theirs, verdict)) if !self.is_lost(theirs) => PastBlock {
                        key: self.keys.of(theirs),
                        ..self.thinking((*theirs).clone(), *verdict)
                    },
                    Some((theirs, verdict)) => PastBlock {
                        key: self.keys.of(theirs),
                        ..self.completed(theirs, block, (&origin, kept.session), *verdict)
                    },
                    None => {
                        PastBlock { restored: thinks, ..self.stored(block, &origin, kept.session) }
                    }
                };
                past.prefix_record.made = past.prefix_record.made.or(made);
                past
            })
            .collect();
        // The vault does not store these blocks, so take the client's.
        let rest = content.iter().filter(|block| {
            matches!(block, Block::Media { .. })
                || unnamed(block) && !kept_unnamed
                || declines(block) && !declined
        });
        past.extend(rest.cloned().map(plain));
        // The client sent more thinking than the turn had.
        let more = theirs.iter().skip(left_over);
        past.extend(more.map(|(block, _)| foreign((*block).clone(), Reason::Shape, None)));
        past
    }

    /// Restores the client's blocks, with what an envelope or the vault adds to them.
    pub(crate) fn restore_changed(
        &self,
        content: Vec<Block>,
        kept: Option<StoredTurn>,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let session = kept.as_ref().map_or(self.session, |kept| kept.session);
        let prefix = kept.as_ref().and_then(|kept| kept.prefix);
        let (parts, origin) = match kept {
            Some(kept) => (LostParts::of(kept.blocks), Some(Arc::new(kept.origin))),
            None => (LostParts::default(), None),
        };
        let lost = self.lost_thinking(&content, &parts, prefix);
        // Insert each restored block before the first later part that the client still has.
        let mut inserted = lost.insert.iter().peekable();
        let mut replaced = lost.replace.iter().peekable();
        let restored = |lost_block: &LostBlock<'_>| {
            let origin = origin.as_ref()?;
            let block = lost_block.block.clone();
            if !lost.led_here {
                return Some(foreign(block, Reason::Shape, Some(origin.clone())));
            }
            let mut past = self.stored(block, origin, session);
            past.restored = true;
            past.prefix_record.made = lost_block.made;
            Some(past)
        };
        let mut verdicts = verdicts.iter();
        let mut past = Vec::with_capacity(content.len());
        // The signature of the thinking since the last call.
        let mut carrier = None;
        for (at, block) in content.into_iter().enumerate() {
            while let Some(before) = inserted.next_if(|lost| lost.at <= at) {
                past.extend(restored(before));
            }
            past.push(match &block {
                Block::Thinking { .. } | Block::Redacted { .. } => {
                    carrier = Some(signature_of(&block).to_owned());
                    let verdict = verdicts.next();
                    let key = self.keys.of(&block);
                    let past = match (replaced.next_if(|lost| lost.at == at), &origin) {
                        (Some(lost), Some(origin)) => {
                            let maker = (origin, session);
                            self.completed(&block, lost.block.clone(), maker, verdict)
                        }
                        _ => self.thinking(block, verdict),
                    };
                    PastBlock { key, ..past }
                }
                Block::ToolCall { id, .. } => {
                    let kept = parts.calls.get(id).zip(origin.as_ref());
                    let kept = kept.map(|(call, origin)| (call, origin, session));
                    self.call(block, kept, carrier.take().as_deref())
                }
                Block::Text { .. } => self.signed(block, None),
                _ => plain(block),
            });
        }
        past.extend(inserted.filter_map(restored));
        past
    }

    /// A stored block of which the client has lost a part. Without its signature the memory knows it by
    /// its text alone, and another backend may have thought the same, so the vault knows its maker
    /// better. Only a refusal counts.
    fn completed(
        &self,
        theirs: &Block,
        stored: Block,
        (origin, session): (&Arc<Origin>, u64),
        verdict: Option<&Verdict>,
    ) -> PastBlock {
        let is_refused = || {
            let key = self.keys.of(theirs);
            key.is_some_and(|key| self.gateway.memory.has_refused(self.target, &key))
        };
        if signature_of(theirs).is_empty() && !is_refused() {
            return self.stored(stored, origin, session);
        }
        self.known(stored, origin, verdict.and_then(known_verdict))
    }

    /// Compares the thinking of a stored turn with what the client's message still has of it.
    /// `prefix` is the prefix that the turn was made after.
    pub(crate) fn lost_thinking<'a>(
        &self,
        content: &[Block],
        parts: &'a LostParts,
        mut prefix: Option<Prefix>,
    ) -> LostThinking<'a> {
        let stored: Vec<_> = parts.thinking.iter().map(|thought| &thought.block).collect();
        let theirs: Vec<_> =
            content.iter().enumerate().filter(|(_, block)| is_thinking(block)).collect();
        let aligned = self.align(theirs.iter().map(|(_, block)| *block), &stored);
        let positions = MessagePositions::of(content);
        let made: Vec<_> = stored.iter().map(|block| pass_block(&mut prefix, block)).collect();
        let led_here = parts.led_to(content);
        let mut lost = LostThinking { led_here, ..LostThinking::default() };
        // From the last to the first, because a lost block stands before the thinking after it.
        let mut next = positions.end;
        for ((thought, sent), made) in parts.thinking.iter().zip(aligned).zip(made).rev() {
            let block = &thought.block;
            match sent.and_then(|sent| theirs.get(sent)) {
                None => {
                    next = next.min(positions.before(thought));
                    lost.insert.push(LostBlock { at: next, block, made });
                }
                Some((at, theirs)) => {
                    next = *at;
                    if led_here && self.has_lost_part(theirs, block) {
                        lost.replace.push(LostBlock { at: *at, block, made });
                    }
                }
            }
        }
        lost.insert.reverse();
        lost.replace.reverse();
        lost
    }

    /// For each stored block, the index of the client's block that matches it.
    fn align<'b>(
        &self,
        theirs: impl Iterator<Item = &'b Block>,
        stored: &[&Block],
    ) -> Vec<Option<usize>> {
        let identities: Vec<_> = stored.iter().filter_map(|block| Identity::of(block)).collect();
        let theirs: Vec<_> = theirs.map(|block| self.identity(block, stored)).collect();
        align(&theirs, &identities)
    }

    /// The identity of a client's block. A block that has lost its signature or its text is
    /// recognised by the other; `None` if that fails.
    fn identity(&self, block: &Block, stored: &[&Block]) -> Option<Identity> {
        let like = |same: &dyn Fn(&Block) -> bool| {
            stored.iter().find(|stored| same(stored)).and_then(|stored| Identity::of(stored))
        };
        let signature = signature_of(block);
        match (self.gateway.envelopes.open(signature), block) {
            (OpenResult::NotOurs, Block::Thinking { text, .. }) if signature.is_empty() => {
                let text = text.trim();
                like(
                    &|stored| matches!(stored, Block::Thinking { text: kept, .. } if kept.trim() == text),
                )
            }
            (OpenResult::NotOurs, Block::Thinking { text, .. }) if text.is_empty() => {
                like(&|stored| is_thinking(stored) && signature_of(stored) == signature)
                    .or_else(|| Identity::of(block))
            }
            (OpenResult::Altered | OpenResult::Sealed, _) => None,
            (OpenResult::NotOurs, _) => Identity::of(block),
            (OpenResult::Ours(envelope), _) => Some(match envelope.kind {
                EnvelopeKind::Redacted { data } => Identity::Encrypted(data),
                _ => Identity::Readable(envelope.content, envelope.signature),
            }),
        }
    }

    /// Whether a client has lost the signature or the text of a stored thinking block.
    fn has_lost_part(&self, theirs: &Block, stored: &Block) -> bool {
        let (Block::Thinking { text, .. }, Block::Thinking { text: kept, .. }) = (theirs, stored)
        else {
            return self.is_lost(theirs);
        };
        let has_lost_text = text.is_empty() && signature_of(theirs) == signature_of(stored);
        self.is_lost(theirs) || has_lost_text && !kept.is_empty()
    }

    /// Whether a client has lost the signature or the text of a thinking block.
    fn is_lost(&self, block: &Block) -> bool {
        let Block::Thinking { text, .. } = block else {
            return false;
        };
        match signature_of(block) {
            "" => true,
            signature if text.is_empty() => match self.gateway.envelopes.open(signature) {
                OpenResult::Ours(envelope) => Envelopes::content_hash("") != envelope.content,
                OpenResult::Altered | OpenResult::Sealed | OpenResult::NotOurs => false,
            },
            _ => false,
        }
    }

    /// Restores a call, with the signature that the vault or the thinking before it holds.
    fn call(
        &self,
        block: Block,
        kept: Option<(&StoredCall, &Arc<Origin>, u64)>,
        carrier: Option<&str>,
    ) -> PastBlock {
        if kept.is_none()
            && let Some((signature, origin)) = self.carried_signature(&block, carrier)
        {
            let signed = with_signature(block, Some(signature));
            return self.stored(signed, &origin, self.session);
        }
        self.signed(block, kept)
    }

    /// The signature of a call, and its maker, from the envelope of the thinking before the call.
    /// Only the call with the same id gets it.
    fn carried_signature(
        &self,
        call: &Block,
        carrier: Option<&str>,
    ) -> Option<(String, Arc<Origin>)> {
        let Block::ToolCall { id, signature: None, .. } = call else {
            return None;
        };
        let OpenResult::Ours(envelope) = self.gateway.envelopes.open(carrier?) else {
            return None;
        };
        let signed = envelope.call.filter(|signed| signed.id == *id)?;
        Some((signed.signature, Arc::new(envelope.origin)))
    }
}

/// The client's thinking blocks, each with the memory's verdict.
fn client_thinking<'a>(
    content: &'a [Block],
    verdicts: &'a [Verdict],
) -> Vec<(&'a Block, Option<&'a Verdict>)> {
    let theirs = content.iter().filter(|block| is_thinking(block));
    let verdicts = verdicts.iter().map(Some);
    theirs.zip(verdicts.chain(std::iter::repeat(None))).collect()
}

/// The positions of the parts of a client's message.
struct MessagePositions<'a> {
    calls: HashMap<&'a str, usize>,
    texts: Vec<usize>,
    end: usize,
}

impl<'a> MessagePositions<'a> {
    fn of(content: &'a [Block]) -> Self {
        let mut positions = Self { calls: HashMap::new(), texts: Vec::new(), end: content.len() };
        for (at, block) in content.iter().enumerate() {
            match block {
                Block::ToolCall { id, .. } => {
                    positions.calls.entry(id).or_insert(at);
                }
                Block::Text { .. } => positions.texts.push(at),
                _ => {}
            }
        }
        positions
    }

    /// The index before which a lost thinking block belongs: that of the text or call that followed
    /// it.
    fn before(&self, thought: &StoredThought) -> usize {
        let text = self.texts.get(thought.texts).copied();
        let call = thought.call.as_deref();
        let call = call.and_then(|call| self.calls.get(call)).copied();
        let text = text.filter(|_| thought.leads_to_text);
        text.or(call).unwrap_or(self.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(name: &str) -> Identity {
        Identity::Encrypted(name.to_owned())
    }

    /// What a client sent, what the vault holds, and which client block matches which stored block.
    #[test]
    fn align_matches_equal_blocks_and_counts_unknown_ones_as_the_next() {
        for (theirs, kept, expected) in [
            ("ab", "ab", [Some(0), Some(1)]),
            ("b", "ab", [None, Some(0)]),
            ("a", "ab", [Some(0), None]),
            ("", "ab", [None, None]),
            ("?", "ab", [Some(0), None]),
            ("?b", "ab", [Some(0), Some(1)]),
            ("x", "ab", [Some(0), None]),
            ("xb", "ab", [Some(0), Some(1)]),
            ("aa", "aa", [Some(0), Some(1)]),
            ("ba", "ab", [None, Some(0)]),
        ] {
            let named = |letter: char| (letter != '?').then(|| identity(&letter.to_string()));
            let theirs_named: Vec<_> = theirs.chars().map(named).collect();
            let kept_named: Vec<_> = kept.chars().filter_map(named).collect();
            assert_eq!(align(&theirs_named, &kept_named), expected, "{theirs} {kept}");
        }
    }
}
