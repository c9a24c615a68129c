//! A reply's events on their way from one dialect to another: signatures go into envelopes, tool-call
//! ids become unique, and the turn is kept as its maker wrote it. Where the client gets the provider's
//! own bytes, the events are only looked at.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Fold, Loss, Prefix, Request,
    ThinkingKind,
};
use throughline_codec::dialects::ClientDialect;
use throughline_codec::dialects::in_place::InPlace;

use super::lost::names;
use super::past::{key_of, pass_block, signature_block};
use super::settled::Past;
use crate::ledger::Ledger;
use crate::thinking::capture::Captured;
use crate::thinking::envelope::{Carried, Envelope, Envelopes};
use crate::thinking::vault::{Kept, Scope, Vault};
use crate::turns::KeptBlock;
use crate::unix_ms;

/// How much of a block is shown in logs that may hold contents.
const PREVIEW: usize = 48;

/// A reply on its way.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) ledger: Ledger,
    marks: Marks,
    vault: Arc<Vault>,
    /// None where the client gets the provider's own.
    ids: Option<Ids>,
    /// The turn as its maker writes it.
    fold: Fold,
    /// Blocks that are open: their number in the stream, and their place in the turn.
    open: Vec<(u32, usize)>,
    /// Whether the turn is part of its conversation.
    counts: bool,
    ended: bool,
    closed: bool,
    /// What the next block is made under, where prefixes matter.
    running: Option<Prefix>,
    sent: Sent,
}

/// What went to the provider, for the report.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) blocks: Vec<KeptBlock>,
    pub(crate) losses: Vec<Loss>,
    /// Who gets the reply.
    pub(crate) client: &'static dyn ClientDialect,
    /// What is answered.
    pub(crate) question: String,
    /// Whose turn it is.
    pub(crate) scope: Scope,
    /// What of the past went out, where this lane knows it to the last block.
    pub(crate) past: Option<Past>,
    /// What the reply is made under, where prefixes matter.
    pub(crate) prefix: Option<Prefix>,
}

/// What clients get as signatures.
#[derive(Debug)]
pub(crate) enum Marks {
    /// The provider's own: the client speaks its dialect.
    Native,
    /// Envelopes that hold them.
    Enveloped {
        /// Where they come from.
        envelopes: Envelopes,
        /// Whether the first call gets one in any case.
        first_call: bool,
    },
    /// What stands in the provider's bytes: the client gets those.
    Passed(&'static dyn InPlace),
}

impl Relay {
    /// The reply to a request.
    pub(crate) fn new(
        ledger: Ledger,
        marks: Marks,
        vault: Arc<Vault>,
        ids: Option<Ids>,
        sent: Sent,
        counts: bool,
    ) -> Self {
        Self {
            ledger,
            marks,
            vault,
            ids,
            fold: Fold::default(),
            open: Vec::new(),
            counts,
            ended: false,
            closed: false,
            running: sent.prefix,
            sent,
        }
    }

    /// Takes an event of the provider, gives those of the client.
    pub(crate) fn pass(&mut self, event: Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if self.ended {
            return;
        }
        self.ledger.see(&event);
        match event {
            Event::BlockStarted { index, block } => self.begin(index, block, out),
            Event::BlockDelta { index, delta } => {
                let event = Event::BlockDelta { index, delta };
                self.fold.push(&event);
                match &event {
                    // A signature is told when the block ends: only the last one counts.
                    Event::BlockDelta {
                        delta: Delta::Signature(_),
                        ..
                    } => return,
                    Event::BlockDelta {
                        delta: Delta::Citation(_),
                        ..
                    } => self.lose(&event),
                    _ => {}
                }
                out(&event);
            }
            Event::BlockEnded { index } => self.end_block(index, out),
            Event::Ended { reason } => self.end(reason, out),
            event @ (Event::MessageStarted { .. } | Event::Usage(_) | Event::Fault(_)) => {
                self.fold.push(&event);
                out(&event);
            }
            Event::Transformed { .. } => {}
        }
    }

    /// Once the answer has begun, the provider has said what it did with the thinking it got.
    fn settle(&mut self) {
        let settled = self.sent.settle(&self.ledger.seen.transformations);
        if let Some((target, outcomes)) = settled.filter(|_| self.counts)
            && !outcomes.is_empty()
        {
            let (lineage, session) = (self.ledger.lineage, self.ledger.session);
            self.ledger
                .memory
                .outcome(lineage, session, &target, &outcomes, unix_ms());
        }
    }

    fn begin(&mut self, index: u32, block: BlockStart<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        self.settle();
        let block = match block {
            BlockStart::ToolCall { id, name } => BlockStart::ToolCall {
                id: match &mut self.ids {
                    Some(ids) => ids.unique(id),
                    None => id,
                },
                name,
            },
            other => other,
        };
        let event = Event::BlockStarted { index, block };
        self.lose(&event);
        self.open.push((index, self.fold.reply().content.len()));
        self.fold.push(&event);
        let block = match event {
            Event::BlockStarted {
                block: BlockStart::Thinking { text, .. },
                ..
            } => BlockStart::Thinking {
                text,
                signature: Cow::Borrowed(""),
            },
            Event::BlockStarted {
                block: BlockStart::Redacted { data },
                ..
            } => {
                let mark = self.mark(
                    Carried::Redacted {
                        data: data.clone().into_owned(),
                    },
                    None,
                    &data,
                );
                BlockStart::Redacted {
                    data: mark.map_or(data, Cow::Owned),
                }
            }
            Event::BlockStarted { block, .. } => block,
            _ => return,
        };
        if let BlockStart::Redacted { data } = &block {
            let data = data.clone().into_owned();
            let made = self.pass_block(self.fold.reply().content.len() - 1);
            self.remember(&Block::Redacted { data }, made, false);
        }
        out(&Event::BlockStarted { index, block });
    }

    /// Tells what the client will miss of an event: only now that is known.
    fn lose(&mut self, event: &Event<'_>) {
        if matches!(self.marks, Marks::Passed(_)) {
            return;
        }
        if let Some(loss) = self.sent.client.loses(event)
            && !self.sent.losses.contains(&loss)
        {
            self.sent.losses.push(loss);
        }
    }

    fn end_block(&mut self, index: u32, out: &mut dyn FnMut(&Event<'_>)) {
        if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
            let (_, place) = self.open.swap_remove(at);
            self.sign(index, place, out);
        }
        let event = Event::BlockEnded { index };
        self.fold.push(&event);
        out(&event);
    }

    /// Tells a block's signature, once the block is complete.
    fn sign(&mut self, index: u32, place: usize, out: &mut dyn FnMut(&Event<'_>)) {
        let Some(block) = self.fold.reply().content.get(place) else {
            return;
        };
        let (kind, signature, content) = match block {
            Block::Thinking { text, signature } => (Carried::Thinking, signature, text.as_str()),
            Block::ToolCall { signature, .. } if signature.is_some() || self.marks_call(place) => {
                (Carried::Call, signature, "")
            }
            Block::Text {
                signature: signature @ Some(_),
                text,
                ..
            } => (Carried::Text, signature, text.as_str()),
            _ => return,
        };
        let thinks = kind == Carried::Thinking;
        let mark = self
            .mark(kind, signature.as_deref(), content)
            .or_else(|| signature.clone());
        if thinks {
            let seen = Block::Thinking {
                text: content.to_owned(),
                signature: mark.clone(),
            };
            let made = self.pass_block(place);
            self.remember(&seen, made, false);
        } else if let (Marks::Passed(_), Some(mark)) = (&self.marks, &mark) {
            // Nothing else says who made it.
            self.remember(&signature_block(mark), None, false);
        }
        if let Some(mark) = mark {
            out(&Event::BlockDelta {
                index,
                delta: Delta::Signature(mark.into()),
            });
        }
    }

    /// Whether a call gets a mark although its maker gave none.
    fn marks_call(&self, place: usize) -> bool {
        let Marks::Enveloped { first_call, .. } = self.marks else {
            return false;
        };
        let mut content = self.fold.reply().content.iter();
        first_call
            && content.position(|block| matches!(block, Block::ToolCall { .. })) == Some(place)
    }

    /// An envelope for a block; none where clients get the provider's own signature.
    fn mark(&self, kind: Carried, signature: Option<&str>, content: &str) -> Option<String> {
        let envelopes = match (&self.marks, &kind) {
            (Marks::Native, _) => return None,
            (Marks::Passed(dialect), Carried::Redacted { data }) => {
                return Some(dialect.as_it_stands(data).into_owned());
            }
            (Marks::Passed(dialect), _) => {
                return Some(dialect.as_it_stands(signature?).into_owned());
            }
            (Marks::Enveloped { envelopes, .. }, _) => envelopes,
        };
        Some(envelopes.mint(&Envelope {
            origin: (*self.ledger.origin).clone(),
            kind,
            signature: signature.map(ToOwned::to_owned),
            content: Envelopes::content_hash(content),
            cut: false,
        }))
    }

    /// Remembers thinking as the client will send it back.
    fn remember(&self, block: &Block, made: Option<Prefix>, cut: bool) {
        let Some(key) = key_of(block).filter(|_| self.counts) else {
            return;
        };
        let text = match block {
            Block::Thinking { text, .. } => text.as_str(),
            _ => "",
        };
        let captured = Captured {
            key,
            kind: ThinkingKind::Thinking,
            prefix: made,
            length: text.len() as u64,
            preview: text.chars().take(PREVIEW).collect(),
        };
        self.ledger.register(&captured, cut);
    }

    /// What a block of the turn was made under, where prefixes matter; the next is made under more.
    fn pass_block(&mut self, place: usize) -> Option<Prefix> {
        let block = self.fold.reply().content.get(place)?;
        pass_block(&mut self.running, block)
    }

    fn end(&mut self, reason: EndReason, out: &mut dyn FnMut(&Event<'_>)) {
        if reason == EndReason::Failed {
            // The fault was told; what had not come to its end must not come back.
            self.give_up_open();
            self.ended = true;
            let event = Event::Ended { reason };
            self.fold.push(&event);
            out(&event);
            return;
        }
        if reason == EndReason::Cut {
            let backend = &self.ledger.origin.backend;
            let what = format!("backend `{backend}` ended its reply before the last event");
            tracing::warn!(backend, "a reply ended before its last event");
            self.break_off(&Fault::new(FaultKind::Unreachable, what), out);
            return;
        }
        self.ended = true;
        self.settle();
        let event = Event::Ended { reason };
        self.fold.push(&event);
        self.keep();
        out(&event);
    }

    /// Tells the client that the reply cannot go on.
    pub(crate) fn break_off(&mut self, fault: &Fault, out: &mut dyn FnMut(&Event<'_>)) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        self.give_up_open();
        out(&Event::Fault(fault.clone()));
        out(&Event::Ended {
            reason: EndReason::Failed,
        });
    }

    /// Remembers thinking that was cut, so that it is never sent.
    fn give_up_open(&mut self) {
        for (_, place) in std::mem::take(&mut self.open) {
            if let Some(block @ Block::Thinking { .. }) = self.fold.reply().content.get(place) {
                self.remember(block, None, true);
            }
        }
    }

    /// Keeps the turn for clients that lose what they cannot hold.
    fn keep(&self) {
        let content = &self.fold.reply().content;
        let worth = content.iter().any(|block| match block {
            // Who made a call matters to whoever gets its result.
            Block::Thinking { .. } | Block::Redacted { .. } | Block::ToolCall { .. } => true,
            Block::Text { signature, .. } => signature.is_some(),
            _ => false,
        });
        if !worth || !self.counts {
            return;
        }
        // An id that another reply may have too finds nothing.
        let named = |block: &Block| match block {
            Block::ToolCall { id, .. } => self.ids.is_some() || looks_random(id),
            _ => true,
        };
        if !content.iter().all(named) {
            return;
        }
        let kept = Kept {
            origin: (*self.ledger.origin).clone(),
            session: self.ledger.session,
            blocks: content.iter().filter(is_whole).cloned().collect(),
            prefix: self.sent.prefix,
        };
        let names = names(&self.sent.scope, &self.sent.question, content);
        self.vault.keep(&names, &kept);
    }

    /// What was lost, on the way there and back.
    pub(crate) fn losses(&self) -> &[Loss] {
        &self.sent.losses
    }

    /// Whether the reply has come to its end.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The reply is over.
    pub(crate) fn close(&mut self, client_gone: bool, error: Option<String>) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if client_gone && !self.ended {
            self.give_up_open();
            self.ledger.seen.end = Some(EndReason::Cut);
        }
        let sent = &self.sent;
        self.ledger.close(client_gone, error, |turn| {
            turn.keep_reports(&sent.blocks);
            turn.losses.clone_from(&sent.losses);
        });
    }
}

/// Whether a block came to its end as its maker began it.
fn is_whole(block: &&Block) -> bool {
    !matches!(block, Block::Opaque { value, .. } if !value.is_object())
}

/// The ids of tool calls: none comes twice in a conversation.
#[derive(Debug)]
pub(crate) struct Ids {
    used: HashSet<String>,
    stamp: String,
    minted: usize,
}

impl Ids {
    /// For the reply to a request. `stamp` is what no other reply has.
    pub(crate) fn new(request: &Request, stamp: &str) -> Self {
        let blocks = request.messages.iter().flat_map(|message| &message.content);
        let used = blocks.filter_map(|block| match block {
            Block::ToolCall { id, .. } => Some(id.clone()),
            _ => None,
        });
        Self {
            used: used.collect(),
            stamp: stamp.to_owned(),
            minted: 0,
        }
    }

    /// The provider's id, or one of ours if that is none, or no other reply's.
    fn unique<'a>(&mut self, id: Cow<'a, str>) -> Cow<'a, str> {
        let id = if looks_random(&id) && !self.used.contains(&*id) {
            id
        } else {
            self.minted += 1;
            Cow::Owned(format!("call_{}{}", self.stamp, self.minted))
        };
        self.used.insert(id.clone().into_owned());
        id
    }
}

/// Whether an id ends in letters and digits nobody counts with. Servers without ids, and those that
/// count their calls from nought in every reply, give others.
fn looks_random(id: &str) -> bool {
    let tail = id
        .rsplit(|letter: char| !letter.is_ascii_alphanumeric())
        .next()
        .unwrap_or_default();
    tail.len() >= 8
        && tail.bytes().any(|byte| byte.is_ascii_digit())
        && tail.bytes().any(|byte| byte.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_kept_where_they_tell_calls_apart() {
        let mut ids = Ids::new(&Request::default(), "0abc");
        for (given, told) in [
            ("toolu_01A2b3C4d5", "toolu_01A2b3C4d5"),
            ("call_9f8e7d6c5b", "call_9f8e7d6c5b"),
            ("call_9f8e7d6c5b", "call_0abc1"),
            ("call_0", "call_0abc2"),
            ("functions.look:0", "call_0abc3"),
            ("", "call_0abc4"),
        ] {
            assert_eq!(ids.unique(given.into()), told, "{given}");
        }
    }
}
