//! Plans a passthrough request of which only the opaque parts are known: thinking blocks and
//! signatures. Each part is judged as in the translate lane and becomes an edit of the body.
//! Sending and the reply are in `opaque_reply`.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{Block, BlockKey, Fate, Loss, Origin, Reason, Role, ThinkingKind};
use throughline_codec::dialects::SKIP_SIGNATURE;
use throughline_codec::dialects::opaque_outline::{
    OpaqueEdit, OpaqueKind, OpaqueOutline, OpaquePart,
};
use throughline_codec::dialects::passthrough::Passthrough;
use throughline_codec::dialects::profile::Treatment;

use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::history::adapt::CALL_UNSIGNED;
use crate::history::client_paths::ClientPaths;
use crate::history::recall::{ClientKeys, PastBlock, Recall, client_key, is_thinking};
use crate::history::replay_table::{self, Maker, PastPart, Position};
use crate::history::turn_position::TurnPosition;
use crate::history::vault_lookup::{DroppedParts, WithheldPart};
use crate::plan::cache_breakpoints::remove_in_place;
use crate::plan::{Decision, Lane};
use crate::thinking::envelope::OpenResult;
use crate::thinking::memory::{Question, Verdict};
use crate::turn::Attempt;
use crate::turn::log::BlockRecord;
use crate::unix_ms;
use crate::upstream::refusal_policy::RetryPlan;

/// A plan with edits of the opaque parts.
#[derive(Debug)]
pub(crate) struct OpaquePlan {
    pub(crate) decision: Decision,
    /// The body. The client's own bytes if nothing changed.
    pub(crate) body: Bytes,
    /// The model name that the client used, if it was changed.
    pub(crate) asked_model: Option<String>,
    pub(crate) blocks: Vec<BlockRecord>,
    /// Writes the paths of the blocks.
    dialect: &'static dyn Passthrough,
    /// The keys of the blocks that were sent.
    pub(crate) sent: Vec<BlockKey>,
    /// The keys of sent blocks whose maker is unknown.
    pub(crate) tried: Vec<BlockKey>,
    /// The position of the reply.
    pub(crate) turn_position: TurnPosition,
}

/// Which thinking a retry drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drops {
    Nothing,
    Tried,
    All,
}

impl Drops {
    fn after(retry: RetryPlan, backend: &Backend) -> Self {
        match retry {
            RetryPlan::First
            | RetryPlan::AdaptSettings
            | RetryPlan::WholeHistory
            | RetryPlan::DropBound
            | RetryPlan::SummaryAsText => Self::Nothing,
            RetryPlan::DropTried => Self::Tried,
            RetryPlan::DropEarlierThinking | RetryPlan::DropAllThinking => Self::All,
            // The call gets a skip-validation signature. If the backend has none, the request goes
            // without thinking.
            RetryPlan::ThinkingOff if has_skip_signature(backend) => Self::Nothing,
            RetryPlan::ThinkingOff => Self::All,
        }
    }
}

/// The fate of one opaque part.
struct PartDecision {
    edit: OpaqueEdit,
    fate: Fate,
    reason: Option<Reason>,
    origin: Option<Arc<Origin>>,
    /// Whether the part is left out without a loss, because the upstream never reads it.
    unneeded: bool,
}

impl Gateway {
    /// Plans a request of which only the opaque parts are known.
    pub(crate) fn plan_opaque(
        &self,
        attempt: &Attempt<'_>,
        opaque_outline: &OpaqueOutline,
        dropped: &DroppedParts,
        retry: RetryPlan,
    ) -> OpaquePlan {
        let (request, backend, body) = (attempt.request, attempt.backend, &attempt.request.body);
        let first = retry == RetryPlan::First;
        let requested = request.model.as_deref();
        let model = backend.model_for(requested).to_owned();
        let known = attempt.settings.catalog.find_at(&backend.name, &model);
        let target = attempt.target(&known);
        let binds_text = request.incoming.dialect.defaults().signature_binds_text;
        let replayable = self.replayable_parts(opaque_outline, body, binds_text);
        let keys: Vec<_> = replayable.iter().flatten().map(|(_, key)| *key).collect();
        let answer = self.memory.ask(&Question {
            lineage: request.lineage,
            target: &target,
            follows_active_backend: attempt.follows_active_backend && first,
            // The first plan has already informed the memory.
            in_conversation: request.in_conversation && first,
            blocks: &keys,
            has_assistant: opaque_outline.has_assistant,
            now: unix_ms(),
            rules: attempt.settings.thinking,
        });
        let recall = Recall {
            gateway: self,
            target: &target,
            scope: &request.scope,
            lookups: parking_lot::Mutex::default(),
            resumed: parking_lot::Mutex::default(),
            session: answer.session,
            rules: attempt.settings.thinking,
            same_dialect: true,
            asks_vault: true,
            keys: ClientKeys::new(request.incoming.dialect.defaults(), &self.envelopes),
        };
        let mut plan = OpaquePlan {
            decision: Decision {
                lane: Lane::Passthrough,
                dialect: backend.dialect,
                profile: self.learnt_profile(
                    &backend.name,
                    &model,
                    backend.dialect,
                    backend.profile,
                ),
                losses: Vec::new(),
                session: answer.session,
                target: target.clone(),
                model: model.clone(),
            },
            body: body.clone(),
            asked_model: requested.filter(|requested| **requested != model).map(ToOwned::to_owned),
            blocks: Vec::new(),
            dialect: backend.dialect.passthrough(),
            sent: Vec::new(),
            tried: Vec::new(),
            turn_position: dropped.turn_position,
        };
        let decider = PartDecider {
            recall: &recall,
            backend,
            body,
            // A model that refused a call because of a missing signature needs signatures.
            adds_skip_signature: has_skip_signature(backend)
                && (known.signatures_enforced || retry.follows_refused_history()),
            drops: Drops::after(retry, backend),
            foreign: &dropped.foreign,
        };
        let edits = decider.edits(opaque_outline, replayable, &answer.verdicts, &mut plan);
        plan.record_withheld(attempt, dropped);
        plan.rewrite_body(attempt, opaque_outline, &edits);
        remove_in_place(backend, &mut plan.body, &mut plan.decision.losses);
        plan
    }

    /// The block and key of each part that its maker may need back.
    pub(crate) fn replayable_parts(
        &self,
        outline: &OpaqueOutline,
        body: &[u8],
        binds_text: bool,
    ) -> Vec<Option<(Block, Option<BlockKey>)>> {
        let replayable = |part: &OpaquePart| {
            let block =
                replayable_block(part, body).filter(|_| !self.has_empty_envelope(part, body))?;
            let key = client_key(&block, binds_text);
            Some((block, key))
        };
        outline.parts.iter().map(replayable).collect()
    }
}

/// Decides the fate of each opaque part of a request.
struct PartDecider<'a> {
    recall: &'a Recall<'a>,
    backend: &'a Backend,
    body: &'a [u8],
    /// Whether calls without a signature get the skip-validation signature.
    adds_skip_signature: bool,
    drops: Drops,
    /// The texts of thinking that lost its signature and that another backend made.
    foreign: &'a HashMap<String, Arc<Origin>>,
}

impl PartDecider<'_> {
    /// The edit of each part. Records the decisions in the plan.
    fn edits(
        &self,
        outline: &OpaqueOutline,
        replayable: Vec<Option<(Block, Option<BlockKey>)>>,
        verdicts: &[Verdict],
        plan: &mut OpaquePlan,
    ) -> Vec<OpaqueEdit> {
        let mut verdicts = verdicts.iter();
        let mut unknown = false;
        let mut edits = Vec::with_capacity(outline.parts.len());
        for (part, replayable) in outline.parts.iter().zip(replayable) {
            let edit = match replayable {
                Some((block, key)) => {
                    let verdict = verdicts.next();
                    let mut decided = match self.foreign_maker(&block, verdict) {
                        Some(origin) => PartDecision::left_out(Reason::Origin, Some(origin)),
                        None => judge(self.recall, part, &block, verdict, self.drops),
                    };
                    if plan.dialect.refuses(part, self.backend.profile) {
                        decided.leave_out(reads_thinking(self.backend));
                    }
                    plan.record(part, key, &decided);
                    decided.edit
                }
                None if self.recall.gateway.has_empty_envelope(part, self.body) => {
                    OpaqueEdit::Unsign
                }
                None => OpaqueEdit::Keep,
            };
            // The first call of a step needs a signature.
            let bare = match part.signature {
                Some(_) => matches!(edit, OpaqueEdit::Remove | OpaqueEdit::Unsign),
                None => true,
            };
            edits.push(match part.room {
                Some(_) if self.adds_skip_signature && bare => {
                    unknown |= part.signature.is_none();
                    OpaqueEdit::Sign(SKIP_SIGNATURE.to_owned())
                }
                _ => edit,
            });
        }
        if unknown {
            // The client may have lost a real signature, and with it the reasoning before the call.
            plan.decision.losses.push(CALL_UNSIGNED);
        }
        edits
    }
}

impl PartDecider<'_> {
    /// The other backend that made a block without a signature, if the memory does not know it.
    fn foreign_maker(&self, block: &Block, verdict: Option<&Verdict>) -> Option<Arc<Origin>> {
        let is_known = matches!(
            verdict,
            Some(Verdict::Send { origin: Some(_), .. } | Verdict::LeaveOut { .. })
        );
        match block {
            Block::Thinking { text, signature: None } if !is_known => {
                self.foreign.get(text).cloned()
            }
            _ => None,
        }
    }
}

impl OpaquePlan {
    /// Applies the edits to the client's body and completes it for the backend.
    fn rewrite_body(
        &mut self,
        attempt: &Attempt<'_>,
        outline: &OpaqueOutline,
        edits: &[OpaqueEdit],
    ) {
        let Decision { model, losses, profile, .. } = &mut self.decision;
        let is_renamed =
            attempt.request.model.as_deref() != Some(model.as_str()) && !model.is_empty();
        let renamed = is_renamed.then_some(model.as_str());
        let (edited, filled) = outline.rewrite(&attempt.request.body, renamed, edits);
        if let Some(edited) = edited {
            self.body = edited.into();
        }
        let completed = self.dialect.complete(&self.body, profile);
        if let Some(completed) = completed.value {
            self.body = completed.into();
        }
        losses.extend(completed.losses);
        if filled > 0 {
            losses.push(Loss::MessageFilled { messages: filled });
        }
        if outline.repeated_tool_ids > 0 {
            losses.push(Loss::ToolIdRepeated { ids: outline.repeated_tool_ids });
        }
    }
}

impl Gateway {
    /// Whether a call or a text has an envelope that holds no signature. Clients of some dialects
    /// require one on every call.
    fn has_empty_envelope(&self, part: &OpaquePart, body: &[u8]) -> bool {
        let (OpaqueKind::Call | OpaqueKind::Text) = part.kind else {
            return false;
        };
        let signature = part.signature(body);
        match signature.map(|signature| self.envelopes.open(&signature)) {
            Some(OpenResult::Ours(envelope)) => envelope.signature.is_none(),
            _ => false,
        }
    }
}

/// Whether a backend accepts a skip-validation signature for calls of other makers.
pub(crate) fn has_skip_signature(backend: &Backend) -> bool {
    let profile = backend.profile;
    let (kind, position) = (PastPart::CallSignature, Position::OpenLoop);
    let foreign = replay_table::treat(profile, kind, Maker::Foreign, position);
    foreign == Treatment::Skipped
}

/// Whether a backend reads its own thinking at all.
fn reads_thinking(backend: &Backend) -> bool {
    let profile = backend.profile;
    let (kind, position) = (PastPart::Thinking, Position::OpenLoop);
    let own = replay_table::treat(profile, kind, Maker::Same, position);
    own != Treatment::Unneeded
}

/// The block that a part holds for its maker. `None` if it holds nothing.
fn replayable_block(part: &OpaquePart, body: &[u8]) -> Option<Block> {
    match (part.kind, part.signature(body)) {
        (OpaqueKind::Call | OpaqueKind::Text, None) => None,
        (_, Some(signature)) if signature == SKIP_SIGNATURE => None,
        _ => Some(part.block(body)),
    }
}

fn judge(
    recall: &Recall<'_>,
    part: &OpaquePart,
    block: &Block,
    verdict: Option<&Verdict>,
    drops: Drops,
) -> PartDecision {
    let sent = match block {
        Block::Thinking { signature, .. } => signature.clone(),
        Block::Redacted { data } => Some(data.clone()),
        _ => None,
    };
    let past = match (part.kind, &sent) {
        (OpaqueKind::Call | OpaqueKind::Text, Some(signature)) => {
            recall.signature(signature, verdict)
        }
        _ => recall.thinking(block.clone(), verdict),
    };
    let PastBlock { block, maker, reason, origin, tried, .. } = past;
    let refused = drops == Drops::All || drops == Drops::Tried && tried;
    let left_out = match maker {
        Maker::Foreign => Some(reason),
        Maker::Same => refused.then_some(Reason::Origin),
    };
    if let Some(reason) = left_out {
        return PartDecision::left_out(reason, origin);
    }
    let native = match block {
        Block::Thinking { signature, .. } => signature,
        Block::Redacted { data } => Some(data),
        _ => None,
    };
    let edit = match native {
        native if native == sent => OpaqueEdit::Keep,
        Some(native) => OpaqueEdit::Sign(native),
        None => OpaqueEdit::Unsign,
    };
    PartDecision {
        edit,
        fate: if tried { Fate::Tried } else { Fate::Sent },
        reason: tried.then_some(Reason::Unknown),
        origin,
        unneeded: false,
    }
}

impl PartDecision {
    /// A part that the backend does not get, which is a loss.
    fn left_out(reason: Reason, origin: Option<Arc<Origin>>) -> Self {
        Self {
            edit: OpaqueEdit::Remove,
            fate: Fate::LeftOut,
            reason: Some(reason),
            origin,
            unneeded: false,
        }
    }

    /// Leaves the part out, because the provider would refuse it in this position.
    fn leave_out(&mut self, wanted: bool) {
        if self.fate != Fate::LeftOut {
            let reason = if wanted { Reason::Shape } else { Reason::Policy };
            self.edit = OpaqueEdit::Remove;
            (self.fate, self.reason) = (Fate::LeftOut, Some(reason));
            self.unneeded = !wanted;
        }
    }
}

impl OpaquePlan {
    fn record(&mut self, part: &OpaquePart, key: Option<BlockKey>, decided: &PartDecision) {
        let kind = match part.kind {
            OpaqueKind::Redacted => ThinkingKind::Redacted,
            _ => ThinkingKind::Thinking,
        };
        let outcome = (decided.fate, decided.reason);
        let at = (part.at.0, Some(part.at.1));
        self.blocks.push(
            BlockRecord::new(at, kind, outcome, decided.origin.clone())
                .with_path_dialect(self.dialect),
        );
        match decided.fate {
            Fate::LeftOut if decided.unneeded => return,
            Fate::LeftOut => {
                self.omit(decided.reason.unwrap_or(Reason::Policy));
                return;
            }
            Fate::Tried => self.tried.extend(key),
            _ => {}
        }
        self.sent.extend(key);
    }

    /// Records thinking that the client dropped and that the backend cannot read.
    fn record_withheld(&mut self, attempt: &Attempt<'_>, dropped: &DroppedParts) {
        if dropped.withheld.is_empty() {
            return;
        }
        let Ok(accepted) = attempt.request.canonical() else {
            return;
        };
        let mut paths = ClientPaths::new(attempt.request);
        let mut records = Vec::new();
        for (at, message) in accepted.request.messages.iter().enumerate() {
            if message.role != Role::Assistant {
                continue;
            }
            let of_message = dropped.withheld.iter().filter(|part| part.message == at);
            let mut blocks: Vec<_> = of_message.map(WithheldPart::record).collect();
            let sent = message.content.iter().filter(|block| is_thinking(block)).count();
            paths.set_paths(&mut blocks, sent);
            records.extend(blocks);
        }
        for part in &dropped.withheld {
            self.omit(part.reason);
        }
        self.blocks.extend(records);
        self.blocks.sort_by_key(BlockRecord::message);
    }

    fn omit(&mut self, why: Reason) {
        let counted = self.decision.losses.iter_mut().find_map(|loss| match loss {
            Loss::ThinkingOmitted { blocks, reason } if *reason == why => Some(blocks),
            _ => None,
        });
        match counted {
            Some(blocks) => *blocks += 1,
            None => self.decision.losses.push(Loss::ThinkingOmitted { blocks: 1, reason: why }),
        }
    }
}
