//! What goes out, decided before anything is sent: which blocks, which settings, which edits.
//!
//! The memory says what may go (`fates`); the plan adds what the target needs (`settings`, `repairs`)
//! and what its signatures are bound to (`guard`), and turns it all into edits of the body. The same
//! plan answers `POST /v1/plan`.

pub(crate) mod envelopes;
mod fates;
mod open_loop;
mod prefix_guard;
mod settings;

use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{BlockKey, Fate, Loss, Origin, Prefix, Reason, ThinkingKind};
use throughline_codec::dialects::anthropic::outline::{Message, Outline};
use throughline_codec::dialects::anthropic::rewrite::{self, ThinkingEdit};
use throughline_codec::dialects::anthropic::settings::Change;
use throughline_codec::json::Edits;

use self::envelopes::Native;
use crate::backend::Backend;
use crate::catalog::Model;
use crate::plan::{Decision, Lane};
use crate::relay::settle::{SentBlock, count_omitted};
use crate::thinking::guard::{Guard, PrefixRecord};
use crate::thinking::{Target, Verdict};
use crate::upstream::refusal_policy::RetryPlan;

/// What the plan is made from.
#[derive(Debug)]
pub(crate) struct Planner<'a> {
    /// The request.
    pub body: &'a Bytes,
    /// Its outline.
    pub outline: &'a Outline,
    /// Where it goes.
    pub backend: &'a Backend,
    /// What is known of the model there.
    pub model: &'a Model,
    /// The memory's word on each thinking block.
    pub verdicts: &'a [Verdict],
    /// Signatures to be put in place of envelopes.
    pub(crate) natives: &'a [Native],
    /// The open tool loop was begun by a backend whose thinking this one cannot have.
    pub made_elsewhere: bool,
    /// Whether prefixes matter.
    pub guard: Guard,
    /// What to do differently.
    pub retry: RetryPlan,
    /// Who receives the blocks, for the memory.
    pub target: Target,
    /// The session of the conversation.
    pub session: u64,
}

/// What goes out.
#[derive(Debug)]
pub(crate) struct OutlinedPlan {
    /// The body; the very bytes that came, if nothing had to change.
    pub body: Bytes,
    pub(crate) decision: Decision,
    /// The name the client used, if it was changed.
    pub asked_model: Option<String>,
    /// What became of each thinking block.
    pub blocks: Vec<PlannedBlock>,
    /// Entries the beta header must gain.
    pub betas_added: Vec<&'static str>,
    /// Whether entries about adaptive thinking must go from it.
    pub betas_without_adaptive: bool,
    /// What the reply will be made under, where prefixes matter.
    pub prefix: Option<Prefix>,
    /// What the thinking setting became.
    pub thinking: ThinkingEdit,
    /// Whether the provider was asked to drop bound blocks.
    pub drop_bound: bool,
    /// An effort to add, where a budget became adaptive thinking.
    effort: Option<&'static str>,
    /// Other settings that have to change.
    settings: Vec<Change>,
    /// From which message on an open tool loop is told as text.
    tells_loop_from: Option<usize>,
}

/// One thinking block and what becomes of it.
#[derive(Clone, Debug)]
pub(crate) struct PlannedBlock {
    /// Its message in the client's request.
    pub message: usize,
    /// Its place in that message.
    pub index: usize,
    /// Its kind.
    pub kind: ThinkingKind,
    /// Its name.
    pub key: Option<BlockKey>,
    /// What becomes of it.
    pub fate: Fate,
    /// Why.
    pub reason: Option<Reason>,
    /// Who made it.
    pub origin: Option<Arc<Origin>>,
    /// Whether it is in the body that goes out. A block that the provider is asked to drop is, and
    /// counts as left out all the same.
    pub in_body: bool,
    /// Where it stood before, if known.
    prefix_record: PrefixRecord,
    /// What it stands under now, where prefixes matter.
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
    /// The blocks of this fate, by name.
    pub(crate) fn keys(&self, fate: Fate) -> Vec<BlockKey> {
        self.blocks
            .iter()
            .filter(|block| block.fate == fate)
            .filter_map(|block| block.key)
            .collect()
    }

    /// Counts the omitted blocks again, by reason.
    pub(crate) fn recount_losses(&mut self) {
        let fates = self.blocks.iter().map(|block| (block.fate, block.reason));
        count_omitted(&mut self.decision.losses, fates);
    }

    /// The blocks in the body that went out, each with its number among all.
    pub(crate) fn sent_blocks(&self) -> Vec<(usize, SentBlock)> {
        self.sent()
            .map(|(at, place)| {
                let block = &self.blocks[at];
                let sent = SentBlock {
                    place,
                    key: block.key,
                    fate: block.fate,
                    reason: block.reason,
                    prefix: block.prefix,
                };
                (at, sent)
            })
            .collect()
    }

    /// The block that stands at a place of the body that went out.
    pub(crate) fn sent_at(&self, message: usize, index: usize) -> Option<usize> {
        self.sent().find(|(_, at)| *at == (message, index)).map(|(block, _)| block)
    }

    /// The blocks in the body that went out, each with its place there: message, then block.
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
    /// Decides.
    pub(crate) fn plan(self) -> OutlinedPlan {
        let mut blocks = self.blocks_from_memory();
        self.by_configuration(&mut blocks);
        self.by_retry(&mut blocks);
        self.by_shape(&mut blocks);
        let asked_model = self.outline.model.as_ref().map(|model| model.name.as_str());
        let model = self.backend.model_for(asked_model).to_owned();

        let mut plan = OutlinedPlan {
            body: self.body.clone(),
            asked_model: asked_model.filter(|asked| *asked != model).map(ToOwned::to_owned),
            decision: Decision {
                lane: Lane::Passthrough,
                dialect: self.backend.dialect,
                model,
                losses: Vec::new(),
                session: self.session,
                target: self.target.clone(),
            },
            blocks,
            betas_added: Vec::new(),
            betas_without_adaptive: false,
            prefix: None,
            thinking: ThinkingEdit::Keep,
            drop_bound: false,
            effort: None,
            settings: Vec::new(),
            tells_loop_from: None,
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

    /// Makes the body from the decisions.
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
        let stays = |native: &&Native| {
            let mut gone = plan.blocks.iter().filter(|block| !block.in_body);
            !gone.any(|block| {
                let blocks = outline.messages[block.message].blocks();
                native.stands_in(&blocks[block.index].span)
            })
        };
        for native in self.natives.iter().filter(stays) {
            native.put(&mut edits);
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
        if let Some(start) = plan.tells_loop_from {
            let calls = rewrite::close_loop(&mut edits, body, outline, start);
            plan.decision.losses.push(Loss::ToolLoopClosed { calls });
        }
        plan.body = if edits.is_empty() { body.clone() } else { Bytes::from(edits.apply(body)) };
    }

    fn record_losses(&self, plan: &mut OutlinedPlan) {
        plan.recount_losses();
        if self.outline.repeated_tool_ids > 0 {
            plan.decision.losses.push(Loss::ToolIdRepeated { ids: self.outline.repeated_tool_ids });
        }
    }
}

/// Where the turn begins that a message belongs to: behind the last user turn before it.
fn turn_start(messages: &[Message], at: usize) -> usize {
    messages
        .get(..at)
        .unwrap_or_default()
        .iter()
        .rposition(Message::is_user_turn)
        .map_or(0, |user| user + 1)
}
