//! The across lane: client and backend speak different dialects, and meet in the canonical words.
//!
//! The way of a request, as `prepare` walks it:
//! 1. `past`: what the client's messages were when their makers wrote them;
//! 2. `fit`, by the table of [`replay`]: what of it this target takes;
//! 3. [`setting`]: how much thinking, by what the model can be told;
//! 4. the upstream dialect writes it;
//! 5. `guard`: which blocks no longer stand where they were made.
//!
//! `mend` sends it, and once more where thinking was refused.
//!
//! The way of a reply: the upstream dialect reads it, `relay` puts signatures into envelopes, makes ids
//! unique and keeps the turn, the client's dialect writes it. A stream goes by way of `passage`; a whole
//! reply is the same events, folded.

#[doc(hidden)]
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use throughline_canonical::{EndReason, Fault, Fold, Loss, Origin};
use throughline_codec::dialects::{Operation, ReplyIdentity, ReplyReader, UpstreamDialect};
use throughline_codec::framing::encoding::{Decoder, Encoding};
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::headers;
use crate::plan::translate::Prepared;
pub(crate) use crate::plan::translate::spoken;
use crate::relay::provider_report::Past;
use crate::relay::{Relay, Sent, SignatureForm};
use crate::reply::ReplyBody;
use crate::reply::translated::Across;
use crate::turn::Attempt;
use crate::turn::answer::{Reply, mark, tell};
use crate::turn::ledger::milliseconds;
use crate::turn::request::content_encoding;
use crate::unix_ms;
use crate::upstream::refusal_policy::RetryPlan;
use crate::upstream::send::{
    MAX_ERROR_BYTES, OutboundRequest, UpstreamAnswer, error_text, read_plain, worth_another,
};

/// A call went out as one that was made elsewhere, since nobody knows what its maker wants back with it.
pub(crate) const CALL_UNSIGNED: Loss = Loss::PartOmitted {
    part: std::borrow::Cow::Borrowed("tool_call.signature"),
    reason: "unknown",
};

/// The longest reply that is read whole.
const MAX_REPLY_BYTES: usize = 64 << 20;

/// Where providers say when to come back.
const PATIENCE: [&str; 2] = ["retry-after", "retry-after-ms"];

impl Gateway {
    /// Asks one backend in words of its own. None if another backend should be asked.
    pub(crate) async fn across(
        &self,
        attempt: &Attempt<'_>,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let prepared = self.prepare(attempt, RetryPlan::First).await?;
        if attempt.read.wanted == Operation::CountTokens && !prepared.counted {
            return Ok(Some(self.estimated(attempt, &prepared)));
        }
        if let Some(reason) = self.immediate_end(attempt, &prepared) {
            return Ok(Some(self.answered_at_once(attempt, &prepared, reason)));
        }
        let (answer, prepared) = self.send_and_recover(attempt, prepared).await?;
        match answer {
            Ok(UpstreamAnswer::Ok(response)) if attempt.read.wanted == Operation::CountTokens => {
                self.counted(attempt, &prepared, response).await.map(Some)
            }
            Ok(UpstreamAnswer::Ok(response)) if attempt.read.stream => {
                Ok(Some(self.stream_reply(attempt, prepared, response, place.take())))
            }
            Ok(UpstreamAnswer::Ok(response)) => {
                self.whole_reply(attempt, prepared, response).await.map(Some)
            }
            Ok(UpstreamAnswer::Error(error)) if !attempt.last && worth_another(error.status()) => {
                attempt.passed_over(error.status().as_u16());
                Ok(None)
            }
            Ok(UpstreamAnswer::Error(error)) => {
                Ok(Some(self.provider_error(attempt, &prepared, &error)))
            }
            Err(error) => attempt.no_reply(&error).map(|()| None),
        }
    }

    /// What would go to a backend, without sending it.
    pub(crate) async fn report_across(&self, attempt: &Attempt<'_>) -> Result<Value, Fault> {
        let prepared = self.prepare(attempt, RetryPlan::First).await?;
        let asked = attempt.read.request()?.value.thinking;
        Ok(json!({
            "backend": attempt.backend.name,
            "model": prepared.model,
            "lane": "across",
            "blocks": prepared.blocks,
            "losses": prepared.losses,
            "thinking": {"asked": asked, "sent": prepared.thinking},
        }))
    }

    pub(crate) async fn deliver(
        &self,
        attempt: &Attempt<'_>,
        prepared: &Prepared,
    ) -> Result<UpstreamAnswer, crate::upstream::SendError> {
        self.note_prepared(attempt, prepared);
        let outgoing = &prepared.outgoing;
        let dialect = prepared.dialect;
        let outbound = OutboundRequest {
            path: outgoing.path.clone(),
            query: (!outgoing.query.is_empty()).then(|| outgoing.query.clone()),
            headers: headers::across(
                &attempt.read.asked,
                attempt.backend,
                dialect,
                &outgoing.headers,
            ),
            body: Bytes::copy_from_slice(&outgoing.body),
            streamed: attempt.read.stream,
        };
        self.send_with_retries(attempt.backend, &outbound).await
    }

    fn note_prepared(&self, attempt: &Attempt<'_>, prepared: &Prepared) {
        let mut turn = attempt.turn.lock();
        attempt.note(&mut turn, "across", prepared.dialect.name(), prepared.session);
        turn.upstream_model.clone_from(&prepared.model);
        turn.model = attempt.read.model.clone().unwrap_or_else(|| prepared.model.clone());
        turn.keep_reports(&prepared.blocks);
        turn.losses.clone_from(&prepared.losses);
        attempt.log_body(&mut turn, &prepared.outgoing.body);
    }

    /// Why the reply ends at once, if nothing is asked and the backend has no word for that.
    fn immediate_end(&self, attempt: &Attempt<'_>, prepared: &Prepared) -> Option<EndReason> {
        let client = attempt.read.asked.dialect;
        let alike = client.name() == prepared.dialect.name();
        client.immediate_end(&prepared.asked).filter(|_| !alike)
    }

    /// The reply to a request that asks nothing.
    fn answered_at_once(
        &self,
        attempt: &Attempt<'_>,
        prepared: &Prepared,
        reason: EndReason,
    ) -> Reply {
        self.note_prepared(attempt, prepared);
        let id = self.record_first_byte(attempt, StatusCode::OK);
        let told = throughline_canonical::Reply {
            model: prepared.model.clone(),
            reason: Some(reason),
            ..throughline_canonical::Reply::default()
        };
        let writer = attempt.read.asked.dialect.reply_writer(&prepared.asked, &identity(&id));
        self.ended_well(attempt);
        let whole = Response::new(ReplyBody::whole(writer.whole(&told)));
        let kind = "application/json";
        finish_headers(whole, kind, &id, &attempt.backend.name, &prepared.losses)
    }

    /// An error of the provider, in the client's words.
    fn provider_error(
        &self,
        attempt: &Attempt<'_>,
        prepared: &Prepared,
        error: &Response<Bytes>,
    ) -> Reply {
        let status = error.status().as_u16();
        let fault = fault_of(prepared.dialect, error);
        let id = attempt.turn.lock().id.clone();
        let mut reply = tell(attempt.read.asked.dialect, &fault, &id, &attempt.backend.name);
        // A moment, or milliseconds, say more than the seconds a fault has room for.
        for name in PATIENCE {
            if let Some(value) = error.headers().get(name) {
                reply.headers_mut().insert(name, value.clone());
            }
        }
        mark(reply.headers_mut(), &id, &attempt.backend.name, &prepared.losses);
        let what = format!("the backend refused the request: {status} {:?}", fault.kind);
        let began = attempt.read.asked.began;
        self.failed(attempt.turn, began, reply.status().as_u16(), &what);
        reply
    }

    /// A reply of the provider, as it arrives.
    fn stream_reply(
        &self,
        attempt: &Attempt<'_>,
        prepared: Prepared,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Reply {
        let (head, upstream) = response.into_parts();
        let id = self.record_first_byte(attempt, head.status);
        let writer = attempt
            .read
            .asked
            .dialect
            .reply_writer(&prepared.asked, &identity(attempt.reply_id(&id)));
        let decoder = match content_encoding(&head.headers) {
            Some(Encoding::Identity) | None => None,
            Some(packed) => Decoder::new(packed, MAX_REPLY_BYTES).ok(),
        };
        let kind = attempt.read.asked.dialect.stream_type(&prepared.asked);
        let losses = prepared.losses.clone();
        let reader = prepared.reader(self, attempt, true);
        let relay = self.relay(attempt, prepared);
        let transform = Across::new(decoder, reader, relay, writer);
        let body = ReplyBody::live(
            upstream,
            Box::new(transform),
            &attempt.clocks(),
            attempt.backend.name.clone(),
            permit,
        );
        let mut reply =
            finish_headers(Response::new(body), kind, &id, &attempt.backend.name, &losses);
        for (name, value) in attempt.read.asked.dialect.stream_headers() {
            let value = HeaderValue::from_static(value);
            reply.headers_mut().insert(*name, value);
        }
        reply
    }

    /// A whole reply of the provider.
    async fn whole_reply(
        &self,
        attempt: &Attempt<'_>,
        prepared: Prepared,
        response: Response<Incoming>,
    ) -> Result<Reply, Fault> {
        let status = response.status();
        let patience = attempt.clocks().ends.saturating_duration_since(tokio::time::Instant::now());
        let body = read_plain(attempt.backend, response, MAX_REPLY_BYTES, patience)
            .await
            .map_err(|error| error.fault())?;
        let id = self.record_first_byte(attempt, status);
        let dialect = attempt.read.asked.dialect;
        let writer = dialect.reply_writer(&prepared.asked, &identity(attempt.reply_id(&id)));
        let mut reader = prepared.reader(self, attempt, false);
        let summarizes = prepared.summarizes;
        let mut relay = self.relay(attempt, prepared);
        relay.ledger.receive(&body);
        let mut fold = Fold::default();
        let mut read = |relay: &mut Relay, reader: &mut dyn ReplyReader, bytes: &[u8]| {
            let mut pass = |event: throughline_canonical::Event<'_>| {
                relay.pass(event, &mut |event| fold.push(event));
            };
            if bytes.is_empty() {
                reader.finish(&mut pass);
            } else {
                reader.push(bytes, &mut pass);
            }
        };
        read(&mut relay, reader.as_mut(), &body);
        read(&mut relay, reader.as_mut(), b"");
        let mut reply = fold.finish();
        reply.summary = reader.summarizes().unwrap_or(summarizes);
        relay.finish_reading(reader.as_ref());
        let losses = relay.losses().to_vec();
        relay.close(false, None);
        if let Some(fault) = &reply.fault {
            let mut told = tell(dialect, fault, &id, &attempt.backend.name);
            mark(told.headers_mut(), &id, &attempt.backend.name, &losses);
            attempt.turn.lock().status = told.status().as_u16();
            return Ok(told);
        }
        let whole = Response::new(ReplyBody::whole(writer.whole(&reply)));
        let kind = "application/json";
        Ok(finish_headers(whole, kind, &id, &attempt.backend.name, &losses))
    }

    /// Notes that a reply has begun. Answers the turn's id.
    fn record_first_byte(&self, attempt: &Attempt<'_>, status: StatusCode) -> String {
        let first_byte = milliseconds(attempt.read.asked.began);
        self.counters.first_byte.observe(first_byte);
        let id = {
            let mut turn = attempt.turn.lock();
            turn.status = status.as_u16();
            turn.ms.first_byte = Some(first_byte);
            turn.id.clone()
        };
        self.turns.push(attempt.turn.clone());
        id
    }

    fn relay(&self, attempt: &Attempt<'_>, prepared: Prepared) -> Relay {
        let origin = Arc::new(Origin {
            domain: attempt.backend.domain.clone(),
            backend: attempt.backend.name.clone(),
            model: prepared.model.clone(),
            credential: prepared.target.credential.clone(),
        });
        let native = attempt.read.asked.dialect.name() == prepared.dialect.name();
        let marks = match native {
            true => SignatureForm::Native,
            false => SignatureForm::Enveloped {
                envelopes: self.envelopes.clone(),
                first_call: attempt.read.asked.dialect.wants_signed_calls(),
                calls_ride: prepared.dialect.signs_calls(&prepared.variant)
                    && !attempt.read.asked.dialect.wants_signed_calls(),
            },
        };
        let sent = Sent {
            blocks: prepared.blocks,
            losses: prepared.losses,
            client: attempt.read.asked.dialect,
            question: prepared.question,
            scope: attempt.read.scope.clone(),
            past: Some(Past { sent: prepared.sent, target: prepared.target }),
            prefix: prepared.prefix,
            keeps_ids: attempt.read.asked.dialect.returns_call_ids(),
            separating: self.separating.clone(),
        };
        let relay = Relay::new(
            attempt.ledger(self, prepared.session, origin),
            marks,
            self.vault.clone(),
            Some(prepared.ids),
            sent,
            attempt.read.in_conversation,
        );
        relay.with_tools(prepared.free, prepared.names)
    }

    /// A count of tokens, by the provider.
    async fn counted(
        &self,
        attempt: &Attempt<'_>,
        prepared: &Prepared,
        response: Response<Incoming>,
    ) -> Result<Reply, Fault> {
        let idle = attempt.backend.timeouts.idle;
        let body = read_plain(attempt.backend, response, MAX_ERROR_BYTES, idle)
            .await
            .map_err(|error| error.fault())?;
        Ok(match prepared.dialect.read_count(&body) {
            Some(tokens) => self.count(attempt, tokens, &prepared.losses),
            None => self.estimated(attempt, prepared),
        })
    }

    /// A count of tokens where nobody counts them: about four bytes are one.
    fn estimated(&self, attempt: &Attempt<'_>, prepared: &Prepared) -> Reply {
        let tokens = (prepared.outgoing.body.len() / 4).max(1) as u64;
        let mut losses = prepared.losses.clone();
        losses.push(Loss::SettingAdapted { setting: "count_tokens", reason: "estimated" });
        self.note_prepared(attempt, prepared);
        self.count(attempt, tokens, &losses)
    }

    /// Notes the end of a turn no model was asked in.
    fn ended_well(&self, attempt: &Attempt<'_>) {
        {
            let mut turn = attempt.turn.lock();
            turn.end = "completed";
            turn.ms.total = Some(milliseconds(attempt.read.asked.began));
        }
        self.turns.ended(attempt.turn);
    }

    fn count(&self, attempt: &Attempt<'_>, tokens: u64, losses: &[Loss]) -> Reply {
        let id = self.record_first_byte(attempt, StatusCode::OK);
        self.ended_well(attempt);
        let body = ReplyBody::whole(attempt.read.asked.dialect.write_count(tokens));
        let reply = Response::new(body);
        finish_headers(reply, "application/json", &id, &attempt.backend.name, losses)
    }
}

/// What a reply of ours bears.
pub(crate) fn identity(id: &str) -> ReplyIdentity {
    ReplyIdentity {
        id: id.strip_prefix("turn_").unwrap_or(id).to_owned(),
        created: unix_ms() / 1000,
    }
}

fn finish_headers(
    mut reply: Reply,
    kind: &'static str,
    id: &str,
    backend: &str,
    losses: &[Loss],
) -> Reply {
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id.clone());
        headers.insert("request-id", id);
    }
    mark(headers, id, backend, losses);
    reply
}

/// What an error of a provider says.
pub(crate) fn fault_of(dialect: &dyn UpstreamDialect, error: &Response<Bytes>) -> Fault {
    let status = error.status().as_u16();
    let mut fault = dialect.read_fault(status, &error_text(error));
    if fault.retry_after.is_none() {
        let seconds = error.headers().get(header::RETRY_AFTER);
        fault.retry_after = seconds.and_then(|value| value.to_str().ok()?.parse().ok());
    }
    fault
}
