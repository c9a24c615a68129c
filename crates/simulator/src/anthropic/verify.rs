//! Verification of the thinking a client sends back: its place, its signature, its prefix.

use serde_json::{Value, json};

use super::ask::{Ask, Turn, is_thinking, kind_of};
use super::models::Model;
use super::modes::{Mode, OnMismatch, Plan};
use super::prefix::Prefix;
use crate::refusal::Refusal;
use crate::signing::{Kind, Opened, Signer, hash};

/// What verification runs against.
pub(crate) struct Verifier<'a> {
    pub(crate) signer: &'a Signer,
    pub(crate) model: &'a Model,
    pub(crate) plan: &'a Plan,
    /// Prefixes are checked for every model, not only where the request asks.
    pub(crate) prefix_binding: bool,
}

/// A history that was accepted.
pub(crate) struct Verified {
    /// The prefix of the reply. Blocks that were dropped are not part of it, so
    /// a client may keep sending them or stop.
    pub(crate) prefix: Prefix,
    /// What `input_transformations` reports.
    pub(crate) dropped: Vec<Value>,
}

enum Fate {
    Kept,
    Dropped(&'static str),
}

/// Takes a history as it is, for those who do not verify.
pub(crate) fn trust(ask: &Ask) -> Verified {
    let mut prefix = Prefix::new(ask);
    for turn in &ask.turns {
        prefix.enter(turn);
        for block in &turn.blocks {
            prefix.pass(&turn.role, block);
        }
    }
    Verified { prefix, dropped: Vec::new() }
}

impl Verifier<'_> {
    /// Refuses thinking that is not as it was made.
    pub(crate) fn check(&self, ask: &Ask) -> Result<Verified, Refusal> {
        check_places(ask, self.plan)?;
        let latest = ask.last_assistant_run().unwrap_or(usize::MAX);
        let mut prefix = Prefix::new(ask);
        let mut dropped = Vec::new();
        for (index, turn) in ask.turns.iter().enumerate() {
            prefix.enter(turn);
            for (at, block) in turn.blocks.iter().enumerate() {
                if turn.is_assistant() && is_thinking(block) {
                    let path = format!("messages.{index}.content.{at}");
                    match self.check_block(block, &path, index >= latest, &prefix)? {
                        Fate::Kept => {}
                        Fate::Dropped(reason) => {
                            dropped.push(
                                json!({"type": "thinking_dropped", "path": path, "reason": reason}),
                            );
                            continue;
                        }
                    }
                }
                prefix.pass(&turn.role, block);
            }
        }
        Ok(Verified { prefix, dropped })
    }

    fn check_block(
        &self,
        block: &Value,
        path: &str,
        latest: bool,
        prefix: &Prefix,
    ) -> Result<Fate, Refusal> {
        let (kind, member) = match kind_of(block) {
            "thinking" => (Kind::Thinking, "signature"),
            _ => (Kind::Redacted, "data"),
        };
        let invalid = || format!("{path}: Invalid `{member}` in `{}` block", kind_of(block));
        let signature = block[member].as_str().unwrap_or_default();
        let Some(opened) = self.signer.open(kind, signature) else {
            return Err(Refusal::invalid(invalid()));
        };
        let shown = block["thinking"].as_str().unwrap_or_default();
        if opened.shown != hash(&[shown.as_bytes()]) {
            return Err(Refusal::invalid(if latest {
                format!(
                    "{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."
                )
            } else {
                invalid()
            }));
        }
        self.check_binding(&opened, prefix).map_err(|()| {
            Refusal::invalid(format!(
                "{}. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".",
                invalid()
            ))
        })
    }

    fn check_binding(&self, opened: &Opened, prefix: &Prefix) -> Result<Fate, ()> {
        // What a model cannot read it drops without a word.
        if !self.model.reads(&opened.family) {
            return Ok(Fate::Dropped("model_binding_mismatch"));
        }
        let asked_for = self.plan.binding.is_some() && self.model.preserved;
        let enforced = self.prefix_binding || asked_for;
        if !enforced || opened.prefix == prefix.here() {
            return Ok(Fate::Kept);
        }
        match self.plan.binding {
            Some(OnMismatch::Drop) => Ok(Fate::Dropped("prefix_binding_mismatch")),
            _ => Err(()),
        }
    }
}

/// Refuses thinking in places where it cannot be, and its absence where it must be.
fn check_places(ask: &Ask, plan: &Plan) -> Result<(), Refusal> {
    for (index, turn) in ask.turns.iter().enumerate() {
        if turn.is_assistant() {
            let next = ask.turns.get(index + 1);
            check_turn(turn, index, next, plan)?;
        }
    }
    check_open_loop(ask, plan)
}

fn check_turn(turn: &Turn, index: usize, next: Option<&Turn>, plan: &Plan) -> Result<(), Refusal> {
    let first = turn.blocks.first();
    if plan.mode == Mode::Manual
        && let Some(first) = first
        && !is_thinking(first)
        && turn.blocks.iter().any(is_thinking)
    {
        return Err(Refusal::invalid(format!(
            "messages.{index}.content.0: If an assistant message contains any thinking blocks, the first block must be thinking or redacted_thinking. Found {}.",
            kind_of(first)
        )));
    }
    if next.is_none() && plan.mode == Mode::Off {
        let holder = turn.blocks.iter().position(is_thinking);
        if let Some(at) = holder {
            return Err(Refusal::invalid(format!(
                "messages.{index}.content.{at}: When thinking is disabled, an `assistant` message in the final position cannot contain `thinking`."
            )));
        }
    }
    // An assistant turn right behind this one is the rest of the same message.
    if !next.is_some_and(Turn::is_assistant)
        && let Some(last) = turn.blocks.last()
        && is_thinking(last)
    {
        return Err(Refusal::invalid(format!(
            "messages.{index}.content.{}: The final block in an assistant message cannot be `{}`.",
            turn.blocks.len() - 1,
            kind_of(last)
        )));
    }
    Ok(())
}

fn check_open_loop(ask: &Ask, plan: &Plan) -> Result<(), Refusal> {
    let open = ask.last_user_turns().any(|turn| turn.holds("tool_result"));
    if plan.mode != Mode::Manual || !open {
        return Ok(());
    }
    let Some(index) = ask.last_assistant_run() else {
        return Ok(());
    };
    let first = ask.turns.get(index).and_then(|turn| turn.blocks.first());
    match first {
        Some(first) if !is_thinking(first) => Err(Refusal::invalid(format!(
            "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`.",
            kind_of(first)
        ))),
        _ => Ok(()),
    }
}
