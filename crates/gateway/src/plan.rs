//! What goes out, decided before anything is sent: which blocks, which settings, which edits.
//!
//! The memory says what may go; the plan adds what the target's shape demands and turns it all
//! into edits of the body. The same plan answers `POST /v1/plan`.

use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{
    BlockKey, BlockReport, Fate, Loss, Origin, Prefix, Reason, ThinkingKind,
};
use throughline_codec::dialects::anthropic::outline::{BlockKind, Message, Outline};
use throughline_codec::dialects::anthropic::prefix::{Prefixes, after_block};
use throughline_codec::dialects::anthropic::rewrite::{self, ThinkingEdit};
use throughline_codec::dialects::anthropic::{BETA_BINDING_CONTROLS, BETA_INTERLEAVED};
use throughline_codec::json::Edits;

use crate::backend::{Backend, Compat, Replay};
use crate::catalog;
use crate::thinking::Verdict;

/// The least budget a provider takes.
const LEAST_BUDGET: u64 = 1024;
/// The budget where neither the operator nor the request bounds it.
const PLAIN_BUDGET: u64 = 8192;

/// Why thinking is bound to its conversation at this target, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// It is not.
    Off,
    /// The catalog says so of the model.
    Known,
    /// The backend once refused a block because of it.
    Learnt,
}

/// What a second try does differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// This is the first try.
    First,
    /// Blocks nobody knew stay behind.
    WithoutTried,
    /// All thinking before the last user turn stays behind, and blocks nobody knew.
    WithoutOld,
    /// Bound blocks are to be dropped by the provider.
    DropBound,
    /// Thinking is off, since an open tool loop lacks it.
    ThinkingOff,
}

/// What the plan is made from.
#[derive(Debug)]
pub struct Planner<'a> {
    /// The request.
    pub body: &'a Bytes,
    /// Its outline.
    pub outline: &'a Outline,
    /// Where it goes.
    pub backend: &'a Backend,
    /// The memory's word on each thinking block.
    pub verdicts: &'a [Verdict],
    /// Whether prefixes matter.
    pub guard: Guard,
    /// What to do differently.
    pub again: Again,
}

/// What goes out.
#[derive(Debug)]
pub struct Plan {
    /// The body; the very bytes that came, if nothing had to change.
    pub body: Bytes,
    /// The model's name at the backend.
    pub model: String,
    /// The name the client used, if it was changed.
    pub asked_model: Option<String>,
    /// What became of each thinking block.
    pub blocks: Vec<PlannedBlock>,
    /// What was lost.
    pub losses: Vec<Loss>,
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
}

/// One thinking block and what becomes of it.
#[derive(Clone, Debug)]
pub struct PlannedBlock {
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
    /// What it was made under, if known.
    made_under: Option<Prefix>,
    /// What it stands under now, where prefixes matter.
    pub stands_under: Option<Prefix>,
}

impl PlannedBlock {
    /// Whether it is in the body that goes out.
    fn stays(&self) -> bool {
        // A block the provider will drop still goes out: it has the last word.
        self.fate != Fate::LeftOut || self.stands_under.is_some()
    }

    fn leave_out(&mut self, reason: Reason) {
        self.fate = Fate::LeftOut;
        self.reason = Some(reason);
    }

    /// As in reports.
    pub fn report(&self) -> BlockReport {
        BlockReport {
            path: format!("messages.{}.content.{}", self.message, self.index),
            kind: self.kind,
            fate: self.fate,
            reason: self.reason,
            origin: self.origin.as_deref().cloned(),
        }
    }
}

impl Plan {
    /// The blocks of this fate, by name.
    pub fn keys(&self, fate: Fate) -> Vec<BlockKey> {
        self.blocks
            .iter()
            .filter(|block| block.fate == fate)
            .filter_map(|block| block.key)
            .collect()
    }

    /// Counts the omitted blocks again, by reason.
    pub(crate) fn tell_again(&mut self) {
        let mut omitted: Vec<(Reason, usize)> = Vec::new();
        for block in self
            .blocks
            .iter()
            .filter(|block| block.fate == Fate::LeftOut)
        {
            let reason = block.reason.unwrap_or(Reason::Policy);
            match omitted.iter_mut().find(|(of, _)| *of == reason) {
                Some((_, count)) => *count += 1,
                None => omitted.push((reason, 1)),
            }
        }
        self.losses
            .retain(|loss| !matches!(loss, Loss::ThinkingOmitted { .. }));
        let omitted = omitted
            .into_iter()
            .map(|(reason, blocks)| Loss::ThinkingOmitted { blocks, reason });
        self.losses.splice(0..0, omitted);
    }

    /// The block that stands at a place of the body that went out.
    pub fn sent_at(&self, message: usize, index: usize) -> Option<usize> {
        let mut removed = 0;
        for (at, block) in self.blocks.iter().enumerate() {
            if block.message != message {
                continue;
            }
            if !block.stays() {
                removed += 1;
            } else if block.index == index + removed {
                return Some(at);
            }
        }
        None
    }
}

impl Planner<'_> {
    /// Decides.
    pub fn plan(&self) -> Plan {
        let mut blocks = self.by_memory();
        self.by_configuration(&mut blocks);
        self.by_retry(&mut blocks);
        self.by_shape(&mut blocks);
        let asked_model = self.outline.model.as_ref().map(|model| model.name.as_str());
        let mapped = asked_model.and_then(|name| self.backend.map_model(name));
        let model = mapped
            .or(asked_model)
            .or(self.backend.default_model.as_deref())
            .unwrap_or_default()
            .to_owned();

        let mut plan = Plan {
            body: self.body.clone(),
            asked_model: asked_model
                .filter(|asked| *asked != model)
                .map(ToOwned::to_owned),
            model,
            blocks,
            losses: Vec::new(),
            betas_added: Vec::new(),
            betas_without_adaptive: false,
            prefix: None,
            thinking: ThinkingEdit::Keep,
            drop_bound: false,
        };
        let effort = self.adapt_thinking(&mut plan);
        let closes_loop = self.repair_open_loop(&mut plan);
        self.render(&mut plan, effort, closes_loop);
        if self.guard != Guard::Off {
            self.guard_prefixes(&mut plan, effort, closes_loop);
        }
        self.tell_losses(&mut plan);
        plan
    }

    fn by_memory(&self) -> Vec<PlannedBlock> {
        self.outline
            .thinking_blocks()
            .zip(self.verdicts)
            .map(|((message, index, kind, key), verdict)| {
                let (fate, reason, origin, made_under) = match verdict {
                    Verdict::Send { origin, prefix } => (Fate::Sent, None, origin.clone(), *prefix),
                    Verdict::Try => (Fate::Tried, Some(Reason::Unknown), None, None),
                    Verdict::LeaveOut { reason, origin } => {
                        (Fate::LeftOut, Some(*reason), origin.clone(), None)
                    }
                };
                PlannedBlock {
                    message,
                    index,
                    kind,
                    key,
                    fate,
                    reason,
                    origin,
                    made_under,
                    stands_under: None,
                }
            })
            .collect()
    }

    fn by_configuration(&self, blocks: &mut [PlannedBlock]) {
        let from = match self.backend.replay {
            Replay::Verbatim => return,
            Replay::None => usize::MAX,
            Replay::LatestTurn => self.latest_turn(),
        };
        for block in blocks {
            if block.fate != Fate::LeftOut && block.message < from {
                block.leave_out(Reason::Policy);
            }
        }
    }

    /// Where the model's latest turn begins.
    fn latest_turn(&self) -> usize {
        let messages = &self.outline.messages;
        let last = messages
            .iter()
            .rposition(|message| !message.blocks().is_empty() && !message.is_user_turn())
            .unwrap_or_default();
        turn_start(messages, last)
    }

    fn by_retry(&self, blocks: &mut [PlannedBlock]) {
        let old = match self.again {
            Again::WithoutOld => self.outline.after_last_user_turn(),
            Again::WithoutTried => 0,
            _ => return,
        };
        for block in blocks {
            if block.fate == Fate::Tried || block.fate == Fate::Sent && block.message < old {
                block.leave_out(Reason::Origin);
            }
        }
    }

    /// A message that began with thinking must not keep thinking further back only.
    fn by_shape(&self, blocks: &mut [PlannedBlock]) {
        for (at, message) in self.outline.messages.iter().enumerate() {
            let left_out = |index: usize, blocks: &[PlannedBlock]| {
                blocks.iter().any(|block| {
                    (block.message, block.index) == (at, index) && block.fate == Fate::LeftOut
                })
            };
            let first = (0..message.blocks().len()).find(|index| !left_out(*index, blocks));
            let began = message.blocks().first().is_some_and(is_thinking);
            let begins = first
                .and_then(|index| message.blocks().get(index))
                .is_some_and(is_thinking);
            if began && !begins {
                for block in blocks.iter_mut().filter(|block| block.message == at) {
                    if block.fate != Fate::LeftOut {
                        block.leave_out(Reason::Shape);
                    }
                }
            }
        }
    }

    /// Changes the thinking setting to the one form the backend knows. Answers an effort to add.
    fn adapt_thinking(&self, plan: &mut Plan) -> Option<&'static str> {
        let thinking = self.outline.thinking.as_ref()?;
        match (self.backend.compat?, thinking.mode.as_str()) {
            (Compat::Budget(wanted), "adaptive" | "between_tools") => {
                plan.betas_without_adaptive = true;
                let room = self.outline.max_tokens.map(|most| most.saturating_sub(1));
                let budget = match (wanted, room) {
                    (Some(wanted), Some(room)) => wanted.min(room),
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => PLAIN_BUDGET,
                };
                if budget < LEAST_BUDGET {
                    // There is no room for any budget a provider takes.
                    plan.thinking = ThinkingEdit::Remove;
                    plan.losses.push(adapted("thinking", "max_tokens"));
                } else {
                    plan.thinking = ThinkingEdit::Budget(budget);
                    plan.betas_added.push(BETA_INTERLEAVED);
                    plan.losses.push(adapted("thinking", "thinking_compat"));
                }
                None
            }
            (Compat::Adaptive, "enabled") => {
                plan.thinking = ThinkingEdit::Adaptive;
                plan.losses.push(adapted("thinking", "thinking_compat"));
                let effort = match thinking.budget {
                    Some(..=4096) => "low",
                    Some(..=16384) => "medium",
                    _ => "high",
                };
                self.outline.effort.is_none().then_some(effort)
            }
            (Compat::Off, _) => {
                plan.thinking = ThinkingEdit::Remove;
                plan.losses.push(adapted("thinking", "thinking_compat"));
                None
            }
            _ => None,
        }
    }

    /// With manual thinking, an open tool loop must begin with a thinking block. If that block had
    /// to stay behind, this one request goes without thinking, or the loop is told as text.
    /// Answers where to tell it from.
    fn repair_open_loop(&self, plan: &mut Plan) -> Option<usize> {
        let call = self.outline.open_tool_loop()?;
        let start = turn_start(&self.outline.messages, call);
        let manual = match &plan.thinking {
            ThinkingEdit::Budget(_) => true,
            ThinkingEdit::Keep => self
                .outline
                .thinking
                .as_ref()
                .is_some_and(|thinking| thinking.mode == "enabled"),
            _ => false,
        };
        let omitted = plan
            .blocks
            .iter()
            .any(|block| block.message >= start && block.fate == Fate::LeftOut);
        let begins = self.outline.messages[call]
            .blocks()
            .iter()
            .enumerate()
            .find(|(index, _)| {
                !plan.blocks.iter().any(|block| {
                    (block.message, block.index) == (call, *index) && block.fate == Fate::LeftOut
                })
            })
            .is_some_and(|(_, block)| is_thinking(block));
        let needed = self.again == Again::ThinkingOff || manual && omitted && !begins;
        if !needed {
            return None;
        }
        if catalog::find(&plan.model).takes("disabled") {
            plan.thinking = ThinkingEdit::Disabled;
            plan.betas_added.clear();
            plan.losses.push(adapted("thinking", "open_tool_loop"));
            return None;
        }
        Some(start)
    }

    /// Makes the body from the decisions.
    fn render(&self, plan: &mut Plan, effort: Option<&str>, closes_loop: Option<usize>) {
        let (outline, body) = (self.outline, self.body);
        let mut edits = Edits::default();
        let named = outline.model.as_ref().map_or("", |model| &model.name);
        if plan.model != named {
            rewrite::set_model(&mut edits, body, outline, &plan.model);
        }
        rewrite::set_thinking(&mut edits, body, outline, &plan.thinking, plan.drop_bound);
        if let Some(effort) = effort {
            rewrite::set_effort(&mut edits, body, outline, effort);
        }
        let mut keep: Vec<(usize, Vec<bool>)> = Vec::new();
        for block in plan.blocks.iter().filter(|block| !block.stays()) {
            if keep
                .last()
                .is_none_or(|(message, _)| *message != block.message)
            {
                let count = outline.messages[block.message].blocks().len();
                keep.push((block.message, vec![true; count]));
            }
            if let Some((_, keep)) = keep.last_mut() {
                keep[block.index] = false;
            }
        }
        plan.losses.retain(|loss| {
            !matches!(
                loss,
                Loss::MessageFilled { .. } | Loss::ToolLoopClosed { .. }
            )
        });
        let filled = rewrite::leave_out(&mut edits, outline, &keep);
        if filled > 0 {
            plan.losses.push(Loss::MessageFilled { messages: filled });
        }
        if let Some(start) = closes_loop {
            let calls = rewrite::close_loop(&mut edits, body, outline, start);
            plan.losses.push(Loss::ToolLoopClosed { calls });
        }
        plan.body = if edits.is_empty() {
            body.clone()
        } else {
            Bytes::from(edits.apply(body))
        };
    }

    /// Finds which blocks no longer stand where they were made, and asks the provider to drop
    /// those, unless the caller has said what it wants.
    fn guard_prefixes(&self, plan: &mut Plan, effort: Option<&str>, closes_loop: Option<usize>) {
        let prefixes = self.prefixes(&plan.body);
        plan.prefix = prefixes.as_ref().map(Prefixes::whole);
        let Some(prefixes) = prefixes else {
            return;
        };
        let mut risky = Vec::new();
        let mut within: Option<(usize, Prefix)> = None;
        for (at, block) in plan.blocks.iter_mut().enumerate() {
            if block.fate == Fate::LeftOut {
                continue;
            }
            let stands = match within {
                Some((message, prefix)) if message == block.message => prefix,
                _ => prefixes.before_message(block.message),
            };
            if let Some(key) = &block.key {
                within = Some((block.message, after_block(stands, key)));
            }
            block.stands_under = Some(stands);
            let fails = match block.made_under {
                Some(made) => made != stands,
                None => self.guard == Guard::Learnt && block.fate == Fate::Sent,
            };
            if fails {
                risky.push(at);
            }
        }
        let caller = self
            .outline
            .thinking
            .as_ref()
            .and_then(|thinking| thinking.binding.as_deref());
        if risky.is_empty() && self.again != Again::DropBound {
            return;
        }
        let off = match &plan.thinking {
            ThinkingEdit::Disabled | ThinkingEdit::Remove => true,
            ThinkingEdit::Keep => self
                .outline
                .thinking
                .as_ref()
                .is_some_and(|thinking| thinking.mode == "disabled"),
            _ => false,
        };
        for at in risky {
            let block = &mut plan.blocks[at];
            block.reason = Some(Reason::Prefix);
            // With the caller's `error` the block goes out and is refused, as the caller wants.
            if caller != Some("error") {
                block.fate = Fate::LeftOut;
            }
            if caller.is_none() && off {
                // Nothing can be asked of the provider, so the block really stays behind.
                block.stands_under = None;
            }
        }
        if caller.is_none() && !off {
            plan.drop_bound = true;
            plan.betas_added.push(BETA_BINDING_CONTROLS);
        }
        if caller.is_none() {
            self.render(plan, effort, closes_loop);
            plan.prefix = self.prefixes(&plan.body).as_ref().map(Prefixes::whole);
        }
    }

    fn prefixes(&self, sent: &Bytes) -> Option<Prefixes> {
        if sent.as_ptr() == self.body.as_ptr() && sent.len() == self.body.len() {
            return Some(Prefixes::read(sent, self.outline));
        }
        let outline = Outline::read(sent, usize::MAX).ok()?;
        Some(Prefixes::read(sent, &outline))
    }

    fn tell_losses(&self, plan: &mut Plan) {
        plan.tell_again();
        if self.outline.repeated_tool_ids > 0 {
            plan.losses.push(Loss::ToolIdRepeated {
                ids: self.outline.repeated_tool_ids,
            });
        }
    }
}

fn adapted(setting: &'static str, reason: &'static str) -> Loss {
    Loss::SettingAdapted { setting, reason }
}

fn is_thinking(block: &throughline_codec::dialects::anthropic::outline::Block) -> bool {
    matches!(block.kind, BlockKind::Thinking { .. })
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
