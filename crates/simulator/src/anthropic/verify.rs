//! Verifies the thinking a client sends back: its position, its signature and its prefix.

use serde_json::{Value, json};

use super::compaction;
use super::models::Model;
use super::modes::{Mode, OnMismatch, ThinkingPlan};
use super::prefix::Prefix;
use super::request::{ParsedRequest, Turn, is_thinking, kind_of};
use crate::refusal::Refusal;
use crate::signing::{Hash, Opened, SignatureKind, Signer, hash};

/// What the verification depends on.
pub(crate) struct Verifier<'a> {
    pub(crate) signer: &'a Signer,
    pub(crate) model: &'a Model,
    pub(crate) plan: &'a ThinkingPlan,
    /// Check prefixes for every model, not only if the request asks for it.
    pub(crate) prefix_binding: bool,
}

/// A history that was accepted.
pub(crate) struct Verified {
    /// The prefix of the reply. It does not include dropped blocks, so a client may keep sending
    /// them or stop.
    pub(crate) prefix: Prefix,
    /// The entries of `input_transformations`.
    pub(crate) dropped: Vec<Value>,
    /// The prefix of each of the user's turns.
    pub(crate) boundaries: Vec<Hash>,
}

enum Fate {
    Kept,
    Dropped(&'static str),
}

/// The prefixes that a thinking block may be bound to.
struct Prefixes {
    /// The conversation as it was sent.
    own: Prefix,
    /// The earlier conversations whose turns may follow a summary.
    kept: Vec<Prefix>,
    /// Whether the summary was the last block, so that the kept turns begin now.
    after_summary: bool,
}

impl Prefixes {
    fn start_turn(&mut self, turn: &Turn) {
        // The first kept turn must be of another role than the summary, and not the operator's.
        if std::mem::take(&mut self.after_summary) && turn.role != "user" {
            self.kept.clear();
        }
        self.own.start_turn(turn);
        self.kept.iter_mut().for_each(|kept| kept.start_turn(turn));
    }

    fn push_block(&mut self, role: &str, block: &Value) {
        // The kept turns must follow the summary directly.
        if std::mem::take(&mut self.after_summary) {
            self.kept.clear();
        }
        self.own.push_block(role, block);
        self.kept.iter_mut().for_each(|kept| kept.push_block(role, block));
    }

    fn hold(&self, binding: Hash) -> bool {
        self.own.binding() == binding || self.kept.iter().any(|kept| kept.binding() == binding)
    }
}

/// Accepts a history without verification.
pub(crate) fn accept_unverified(request: &ParsedRequest) -> Verified {
    let mut prefix = Prefix::new(request);
    for turn in &request.turns {
        prefix.start_turn(turn);
        for block in &turn.blocks {
            prefix.push_block(&turn.role, block);
        }
    }
    Verified { prefix, dropped: Vec::new(), boundaries: Vec::new() }
}

impl Verifier<'_> {
    /// Refuses altered, foreign and misplaced thinking.
    pub(crate) fn check(&self, request: &ParsedRequest) -> Result<Verified, Refusal> {
        check_places(request, self.plan)?;
        self.check_sequence(request)?;
        let latest = request.last_assistant_run().unwrap_or(usize::MAX);
        let start = Prefix::new(request);
        let mut prefixes = Prefixes { own: start.clone(), kept: Vec::new(), after_summary: false };
        let (mut dropped, mut boundaries) = (Vec::new(), Vec::new());
        for (index, turn) in request.turns.iter().enumerate() {
            if !turn.is_assistant() {
                boundaries.push(prefixes.own.whole());
            }
            prefixes.start_turn(turn);
            for (at, block) in turn.blocks.iter().enumerate() {
                let path = format!("messages.{index}.content.{at}");
                if compaction::is_summary(block) {
                    prefixes.own.push_block(&turn.role, block);
                    prefixes.kept = compaction::verify(block, &path, self.signer, &start)?;
                    prefixes.after_summary = true;
                    continue;
                }
                if turn.is_assistant() && is_thinking(block) {
                    match self.check_block(block, &path, index >= latest, &prefixes)? {
                        Fate::Kept => {}
                        Fate::Dropped(reason) => {
                            dropped.push(
                                json!({"type": "thinking_dropped", "path": path, "reason": reason}),
                            );
                            continue;
                        }
                    }
                }
                prefixes.push_block(&turn.role, block);
            }
        }
        Ok(Verified { prefix: prefixes.own, dropped, boundaries })
    }

    /// Refuses a tool loop from whose last message some of the thinking is missing: a block was
    /// made after others that are not there.
    fn check_sequence(&self, request: &ParsedRequest) -> Result<(), Refusal> {
        let latest = match is_open(request) {
            true => request.last_assistant_run().unwrap_or(usize::MAX),
            false => return Ok(()),
        };
        for (index, turn) in request.turns.iter().enumerate().skip(latest) {
            let mut next = 0;
            for (at, block) in turn.blocks.iter().enumerate() {
                let (kind, signature) = signature_of(block);
                let Some(opened) = self.signer.open(kind, signature) else {
                    continue;
                };
                if opened.ordinal != next && opened.ordinal != 0 {
                    return Err(modified(&format!("messages.{index}.content.{at}")));
                }
                next = opened.ordinal.saturating_add(1);
            }
        }
        Ok(())
    }

    fn check_block(
        &self,
        block: &Value,
        path: &str,
        latest: bool,
        prefixes: &Prefixes,
    ) -> Result<Fate, Refusal> {
        let (kind, signature) = signature_of(block);
        let member = if kind == SignatureKind::Thinking { "signature" } else { "data" };
        let invalid = || format!("{path}: Invalid `{member}` in `{}` block", kind_of(block));
        let Some(opened) = self.signer.open(kind, signature) else {
            return Err(Refusal::invalid(invalid()));
        };
        let shown = block["thinking"].as_str().unwrap_or_default();
        if opened.shown != hash(&[shown.as_bytes()]) {
            return Err(if latest { modified(path) } else { Refusal::invalid(invalid()) });
        }
        self.check_binding(&opened, prefixes).map_err(|()| {
            Refusal::invalid(format!(
                "{}. The block is bound to a different conversation. Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to \"drop_block\".",
                invalid()
            ))
        })
    }

    fn check_binding(&self, opened: &Opened, prefixes: &Prefixes) -> Result<Fate, ()> {
        // A model silently drops thinking that it cannot read.
        if !self.model.reads(&opened.family) {
            return Ok(Fate::Dropped("model_binding_mismatch"));
        }
        let asked_for = self.plan.binding.is_some() && self.model.preserved;
        let enforced = self.prefix_binding || asked_for;
        if !enforced || prefixes.hold(opened.prefix) {
            return Ok(Fate::Kept);
        }
        match self.plan.binding {
            Some(OnMismatch::Drop) => Ok(Fate::Dropped("prefix_binding_mismatch")),
            _ => Err(()),
        }
    }
}

/// The signature of a thinking block, and its kind.
fn signature_of(block: &Value) -> (SignatureKind, &str) {
    let (kind, member) = match kind_of(block) {
        "thinking" => (SignatureKind::Thinking, "signature"),
        _ => (SignatureKind::Redacted, "data"),
    };
    (kind, block[member].as_str().unwrap_or_default())
}

fn modified(path: &str) -> Refusal {
    Refusal::invalid(format!(
        "{path}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These blocks must remain as they were in the original response."
    ))
}

/// Whether the request brings the results of tool calls.
fn is_open(request: &ParsedRequest) -> bool {
    request.last_user_turns().any(|turn| turn.holds("tool_result"))
}

/// Refuses misplaced thinking, and missing thinking where it is required.
fn check_places(request: &ParsedRequest, plan: &ThinkingPlan) -> Result<(), Refusal> {
    for (index, turn) in request.turns.iter().enumerate() {
        if turn.is_assistant() {
            let next = request.turns.get(index + 1);
            check_turn(turn, index, next, plan)?;
        }
    }
    check_open_loop(request, plan)
}

/// The first block of a turn that is not a summary of earlier turns.
fn first_block(turn: &Turn) -> Option<&Value> {
    turn.blocks.iter().find(|block| kind_of(block) != compaction::KIND)
}

fn check_turn(
    turn: &Turn,
    index: usize,
    next: Option<&Turn>,
    plan: &ThinkingPlan,
) -> Result<(), Refusal> {
    let first = first_block(turn);
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
    // An assistant turn right after this one is the rest of the same message.
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

fn check_open_loop(request: &ParsedRequest, plan: &ThinkingPlan) -> Result<(), Refusal> {
    if plan.mode != Mode::Manual || !is_open(request) {
        return Ok(());
    }
    let Some(index) = request.last_assistant_run() else {
        return Ok(());
    };
    let first = request.turns.get(index).and_then(first_block);
    match first {
        Some(first) if !is_thinking(first) => Err(Refusal::invalid(format!(
            "messages.{index}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks from previous turns. To avoid this requirement, disable `thinking`.",
            kind_of(first)
        ))),
        _ => Ok(()),
    }
}
