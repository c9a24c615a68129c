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
pub mod crossing;
mod fit;
mod free_text;
mod guard;
mod held;
mod ids;
mod join;
mod located;
pub(crate) mod lost;
mod mend;
mod passage;
pub(crate) mod past;
mod prepare;
pub(crate) mod relay;
pub mod replay;
mod restore;
pub mod setting;
mod settled;
mod tool_names;
mod unnamed;
mod words;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use serde_json::{Value, json};
use throughline_canonical::{EndReason, Fault, Fold, Loss, Origin};
use throughline_codec::dialects::{Operation, ReplyIdentity, ReplyReader, UpstreamDialect};
use throughline_codec::framing::encoding::{Decoder, Encoding};
use tokio::sync::OwnedSemaphorePermit;

use self::passage::Across;
use self::prepare::Prepared;
pub(crate) use self::prepare::spoken;
use self::relay::{Marks, Relay, Sent};
use self::settled::Past;
use crate::again::Again;
use crate::answer::{Reply, mark, tell};
use crate::asked::content_encoding;
use crate::gateway::Gateway;
use crate::headers;
use crate::ledger::milliseconds;
use crate::reply::ReplyBody;
use crate::send::{Back, LONGEST_ERROR, Parcel, error_text, read_plain, worth_another};
use crate::turn::Leg;
use crate::unix_ms;

/// A call went out as one that was made elsewhere, since nobody knows what its maker wants back with it.
pub(crate) const CALL_UNSIGNED: Loss = Loss::PartOmitted {
    part: std::borrow::Cow::Borrowed("tool_call.signature"),
    reason: "unknown",
};

/// The longest reply that is read whole.
const LONGEST_REPLY: usize = 64 << 20;

/// Where providers say when to come back.
const PATIENCE: [&str; 2] = ["retry-after", "retry-after-ms"];

impl Gateway {
    /// Asks one backend in words of its own. None if another backend should be asked.
    pub(crate) async fn across(
        &self,
        leg: &Leg<'_>,
        place: &mut Option<OwnedSemaphorePermit>,
    ) -> Result<Option<Reply>, Fault> {
        let prepared = self.prepare(leg, Again::First).await?;
        if leg.read.wanted == Operation::CountTokens && !prepared.counted {
            return Ok(Some(self.estimated(leg, &prepared)));
        }
        if let Some(reason) = self.immediate_end(leg, &prepared) {
            return Ok(Some(self.answered_at_once(leg, &prepared, reason)));
        }
        let (back, prepared) = self.deliver_patiently(leg, prepared).await?;
        match back {
            Ok(Back::Good(response)) if leg.read.wanted == Operation::CountTokens => {
                self.counted(leg, &prepared, response).await.map(Some)
            }
            Ok(Back::Good(response)) if leg.read.stream => {
                Ok(Some(self.relayed(leg, prepared, response, place.take())))
            }
            Ok(Back::Good(response)) => self.folded(leg, prepared, response).await.map(Some),
            Ok(Back::Refused(error)) if !leg.last && worth_another(error.status()) => {
                leg.passed_over(error.status().as_u16());
                Ok(None)
            }
            Ok(Back::Refused(error)) => Ok(Some(self.told(leg, &prepared, &error))),
            Err(error) => leg.no_reply(&error).map(|()| None),
        }
    }

    /// What would go to a backend, without sending it.
    pub(crate) async fn report_across(&self, leg: &Leg<'_>) -> Result<Value, Fault> {
        let prepared = self.prepare(leg, Again::First).await?;
        let asked = leg.read.request()?.value.thinking;
        Ok(json!({
            "backend": leg.backend.name,
            "model": prepared.model,
            "lane": "across",
            "blocks": prepared.blocks,
            "losses": prepared.losses,
            "thinking": {"asked": asked, "sent": prepared.thinking},
        }))
    }

    async fn deliver(
        &self,
        leg: &Leg<'_>,
        prepared: &Prepared,
    ) -> Result<Back, crate::upstream::SendError> {
        self.note_prepared(leg, prepared);
        let outgoing = &prepared.outgoing;
        let dialect = prepared.dialect;
        let parcel = Parcel {
            path: outgoing.path.clone(),
            query: (!outgoing.query.is_empty()).then(|| outgoing.query.clone()),
            headers: headers::across(&leg.read.asked, leg.backend, dialect, &outgoing.headers),
            body: Bytes::copy_from_slice(&outgoing.body),
            streamed: leg.read.stream,
        };
        self.send_patiently(leg.backend, &parcel).await
    }

    fn note_prepared(&self, leg: &Leg<'_>, prepared: &Prepared) {
        let mut turn = leg.turn.lock();
        leg.note(&mut turn, "across", prepared.dialect.name(), prepared.session);
        turn.upstream_model.clone_from(&prepared.model);
        turn.model = leg.read.model.clone().unwrap_or_else(|| prepared.model.clone());
        turn.keep_reports(&prepared.blocks);
        turn.losses.clone_from(&prepared.losses);
        leg.log_body(&mut turn, &prepared.outgoing.body);
    }

    /// Why the reply ends at once, if nothing is asked and the backend has no word for that.
    fn immediate_end(&self, leg: &Leg<'_>, prepared: &Prepared) -> Option<EndReason> {
        let client = leg.read.asked.dialect;
        let alike = client.name() == prepared.dialect.name();
        client.immediate_end(&prepared.asked).filter(|_| !alike)
    }

    /// The reply to a request that asks nothing.
    fn answered_at_once(&self, leg: &Leg<'_>, prepared: &Prepared, reason: EndReason) -> Reply {
        self.note_prepared(leg, prepared);
        let id = self.begun(leg, StatusCode::OK);
        let told = throughline_canonical::Reply {
            model: prepared.model.clone(),
            reason: Some(reason),
            ..throughline_canonical::Reply::default()
        };
        let writer = leg.read.asked.dialect.reply_writer(&prepared.asked, &identity(&id));
        self.ended_well(leg);
        let whole = Response::new(ReplyBody::whole(writer.whole(&told)));
        let kind = "application/json";
        dress(whole, kind, &id, &leg.backend.name, &prepared.losses)
    }

    /// An error of the provider, in the client's words.
    fn told(&self, leg: &Leg<'_>, prepared: &Prepared, error: &Response<Bytes>) -> Reply {
        let status = error.status().as_u16();
        let fault = fault_of(prepared.dialect, error);
        let id = leg.turn.lock().id.clone();
        let mut reply = tell(leg.read.asked.dialect, &fault, &id, &leg.backend.name);
        // A moment, or milliseconds, say more than the seconds a fault has room for.
        for name in PATIENCE {
            if let Some(value) = error.headers().get(name) {
                reply.headers_mut().insert(name, value.clone());
            }
        }
        mark(reply.headers_mut(), &id, &leg.backend.name, &prepared.losses);
        let what = format!("the backend refused the request: {status} {:?}", fault.kind);
        let began = leg.read.asked.began;
        self.failed(leg.turn, began, reply.status().as_u16(), &what);
        reply
    }

    /// A reply of the provider, as it arrives.
    fn relayed(
        &self,
        leg: &Leg<'_>,
        prepared: Prepared,
        response: Response<Incoming>,
        permit: Option<OwnedSemaphorePermit>,
    ) -> Reply {
        let (head, upstream) = response.into_parts();
        let id = self.begun(leg, head.status);
        let writer =
            leg.read.asked.dialect.reply_writer(&prepared.asked, &identity(leg.reply_id(&id)));
        let decoder = match content_encoding(&head.headers) {
            Some(Encoding::Identity) | None => None,
            Some(packed) => Decoder::new(packed, LONGEST_REPLY).ok(),
        };
        let kind = leg.read.asked.dialect.stream_type(&prepared.asked);
        let losses = prepared.losses.clone();
        let reader = prepared.reader(self, leg, true);
        let relay = self.relay(leg, prepared);
        let passage = Across::new(decoder, reader, relay, writer);
        let body = ReplyBody::live(
            upstream,
            Box::new(passage),
            &leg.clocks(),
            leg.backend.name.clone(),
            permit,
        );
        let mut reply = dress(Response::new(body), kind, &id, &leg.backend.name, &losses);
        for (name, value) in leg.read.asked.dialect.stream_headers() {
            let value = HeaderValue::from_static(value);
            reply.headers_mut().insert(*name, value);
        }
        reply
    }

    /// A whole reply of the provider.
    async fn folded(
        &self,
        leg: &Leg<'_>,
        prepared: Prepared,
        response: Response<Incoming>,
    ) -> Result<Reply, Fault> {
        let status = response.status();
        let patience = leg.clocks().ends.saturating_duration_since(tokio::time::Instant::now());
        let body = read_plain(leg.backend, response, LONGEST_REPLY, patience)
            .await
            .map_err(|error| error.fault())?;
        let id = self.begun(leg, status);
        let dialect = leg.read.asked.dialect;
        let writer = dialect.reply_writer(&prepared.asked, &identity(leg.reply_id(&id)));
        let mut reader = prepared.reader(self, leg, false);
        let summarizes = prepared.summarizes;
        let mut relay = self.relay(leg, prepared);
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
            let mut told = tell(dialect, fault, &id, &leg.backend.name);
            mark(told.headers_mut(), &id, &leg.backend.name, &losses);
            leg.turn.lock().status = told.status().as_u16();
            return Ok(told);
        }
        let whole = Response::new(ReplyBody::whole(writer.whole(&reply)));
        let kind = "application/json";
        Ok(dress(whole, kind, &id, &leg.backend.name, &losses))
    }

    /// Notes that a reply has begun. Answers the turn's id.
    fn begun(&self, leg: &Leg<'_>, status: StatusCode) -> String {
        let first_byte = milliseconds(leg.read.asked.began);
        self.counters.first_byte.observe(first_byte);
        let id = {
            let mut turn = leg.turn.lock();
            turn.status = status.as_u16();
            turn.ms.first_byte = Some(first_byte);
            turn.id.clone()
        };
        self.turns.push(leg.turn.clone());
        id
    }

    fn relay(&self, leg: &Leg<'_>, prepared: Prepared) -> Relay {
        let origin = Arc::new(Origin {
            domain: leg.backend.domain.clone(),
            backend: leg.backend.name.clone(),
            model: prepared.model.clone(),
            credential: prepared.target.credential.clone(),
        });
        let native = leg.read.asked.dialect.name() == prepared.dialect.name();
        let marks = match native {
            true => Marks::Native,
            false => Marks::Enveloped {
                envelopes: self.envelopes.clone(),
                first_call: leg.read.asked.dialect.wants_signed_calls(),
                calls_ride: prepared.dialect.signs_calls(&prepared.variant)
                    && !leg.read.asked.dialect.wants_signed_calls(),
            },
        };
        let sent = Sent {
            blocks: prepared.blocks,
            losses: prepared.losses,
            client: leg.read.asked.dialect,
            question: prepared.question,
            scope: leg.read.scope.clone(),
            past: Some(Past { sent: prepared.sent, target: prepared.target }),
            prefix: prepared.prefix,
            keeps_ids: leg.read.asked.dialect.returns_call_ids(),
            separating: self.separating.clone(),
        };
        let relay = Relay::new(
            leg.ledger(self, prepared.session, origin),
            marks,
            self.vault.clone(),
            Some(prepared.ids),
            sent,
            leg.read.counts,
        );
        relay.with_tools(prepared.free, prepared.names)
    }

    /// A count of tokens, by the provider.
    async fn counted(
        &self,
        leg: &Leg<'_>,
        prepared: &Prepared,
        response: Response<Incoming>,
    ) -> Result<Reply, Fault> {
        let idle = leg.backend.timeouts.idle;
        let body = read_plain(leg.backend, response, LONGEST_ERROR, idle)
            .await
            .map_err(|error| error.fault())?;
        Ok(match prepared.dialect.read_count(&body) {
            Some(tokens) => self.count(leg, tokens, &prepared.losses),
            None => self.estimated(leg, prepared),
        })
    }

    /// A count of tokens where nobody counts them: about four bytes are one.
    fn estimated(&self, leg: &Leg<'_>, prepared: &Prepared) -> Reply {
        let tokens = (prepared.outgoing.body.len() / 4).max(1) as u64;
        let mut losses = prepared.losses.clone();
        losses.push(Loss::SettingAdapted { setting: "count_tokens", reason: "estimated" });
        self.note_prepared(leg, prepared);
        self.count(leg, tokens, &losses)
    }

    /// Notes the end of a turn no model was asked in.
    fn ended_well(&self, leg: &Leg<'_>) {
        {
            let mut turn = leg.turn.lock();
            turn.end = "completed";
            turn.ms.total = Some(milliseconds(leg.read.asked.began));
        }
        self.turns.ended(leg.turn);
    }

    fn count(&self, leg: &Leg<'_>, tokens: u64, losses: &[Loss]) -> Reply {
        let id = self.begun(leg, StatusCode::OK);
        self.ended_well(leg);
        let body = ReplyBody::whole(leg.read.asked.dialect.write_count(tokens));
        let reply = Response::new(body);
        dress(reply, "application/json", &id, &leg.backend.name, losses)
    }
}

/// What a reply of ours bears.
fn identity(id: &str) -> ReplyIdentity {
    ReplyIdentity {
        id: id.strip_prefix("turn_").unwrap_or(id).to_owned(),
        created: unix_ms() / 1000,
    }
}

fn dress(mut reply: Reply, kind: &'static str, id: &str, backend: &str, losses: &[Loss]) -> Reply {
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
