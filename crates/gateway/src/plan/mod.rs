//! A request made ready for one backend: what goes out, and the fate of each block.
//!
//! There are two lanes. The *passthrough* lane edits the client's body in place and forwards the
//! reply as it arrives. It knows every block of a request (`outlined`) or only its opaque parts
//! (`opaque`). The *translate* lane (`translate`) goes through the canonical request and writes
//! it in the backend's dialect. All of them are a `Plan`, so that sending, retrying and reporting
//! exist once.

pub(crate) mod cache_breakpoints;
pub(crate) mod opaque;
pub(crate) mod opaque_reply;
pub mod outlined;
pub(crate) mod outlined_plan;
pub(crate) mod passthrough;
pub mod preview;
mod strict_settings;
mod thinking_controls;
pub(crate) mod thinking_setting;
pub(crate) mod translate;
pub(crate) mod translated_reply;

use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::Response;
use serde::Serialize;
use serde_json::{Value, json};
use throughline_canonical::{BlockKey, Fault, Loss};
use throughline_codec::dialects::blocks::outline::Outline;
use throughline_codec::dialects::opaque_outline::OpaqueOutline;
use throughline_codec::dialects::profile::Profile;
use throughline_codec::dialects::{Accepted, Refusal, UpstreamDialect};
use tokio::sync::OwnedSemaphorePermit;

use crate::catalog::Form;
use crate::gateway::Gateway;
use crate::history::vault_lookup::DroppedParts;
use crate::plan::translate::dialect_for;
use crate::thinking::TargetIdentity;
use crate::turn::Attempt;
use crate::turn::error_reply::Reply;
use crate::turn::log::BlockRecord;
use crate::turn::turn_reply::TurnReply;
use crate::upstream::UpstreamBody;
use crate::upstream::refusal_policy::{RefusedRequest, RejectedBlocks, RetryPlan};
use crate::upstream::send::OutboundRequest;

/// How a request passes the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Lane {
    /// No lane is chosen yet.
    #[default]
    #[serde(rename = "")]
    Unset,
    /// The body is edited in place, and the reply is forwarded.
    #[serde(rename = "through")]
    Passthrough,
    /// Request and reply are translated.
    #[serde(rename = "across")]
    Translate,
}

/// The lane of a request, with the values that its plan is made from.
pub(crate) enum LaneChoice<'a> {
    /// Passthrough, with the outline of every block.
    Outlined(&'a Outline),
    /// Passthrough, with the opaque parts only, and with what the client dropped and the backend
    /// cannot read.
    Opaque(&'a OpaqueOutline, DroppedParts),
    /// Translate. Backends that refuse a summary of earlier turns get its text.
    Translate { summaries_as_text: bool },
}

/// The lane that translates, before a backend has refused anything.
const TRANSLATE: LaneChoice<'_> = LaneChoice::Translate { summaries_as_text: false };

/// The decisions that every plan makes.
#[derive(Debug)]
pub(crate) struct Decision {
    pub(crate) lane: Lane,
    /// The dialect in which the backend gets the request.
    pub(crate) dialect: &'static dyn UpstreamDialect,
    /// What is known about it.
    pub(crate) profile: &'static Profile,
    /// The model's name at the backend.
    pub(crate) model: String,
    pub(crate) losses: Vec<Loss>,
    /// The session of the conversation.
    pub(crate) session: u64,
    /// Who receives the blocks, for the memory.
    pub(crate) target: TargetIdentity,
}

/// A reply that is being built.
pub(crate) type ReplyFuture<'a> =
    Pin<Box<dyn Future<Output = Result<TurnReply, Fault>> + Send + 'a>>;

/// A request made ready for one backend.
pub(crate) trait Plan: fmt::Debug + Send + Sync {
    /// The decisions of this plan.
    fn decision(&self) -> &Decision;
    /// The decisions of this plan, to change them.
    fn decision_mut(&mut self) -> &mut Decision;
    /// The fate of each thinking block.
    fn blocks(&self) -> Vec<BlockRecord>;
    /// The body that goes out.
    fn body(&self) -> &[u8];
    /// The request that goes out.
    fn outbound(&self, attempt: &Attempt<'_>) -> OutboundRequest;
    /// The thinking setting, as the client asked for it and as it is sent.
    fn thinking(&self, attempt: &Attempt<'_>) -> (Value, Value);
    /// Whether the gateway wrote the thinking setting. One that passes unchanged is the caller's, and
    /// so is its refusal.
    fn sets_thinking(&self) -> bool {
        false
    }
    /// Whether the request continues from a reply that the provider has stored, and could be sent
    /// with the whole history instead.
    fn continues_stored_reply(&self) -> bool {
        false
    }
    /// What the retry rule needs to know about a refusal, and the key of the block it names. `None`
    /// if the caller wants the refusal.
    fn refused(
        &self,
        attempt: &Attempt<'_>,
        refusal: &Refusal,
    ) -> Option<(RefusedRequest, Option<BlockKey>)>;
    /// The keys of blocks in the body: all of them, or those that were only tried.
    fn sent_keys(&self, which: RejectedBlocks) -> Vec<BlockKey>;
    /// A reply that needs no backend, if there is one.
    fn reply_without_backend(&self, _: &Gateway, _: &Attempt<'_>) -> Option<Reply> {
        None
    }
    /// Builds the reply to the client from the backend's.
    fn reply<'a>(
        self: Box<Self>,
        gateway: &'a Gateway,
        attempt: &'a Attempt<'_>,
        response: Response<UpstreamBody>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ReplyFuture<'a>;
    /// Builds the reply to the client from the backend's error, which passes if no plan says
    /// otherwise.
    fn error_reply(
        &self,
        gateway: &Gateway,
        attempt: &Attempt<'_>,
        error: Response<Bytes>,
    ) -> TurnReply {
        gateway.forward_error(attempt, self.decision(), error)
    }
}

impl Gateway {
    /// Plans a request for one backend. `retry` says what to change after a refusal.
    pub(crate) async fn plan(
        &self,
        attempt: &Attempt<'_>,
        lane: &LaneChoice<'_>,
        retry: RetryPlan,
    ) -> Result<Box<dyn Plan>, Fault> {
        let mut plan: Box<dyn Plan> = match lane {
            LaneChoice::Outlined(outline) => {
                Box::new(self.plan_outlined(attempt, outline, retry).await)
            }
            LaneChoice::Opaque(outline, dropped) => {
                Box::new(self.plan_opaque(attempt, outline, dropped, retry))
            }
            LaneChoice::Translate { summaries_as_text } => {
                Box::new(self.translate(attempt, retry, *summaries_as_text).await?)
            }
        };
        // The steps of a plan add losses on their own. From here on there is one list of them.
        let losses = &mut plan.decision_mut().losses;
        *losses = Loss::merged(std::mem::take(losses));
        Ok(plan)
    }

    /// Chooses the lane of a request.
    pub(crate) async fn lane<'a>(&self, attempt: &Attempt<'a>) -> LaneChoice<'a> {
        let request = attempt.request;
        let same_dialect = request.incoming.dialect.name() == attempt.backend.dialect.name();
        if !same_dialect {
            return TRANSLATE;
        }
        if let Some(outline) = &request.outline {
            return match self.has_foreign_compaction(attempt, outline) {
                true => TRANSLATE,
                false => LaneChoice::Outlined(outline),
            };
        }
        let Some(outline) = request.opaque_outline().filter(|_| can_pass(attempt)) else {
            return TRANSLATE;
        };
        let dropped = match request.canonical() {
            Ok(accepted) if self.has_foreign_item(attempt, &accepted.request.messages) => {
                return TRANSLATE;
            }
            Ok(accepted) => {
                let restores = !is_only_native(accepted);
                self.dropped_parts(attempt, &accepted.request, restores).await
            }
            Err(_) => DroppedParts::default(),
        };
        match dropped.is_restorable {
            true => TRANSLATE,
            false => LaneChoice::Opaque(outline, dropped),
        }
    }
}

/// Whether the caller asks for something that only the backend's own reply has: several answers, or
/// the probabilities of tokens.
fn is_only_native(accepted: &Accepted) -> bool {
    accepted.losses.iter().any(|loss| loss.changed_result().is_some())
}

/// Whether an edit in place is enough for the request and its reply, if the client dropped nothing.
fn can_pass(attempt: &Attempt<'_>) -> bool {
    let (parsed, backend) = (attempt.request, attempt.backend);
    let raw = backend.profile.raw_text && backend.raw_text.family.as_deref() != Some("none");
    // A request that cannot be read in full can still pass.
    let Ok(accepted) = parsed.canonical() else {
        return !raw;
    };
    let request = &accepted.request;
    let model = backend.model_for(parsed.model.as_deref());
    let known = attempt.settings.catalog.find_at(&backend.name, model);
    let (dialect, _) = dialect_for(backend, request, &accepted.losses, &known);
    let renamed = parsed.model.as_deref() != Some(model);
    let events = accepted.session.stream_type();
    // In a stream that is not server-sent events, the model's name can only be found by
    // parsing.
    let name_needs_parsing = parsed.stream && renamed && !events.starts_with("text/event-stream");
    // A client chooses its settings for the model it names. For another model, or one that does
    // not think, they must be adapted.
    let thinks = known.thinking != Some(Form::None) || !request.thinking.is_wanted();
    let adapted = (renamed || !thinks) && !request.thinking.is_unset();
    (!raw && !adapted || is_only_native(accepted))
        && !name_needs_parsing
        && dialect.name() == backend.dialect.name()
}

/// The JSON that `POST /v1/plan` returns.
pub(crate) fn report(plan: &dyn Plan, attempt: &Attempt<'_>) -> Value {
    let decision = plan.decision();
    let (requested, sent) = plan.thinking(attempt);
    json!({
        "backend": attempt.backend.name,
        "model": decision.model,
        "lane": decision.lane,
        "blocks": plan.blocks(),
        "losses": decision.losses,
        "thinking": {"asked": requested, "sent": sent},
    })
}
