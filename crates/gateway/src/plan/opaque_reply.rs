//! How an [`OpaquePlan`] is sent, refused and answered. The plan itself is made in `opaque`.

use http::Response;
use serde_json::{Value, json};
use throughline_canonical::BlockKey;
use throughline_codec::dialects::client_headers::without_key;
use throughline_codec::dialects::{self, Operation, Refusal, RefusalKind};
use tokio::sync::OwnedSemaphorePermit;

use crate::backend::Auth;
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::opaque::{OpaquePlan, has_skip_signature};
use crate::plan::outlined_plan::sent_body;
use crate::plan::translated_reply::identity;
use crate::plan::{Decision, Plan, ReplyFuture};
use crate::relay::opaque_tap::OpaqueTap;
use crate::relay::{Relay, SentRequest, SignatureForm};
use crate::reply::edits::ReplyEdit;
use crate::reply::passthrough::{ReplyEncoding, Shape};
use crate::reply::repair::RepairReply;
use crate::thinking::memory::BlockOutcome;
use crate::turn::Attempt;
use crate::turn::log::BlockRecord;
use crate::unix_ms;
use crate::upstream::UpstreamBody;
use crate::upstream::refusal_policy::{RefusedRequest, RejectedBlocks};
use crate::upstream::send::OutboundRequest;

impl Plan for OpaquePlan {
    fn decision(&self) -> &Decision {
        &self.decision
    }

    fn decision_mut(&mut self) -> &mut Decision {
        &mut self.decision
    }

    fn blocks(&self) -> Vec<BlockRecord> {
        self.blocks.clone()
    }

    fn body(&self) -> &[u8] {
        &self.body
    }

    fn outbound(&self, attempt: &Attempt<'_>) -> OutboundRequest {
        let (request, backend) = (attempt.request, attempt.backend);
        let mut headers =
            headers::upstream(&request.incoming.headers, backend, headers::Body::Read);
        let body = sent_body(request, &self.body, &mut headers);
        let (path, renamed) = (&request.incoming.path, self.asked_model.is_some());
        let query = match backend.auth {
            Auth::Passthrough => request.incoming.query.clone(),
            _ => request.incoming.query.as_deref().map(without_key),
        };
        let passthrough = backend.dialect.passthrough();
        OutboundRequest {
            path: passthrough.path(path, &self.decision.model, renamed, backend.profile),
            query: query.filter(|query| !query.is_empty()),
            headers,
            body,
            streamed: request.stream,
        }
    }

    fn thinking(&self, attempt: &Attempt<'_>) -> (Value, Value) {
        let thinking = attempt.request.canonical().map(|accepted| &accepted.request.thinking).ok();
        let thinking = json!(thinking);
        (thinking.clone(), thinking)
    }

    fn refused(
        &self,
        attempt: &Attempt<'_>,
        refusal: &Refusal,
    ) -> Option<(RefusedRequest, Option<BlockKey>)> {
        let missing = refusal.kind == RefusalKind::MissingThinking;
        if self.sent.is_empty() && !missing {
            return None;
        }
        let refused = RefusedRequest {
            // These dialects do not name the refused block and cannot be asked to drop one.
            kind: if missing { refusal.kind } else { RefusalKind::Signature },
            named: None,
            named_stays: false,
            tried: !self.tried.is_empty(),
            old: false,
            can_ask: false,
            ours: has_skip_signature(attempt.backend) || !self.sent.is_empty(),
        };
        Some((refused, None))
    }

    fn sent_keys(&self, which: RejectedBlocks) -> Vec<BlockKey> {
        match which {
            RejectedBlocks::All => self.sent.clone(),
            _ => self.tried.clone(),
        }
    }

    fn reply<'a>(
        self: Box<Self>,
        gateway: &'a Gateway,
        attempt: &'a Attempt<'_>,
        response: Response<UpstreamBody>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ReplyFuture<'a> {
        let Self { decision, blocks, tried, asked_model, turn_position, .. } = *self;
        let request = attempt.request;
        let accepted =
            |key: &_| BlockOutcome { key: *key, tried: true, prefix: None, dropped: None };
        let outcomes: Vec<_> = tried.iter().map(accepted).collect();
        if request.in_conversation && !outcomes.is_empty() {
            let (session, target) = (decision.session, &decision.target);
            gateway.memory.outcome(request.lineage, session, target, &outcomes, unix_ms());
        }
        let origin = attempt.origin(&decision);
        let alias = attempt.model_alias(&decision.model, asked_model);
        let sent = SentRequest {
            blocks,
            losses: decision.losses,
            client: request.incoming.dialect,
            turn_position,
            scope: request.scope.clone(),
            sent_thinking: None,
            prefix: None,
            returns_call_ids: request.incoming.dialect.defaults().returns_call_ids,
            learnt: gateway.learnt.clone(),
        };
        let passthrough = attempt.backend.dialect.passthrough();
        let relay = Relay::new(
            attempt.ledger(gateway, decision.session, origin),
            SignatureForm::Passed(passthrough),
            gateway.vault.clone(),
            None,
            sent,
            request.in_conversation,
        );
        let injector = passthrough.injector();
        let model = decision.model;
        let edits = |shape, encoding: &_| {
            let alias = alias.into_iter().map(|alias| Box::new(alias) as Box<dyn ReplyEdit>);
            alias.chain(gateway.repair(attempt, shape, encoding)).collect()
        };
        let reply = gateway.forward(attempt, response, permit, edits, |events| {
            let target = dialects::Target { model: &model, profile: attempt.backend.profile };
            // The backend decides whether it streams, whatever the client asked for.
            let reader = (request.operation == Operation::Generate)
                .then(|| attempt.backend.dialect.reply_reader(&target, events));
            Box::new(OpaqueTap::new(reader, injector, relay, events))
        });
        Box::pin(std::future::ready(Ok(reply.into())))
    }
}

impl Gateway {
    /// The repair of a reply, if its dialect has one. A whole reply has to be held back for it, so
    /// that of a backend whose replies are complete passes unread.
    fn repair(
        &self,
        attempt: &Attempt<'_>,
        shape: Shape,
        encoding: &ReplyEncoding,
    ) -> Option<Box<dyn ReplyEdit>> {
        let (request, backend) = (attempt.request, &attempt.backend.name);
        let checked = match shape {
            Shape::Events => true,
            Shape::Json => !self.complete_backends.contains(backend),
            Shape::Other => false,
        };
        let repairs = request.incoming.dialect.defaults().repairs_replies
            && request.operation == Operation::Generate
            && matches!(encoding, ReplyEncoding::Plain);
        let accepted = request.canonical().ok().filter(|_| repairs && checked)?.clone();
        let id = attempt.turn.lock().id.clone();
        Some(Box::new(RepairReply {
            accepted,
            identity: identity(&id),
            backend: backend.clone(),
            complete: self.complete_backends.clone(),
            repair: None,
        }))
    }
}
