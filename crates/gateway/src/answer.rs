//! What goes back to the client, and what is noted of it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use parking_lot::Mutex;
use throughline_canonical::{Fate, Fault, FaultKind, Loss, Origin};
use throughline_codec::dialects::anthropic::client_reply;
use throughline_codec::dialects::anthropic::refusal::error_kind;
use throughline_codec::framing::encoding::{Decoder, Encoding, unpack};
use tokio::sync::OwnedSemaphorePermit;

use crate::asked::{Asked, content_encoding};
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::Plan;
use crate::rename::Names;
use crate::reply::{Encoded, LiveParts, ReplyBody};
use crate::tap::{Notes, Tap, milliseconds};
use crate::turn::{Leg, Planned};
use crate::turns::{SharedTurn, Turn};
use crate::unix_ms;

/// The longest error that is read for its kind.
const LONGEST_ERROR: usize = 1 << 20;

/// A reply to the client.
pub type Reply = Response<ReplyBody>;

/// Notes a turn whose client leaves before the reply begins: nobody else would be there to do it.
pub(crate) struct Unanswered<'a> {
    gateway: &'a Gateway,
    turn: &'a SharedTurn,
    began: Instant,
}

impl<'a> Unanswered<'a> {
    /// From here until a status is known.
    pub(crate) fn new(gateway: &'a Gateway, turn: &'a SharedTurn, began: Instant) -> Self {
        Self {
            gateway,
            turn,
            began,
        }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.turn.lock().status == 0 {
            self.gateway
                .ended_early(self.turn, self.began, 0, "client_gone", None);
        }
    }
}

impl Gateway {
    /// Takes a place among the requests in progress, before anything of one is kept.
    pub fn take_place(&self) -> Result<OwnedSemaphorePermit, Fault> {
        Arc::clone(&self.places).try_acquire_owned().map_err(|_| {
            let mut fault = Fault::new(
                FaultKind::Overloaded,
                "all places are taken; `limits.streams` says how many there are",
            );
            fault.retry_after = Some(1);
            fault
        })
    }

    /// A turn that was not begun: the client is told why, and it is noted.
    pub fn turn_away(&self, asked: &Asked, fault: &Fault) -> Reply {
        let turn = self.begin(asked);
        let id = turn.lock().id.clone();
        let reply = tell(fault, &id, "");
        self.failed(&turn, asked.began, reply.status().as_u16(), &fault.message);
        reply
    }

    /// A new turn, of which nothing is known yet but what was asked.
    pub(crate) fn begin(&self, asked: &Asked) -> SharedTurn {
        self.counters.turns.add(1);
        let now = unix_ms();
        Arc::new(Mutex::new(Turn {
            id: self.turns.id(now),
            time: now,
            client_dialect: "anthropic",
            path: asked.path.clone(),
            lane: "through",
            ..Turn::default()
        }))
    }

    /// Notes what is about to happen.
    pub(crate) fn note(&self, leg: &Leg<'_>, planned: &Planned) {
        let Leg {
            settings,
            read,
            backend,
            ..
        } = leg;
        let plan = &planned.plan;
        let mut turn = leg.turn.lock();
        turn.lineage = read.lineage.id.text();
        turn.session = planned.answer.session;
        turn.backend.clone_from(&backend.name);
        turn.upstream_dialect = backend.dialect;
        turn.upstream_model.clone_from(&plan.model);
        turn.model = plan
            .asked_model
            .clone()
            .unwrap_or_else(|| plan.model.clone());
        turn.stream = read.outline.stream;
        turn.keep_blocks(&plan.blocks);
        turn.losses.clone_from(&plan.losses);
        if settings.full_body {
            let sent = String::from_utf8_lossy(&plan.body).into_owned();
            if settings.pretty_print {
                // Without quotes, which would put it back on one line.
                let body = pretty(&sent);
                tracing::debug!(turn = turn.id, %body, "Request body");
            } else {
                tracing::debug!(turn = turn.id, body = sent, "Request body");
            }
            turn.keep_sent(&sent);
        }
    }

    /// An error of the provider, passed on as it is.
    pub(crate) fn refused(&self, leg: &Leg<'_>, error: Response<Bytes>, plan: &Plan) -> Reply {
        let (head, body) = error.into_parts();
        let status = head.status.as_u16();
        // Its kind, but not its message: that may quote what was sent.
        let kind = content_encoding(&head.headers)
            .and_then(|encoding| unpack(encoding, &body, LONGEST_ERROR).ok())
            .and_then(|text| error_kind(&text));
        let mut reply = Response::new(ReplyBody::whole(body));
        *reply.status_mut() = head.status;
        *reply.headers_mut() = headers::client(&head.headers);
        let id = leg.turn.lock().id.clone();
        mark(reply.headers_mut(), &id, &leg.backend.name, &plan.losses);
        let mut what = format!("the backend refused the request: {status}");
        if let Some(kind) = kind {
            what.push(' ');
            what.push_str(&kind);
        }
        self.failed(leg.turn, leg.read.asked.began, status, &what);
        reply
    }

    /// A reply of the provider, passed on as it arrives.
    pub(crate) fn good(
        &self,
        leg: &Leg<'_>,
        planned: Planned,
        response: Response<Incoming>,
        permit: OwnedSemaphorePermit,
    ) -> Reply {
        let Leg {
            settings,
            read,
            backend,
            turn,
        } = *leg;
        let Planned {
            mut plan,
            answer,
            target,
        } = planned;
        // A stream may last for minutes; the request it answers need not.
        plan.body = Bytes::new();
        let (head, upstream) = response.into_parts();
        let first_byte = milliseconds(read.asked.began);
        self.counters.first_byte.observe(first_byte);
        let left_out = plan
            .blocks
            .iter()
            .filter(|block| block.fate == Fate::LeftOut);
        self.counters.filtered.add(left_out.count());
        let id = {
            let mut turn = turn.lock();
            turn.status = head.status.as_u16();
            turn.ms.first_byte = Some(first_byte);
            turn.id.clone()
        };
        self.turns.push(turn.clone());

        let content = head.headers.get(header::CONTENT_TYPE);
        let is = |kind: &[u8]| content.is_some_and(|value| value.as_bytes().starts_with(kind));
        let events = is(b"text/event-stream");
        let encoding = match content_encoding(&head.headers) {
            Some(Encoding::Identity) => Encoded::Plain,
            Some(packed) => Decoder::new(packed, 64 << 20).map_or(Encoded::Unknown, Encoded::Known),
            None => Encoded::Unknown,
        };
        let readable = !matches!(encoding, Encoded::Unknown);
        let asked_model = plan.asked_model.clone().filter(|_| readable);
        let names = asked_model.map(|asked| Names {
            theirs: plan.model.clone(),
            asked,
        });
        let mut reply_headers = headers::client(&head.headers);
        if events || names.is_some() {
            reply_headers.remove(header::CONTENT_LENGTH);
        }
        if names.is_some() {
            reply_headers.remove(header::CONTENT_ENCODING);
        }
        mark(&mut reply_headers, &id, &backend.name, &plan.losses);

        let origin = Arc::new(Origin {
            domain: backend.domain.clone(),
            backend: backend.name.clone(),
            model: plan.model.clone(),
            credential: target.credential.clone(),
        });
        let notes = Notes {
            memory: self.memory.clone(),
            counters: self.counters.clone(),
            turns: self.turns.clone(),
            turn: turn.clone(),
            lineage: read.lineage,
            session: answer.session,
            origin,
            target,
            counts: read.counts,
            plan,
            began: read.asked.began,
            memory_limit: settings.thinking.memory_limit,
            full_body: settings.full_body,
        };
        let body = ReplyBody::from(LiveParts {
            upstream,
            tap: Some(Tap::new(notes, events)),
            events,
            encoding,
            names,
            backend: backend.name.clone(),
            keep_alive: settings.keep_alive,
            idle: backend.timeouts.idle,
            ends: (read.asked.began + backend.timeouts.total).into(),
            permit: Some(permit),
        });
        let mut reply = Response::new(body);
        *reply.status_mut() = head.status;
        *reply.headers_mut() = reply_headers;
        reply
    }

    /// A turn ended before it began to stream.
    pub(crate) fn failed(&self, turn: &SharedTurn, began: Instant, status: u16, what: &str) {
        self.counters.failed.add(1);
        self.ended_early(turn, began, status, "failed", Some(what));
    }

    fn ended_early(
        &self,
        turn: &SharedTurn,
        began: Instant,
        status: u16,
        end: &'static str,
        what: Option<&str>,
    ) {
        {
            let mut turn = turn.lock();
            turn.status = status;
            turn.end = end;
            turn.error = what.map(ToOwned::to_owned);
            turn.ms.total = Some(milliseconds(began));
            tracing::info!(
                turn = turn.id,
                backend = turn.backend,
                model = turn.upstream_model,
                status,
                end,
                total_ms = turn.ms.total,
                "Turn ended"
            );
        }
        self.turns.push(turn.clone());
        self.turns.ended(turn);
    }
}

/// Tells the client which turn this was, who answered and what was lost.
pub(crate) fn mark(headers: &mut HeaderMap, id: &str, backend: &str, losses: &[Loss]) {
    let mut set = |name, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    set(headers::TURN, id);
    // Before a backend was chosen there is none to name.
    if !backend.is_empty() {
        set(headers::BACKEND, backend);
    }
    if !losses.is_empty() {
        set(headers::LOSS, &Loss::header(losses));
    }
}

/// A fault, told in the client's dialect. `backend` is empty if none was asked.
pub fn tell(fault: &Fault, id: &str, backend: &str) -> Reply {
    let (status, body) = client_reply::error(fault, id);
    let mut reply = Response::new(ReplyBody::whole(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = reply.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("request-id", id);
    }
    if let Some(seconds) = fault.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    mark(headers, id, backend, &[]);
    reply
}

fn pretty(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| text.to_owned())
}
