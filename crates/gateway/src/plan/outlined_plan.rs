//! How an [`OutlinedPlan`] is prepared, sent, refused and answered. The decisions are made in
//! `outlined`.

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use parking_lot::Mutex;
use serde_json::Value;
use throughline_canonical::{BlockKey, Fate};
use throughline_codec::dialects::Refusal;
use throughline_codec::dialects::blocks::outline::Outline;
use throughline_codec::dialects::blocks::rewrite::ThinkingEdit;
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::headers;
use crate::history::recall::{ClientKeys, Recall};
use crate::plan::outlined::dropped::DropFinder;
use crate::plan::outlined::envelopes::SealedBlock;
use crate::plan::outlined::{OutlinedPlan, PlannedBlock, Planner};
use crate::plan::passthrough::with_reported_losses;
use crate::plan::{Decision, Plan, ReplyFuture};
use crate::relay::block_tap::{BlockTap, SentPlan};
use crate::relay::turn_recorder::TurnRecorder;
use crate::thinking::memory::Question;
use crate::turn::Attempt;
use crate::turn::log::BlockRecord;
use crate::turn::request::ParsedRequest;
use crate::unix_ms;
use crate::upstream::UpstreamBody;
use crate::upstream::refusal_policy::{RefusedRequest, RejectedBlocks, RetryPlan};
use crate::upstream::send::OutboundRequest;

impl Gateway {
    /// Plans a request of which every block is known.
    pub(crate) async fn plan_outlined(
        &self,
        attempt: &Attempt<'_>,
        outline: &Outline,
        retry: RetryPlan,
    ) -> OutlinedPlan {
        let Attempt { settings, request, backend, .. } = *attempt;
        let known =
            settings.catalog.find_at(&backend.name, backend.model_for(request.model.as_deref()));
        let target = attempt.target(&known);
        let sealed = self.sealed_blocks(&request.body, outline);
        let keys = keys(outline, &sealed);
        let answer = self.memory.ask(&Question {
            lineage: request.lineage,
            target: &target,
            follows_active_backend: attempt.follows_active_backend && retry == RetryPlan::First,
            // The first plan has already informed the memory.
            in_conversation: request.in_conversation && retry == RetryPlan::First,
            blocks: &keys,
            has_assistant: outline.has_assistant(),
            now: unix_ms(),
            rules: settings.thinking,
        });
        let recall = Recall {
            gateway: self,
            target: &target,
            scope: &request.scope,
            lookups: Mutex::default(),
            resumed: Mutex::default(),
            session: answer.session,
            rules: settings.thinking,
            same_dialect: true,
            asks_vault: true,
            keys: ClientKeys::new(request.incoming.dialect.defaults(), &self.envelopes),
        };
        let finder = DropFinder { gateway: self, attempt, outline, recall: &recall };
        let dropped = finder.put_back(&known, &answer.verdicts).await;
        let (body, outline, sealed) = match &dropped.request {
            Some((body, outline)) => (body, outline, self.sealed_blocks(body, outline)),
            None => (&request.body, outline, sealed),
        };
        let mut verdicts = dropped.with_restored(answer.verdicts, outline);
        let mut natives = Vec::new();
        for (sealed, verdict) in sealed.into_iter().zip(&mut verdicts) {
            if let Some(sealed) = sealed {
                let (judged, native) = sealed.judge(verdict, &target);
                *verdict = judged;
                natives.extend(native);
            }
        }
        let plan = Planner {
            body,
            outline,
            backend,
            model: &known,
            verdicts: &verdicts,
            natives: &natives,
            dropped: &dropped,
            guard: self.guard(backend, &known),
            retry,
            target: target.clone(),
            session: answer.session,
        }
        .plan();
        if request.in_conversation && retry == RetryPlan::First {
            self.memory.restored(plan.count(Fate::Restored));
        }
        plan
    }

    /// The keys of the thinking blocks of a request.
    pub(crate) fn outlined_keys(&self, body: &Bytes, outline: &Outline) -> Vec<Option<BlockKey>> {
        keys(outline, &self.sealed_blocks(body, outline))
    }

    /// The envelope of each thinking block that has one.
    fn sealed_blocks(&self, body: &Bytes, outline: &Outline) -> Vec<Option<SealedBlock>> {
        let blocks = outline.thinking_blocks();
        blocks
            .map(|(message, index, ..)| {
                self.open_envelope(body, &outline.messages[message].blocks()[index])
            })
            .collect()
    }
}

fn keys(outline: &Outline, sealed: &[Option<SealedBlock>]) -> Vec<Option<BlockKey>> {
    let blocks = outline.thinking_blocks().zip(sealed);
    blocks.map(|(block, sealed)| sealed.as_ref().map(|sealed| sealed.key).or(block.3)).collect()
}

impl Plan for OutlinedPlan {
    fn decision(&self) -> &Decision {
        &self.decision
    }

    fn decision_mut(&mut self) -> &mut Decision {
        &mut self.decision
    }

    fn blocks(&self) -> Vec<BlockRecord> {
        self.records()
    }

    fn body(&self) -> &[u8] {
        &self.body
    }

    fn outbound(&self, attempt: &Attempt<'_>) -> OutboundRequest {
        let (request, backend) = (attempt.request, attempt.backend);
        let mut headers =
            headers::upstream(&request.incoming.headers, backend, headers::Body::Read);
        headers::patch_betas(&mut headers, &self.betas_added, self.betas_without_adaptive);
        let body = sent_body(request, &self.body, &mut headers);
        OutboundRequest {
            path: request.incoming.path.clone(),
            query: request.incoming.query.clone(),
            headers,
            body,
            streamed: request.stream,
        }
    }

    fn thinking(&self, attempt: &Attempt<'_>) -> (Value, Value) {
        let setting = |outline: &Outline, body: &[u8]| {
            let thinking = outline.thinking.as_ref()?;
            serde_json::from_slice(&body[thinking.span.clone()]).ok()
        };
        let requested = attempt.request.outline.as_ref();
        let requested = requested.and_then(|outline| setting(outline, &attempt.request.body));
        let sent = Outline::read(&self.body, usize::MAX).ok();
        let sent = sent.and_then(|outline| setting(&outline, &self.body));
        (requested.unwrap_or_default(), sent.unwrap_or_default())
    }

    fn sets_thinking(&self) -> bool {
        // A client chooses its setting for the model that it names.
        self.changes_thinking() || self.asked_model.is_some()
    }

    fn refused(
        &self,
        attempt: &Attempt<'_>,
        refusal: &Refusal,
    ) -> Option<(RefusedRequest, Option<BlockKey>)> {
        let outline = attempt.request.outline.as_ref()?;
        let caller = outline.thinking.as_ref().and_then(|thinking| thinking.binding.as_deref());
        if caller == Some("error") {
            return None;
        }
        let named = refusal.at.and_then(|(message, index)| self.sent_at(message, index));
        let named = named.map(|at| &self.blocks[at]);
        let turn = outline.after_last_user_turn();
        let present = |block: &PlannedBlock| block.message >= turn;
        let mut blocks = self.blocks.iter();
        let refused = RefusedRequest {
            kind: refusal.kind,
            named: named.map(|block| block.fate),
            named_stays: named.is_some_and(present) && !attempt.request.in_conversation,
            tried: blocks.clone().any(|block| block.fate == Fate::Tried),
            old: blocks.clone().any(|block| block.fate == Fate::Sent && !present(block)),
            can_ask: caller.is_none() && !self.drop_bound,
            // Thinking was dropped now, or in an earlier round of a loop that began with it. If the
            // caller sent the loop without any thinking, the error is the caller's.
            ours: (blocks.any(|block| block.fate == Fate::LeftOut || present(block))
                || self.withholds_from(turn))
                && self.thinking != ThinkingEdit::Disabled,
        };
        Some((refused, named.and_then(|block| block.key)))
    }

    fn sent_keys(&self, which: RejectedBlocks) -> Vec<BlockKey> {
        let mut keys = self.keys(Fate::Tried);
        if which == RejectedBlocks::All {
            keys.extend(self.keys(Fate::Sent));
            keys.extend(self.keys(Fate::Restored));
        }
        keys
    }

    fn reply<'a>(
        mut self: Box<Self>,
        gateway: &'a Gateway,
        attempt: &'a Attempt<'_>,
        response: Response<UpstreamBody>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ReplyFuture<'a> {
        // A stream may last for minutes, and the request body is not needed any more.
        self.body = Bytes::new();
        let decision = &self.decision;
        let origin = attempt.origin(decision);
        let ledger = attempt.ledger(gateway, decision.session, origin);
        let recorder = TurnRecorder::for_request(gateway, attempt.request, self.prefix);
        let alias = attempt.model_alias(&decision.model, self.asked_model.clone());
        let in_conversation = attempt.request.in_conversation;
        // The provider reports what it did with these.
        let has_sent_blocks = self.sent().next().is_some();
        let sent = SentPlan { plan: *self, in_conversation, recorder };
        let mut is_whole = false;
        let edits = |_, _: &_| alias.into_iter().map(|alias| Box::new(alias) as _).collect();
        let reply = gateway.forward(attempt, response, permit, edits, |events| {
            is_whole = !events;
            Box::new(BlockTap::new(ledger, sent, events))
        });
        Box::pin(async move {
            Ok(match is_whole && has_sent_blocks {
                true => with_reported_losses(attempt, reply).await.into(),
                false => reply.into(),
            })
        })
    }
}

/// The body to send: the client's own bytes, maybe compressed, if nothing was edited.
pub(crate) fn sent_body(request: &ParsedRequest, body: &Bytes, headers: &mut HeaderMap) -> Bytes {
    let unedited = body.as_ptr() == request.body.as_ptr() && body.len() == request.body.len();
    if unedited {
        return request.raw.clone();
    }
    headers.remove(header::CONTENT_ENCODING);
    body.clone()
}
