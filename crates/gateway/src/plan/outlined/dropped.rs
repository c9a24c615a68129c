//! Thinking that the client dropped from a tool loop. The vault has it, and it is put back in position
//! before the request is planned. Blocks that may not go back are reported.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{self as canonical, Block, Origin, Prefix, Reason};
use throughline_codec::dialects::blocks::outline::{Message, Outline, Role};
use throughline_codec::dialects::blocks::rewrite;
use throughline_codec::json::Edits;

use crate::backend::{Backend, Compat};
use crate::catalog::{Form, Model};
use crate::gateway::Gateway;
use crate::history::recall::{Recall, key_of, kind_of, known_verdict};
use crate::history::replay_table::Maker;
use crate::history::restore::{LostBlock, LostThinking};
use crate::history::vault_lookup::{LostParts, MAX_KEYS_PER_TURN, WithheldPart};
use crate::thinking::memory::{Question, Verdict};
use crate::thinking::vault::{Lookup, StoredTurn, VaultKey};
use crate::turn::Attempt;
use crate::unix_ms;

/// The thinking that the client dropped from tool loops.
#[derive(Debug, Default)]
pub(crate) struct DroppedThinking {
    /// The request with the blocks in their places. `None` if nothing is put back.
    pub(crate) request: Option<(Bytes, Outline)>,
    /// The blocks that are put back, in order.
    pub(crate) restored: Vec<RestoredBlock>,
    /// The blocks that may not go back, in order.
    pub(crate) withheld: Vec<WithheldPart>,
    /// Whether the open loop was started by a backend whose thinking this one cannot read.
    pub(crate) is_foreign_loop: bool,
}

/// A block that is put back.
#[derive(Debug)]
pub(crate) struct RestoredBlock {
    /// Its position in the new body: message index, block index.
    pub(crate) at: (usize, usize),
    /// Whether the client sent a part of it.
    pub(crate) replaces: bool,
    pub(crate) verdict: Verdict,
}

/// Finds the dropped thinking of one request.
pub(crate) struct DropFinder<'a> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) attempt: &'a Attempt<'a>,
    pub(crate) outline: &'a Outline,
    pub(crate) recall: &'a Recall<'a>,
}

/// A message of a loop, and the stored turn that it came from.
struct LoopMessage<'a> {
    at: usize,
    outline: &'a Message,
    canonical: canonical::Message,
    parts: LostParts,
    origin: Arc<Origin>,
    session: u64,
    prefix: Option<Prefix>,
}

/// What is known about a message of a loop.
enum LookedUp<'a> {
    /// Its stored turn.
    Known(LoopMessage<'a>),
    /// The keyring cannot open its stored turn.
    Sealed,
    /// Nothing that is needed.
    Unknown,
}

impl DropFinder<'_> {
    /// Finds what the client dropped and puts it back. `verdicts` are the memory's verdicts on the
    /// blocks that the client sent.
    pub(crate) async fn put_back(&self, model: &Model, verdicts: &[Verdict]) -> DroppedThinking {
        let mut dropped = DroppedThinking::default();
        let thinks = thinking_is_on(self.outline, self.attempt.backend, model);
        let messages = &self.outline.messages;
        let open_call = self.outline.open_tool_loop();
        let end = open_call.map_or(messages.len(), |call| call + 1);
        let damaged = self.messages_with_unknown_blocks(verdicts);
        let mut edits = Edits::default();
        // Earlier loops get again what they got while they were open, because the provider's prompt cache
        // finds only what does not change. What `replay` leaves out is then counted like the client's own
        // blocks.
        for at in 0..end {
            if self.is_split(at) {
                continue;
            }
            let has_none = self.outline.messages[at].thinking_count() == 0;
            let must_look = damaged.contains(&at) || Some(at) == open_call && has_none;
            let message = match self.look_up(at, must_look).await {
                LookedUp::Known(message) => message,
                LookedUp::Sealed if has_none => {
                    dropped.withheld.push(WithheldPart::sealed(at));
                    continue;
                }
                LookedUp::Sealed | LookedUp::Unknown => continue,
            };
            let is_foreign = message.origin.domain != *self.recall.target.domain;
            if !thinks && !is_foreign {
                continue;
            }
            if Some(at) == open_call {
                dropped.is_foreign_loop = is_foreign;
            }
            self.put_back_into(&message, &mut edits, &mut dropped);
        }
        if !edits.is_empty() {
            let body = Bytes::from(edits.apply(&self.attempt.request.body));
            // Only valid JSON was inserted, so this cannot fail.
            dropped.request = Outline::read(&body, usize::MAX).ok().map(|outline| (body, outline));
        }
        dropped
    }

    /// Whether thinking of the same turn is in another message. Some clients send a turn as several
    /// messages.
    fn is_split(&self, at: usize) -> bool {
        let messages = &self.outline.messages;
        let turn = |message: &&Message| message.role == Role::Assistant;
        let before = messages[..at].iter().rev().take_while(turn);
        let after = messages[at + 1..].iter().take_while(turn);
        before.chain(after).any(|message| message.thinking_count() > 0)
    }

    /// The messages with a block of unknown origin. The client may have damaged it.
    fn messages_with_unknown_blocks(&self, verdicts: &[Verdict]) -> HashSet<usize> {
        let is_unknown = |verdict: &Verdict| match verdict {
            Verdict::Send { .. } => false,
            Verdict::Try { .. } => true,
            Verdict::LeaveOut { origin, .. } => origin.is_none(),
        };
        let blocks = self.outline.thinking_blocks().zip(verdicts);
        blocks.filter(|(_, verdict)| is_unknown(verdict)).map(|(block, _)| block.0).collect()
    }

    /// Finds the stored turn of a message. Most clients return all thinking, so unless it must look,
    /// it opens only turns with more thinking than the message has.
    async fn look_up(&self, at: usize, must_look: bool) -> LookedUp<'_> {
        let (outline, request) = (&self.outline.messages[at], self.attempt.request);
        let ids = outline.call_ids(&request.body).take(MAX_KEYS_PER_TURN);
        let keys: Vec<VaultKey> = ids.map(|id| request.scope.call(&id)).collect();
        let vault = &self.gateway.vault;
        let may_lack = || vault.may_have_more(&keys, outline.thinking_count());
        if keys.is_empty() || !must_look && !may_lack() {
            return LookedUp::Unknown;
        }
        if !self.recall.lookups.lock().count_lookup() {
            return LookedUp::Unknown;
        }
        let StoredTurn { origin, session, blocks, prefix, .. } = match vault.find(&keys).await {
            Lookup::Found(turn) => turn,
            Lookup::Sealed => return LookedUp::Sealed,
            Lookup::Nothing => return LookedUp::Unknown,
        };
        // Restore a turn once, even if the request names it more than once.
        let is_new = self.recall.lookups.lock().is_new(&blocks);
        let Some(canonical) = outline.canonical(&request.body).filter(|_| is_new) else {
            return LookedUp::Unknown;
        };
        LookedUp::Known(LoopMessage {
            at,
            outline,
            canonical,
            parts: LostParts::of(blocks),
            origin: Arc::new(origin),
            session,
            prefix,
        })
    }

    fn put_back_into(
        &self,
        message: &LoopMessage<'_>,
        edits: &mut Edits,
        dropped: &mut DroppedThinking,
    ) {
        let lost =
            self.recall.lost_thinking(&message.canonical.content, &message.parts, message.prefix);
        let replace = lost.replace.iter().filter(|lost| {
            let theirs = message.canonical.content.get(lost.at);
            theirs.is_some_and(|theirs| is_damaged(theirs, lost.block))
        });
        let insert = lost.insert.iter().map(|lost| (lost, false));
        let mut blocks: Vec<_> = insert.chain(replace.map(|lost| (lost, true))).collect();
        // At one index, blocks are inserted before a block is replaced.
        blocks.sort_by_key(|(lost, replaces)| (lost.at, *replaces));
        let verdicts = self.verdicts(message, &lost, &blocks);
        let mut inserted = 0;
        for ((lost, replaces), verdict) in blocks.into_iter().zip(verdicts) {
            let position = message.outline.blocks().get(lost.at);
            let (verdict, position) = match (verdict, position) {
                (Verdict::LeaveOut { reason, .. }, _) => {
                    dropped.withhold(message, lost.block, reason);
                    continue;
                }
                // A message must not end in thinking.
                (_, None) => {
                    dropped.withhold(message, lost.block, Reason::Shape);
                    continue;
                }
                (verdict, Some(position)) => (verdict, position),
            };
            match replaces {
                true => rewrite::replace_by_thinking(edits, position, lost.block),
                false => rewrite::insert_thinking(edits, position, lost.block),
            }
            let at = (message.at, lost.at + inserted);
            dropped.restored.push(RestoredBlock { at, replaces, verdict });
            inserted += usize::from(!replaces);
        }
    }

    /// Decides which lost blocks of a message may go back.
    fn verdicts(
        &self,
        message: &LoopMessage<'_>,
        lost: &LostThinking<'_>,
        blocks: &[(&LostBlock<'_>, bool)],
    ) -> Vec<Verdict> {
        let (attempt, recall) = (self.attempt, self.recall);
        let leave_out = |reason| Verdict::LeaveOut { reason, origin: Some(message.origin.clone()) };
        let thinking = self.outline.thinking.as_ref();
        let binding = thinking.and_then(|thinking| thinking.binding.as_deref());
        let keys: Vec<_> = blocks.iter().map(|(lost, _)| key_of(lost.block)).collect();
        let answer = self.gateway.memory.ask(&Question {
            lineage: attempt.request.lineage,
            target: recall.target,
            follows_active_backend: attempt.follows_active_backend,
            // The client did not send these blocks back.
            in_conversation: false,
            blocks: &keys,
            has_assistant: true,
            now: unix_ms(),
            rules: recall.rules,
        });
        let judge = |((lost_block, _), verdict): (&(&LostBlock<'_>, bool), Verdict)| {
            let made = lost_block.made;
            match known_verdict(&verdict) {
                _ if !lost.led_here => leave_out(Reason::Shape),
                // The caller wants an error if the history is not as it was.
                _ if binding == Some("error") => leave_out(Reason::Policy),
                Some(Verdict::Send { origin, prefix, dropped }) => Verdict::Send {
                    origin: origin.clone(),
                    prefix: prefix.or(made),
                    dropped: *dropped,
                },
                Some(_) => verdict,
                None => {
                    let block = lost_block.block.clone();
                    let past = recall.stored(block, &message.origin, message.session);
                    match past.maker {
                        Maker::Same => {
                            Verdict::Send { origin: past.origin, prefix: made, dropped: None }
                        }
                        Maker::Foreign => leave_out(past.reason),
                    }
                }
            }
        };
        blocks.iter().zip(answer.verdicts).map(judge).collect()
    }
}

impl DroppedThinking {
    /// The verdict on each block of the new body, given those on the client's blocks.
    pub(crate) fn with_restored(&self, client: Vec<Verdict>, outline: &Outline) -> Vec<Verdict> {
        if self.restored.is_empty() {
            return client;
        }
        let mut client = client.into_iter();
        let mut restored = self.restored.iter().peekable();
        let verdict = |(message, index, ..): (usize, usize, _, _)| {
            let Some(block) = restored.next_if(|block| block.at == (message, index)) else {
                return client.next();
            };
            if block.replaces {
                client.next();
            }
            Some(block.verdict.clone())
        };
        outline.thinking_blocks().map_while(verdict).collect()
    }

    /// Reports a block that may not go back.
    fn withhold(&mut self, message: &LoopMessage<'_>, block: &Block, reason: Reason) {
        let (kind, origin) = (kind_of(block), Some(message.origin.clone()));
        self.withheld.push(WithheldPart { message: message.at, kind, reason, origin });
    }
}

/// Whether a client's block is the stored one without its signature or its text. A block that the
/// client changed in any other way is the client's own.
fn is_damaged(theirs: &Block, stored: &Block) -> bool {
    let (
        Block::Thinking { text, signature },
        Block::Thinking { text: whole, signature: Some(signed) },
    ) = (theirs, stored)
    else {
        return false;
    };
    match signature {
        None => text == whole && !signed.is_empty(),
        Some(signature) => signature == signed && text.is_empty() && !whole.is_empty(),
    }
}

/// Whether the model thinks in this request.
fn thinking_is_on(outline: &Outline, backend: &Backend, model: &Model) -> bool {
    let mode = outline.thinking.as_ref().map(|thinking| thinking.mode.as_str());
    match mode {
        _ if backend.compat == Some(Compat::Off) => false,
        Some("disabled") => false,
        None | Some("") => model.unasked,
        Some(_) => model.thinking != Some(Form::None),
    }
}
