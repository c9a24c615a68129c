//! How a [`TranslatedPlan`] is sent, refused and answered.
//!
//! The upstream dialect reads the reply. The relay puts signatures into envelopes, makes ids unique
//! and stores the turn. The client's dialect writes it. A whole reply is the same events, folded.

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};
use throughline_canonical::{BlockKey, EndReason, Fate, Fault, Loss, LossReason, LossSubject};
use throughline_codec::dialects::profile::BlockRules;
use throughline_codec::dialects::{Operation, Refusal, ReplyIdentity, UpstreamDialect};
use throughline_codec::framing::MAX_REPLY_BYTES;
use throughline_codec::framing::encoding::{Decoder, Encoding};
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::headers;
use crate::history::adapt;
use crate::history::prefix_guard::record_prefixes;
use crate::plan::translate::TranslatedPlan;
use crate::plan::{Decision, Plan, ReplyFuture};
use crate::relay::provider_report::SentThinking;
use crate::relay::{Relay, SentRequest, SignatureForm};
use crate::reply::ReplyBody;
use crate::reply::translated::EventSource;
use crate::reply_identity;
use crate::turn::Attempt;
use crate::turn::error_reply::{Reply, generated_reply, turn_error};
use crate::turn::log::{BlockRecord, TurnError};
use crate::turn::request::content_encoding;
use crate::turn::turn_reply::{EventReply, ReplyHead, TurnReply, UnreadReply};
use crate::upstream::UpstreamBody;
use crate::upstream::refusal_policy::{RefusedRequest, RejectedBlocks};
use crate::upstream::send::{MAX_ERROR_BYTES, OutboundRequest, error_text, read_plain};

/// The headers in which providers say when to retry.
const RETRY_HEADERS: [&str; 2] = ["retry-after", "retry-after-ms"];

impl Plan for TranslatedPlan {
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
        let outgoing = &self.outgoing;
        let (incoming, backend) = (&attempt.request.incoming, attempt.backend);
        OutboundRequest {
            path: outgoing.path.clone(),
            query: (!outgoing.query.is_empty()).then(|| outgoing.query.clone()),
            headers: headers::translated(incoming, backend, &outgoing.headers),
            body: self.body.clone(),
            streamed: attempt.request.stream,
        }
    }

    fn thinking(&self, attempt: &Attempt<'_>) -> (Value, Value) {
        let requested = attempt.request.canonical().map(|accepted| &accepted.request.thinking).ok();
        (json!(requested), json!(self.thinking))
    }

    fn sets_thinking(&self) -> bool {
        !self.thinking.is_unset()
    }

    fn continues_stored_reply(&self) -> bool {
        self.continues
    }

    fn refused(
        &self,
        attempt: &Attempt<'_>,
        refusal: &Refusal,
    ) -> Option<(RefusedRequest, Option<BlockKey>)> {
        let named = refusal.at.and_then(|at| self.sent_at(at));
        let sent = &self.sent;
        let refused = RefusedRequest {
            kind: refusal.kind,
            named: named.map(|sent| if sent.tried { Fate::Tried } else { Fate::Sent }),
            named_stays: named.is_some_and(|sent| sent.message >= self.open)
                && !attempt.request.in_conversation,
            tried: sent.iter().any(|sent| sent.tried),
            old: sent.iter().any(|sent| !sent.tried && sent.message < self.open),
            can_ask: self.decision.profile.blocks == BlockRules::Native && !self.drop_bound,
            // A client of another dialect cannot know what the model needs.
            ours: true,
        };
        Some((refused, named.and_then(|sent| sent.key)))
    }

    fn sent_keys(&self, which: RejectedBlocks) -> Vec<BlockKey> {
        let all = which == RejectedBlocks::All;
        self.sent.iter().filter(|sent| all || sent.tried).filter_map(|sent| sent.key).collect()
    }

    fn reply_without_backend(&self, gateway: &Gateway, attempt: &Attempt<'_>) -> Option<Reply> {
        if attempt.request.operation == Operation::CountTokens && !self.counted {
            return Some(gateway.estimated_count_reply(attempt, self));
        }
        // The request asks the model nothing, and the backend cannot express that.
        let client = attempt.request.incoming.dialect;
        let same_dialect = client.name() == self.decision.dialect.name();
        let reason = self.accepted.session.immediate_end().filter(|_| !same_dialect)?;
        Some(gateway.ended_reply(attempt, self, reason))
    }

    fn reply<'a>(
        self: Box<Self>,
        gateway: &'a Gateway,
        attempt: &'a Attempt<'_>,
        response: Response<UpstreamBody>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> ReplyFuture<'a> {
        Box::pin(async move {
            if attempt.request.operation == Operation::CountTokens {
                return gateway.count_reply(attempt, &self, response).await.map(Into::into);
            }
            let events = gateway.event_reply(attempt, *self, response, permit);
            Ok(TurnReply::Events(Box::new(events)))
        })
    }

    fn error_reply(
        &self,
        gateway: &Gateway,
        attempt: &Attempt<'_>,
        error: Response<Bytes>,
    ) -> TurnReply {
        gateway.provider_error(attempt, self, &error)
    }
}

impl TranslatedPlan {
    /// The sent part at a position of the body.
    fn sent_at(&self, at: (usize, usize)) -> Option<adapt::SentPart> {
        let mut sent = self.sent.clone();
        record_prefixes(&self.body, &mut sent)?;
        sent.into_iter().find(|sent| sent.position == Some(at))
    }
}

impl Gateway {
    /// The reply to a request that asks the model nothing.
    fn ended_reply(
        &self,
        attempt: &Attempt<'_>,
        plan: &TranslatedPlan,
        reason: EndReason,
    ) -> Reply {
        attempt.record_plan(plan);
        attempt.record_answer();
        self.record_first_byte(attempt, StatusCode::OK);
        let id = attempt.turn_headers().id;
        let reply = throughline_canonical::Reply {
            model: plan.decision.model.clone(),
            reason: Some(reason),
            ..throughline_canonical::Reply::default()
        };
        let writer = plan.writer(attempt, &id);
        self.record_end(attempt);
        let whole = Response::new(ReplyBody::whole(writer.whole(&reply)));
        generated_reply(whole, "application/json", &attempt.turn_headers())
    }

    /// A provider's error, in the client's dialect.
    fn provider_error(
        &self,
        attempt: &Attempt<'_>,
        plan: &TranslatedPlan,
        error: &Response<Bytes>,
    ) -> TurnReply {
        let status = error.status().as_u16();
        let fault = read_provider_fault(plan.decision.dialect, error);
        let mut reply =
            turn_error(attempt.request.incoming.dialect, &fault, &attempt.turn_headers());
        // Forward the provider's own headers: they may hold a date or milliseconds, and a fault
        // only has seconds.
        for name in RETRY_HEADERS {
            if let Some(value) = error.headers().get(name) {
                reply.headers_mut().insert(name, value.clone());
            }
        }
        let what = format!("the backend refused the request: {status} {}", fault.kind.as_str());
        let began = attempt.request.incoming.began;
        self.record_failure(attempt.turn, began, reply.status().as_u16(), TurnError::new(what));
        TurnReply::failed(reply, fault)
    }

    /// The reply of the model, as events.
    fn event_reply(
        &self,
        attempt: &Attempt<'_>,
        plan: TranslatedPlan,
        response: Response<UpstreamBody>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> EventReply {
        let (head, upstream) = response.into_parts();
        let streamed = attempt.request.stream;
        let dialect = attempt.request.incoming.dialect;
        self.record_first_byte(attempt, head.status);
        let turn = attempt.turn_headers();
        let decoder = match content_encoding(&head.headers) {
            Some(Encoding::Identity) | None => None,
            Some(packed) => Decoder::new(packed, MAX_REPLY_BYTES).ok(),
        };
        EventReply {
            writer: plan.writer(attempt, &turn.id),
            streamed,
            unread: UnreadReply {
                head: ReplyHead {
                    dialect,
                    stream_type: plan.accepted.session.stream_type(),
                    turn,
                    origin: attempt.origin(&plan.decision),
                    upstream: plan.decision.dialect,
                    record: attempt.turn.clone(),
                    metrics: self.metrics.clone(),
                },
                upstream,
                clocks: attempt.clocks(self, streamed),
                permit,
                source: EventSource {
                    decoder,
                    reader: plan.reader(self, attempt, streamed),
                    summarizes: plan.summarizes,
                    whole: (!streamed).then_some(dialect),
                    raw: None,
                    relay: self.relay(attempt, plan),
                },
            },
        }
    }

    fn relay(&self, attempt: &Attempt<'_>, plan: TranslatedPlan) -> Relay {
        let origin = attempt.origin(&plan.decision);
        let native = attempt.request.incoming.dialect.name() == plan.decision.dialect.name();
        let client = attempt.request.incoming.dialect.defaults();
        let signature_form = match native || client.keeps_turns {
            true => SignatureForm::Native {
                unsigned: client.wants_signed_thinking.then(|| self.envelopes.clone()),
            },
            false => SignatureForm::Enveloped {
                envelopes: self.envelopes.clone(),
                first_call: client.wants_signed_calls,
                thinking_holds_call: plan.decision.profile.signs_calls
                    && !client.wants_signed_calls,
            },
        };
        let sent = SentRequest {
            blocks: plan.blocks,
            losses: plan.decision.losses,
            client: attempt.request.incoming.dialect,
            turn_position: plan.turn_position,
            scope: attempt.request.scope.clone(),
            sent_thinking: Some(SentThinking { sent: plan.sent, target: plan.decision.target }),
            prefix: plan.prefix,
            returns_call_ids: attempt.request.incoming.dialect.defaults().returns_call_ids,
            learnt: self.learnt.clone(),
        };
        let relay = Relay::new(
            attempt.ledger(self, plan.decision.session, origin),
            signature_form,
            self.vault.clone(),
            Some(plan.ids),
            sent,
            attempt.request.in_conversation,
        );
        relay.with_tools(plan.custom_tools, plan.tool_names)
    }

    /// A token count from the provider.
    async fn count_reply(
        &self,
        attempt: &Attempt<'_>,
        plan: &TranslatedPlan,
        response: Response<UpstreamBody>,
    ) -> Result<Reply, Fault> {
        let idle = attempt.backend.timeouts.idle;
        let body = read_plain(attempt.backend, response, MAX_ERROR_BYTES, idle)
            .await
            .map_err(|error| error.fault())?;
        Ok(match plan.decision.dialect.read_count(&body) {
            Some(tokens) => self.count(attempt, tokens),
            None => self.estimated_count_reply(attempt, plan),
        })
    }

    /// An estimated token count, if the backend cannot count: about four bytes per token.
    pub(crate) fn estimated_count_reply(&self, attempt: &Attempt<'_>, plan: &dyn Plan) -> Reply {
        let tokens = (plan.body().len() / 4).max(1) as u64;
        attempt.record_plan(plan);
        attempt.record_answer();
        let (setting, reason) = (LossSubject::CountTokens, LossReason::Estimated);
        let estimated = Loss::SettingAdapted { setting, reason };
        Loss::add(&mut attempt.turn.lock().losses, estimated);
        self.count(attempt, tokens)
    }

    fn count(&self, attempt: &Attempt<'_>, tokens: u64) -> Reply {
        self.record_first_byte(attempt, StatusCode::OK);
        self.record_end(attempt);
        let body = ReplyBody::whole(attempt.request.incoming.dialect.write_count(tokens));
        let reply = Response::new(body);
        generated_reply(reply, "application/json", &attempt.turn_headers())
    }
}

/// The id and time of a reply that the gateway writes.
pub(crate) fn identity(id: &str) -> ReplyIdentity {
    reply_identity(id.strip_prefix("turn_").unwrap_or(id))
}

/// The fault of a provider's error.
pub(crate) fn read_provider_fault(dialect: &dyn UpstreamDialect, error: &Response<Bytes>) -> Fault {
    let status = error.status().as_u16();
    let mut fault = dialect.read_fault(status, &error_text(error));
    if fault.retry_after.is_none() {
        let seconds = error.headers().get(header::RETRY_AFTER);
        fault.retry_after = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
    }
    fault
}
