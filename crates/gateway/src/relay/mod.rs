//! Relays the events of a reply from the provider to the client: puts signatures into envelopes,
//! makes call ids unique, remembers the thinking and stores the turn. On the passthrough lane the
//! client gets the provider's own bytes, and the relay only observes the events.

pub(crate) mod block_tap;
pub(crate) mod call_ids;
pub(crate) mod custom_tools;
mod deferred_signature;
pub(crate) mod opaque_tap;
pub(crate) mod provider_report;
pub(crate) mod settle;
pub(crate) mod tool_names;
pub(crate) mod turn_recorder;

use std::borrow::Cow;
use std::sync::Arc;

use throughline_canonical::{
    Block, BlockKey, BlockStart, Delta, EndReason, Event, Fault, FaultKind, Fold, Loss, Origin,
    Prefix, ThinkingKind,
};
use throughline_codec::dialects::compaction::Compaction;
use throughline_codec::dialects::passthrough::Passthrough;
use throughline_codec::dialects::{ClientDialect, ReplyReader};

use crate::history::recall::{client_key, pass_block, signature_block};
use crate::history::turn_position::TurnPosition;
use crate::history::vault_lookup::vault_keys;
use crate::learnt_reasoning::LearntReasoning;
use crate::relay::call_ids::CallIds;
use crate::relay::custom_tools::CustomTools;
use crate::relay::deferred_signature::{DeferredBlock, DeferredCall};
use crate::relay::provider_report::SentThinking;
use crate::relay::tool_names::ToolNames;
use crate::relay::turn_recorder::{has_unique_ids, store_turn};
use crate::thinking::capture::CapturedBlock;
use crate::thinking::envelope::{Envelope, EnvelopeKind, Envelopes, SignedCall};
use crate::thinking::vault::{Scope, Vault};
use crate::turn::ledger::{Closing, Ledger};
use crate::turn::log::BlockRecord;
use crate::unix_ms;

/// How many characters of a block are shown in logs, if contents may be logged.
const PREVIEW_CHARS: usize = 48;

/// One reply on its way to the client. Many fields: it holds the state of all the steps in one pass
/// over the events.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) ledger: Ledger,
    signature_form: SignatureForm,
    vault: Arc<Vault>,
    /// `None` if the client gets the provider's own ids.
    ids: Option<CallIds>,
    /// The turn as its maker wrote it.
    fold: Fold,
    /// Open blocks: the index in the stream and the index in the turn.
    open: Vec<(u32, usize)>,
    /// Whether the turn is part of the conversation.
    in_conversation: bool,
    ended: bool,
    closed: bool,
    /// The prefix that the next block follows, if prefixes matter.
    next_prefix: Option<Prefix>,
    /// A thinking block whose end waits for the next event.
    deferred: Option<DeferredBlock>,
    /// Custom tools that were sent as functions.
    custom_tools: CustomTools,
    /// Tools that were sent under other names.
    tool_names: ToolNames,
    sent: SentRequest,
}

/// The request that the reply answers, for the report.
#[derive(Debug)]
pub(crate) struct SentRequest {
    pub(crate) blocks: Vec<BlockRecord>,
    pub(crate) losses: Vec<Loss>,
    /// The client's dialect.
    pub(crate) client: &'static dyn ClientDialect,
    /// Where the reply stands in the conversation.
    pub(crate) turn_position: TurnPosition,
    /// Who may restore this turn from the vault.
    pub(crate) scope: Scope,
    /// The signed parts that were sent. `None` on the passthrough lane.
    pub(crate) sent_thinking: Option<SentThinking>,
    /// The prefix that the reply follows, if prefixes matter.
    pub(crate) prefix: Option<Prefix>,
    /// Whether the client returns the ids of calls.
    pub(crate) returns_call_ids: bool,
    /// What replies have shown about the reasoning of models.
    pub(crate) learnt: Arc<LearntReasoning>,
}

/// The form in which clients get signatures.
#[derive(Debug)]
pub(crate) enum SignatureForm {
    /// The provider's own signatures: both sides use one dialect, or the client keeps whole turns.
    Native {
        /// Seals envelopes for thinking that the provider did not sign, if clients drop it.
        unsigned: Option<Envelopes>,
    },
    /// Envelopes that hold the signatures.
    Enveloped {
        /// Seals the envelopes.
        envelopes: Envelopes,
        /// Whether the first call always gets an envelope.
        first_call: bool,
        /// Whether the thinking before a call holds the call's signature, because the model needs
        /// it back and the client cannot hold it on the call.
        thinking_holds_call: bool,
    },
    /// The signatures in the provider's bytes, which are forwarded.
    Passed(&'static dyn Passthrough),
}

impl Relay {
    /// Starts the relay for one reply.
    pub(crate) fn new(
        ledger: Ledger,
        signature_form: SignatureForm,
        vault: Arc<Vault>,
        ids: Option<CallIds>,
        sent: SentRequest,
        in_conversation: bool,
    ) -> Self {
        Self {
            ledger,
            signature_form,
            vault,
            ids,
            fold: Fold::default(),
            open: Vec::new(),
            in_conversation,
            ended: false,
            closed: false,
            next_prefix: sent.prefix,
            deferred: None,
            custom_tools: CustomTools::default(),
            tool_names: ToolNames::default(),
            sent,
        }
    }

    /// Adds tools that were sent as functions or under other names.
    pub(crate) fn with_tools(mut self, custom_tools: CustomTools, tool_names: ToolNames) -> Self {
        (self.custom_tools, self.tool_names) = (custom_tools, tool_names);
        self
    }

    /// Records what only the reader knows about the reply. Call this before [`Relay::close`].
    pub(crate) fn finish_reading(&mut self, reader: &dyn ReplyReader) {
        let _entered = self.ledger.span.enter();
        let Origin { backend, model, .. } = &*self.ledger.origin;
        if reader.separates_reasoning() {
            self.sent.learnt.learn_separated(backend, model);
        }
        if reader.is_stored() {
            self.sent.learnt.learn_keeping(backend);
        }
        if let Some(member) = reader.reasoning_member() {
            self.sent.learnt.learn_member(backend, model, member);
        }
    }

    /// Takes an event of the provider and emits events for the client.
    pub(crate) fn push(&mut self, event: Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if self.custom_tools.is_empty() {
            return self.relay(event, out);
        }
        let mut custom_tools = std::mem::take(&mut self.custom_tools);
        self.relay(event, &mut |event| custom_tools.forward(event, out));
        self.custom_tools = custom_tools;
    }

    fn relay(&mut self, event: Event<'_>, out: &mut dyn FnMut(&Event<'_>)) {
        if self.ended {
            return;
        }
        self.ledger.record_event(&event);
        if self.deferred.as_ref().is_some_and(|deferred| !deferred.waits(&event)) {
            self.send_deferred(out);
        }
        match event {
            Event::BlockStarted { index, block } => self.begin(index, block, out),
            Event::BlockDelta { index, delta } => {
                let event = Event::BlockDelta { index, delta };
                self.fold.push(&event);
                match &event {
                    // Send the signature when the block ends, because only the last one counts.
                    Event::BlockDelta { delta: Delta::Signature(_), .. } => {
                        return self.send_deferred(out);
                    }
                    Event::BlockDelta { delta: Delta::Citation(_), .. } => self.record_loss(&event),
                    _ => {}
                }
                out(&event);
            }
            Event::BlockEnded { index } => self.end_block(index, out),
            Event::Ended { reason } => self.end(reason, out),
            event @ Event::Fault(_) => {
                self.send_losses(out);
                out(&event);
            }
            event @ (Event::MessageStarted { .. } | Event::Usage(_)) => {
                self.fold.push(&event);
                out(&event);
            }
            Event::Lost { losses } => {
                losses.into_iter().for_each(|loss| Loss::add(&mut self.sent.losses, loss));
            }
            event @ Event::EndExplained(_) => {
                self.record_loss(&event);
                self.fold.push(&event);
                out(&event);
            }
            Event::Transformed { .. }
            // Providers do not run the tools of conversations.
            | Event::RoundEnded(_)
            | Event::ToolStarted { .. }
            | Event::ApprovalNeeded { .. }
            | Event::ToolResult { .. } => {}
        }
    }

    /// Learns what the provider did with the sent thinking. It reports that before the answer
    /// begins.
    fn settle(&mut self) {
        let settled = self.sent.settle(&self.ledger.progress.transformations);
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
                name: self.tool_names.client_name(name),
            },
            other => other,
        };
        let event = Event::BlockStarted { index, block };
        self.record_loss(&event);
        self.open.push((index, self.fold.reply().content.len()));
        self.fold.push(&event);
        let block = match event {
            Event::BlockStarted { block: BlockStart::Thinking { text, .. }, .. } => {
                BlockStart::Thinking { text, signature: Cow::Borrowed("") }
            }
            Event::BlockStarted { block: BlockStart::Redacted { data }, .. } => {
                let signature = self.envelope_for(
                    EnvelopeKind::Redacted { data: data.clone().into_owned() },
                    None,
                    &data,
                    None,
                );
                BlockStart::Redacted { data: signature.map_or(data, Cow::Owned) }
            }
            Event::BlockStarted { block, .. } => block,
            _ => return,
        };
        if let BlockStart::Redacted { data } = &block {
            let data = data.clone().into_owned();
            let made = self.pass_block(self.fold.reply().content.len() - 1);
            self.remember(&Block::Redacted { data }, made, false);
        }
        if let (Some(deferred), BlockStart::ToolCall { id, name }) = (&mut self.deferred, &block) {
            deferred.call = Some(DeferredCall {
                index,
                position: self.fold.reply().content.len() - 1,
                id: id.clone().into_owned(),
                name: name.clone().into_owned(),
            });
            return;
        }
        out(&Event::BlockStarted { index, block });
    }

    /// Records what the client's dialect cannot express of an event.
    fn record_loss(&mut self, event: &Event<'_>) {
        if matches!(self.signature_form, SignatureForm::Passed(_)) {
            return;
        }
        if let Some(loss) = self.sent.client.loss_of(event) {
            Loss::add(&mut self.sent.losses, loss);
        }
    }

    /// Sends all losses of the turn, for clients that have a field for them in the last event.
    fn send_losses(&self, out: &mut dyn FnMut(&Event<'_>)) {
        if !self.sent.losses.is_empty() {
            out(&Event::Lost { losses: self.sent.losses.clone() });
        }
    }

    fn end_block(&mut self, index: u32, out: &mut dyn FnMut(&Event<'_>)) {
        let event = Event::BlockEnded { index };
        if let Some(at) = self.open.iter().position(|(open, _)| *open == index) {
            let (_, position) = self.open.swap_remove(at);
            if self.waits_for_call(position) {
                self.fold.push(&event);
                self.deferred = Some(DeferredBlock::new(index, position));
                return;
            }
            self.sign(index, position, None, out);
            self.fold.push(&event);
            self.remember_summary(position);
        } else {
            self.fold.push(&event);
        }
        out(&event);
    }

    /// Remembers who wrote a summary of earlier turns. Only its maker can check or read it.
    fn remember_summary(&self, position: usize) {
        if let Some(Block::Opaque { dialect, value }) = self.fold.reply().content.get(position)
            && let Some(summary) = Compaction::read(dialect, value)
        {
            self.register(summary.key(), "", None, false);
        }
    }

    /// Whether the end of a block must wait for the next event.
    fn waits_for_call(&self, position: usize) -> bool {
        let block = self.fold.reply().content.get(position);
        let thinks = matches!(block, Some(Block::Thinking { .. }));
        let holds_call = matches!(
            self.signature_form,
            SignatureForm::Enveloped { thinking_holds_call: true, .. }
        );
        thinks && holds_call
    }

    /// Sends the delayed events.
    fn send_deferred(&mut self, out: &mut dyn FnMut(&Event<'_>)) {
        let Some(DeferredBlock { index, position, call }) = self.deferred.take() else {
            return;
        };
        let signed = call.as_ref().and_then(|call| call.signed(&self.fold));
        self.sign(index, position, signed, out);
        out(&Event::BlockEnded { index });
        if let Some(call) = &call {
            out(&call.start());
        }
    }

    /// Sends the signature of a complete block.
    fn sign(
        &mut self,
        index: u32,
        position: usize,
        call: Option<SignedCall>,
        out: &mut dyn FnMut(&Event<'_>),
    ) {
        let Some(block) = self.fold.reply().content.get(position) else {
            return;
        };
        let (kind, signature, content, call) = match block {
            Block::Thinking { text, signature } => {
                (EnvelopeKind::Thinking, signature, text.as_str(), call)
            }
            Block::ToolCall { id, signature, .. }
                if signature.is_some() || self.needs_envelope(position) =>
            {
                // Some clients drop the id, and then only the envelope knows it.
                let call = SignedCall { id: id.clone(), signature: String::new() };
                (EnvelopeKind::Call, signature, "", Some(call))
            }
            Block::Text { signature: signature @ Some(_), text, .. } => {
                (EnvelopeKind::Text, signature, text.as_str(), None)
            }
            _ => return,
        };
        let thinks = kind == EnvelopeKind::Thinking;
        let signature = self
            .envelope_for(kind, signature.as_deref(), content, call)
            .or_else(|| signature.clone());
        if thinks {
            let as_client_sees_it =
                Block::Thinking { text: content.to_owned(), signature: signature.clone() };
            let made = self.pass_block(position);
            self.remember(&as_client_sees_it, made, false);
        } else if let (SignatureForm::Passed(_), Some(signature)) =
            (&self.signature_form, &signature)
        {
            // The signature is the only trace of the call's maker.
            self.remember(&signature_block(signature), None, false);
        }
        if let Some(signature) = signature {
            out(&Event::BlockDelta { index, delta: Delta::Signature(signature.into()) });
        }
    }

    /// Whether a call gets an envelope although it has no signature.
    fn needs_envelope(&self, position: usize) -> bool {
        let SignatureForm::Enveloped { first_call, .. } = self.signature_form else {
            return false;
        };
        let mut content = self.fold.reply().content.iter();
        first_call
            && content.position(|block| matches!(block, Block::ToolCall { .. })) == Some(position)
    }

    /// The envelope of a block. `None` if clients get the provider's own signature.
    fn envelope_for(
        &self,
        kind: EnvelopeKind,
        signature: Option<&str>,
        content: &str,
        call: Option<SignedCall>,
    ) -> Option<String> {
        let envelopes = match (&self.signature_form, &kind) {
            (SignatureForm::Native { unsigned: Some(envelopes) }, EnvelopeKind::Thinking)
                if signature.is_none_or(str::is_empty) =>
            {
                envelopes
            }
            (SignatureForm::Native { .. }, _) => return None,
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

    /// Remembers thinking in the form in which the client will send it back.
    fn remember(&self, block: &Block, made: Option<Prefix>, cut: bool) {
        if !self.in_conversation {
            return;
        }
        let text = match block {
            Block::Thinking { text, .. } => text.as_str(),
            _ => "",
        };
        let binds_text = self.sent.client.defaults().signature_binds_text;
        if let Some(key) = client_key(block, binds_text) {
            self.register(key, text, made, cut);
        }
    }

    fn register(&self, key: BlockKey, text: &str, made: Option<Prefix>, cut: bool) {
        if !self.in_conversation {
            return;
        }
        let captured = CapturedBlock {
            key,
            kind: ThinkingKind::Thinking,
            prefix: made,
            length: text.len() as u64,
            preview: text.chars().take(PREVIEW_CHARS).collect(),
        };
        self.ledger.register(&captured, cut);
    }

    /// The prefix that a block was made after, if prefixes matter. Moves on to the next block.
    fn pass_block(&mut self, position: usize) -> Option<Prefix> {
        let block = self.fold.reply().content.get(position)?;
        pass_block(&mut self.next_prefix, block)
    }

    fn end(&mut self, reason: EndReason, out: &mut dyn FnMut(&Event<'_>)) {
        let _entered = self.ledger.span.clone().entered();
        self.send_deferred(out);
        if reason == EndReason::Failed {
            // The fault was already sent. Blocks that did not end must not be sent back later.
            self.remember_cut_blocks();
            self.ended = true;
            out(&Event::Ended { reason });
            return;
        }
        if reason == EndReason::Cut {
            let backend = &self.ledger.origin.backend;
            let what = format!("backend `{backend}` ended its reply before the last event");
            tracing::warn!(backend, "the reply ended before its last event");
            let fault = Fault::new(FaultKind::Unreachable, what);
            self.ledger.record_event(&Event::Fault(fault.clone()));
            self.fail(&fault, out);
            return;
        }
        self.ended = true;
        self.settle();
        let event = Event::Ended { reason };
        self.fold.push(&event);
        self.store_turn();
        self.send_losses(out);
        out(&event);
    }

    /// Ends the reply with a fault.
    pub(crate) fn fail(&mut self, fault: &Fault, out: &mut dyn FnMut(&Event<'_>)) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        // Do not send a call that has only started.
        if let Some(deferred) = &mut self.deferred {
            deferred.call = None;
        }
        self.send_deferred(out);
        self.remember_cut_blocks();
        self.send_losses(out);
        out(&Event::Fault(fault.clone()));
        out(&Event::Ended { reason: EndReason::Failed });
    }

    /// Remembers cut thinking, so that it is never sent.
    fn remember_cut_blocks(&mut self) {
        for (_, position) in std::mem::take(&mut self.open) {
            if let Some(block @ Block::Thinking { .. }) = self.fold.reply().content.get(position) {
                self.remember(block, None, true);
            }
        }
    }

    /// Stores the turn for clients that cannot hold all of it.
    fn store_turn(&self) {
        let content = &self.fold.reply().content;
        let is_useful = content.iter().any(|block| match block {
            // The maker of a call matters for the request that brings its result.
            Block::Thinking { .. } | Block::Redacted { .. } | Block::ToolCall { .. } => true,
            Block::Text { signature, .. } => signature.is_some(),
            _ => false,
        });
        if !is_useful || !self.in_conversation || self.sent.client.defaults().keeps_turns {
            return;
        }
        // Another reply may use the same id, so it cannot be a key.
        if self.ids.is_none() && !has_unique_ids(content) {
            return;
        }
        let SentRequest { scope, turn_position, returns_call_ids, .. } = &self.sent;
        let keys =
            vault_keys(scope, turn_position, content, &self.ledger.origin, *returns_call_ids);
        store_turn(&self.vault, &keys, scope, &self.ledger, content, self.sent.prefix);
    }

    /// Whether the reply has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the end of the reply is recorded.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Records the end of the reply.
    pub(crate) fn close(&mut self, closing: Closing) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        if closing == Closing::ClientGone && !self.ended {
            self.remember_cut_blocks();
            self.ledger.progress.end = Some(EndReason::Cut);
        }
        let sent = &self.sent;
        self.ledger.close(closing, |turn| {
            turn.record_blocks(sent.blocks.clone());
            turn.losses.clone_from(&sent.losses);
        });
    }
}
