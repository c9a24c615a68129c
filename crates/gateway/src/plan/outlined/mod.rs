//! Plans a passthrough request of which every block is known: which blocks, which settings, which
//! edits.
//!
//! Thinking that the client dropped is put back first (`dropped`). The memory decides which blocks
//! may go (`fates`). The plan adds what the target needs
//! (`settings`, `open_loop`) and checks the prefixes that signatures are bound to (`prefix_guard`).
//! Then it turns everything into edits of the body. Sending and the reply are in `outlined_plan`.

pub(crate) mod dropped;
pub(crate) mod envelopes;
mod fates;
mod open_loop;
mod prefix_guard;
mod settings;

use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{BlockKey, Fate, Loss, Origin, Prefix, Reason, ThinkingKind};
use throughline_codec::dialects::blocks::outline::{Message, Outline};
use throughline_codec::dialects::blocks::rewrite::{self, ThinkingEdit};
use throughline_codec::dialects::blocks::settings::Change;
use throughline_codec::json::Edits;

use self::dropped::DroppedThinking;
use self::envelopes::NativeSignature;
use crate::backend::Backend;
use crate::catalog::Model;
use crate::history::vault_lookup::WithheldPart;
use crate::plan::cache_breakpoints::remove_in_place;
use crate::plan::{Decision, Lane};
use crate::relay::settle::{SentBlock, count_omitted};
use crate::thinking::guard::{Guard, PrefixRecord};
use crate::thinking::{TargetIdentity, Verdict};
use crate::turn::log::BlockRecord;
use crate::upstream::refusal_policy::RetryPlan;

/// The values that a plan is made from.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    /// The client's body, with the thinking that was put back.
    pub body: &'a Bytes,
    /// The outline of the body.
    pub outline: &'a Outline,
    /// The target.
    pub backend: &'a Backend,
    /// What the catalog knows about the model.
    pub model: &'a Model,
    /// The memory's verdict on each thinking block.
    pub verdicts: &'a [Verdict],
    /// Signatures that replace envelopes.
    pub(crate) natives: &'a [NativeSignature],
    /// What the client dropped from the open tool loop.
    pub(crate) dropped: &'a DroppedThinking,
    /// The mode of the prefix guard.
    pub guard: Guard,
    /// What to change after a refusal.
    pub retry: RetryPlan,
    /// The receiver of the blocks, for the memory.
    pub target: TargetIdentity,
    /// The session of the conversation.
    pub session: u64,
}

/// A plan with edits of single blocks.
#[derive(Debug)]
pub(crate) struct OutlinedPlan {
    /// The body. The client's own bytes if nothing changed.
    pub body: Bytes,
    pub(crate) decision: Decision,
    /// The model name that the client used, if it was changed.
    pub asked_model: Option<String>,
    /// The fate of each thinking block.
    pub blocks: Vec<PlannedBlock>,
    /// Blocks that the client dropped and that may not go back.
    withheld: Vec<WithheldPart>,
    /// Entries to add to the beta header.
    pub betas_added: Vec<&'static str>,
    /// Whether to remove the adaptive-thinking entries from the beta header.
    pub betas_without_adaptive: bool,
    /// The prefix that the reply will follow, if prefixes matter.
    pub prefix: Option<Prefix>,
    /// The edit of the thinking setting.
    pub thinking: ThinkingEdit,
    /// Whether the provider is asked to drop bound blocks.
    pub drop_bound: bool,
    /// The effort to add if a budget became adaptive thinking.
    effort: Option<&'static str>,
    /// Edits of other settings.
    settings: Vec<Change>,
    /// The first message of an open tool loop that is rewritten as text.
    close_loop_from: Option<usize>,
}

/// One thinking block and its fate.
#[derive(Clone, Debug)]
pub(crate) struct PlannedBlock {
    /// The index of its message in the client's request.
    pub message: usize,
    /// Its index in the message, with the blocks that were put back.
    pub index: usize,
    /// Its index in the client's message. `None` if the client dropped it.
    pub client_index: Option<usize>,
    /// The kind of block.
    pub kind: ThinkingKind,
    /// Its key.
    pub key: Option<BlockKey>,
    /// Its fate.
    pub fate: Fate,
    /// Why.
    pub reason: Option<Reason>,
    /// Its maker, if known.
    pub origin: Option<Arc<Origin>>,
    /// Whether it is in the sent body. A block that the provider is asked to drop is in the body
    /// and still counts as left out.
    pub in_body: bool,
    /// The prefix it was made after, if known.
    prefix_record: PrefixRecord,
    /// The prefix it follows now, if prefixes matter.
    pub prefix: Option<Prefix>,
}

impl PlannedBlock {
    fn leave_out(&mut self, reason: Reason) {
        self.fate = Fate::LeftOut;
        self.reason = Some(reason);
        self.in_body = false;
    }
}

impl OutlinedPlan {
    /// The keys of the blocks with this fate.
    pub(crate) fn keys(&self, fate: Fate) -> Vec<BlockKey> {
        self.blocks
            .iter()
            .filter(|block| block.fate == fate)
            .filter_map(|block| block.key)
            .collect()
    }

    /// The number of blocks with this fate.
    pub(crate) fn count(&self, fate: Fate) -> usize {
        self.blocks.iter().filter(|block| block.fate == fate).count()
    }

    /// Counts the omitted blocks again, by reason.
    pub(crate) fn recount_losses(&mut self) {
        let withheld = self.withheld.iter().map(|block| (Fate::LeftOut, Some(block.reason)));
        let fates = self.blocks.iter().map(|block| (block.fate, block.reason));
        count_omitted(&mut self.decision.losses, withheld.chain(fates));
    }

    /// The report of every block, in the order of their messages.
    pub(crate) fn records(&self) -> Vec<BlockRecord> {
        let withheld = self.withheld.iter().map(|block| (block.message, block.record()));
        let planned = self.blocks.iter().map(|block| (block.message, block.into()));
        let mut records: Vec<_> = withheld.chain(planned).collect();
        records.sort_by_key(|(message, _)| *message);
        records.into_iter().map(|(_, record)| record).collect()
    }

    /// Whether the plan changes the thinking setting of the client.
    pub(crate) fn changes_thinking(&self) -> bool {
        let effort = self.settings.iter().any(|(name, _)| *name == "output_config");
        self.thinking != ThinkingEdit::Keep || self.effort.is_some() || effort
    }

    /// Whether the client dropped blocks from this message on that may not go back.
    pub(crate) fn withholds_from(&self, start: usize) -> bool {
        self.withheld.iter().any(|block| block.message >= start)
    }

    /// The sent blocks, each with its index among all blocks.
    pub(crate) fn sent_blocks(&self) -> Vec<(usize, SentBlock)> {
        self.sent()
            .map(|(at, position)| {
                let block = &self.blocks[at];
                let sent = SentBlock {
                    position,
                    key: block.key,
                    fate: block.fate,
                    reason: block.reason,
                    prefix: block.prefix,
                };
                (at, sent)
            })
            .collect()
    }

    /// The index of the block at a position of the sent body.
    pub(crate) fn sent_at(&self, message: usize, index: usize) -> Option<usize> {
        self.sent().find(|(_, at)| *at == (message, index)).map(|(block, _)| block)
    }

    /// The indexes of the sent blocks, each with its position in the body: message index, block
    /// index.
    pub(crate) fn sent(&self) -> impl Iterator<Item = (usize, (usize, usize))> {
        let (mut message, mut removed) = (0, 0);
        self.blocks.iter().enumerate().filter_map(move |(at, block)| {
            if block.message != message {
                (message, removed) = (block.message, 0);
            }
            removed += usize::from(!block.in_body);
            block.in_body.then(|| (at, (message, block.index - removed)))
        })
    }
}

impl Planner<'_> {
    /// Makes the plan.
    pub(crate) fn plan(self) -> OutlinedPlan {
        let mut blocks = self.blocks_from_memory();
        self.apply_configuration(&mut blocks);
        self.apply_retry(&mut blocks);
        self.apply_shape(&mut blocks);
        let asked_model = self.outline.model.as_ref().map(|model| model.name.as_str());
        let model = self.backend.model_for(asked_model).to_owned();

        let mut plan = OutlinedPlan {
            body: self.body.clone(),
            asked_model: asked_model.filter(|requested| *requested != model).map(ToOwned::to_owned),
            decision: Decision {
                lane: Lane::Passthrough,
                dialect: self.backend.dialect,
                profile: self.backend.profile,
                model,
                losses: Vec::new(),
                session: self.session,
                target: self.target.clone(),
            },
            blocks,
            withheld: self.dropped.withheld.clone(),
            betas_added: Vec::new(),
            betas_without_adaptive: false,
            prefix: None,
            thinking: ThinkingEdit::Keep,
            drop_bound: false,
            effort: None,
            settings: Vec::new(),
            close_loop_from: None,
        };
        self.adapt_settings(&mut plan);
        self.repair_open_loop(&mut plan);
        self.render(&mut plan);
        if self.guard != Guard::Off {
            self.guard_prefixes(&mut plan);
        }
        self.record_losses(&mut plan);
        plan
    }

    /// Builds the body from the decisions.
    fn render(&self, plan: &mut OutlinedPlan) {
        let (outline, body) = (self.outline, self.body);
        let mut edits = Edits::default();
        let named = outline.model.as_ref().map_or("", |model| &model.name);
        if plan.decision.model != named {
            rewrite::set_model(&mut edits, body, outline, &plan.decision.model);
        }
        let mut gone = Vec::new();
        if plan.thinking == ThinkingEdit::Remove && outline.thinking.is_some() {
            gone.push("thinking");
        } else {
            rewrite::set_thinking(&mut edits, body, outline, &plan.thinking, plan.drop_bound);
        }
        for (name, value) in &plan.settings {
            match value {
                Some(value) => rewrite::set(&mut edits, body, outline, name, value),
                None => gone.push(*name),
            }
        }
        rewrite::remove_members(&mut edits, body, outline, &gone);
        if let Some(effort) = plan.effort {
            rewrite::set_effort(&mut edits, body, outline, effort);
        }
        let stays = |native: &&NativeSignature| {
            let mut gone = plan.blocks.iter().filter(|block| !block.in_body);
            !gone.any(|block| {
                let blocks = outline.messages[block.message].blocks();
                native.is_inside(&blocks[block.index].span)
            })
        };
        for native in self.natives.iter().filter(stays) {
            native.write(&mut edits);
        }
        let mut keep: Vec<(usize, Vec<bool>)> = Vec::new();
        for block in plan.blocks.iter().filter(|block| !block.in_body) {
            if keep.last().is_none_or(|(message, _)| *message != block.message) {
                let count = outline.messages[block.message].blocks().len();
                keep.push((block.message, vec![true; count]));
            }
            if let Some((_, keep)) = keep.last_mut() {
                keep[block.index] = false;
            }
        }
        plan.decision.losses.retain(|loss| {
            !matches!(loss, Loss::MessageFilled { .. } | Loss::ToolLoopClosed { .. })
        });
        let filled = rewrite::leave_out(&mut edits, outline, &keep);
        if filled > 0 {
            plan.decision.losses.push(Loss::MessageFilled { messages: filled });
        }
        if let Some(start) = plan.close_loop_from {
            let calls = rewrite::close_loop(&mut edits, body, outline, start);
            plan.decision.losses.push(Loss::ToolLoopClosed { calls });
        }
        plan.body = if edits.is_empty() { body.clone() } else { Bytes::from(edits.apply(body)) };
        remove_in_place(self.backend, &mut plan.body, &mut plan.decision.losses);
    }

    fn record_losses(&self, plan: &mut OutlinedPlan) {
        plan.recount_losses();
        if self.outline.repeated_tool_ids > 0 {
            plan.decision.losses.push(Loss::ToolIdRepeated { ids: self.outline.repeated_tool_ids });
        }
    }
}

/// Where the turn of a message begins: after the last user turn before it.
fn turn_start(messages: &[Message], at: usize) -> usize {
    messages
        .get(..at)
        .unwrap_or_default()
        .iter()
        .rposition(Message::is_user_turn)
        .map_or(0, |user| user + 1)
}
