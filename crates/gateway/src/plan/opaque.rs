//! Plans a passthrough request of which only the opaque parts are known: thinking blocks and
//! signatures. Each part is judged as in the translate lane and becomes an edit of the body.
//! Sending and the reply are in `opaque_reply`.

use std::sync::Arc;

use bytes::Bytes;
use throughline_canonical::{Block, BlockKey, Fate, Loss, Origin, Reason, ThinkingKind};
use throughline_codec::dialects::gemini::SKIP_SIGNATURE;
use throughline_codec::dialects::opaque_outline::{
    OpaqueEdit, OpaqueKind, OpaqueOutline, OpaquePart,
};
use throughline_codec::dialects::passthrough::Passthrough;

use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::history::adapt::CALL_UNSIGNED;
use crate::history::recall::{PastBlock, Recall, key_of};
use crate::history::replay_table::{self, Maker, Part, Place, Treatment};
use crate::plan::{Decision, Lane};
use crate::thinking::envelope::OpenResult;
use crate::thinking::memory::{Question, Verdict};
use crate::turn::Attempt;
use crate::turn::log::KeptBlock;
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
    pub(crate) blocks: Vec<KeptBlock>,
    /// Writes the paths of the blocks.
    dialect: &'static dyn Passthrough,
    /// How many blocks were left out.
    pub(crate) left_out: usize,
    /// The keys of the blocks that were sent.
    pub(crate) sent: Vec<BlockKey>,
    /// The keys of sent blocks whose maker is unknown.
    pub(crate) tried: Vec<BlockKey>,
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
            RetryPlan::First | RetryPlan::NoThinkingSetting | RetryPlan::DropBound => Self::Nothing,
            RetryPlan::DropTried => Self::Tried,
            RetryPlan::DropEarlierThinking | RetryPlan::DropAllThinking => Self::All,
            // The call gets a skip-validation signature. If the backend has none, the request goes
            // without thinking.
            RetryPlan::ThinkingOff if marks_foreign_calls(backend) => Self::Nothing,
            RetryPlan::ThinkingOff => Self::All,
        }
    }
}

/// What becomes of one opaque part.
struct Fated {
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
        places: &OpaqueOutline,
        retry: RetryPlan,
    ) -> OpaquePlan {
        let (read, backend, body) = (attempt.read, attempt.backend, &attempt.read.body);
        let first = retry == RetryPlan::First;
        let asked = read.model.as_deref();
        let model = backend.model_for(asked).to_owned();
        let known = attempt.settings.catalog.find_at(&backend.name, &model);
        let target = attempt.target(&known);
        let carried: Vec<_> = places
            .marks
            .iter()
            .map(|mark| {
                let block = carries(mark, body).filter(|_| !self.is_only_ours(mark, body))?;
                let key = key_of(&block);
                Some((block, key))
            })
            .collect();
        let keys: Vec<_> = carried.iter().flatten().map(|(_, key)| *key).collect();
        let answer = self.memory.ask(&Question {
            lineage: read.lineage,
            target: &target,
            follows_active_backend: attempt.follows_active_backend && first,
            // The first plan has already informed the memory.
            in_conversation: read.in_conversation && first,
            blocks: &keys,
            has_assistant: places.has_assistant,
            now: unix_ms(),
            rules: attempt.settings.thinking,
        });
        let recall = Recall {
            gateway: self,
            target: &target,
            scope: &read.scope,
            found: parking_lot::Mutex::default(),
            session: answer.session,
            rules: attempt.settings.thinking,
            same_dialect: true,
            reads_past: true,
        };
        // A model that refused a call because of a missing signature needs signatures.
        let skips = marks_foreign_calls(backend) && (known.signatures_enforced || !first);
        let drops = Drops::after(retry, backend);
        let in_place = backend.dialect.passthrough();
        let mut plan = OpaquePlan {
            decision: Decision {
                lane: Lane::Passthrough,
                dialect: backend.dialect,
                losses: Vec::new(),
                session: answer.session,
                target: target.clone(),
                model: model.clone(),
            },
            body: body.clone(),
            asked_model: asked.filter(|asked| **asked != model).map(ToOwned::to_owned),
            blocks: Vec::new(),
            dialect: in_place,
            left_out: 0,
            sent: Vec::new(),
            tried: Vec::new(),
        };
        let mut verdicts = answer.verdicts.iter();
        let mut unknown = false;
        let mut edits = Vec::with_capacity(places.marks.len());
        for (mark, carried) in places.marks.iter().zip(carried) {
            let edit = match carried {
                Some((block, key)) => {
                    let mut fated = judge(&recall, mark, &block, verdicts.next(), drops);
                    if in_place.refuses(mark, &backend.variant) {
                        fated.leave_behind(reads_thinking(backend));
                    }
                    plan.note(mark, key, &fated);
                    fated.edit
                }
                None if self.is_only_ours(mark, body) => OpaqueEdit::Unsign,
                None => OpaqueEdit::Keep,
            };
            // The first call of a step needs a signature.
            let bare = match mark.signature {
                Some(_) => matches!(edit, OpaqueEdit::Remove | OpaqueEdit::Unsign),
                None => true,
            };
            edits.push(match mark.room {
                Some(_) if skips && bare => {
                    unknown |= mark.signature.is_none();
                    OpaqueEdit::Sign(SKIP_SIGNATURE.to_owned())
                }
                _ => edit,
            });
        }
        if unknown {
            // The client may have lost a real signature, and with it the reasoning behind the call.
            plan.decision.losses.push(CALL_UNSIGNED);
        }
        let renamed = (asked != Some(&plan.decision.model) && !plan.decision.model.is_empty())
            .then_some(plan.decision.model.as_str());
        let (edited, filled) = places.rewrite(body, renamed, &edits);
        if let Some(edited) = edited {
            plan.body = edited.into();
        }
        let completed = in_place.complete(&plan.body, &backend.variant);
        if let Some(completed) = completed.value {
            plan.body = completed.into();
        }
        plan.decision.losses.extend(completed.losses);
        if filled > 0 {
            plan.decision.losses.push(Loss::MessageFilled { messages: filled });
        }
        if places.repeated_tool_ids > 0 {
            plan.decision.losses.push(Loss::ToolIdRepeated { ids: places.repeated_tool_ids });
        }
        plan
    }
}

impl Gateway {
    /// Whether a call or a text has an envelope that holds no signature. Clients of some dialects
    /// require one on every call.
    fn is_only_ours(&self, mark: &OpaquePart, body: &[u8]) -> bool {
        let (OpaqueKind::Call | OpaqueKind::Text) = mark.kind else {
            return false;
        };
        let signature = mark.signature(body);
        match signature.map(|signature| self.envelopes.open(&signature)) {
            Some(OpenResult::Ours(envelope)) => envelope.signature.is_none(),
            _ => false,
        }
    }
}

/// Whether a backend accepts a skip-validation signature for calls of other makers.
pub(crate) fn marks_foreign_calls(backend: &Backend) -> bool {
    let dialect = backend.dialect.name();
    let (part, place) = (Part::CallSignature, Place::OpenLoop);
    let foreign = replay_table::treat(dialect, &backend.variant, part, Maker::Foreign, place);
    foreign == Treatment::Skipped
}

/// Whether a backend reads its own thinking at all.
fn reads_thinking(backend: &Backend) -> bool {
    let dialect = backend.dialect.name();
    let (part, place) = (Part::Thinking, Place::OpenLoop);
    let own = replay_table::treat(dialect, &backend.variant, part, Maker::Same, place);
    own != Treatment::Unneeded
}

/// The block that a part holds for its maker. `None` if it holds nothing.
fn carries(mark: &OpaquePart, body: &[u8]) -> Option<Block> {
    match (mark.kind, mark.signature(body)) {
        (OpaqueKind::Call | OpaqueKind::Text, None) => None,
        (_, Some(signature)) if signature == SKIP_SIGNATURE => None,
        _ => Some(mark.block(body)),
    }
}

fn judge(
    recall: &Recall<'_>,
    mark: &OpaquePart,
    block: &Block,
    verdict: Option<&Verdict>,
    drops: Drops,
) -> Fated {
    let sent = match block {
        Block::Thinking { signature, .. } => signature.clone(),
        Block::Redacted { data } => Some(data.clone()),
        _ => None,
    };
    let past = match (mark.kind, &sent) {
        (OpaqueKind::Call | OpaqueKind::Text, Some(signature)) => {
            recall.signature(signature, verdict)
        }
        _ => recall.thinking(block, verdict),
    };
    let PastBlock { block, maker, reason, origin, tried, .. } = past;
    let refused = drops == Drops::All || drops == Drops::Tried && tried;
    let left_out = match maker {
        Maker::Foreign => Some(reason),
        Maker::Same => refused.then_some(Reason::Origin),
    };
    if let Some(reason) = left_out {
        return Fated {
            edit: OpaqueEdit::Remove,
            fate: Fate::LeftOut,
            reason: Some(reason),
            origin,
            unneeded: false,
        };
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
    Fated {
        edit,
        fate: if tried { Fate::Tried } else { Fate::Sent },
        reason: tried.then_some(Reason::Unknown),
        origin,
        unneeded: false,
    }
}

impl Fated {
    /// Leaves the part out, because the provider would refuse it in this position.
    fn leave_behind(&mut self, wanted: bool) {
        if self.fate != Fate::LeftOut {
            let reason = if wanted { Reason::Shape } else { Reason::Policy };
            self.edit = OpaqueEdit::Remove;
            (self.fate, self.reason) = (Fate::LeftOut, Some(reason));
            self.unneeded = !wanted;
        }
    }
}

impl OpaquePlan {
    fn note(&mut self, mark: &OpaquePart, key: Option<BlockKey>, fated: &Fated) {
        let kind = match mark.kind {
            OpaqueKind::Redacted => ThinkingKind::Redacted,
            _ => ThinkingKind::Thinking,
        };
        let told = (fated.fate, fated.reason);
        let at = (mark.at.0, Some(mark.at.1));
        self.blocks
            .push(KeptBlock::new(at, kind, told, fated.origin.clone()).spelled_by(self.dialect));
        match fated.fate {
            Fate::LeftOut if fated.unneeded => return,
            Fate::LeftOut => {
                self.left_out += 1;
                self.omit(fated.reason.unwrap_or(Reason::Policy));
                return;
            }
            Fate::Tried => self.tried.extend(key),
            _ => {}
        }
        self.sent.extend(key);
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
