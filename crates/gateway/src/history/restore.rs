//! Rebuilds one turn from what the client sent and what the vault holds: each block in its
//! position, none twice. Blocks that cannot be restored are reported.

use std::collections::HashMap;
use std::sync::Arc;

use throughline_canonical::{Block, Message, Origin, Prefix, Reason};

use crate::history::recall::{
    PastBlock, Recall, foreign, is_thinking, key_of, known_verdict, pass_block, plain,
    signature_of, with_signature,
};
use crate::history::vault_lookup::{LostParts, StoredThought};
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

impl Recall<'_> {
    /// Restores a turn that the vault holds unchanged.
    pub(crate) fn restore_unchanged(
        &self,
        message: &Message,
        kept: StoredTurn,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let origin = Arc::new(kept.origin);
        let declines = |block: &Block| matches!(block, Block::Refusal { .. });
        let declined = kept.blocks.iter().any(declines);
        let unnamed = |block: &Block| matches!(block, Block::Opaque { .. });
        let kept_unnamed = kept.blocks.iter().any(unnamed);
        let theirs = self.client_thinking(message, verdicts);
        let identities: Vec<_> = kept.blocks.iter().filter_map(Identity::of).collect();
        let aligned = align(&self.identities(&theirs), &identities);
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
                    Some((theirs, verdict)) if !self.is_lost(theirs) => {
                        PastBlock { key: key_of(theirs), ..self.thinking(theirs, *verdict) }
                    }
                    Some((theirs, verdict)) => PastBlock {
                        key: key_of(theirs),
                        ..self.known(block, &origin, verdict.and_then(known_verdict))
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
        let rest = message.content.iter().filter(|block| {
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
        message: &Message,
        kept: Option<StoredTurn>,
        verdicts: &[Verdict],
    ) -> Vec<PastBlock> {
        let session = kept.as_ref().map_or(self.session, |kept| kept.session);
        let prefix = kept.as_ref().and_then(|kept| kept.prefix);
        let (lost, origin) = match kept {
            Some(kept) => (LostParts::of(kept.blocks), Some(Arc::new(kept.origin))),
            None => (LostParts::default(), None),
        };
        // Thinking is restored only if the calls it led to are still the same.
        let agrees = |block: &Block| match block {
            Block::ToolCall { id, .. } => {
                lost.calls.get(id).is_some_and(|kept| kept.matches(block))
            }
            _ => true,
        };
        let led_here = lost.calls.is_empty() || message.content.iter().all(agrees);
        let theirs = self.client_thinking(message, verdicts);
        let identities: Vec<_> =
            lost.thinking.iter().filter_map(|thought| Identity::of(&thought.block)).collect();
        let aligned = align(&self.identities(&theirs), &identities);
        let mut restored = match &origin {
            Some(origin) => self.restored(&lost, &aligned, (origin, session, prefix), led_here),
            None => Vec::new(),
        };
        // The stored block of each client block.
        let mut stored_of_client = aligned
            .iter()
            .zip(&lost.thinking)
            .filter_map(|(theirs, thought)| Some(((*theirs)?, &thought.block)))
            .peekable();
        let mut ordinals = 0..;
        let positions = MessagePositions::of(message);
        // Insert each restored block before the first later part that the client still has.
        restored.sort_by_key(|(thought, _)| positions.before(thought));
        let mut restored = restored.into_iter().peekable();
        let mut verdicts = verdicts.iter();
        let mut past = Vec::with_capacity(message.content.len());
        for (at, block) in message.content.iter().enumerate() {
            while let Some((_, block)) =
                restored.next_if(|(thought, _)| positions.before(thought) <= at)
            {
                past.push(block);
            }
            past.push(match block {
                Block::Thinking { .. } | Block::Redacted { .. } => {
                    let verdict = verdicts.next();
                    let ordinal = ordinals.next();
                    let kept = stored_of_client.next_if(|(theirs, _)| Some(*theirs) == ordinal);
                    let past = match (kept, &origin) {
                        (Some((_, kept)), Some(origin)) if led_here && self.is_lost(block) => {
                            self.known(kept.clone(), origin, verdict.and_then(known_verdict))
                        }
                        _ => self.thinking(block, verdict),
                    };
                    PastBlock { key: key_of(block), ..past }
                }
                Block::ToolCall { id, .. } => {
                    let kept = lost.calls.get(id).zip(origin.as_ref());
                    match kept {
                        Some((call, origin)) => self.signed(block, Some((call, origin, session))),
                        None => self
                            .carried_signature(block, &message.content[..at])
                            .unwrap_or_else(|| self.signed(block, None)),
                    }
                }
                Block::Text { .. } => self.signed(block, None),
                other => plain(other.clone()),
            });
        }
        past.extend(restored.map(|(_, block)| block));
        past
    }

    /// The thinking of a turn that the client has lost. If the client changed the calls after it,
    /// the blocks are left out and reported.
    fn restored<'a>(
        &self,
        lost: &'a LostParts,
        aligned: &[Option<usize>],
        (origin, session, mut prefix): (&Arc<Origin>, u64, Option<Prefix>),
        led_here: bool,
    ) -> Vec<(&'a StoredThought, PastBlock)> {
        let missing = lost.thinking.iter().zip(aligned).filter_map(|(thought, theirs)| {
            let made = pass_block(&mut prefix, &thought.block);
            let block = thought.block.clone();
            let past = match (theirs, led_here) {
                (Some(_), _) => return None,
                (None, true) => {
                    let mut past = self.stored(block, origin, session);
                    past.restored = true;
                    past.prefix_record.made = made;
                    past
                }
                (None, false) => foreign(block, Reason::Shape, Some(origin.clone())),
            };
            Some((thought, past))
        });
        missing.collect()
    }

    /// The client's thinking blocks, each with the memory's verdict.
    fn client_thinking<'a>(
        &self,
        message: &'a Message,
        verdicts: &'a [Verdict],
    ) -> Vec<(&'a Block, Option<&'a Verdict>)> {
        let theirs = message.content.iter().filter(|block| is_thinking(block));
        let verdicts = verdicts.iter().map(Some);
        theirs.zip(verdicts.chain(std::iter::repeat(None))).collect()
    }

    /// The identity of each block. `None` for a block that has lost its signature.
    fn identities(&self, theirs: &[(&Block, Option<&Verdict>)]) -> Vec<Option<Identity>> {
        theirs.iter().map(|(block, _)| self.identity(block)).collect()
    }

    fn identity(&self, block: &Block) -> Option<Identity> {
        match (signature_of(block), self.gateway.envelopes.open(signature_of(block))) {
            ("", _) | (_, OpenResult::Altered) => None,
            (_, OpenResult::NotOurs) => Identity::of(block),
            (_, OpenResult::Ours(envelope)) => Some(match envelope.kind {
                EnvelopeKind::Redacted { data } => Identity::Encrypted(data),
                _ => Identity::Readable(envelope.content, envelope.signature),
            }),
        }
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
                OpenResult::Altered | OpenResult::NotOurs => false,
            },
            _ => false,
        }
    }

    /// A call whose signature is in the envelope of the thinking before it. Only the call with the
    /// same id gets it.
    fn carried_signature(&self, block: &Block, before: &[Block]) -> Option<PastBlock> {
        let Block::ToolCall { id, signature: None, .. } = block else {
            return None;
        };
        let carrier = before
            .iter()
            .rev()
            .take_while(|block| !matches!(block, Block::ToolCall { .. }))
            .find(|block| is_thinking(block))?;
        let OpenResult::Ours(envelope) = self.gateway.envelopes.open(signature_of(carrier)) else {
            return None;
        };
        let call = envelope.call.filter(|call| call.id == *id)?;
        let signed = with_signature(block, Some(call.signature));
        Some(self.stored(signed, &Arc::new(envelope.origin), self.session))
    }
}

/// The positions of the parts of a client's message.
struct MessagePositions<'a> {
    calls: HashMap<&'a str, usize>,
    texts: Vec<usize>,
    end: usize,
}

impl<'a> MessagePositions<'a> {
    fn of(message: &'a Message) -> Self {
        let mut positions =
            Self { calls: HashMap::new(), texts: Vec::new(), end: message.content.len() };
        for (at, block) in message.content.iter().enumerate() {
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
