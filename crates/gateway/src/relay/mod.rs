//! A reply's events on their way from one dialect to another: signatures go into envelopes, tool-call
//! ids become unique, and the turn is kept as its maker wrote it. Where the client gets the provider's
//! own bytes, the events are only looked at.

pub(crate) mod block_tap;
pub(crate) mod call_ids;
pub mod crossing;
pub(crate) mod custom_tools;
mod deferred_signature;
pub(crate) mod opaque_tap;
pub(crate) mod provider_report;
pub(crate) mod settle;
pub(crate) mod tool_names;

use std::borrow::Cow;
use std::sync::Arc;

use throughline_canonical::{
    Block, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Fold, Loss, Origin, Prefix,
    ThinkingKind,
};
use throughline_codec::dialects::passthrough::Passthrough;
use throughline_codec::dialects::{ClientDialect, ReplyReader};

use crate::history::missing_call_ids;
use crate::history::recall::{key_of, pass_block, signature_block};
use crate::history::vault_lookup::names;
use crate::relay::call_ids::{Ids, looks_random};
use crate::relay::custom_tools::CustomTools;
use crate::relay::deferred_signature::{Held, HeldCall};
use crate::relay::provider_report::Past;
use crate::relay::tool_names::ToolNames;
use crate::separating::SeparatingModels;
use crate::thinking::capture::Captured;
use crate::thinking::envelope::{Envelope, EnvelopeKind, Envelopes, SignedCall};
use crate::thinking::vault::{Kept, Scope, Vault};
use crate::turn::ledger::Ledger;
use crate::turn::log::KeptBlock;
use crate::unix_ms;

/// How much of a block is shown in logs that may hold contents.
const PREVIEW: usize = 48;

/// A reply on its way.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) ledger: Ledger,
    marks: SignatureForm,
    vault: Arc<Vault>,
    /// None where the client gets the provider's own.
    ids: Option<Ids>,
    /// The turn as its maker writes it.
    fold: Fold,
    /// Blocks that are open: their number in the stream, and their place in the turn.
    open: Vec<(u32, usize)>,
    /// Whether the turn is part of its conversation.
    in_conversation: bool,
    ended: bool,
    closed: bool,
    /// What the next block is made under, where prefixes matter.
    running: Option<Prefix>,
    /// Thinking that has ended, which the client is not told before it is known what follows.
    held: Option<Held>,
    /// Tools that the client knows as others.
    free: CustomTools,
    /// And by other names.
    names: ToolNames,
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
    /// Whether the client sends the ids of calls back.
    pub(crate) keeps_ids: bool,
    /// The models that are known to separate reasoning.
    pub(crate) separating: Arc<SeparatingModels>,
}

/// What clients get as signatures.
#[derive(Debug)]
pub(crate) enum SignatureForm {
    /// The provider's own: the client speaks its dialect.
    Native,
    /// Envelopes that hold them.
    Enveloped {
        /// Where they come from.
        envelopes: Envelopes,
        /// Whether the first call gets one in any case.
        first_call: bool,
        /// Whether the signature of a call rides with the thinking before it: the model wants it back,
        /// and the client has no room for it on the call.
        calls_ride: bool,
    },
    /// What stands in the provider's bytes: the client gets those.
    Passed(&'static dyn Passthrough),
}

impl Relay {
    /// The reply to a request.
    pub(crate) fn new(
        ledger: Ledger,
        marks: SignatureForm,
        vault: Arc<Vault>,
        ids: Option<Ids>,
        sent: Sent,
        in_conversation: bool,
    ) -> Self {
        Self {
            ledger,
            marks,
            vault,
            ids,
            fold: Fold::default(),
            open: Vec::new(),
            in_conversation,
            ended: false,
            closed: false,
            running: sent.prefix,
            held: None,
            free: CustomTools::default(),
            names: ToolNames::default(),
            sent,
        }
    }

    /// The same, with tools that went as functions, and under other names.
    pub(crate) fn with_tools(mut self, free: CustomTools, names: ToolNames) -> Self {
        (self.free, self.names) = (free, names);
        self
    }

    /// Records what only the reader knows about the reply. Call it before [`Relay::close`].
    pub(crate) fn finish_reading(&mut self, reader: &dyn ReplyReader) {
        if self.closed {
            return;
        }
        for loss in reader.losses() {
            if !self.sent.losses.contains(loss) {
                self.sent.losses.push(loss.clone());
            }
        }
        if reader.separates_reasoning() {
            let Origin { backend, model, .. } = &*self.ledger.origin;
            self.sent.separating.learn(backend, model);
        }
    }

    /// Takes an event of the provider, gives those of the client.
    pub(crate) fn pass(&mut self, event: Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if self.free.is_empty() {
            return self.relay(event, out);
        }
        let mut free = std::mem::take(&mut self.free);
        self.relay(event, &mut |event| free.tell(event, out));
        self.free = free;
    }

    fn relay(&mut self, event: Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if self.ended {
            return;
        }
        self.ledger.see(&event);
        if self.held.as_ref().is_some_and(|held| !held.waits(&event)) {
            self.release(out);
        }
        match event {
            Event::BlockStarted { index, block } => self.begin(index, block, out),
            Event::BlockDelta { index, delta } => {
                let event = Event::BlockDelta { index, delta };
                self.fold.push(&event);
                match &event {
                    // A signature is told when the block ends: only the last one counts.
                    Event::BlockDelta { delta: Delta::Signature(_), .. } => {
                        return self.release(out);
                    }
                    Event::BlockDelta { delta: Delta::Citation(_), .. } => self.lose(&event),
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
            event @ Event::EndExplained(_) => {
                self.lose(&event);
                self.fold.push(&event);
                out(&event);
            }
            Event::Transformed { .. } => {}
        }
    }

    /// Once the answer has begun, the provider has said what it did with the thinking it got.
    fn settle(&mut self) {
        let settled = self.sent.settle(&self.ledger.seen.transformations);
        if let Some((target, outcomes)) = settled.filter(|_| self.in_conversation)
            && !outcomes.is_empty()
        {
            let (lineage, session) = (self.ledger.lineage, self.ledger.session);
            self.ledger.memory.outcome(lineage, session, &target, &outcomes, unix_ms());
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
                name: self.names.theirs(name),
            },
            other => other,
        };
        let event = Event::BlockStarted { index, block };
        self.lose(&event);
        self.open.push((index, self.fold.reply().content.len()));
        self.fold.push(&event);
        let block = match event {
            Event::BlockStarted { block: BlockStart::Thinking { text, .. }, .. } => {
                BlockStart::Thinking { text, signature: Cow::Borrowed("") }
            }
            Event::BlockStarted { block: BlockStart::Redacted { data }, .. } => {
                let mark = self.mark(
                    EnvelopeKind::Redacted { data: data.clone().into_owned() },
                    None,
                    &data,
                    None,
                );
                BlockStart::Redacted { data: mark.map_or(data, Cow::Owned) }
            }
            Event::BlockStarted { block, .. } => block,
            _ => return,
        };
        if let BlockStart::Redacted { data } = &block {
            let data = data.clone().into_owned();
            let made = self.pass_block(self.fold.reply().content.len() - 1);
            self.remember(&Block::Redacted { data }, made, false);
        }
        if let (Some(held), BlockStart::ToolCall { id, name }) = (&mut self.held, &block) {
            held.call = Some(HeldCall {
                index,
                place: self.fold.reply().content.len() - 1,
                id: id.clone().into_owned(),
                name: name.clone().into_owned(),
            });
            return;
        }
        out(&Event::BlockStarted { index, block });
    }

    /// Tells what the client will miss of an event: only now that is known.
    fn lose(&mut self, event: &Event<'_>) {
        if matches!(self.marks, SignatureForm::Passed(_)) {
            return;
        }
        if let Some(loss) = self.sent.client.loss_of(event)
            && !self.sent.losses.contains(&loss)
        {
            self.sent.losses.push(loss);
        }
    }

    fn end_block(&mut self, index: u32, out: &mut dyn FnMut(&Event<'_>)) {
        let event = Event::BlockEnded { index };
        if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
            let (_, place) = self.open.swap_remove(at);
            if self.waits_for_call(place) {
                self.fold.push(&event);
                self.held = Some(Held::new(index, place));
                return;
            }
            self.sign(index, place, None, out);
        }
        self.fold.push(&event);
        out(&event);
    }

    /// Whether the client is not told the end of a block before it is known what follows.
    fn waits_for_call(&self, place: usize) -> bool {
        let block = self.fold.reply().content.get(place);
        let thinks = matches!(block, Some(Block::Thinking { .. }));
        let rides = matches!(self.marks, SignatureForm::Enveloped { calls_ride: true, .. });
        thinks && rides
    }

    /// Tells the client what was held back.
    fn release(&mut self, out: &mut dyn FnMut(&Event<'_>)) {
        let Some(Held { index, place, call }) = self.held.take() else {
            return;
        };
        let signed = call.as_ref().and_then(|call| call.signed(&self.fold));
        self.sign(index, place, signed, out);
        out(&Event::BlockEnded { index });
        if let Some(call) = &call {
            out(&call.start());
        }
    }

    /// Tells a block's signature, once the block is complete.
    fn sign(
        &mut self,
        index: u32,
        place: usize,
        call: Option<SignedCall>,
        out: &mut dyn FnMut(&Event<'_>),
    ) {
        let Some(block) = self.fold.reply().content.get(place) else {
            return;
        };
        let (kind, signature, content) = match block {
            Block::Thinking { text, signature } => {
                (EnvelopeKind::Thinking, signature, text.as_str())
            }
            Block::ToolCall { signature, .. } if signature.is_some() || self.marks_call(place) => {
                (EnvelopeKind::Call, signature, "")
            }
            Block::Text { signature: signature @ Some(_), text, .. } => {
                (EnvelopeKind::Text, signature, text.as_str())
            }
            _ => return,
        };
        let thinks = kind == EnvelopeKind::Thinking;
        let mark =
            self.mark(kind, signature.as_deref(), content, call).or_else(|| signature.clone());
        if thinks {
            let seen = Block::Thinking { text: content.to_owned(), signature: mark.clone() };
            let made = self.pass_block(place);
            self.remember(&seen, made, false);
        } else if let (SignatureForm::Passed(_), Some(mark)) = (&self.marks, &mark) {
            // Nothing else says who made it.
            self.remember(&signature_block(mark), None, false);
        }
        if let Some(mark) = mark {
            out(&Event::BlockDelta { index, delta: Delta::Signature(mark.into()) });
        }
    }

    /// Whether a call gets a mark although its maker gave none.
    fn marks_call(&self, place: usize) -> bool {
        let SignatureForm::Enveloped { first_call, .. } = self.marks else {
            return false;
        };
        let mut content = self.fold.reply().content.iter();
        first_call
            && content.position(|block| matches!(block, Block::ToolCall { .. })) == Some(place)
    }

    /// An envelope for a block; none where clients get the provider's own signature.
    fn mark(
        &self,
        kind: EnvelopeKind,
        signature: Option<&str>,
        content: &str,
        call: Option<SignedCall>,
    ) -> Option<String> {
        let envelopes = match (&self.marks, &kind) {
            (SignatureForm::Native, _) => return None,
            (SignatureForm::Passed(dialect), EnvelopeKind::Redacted { data }) => {
                return Some(dialect.raw_signature(data).into_owned());
            }
            (SignatureForm::Passed(dialect), _) => {
                return Some(dialect.raw_signature(signature?).into_owned());
            }
            (SignatureForm::Enveloped { envelopes, .. }, _) => envelopes,
        };
        Some(envelopes.mint(&Envelope {
            origin: (*self.ledger.origin).clone(),
            kind,
            signature: signature.map(ToOwned::to_owned),
            content: Envelopes::content_hash(content),
            cut: false,
            call,
        }))
    }

    /// Remembers thinking as the client will send it back.
    fn remember(&self, block: &Block, made: Option<Prefix>, cut: bool) {
        let Some(key) = key_of(block).filter(|_| self.in_conversation) else {
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
        self.release(out);
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
        // A call that has only begun is nobody's to know.
        if let Some(held) = &mut self.held {
            held.call = None;
        }
        self.release(out);
        self.give_up_open();
        out(&Event::Fault(fault.clone()));
        out(&Event::Ended { reason: EndReason::Failed });
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
        if !worth || !self.in_conversation {
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
        let (scope, question) = (&self.sent.scope, &self.sent.question);
        let mut names = names(scope, question, content);
        if !self.sent.keeps_ids {
            names.extend(missing_call_ids::names(scope, question, content));
        }
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
            turn.keep_blocks(sent.blocks.clone());
            turn.losses.clone_from(&sent.losses);
        });
    }
}

/// Whether a block came to its end as its maker began it.
fn is_whole(block: &&Block) -> bool {
    !matches!(block, Block::Opaque { value, .. } if !value.is_object())
}
