//! What goes back to the client, and what is noted of it.

use std::sync::Arc;
use std::time::Instant;

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use parking_lot::Mutex;
use throughline_canonical::{Fault, FaultKind, Loss};
use throughline_codec::dialects::ClientDialect;
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::headers;
use crate::reply::ReplyBody;
use crate::turn::ledger::milliseconds;
use crate::turn::log::{SharedTurn, Turn};
use crate::turn::request::IncomingRequest;
use crate::unix_ms;

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
        Self { gateway, turn, began }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.turn.lock().status == 0 {
            self.gateway.ended_early(self.turn, self.began, 0, "client_gone", None);
        }
    }
}

impl Gateway {
    /// Takes a place among the requests in progress, before anything of one is kept.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Fault> {
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
    pub fn reject(&self, asked: &IncomingRequest, fault: &Fault) -> Reply {
        let turn = self.begin(asked);
        let id = turn.lock().id.clone();
        let reply = tell(asked.dialect, fault, &id, "");
        self.failed(&turn, asked.began, reply.status().as_u16(), &fault.message);
        reply
    }

    /// A new turn, of which nothing is known yet but what was asked.
    pub(crate) fn begin(&self, asked: &IncomingRequest) -> SharedTurn {
        self.counters.turns.add(1);
        let now = unix_ms();
        Arc::new(Mutex::new(Turn {
            id: self.turns.id(now),
            time: now,
            client_dialect: asked.dialect.name(),
            path: asked.path.clone(),
            ..Turn::default()
        }))
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
pub fn tell(dialect: &dyn ClientDialect, fault: &Fault, id: &str, backend: &str) -> Reply {
    let (status, body) = dialect.write_fault(fault, id);
    let mut reply = Response::new(ReplyBody::whole(body));
    *reply.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(dialect.fault_type()));
    if let Ok(id) = HeaderValue::from_str(id) {
        headers.insert("x-request-id", id.clone());
        headers.insert("request-id", id);
    }
    if let Some(seconds) = fault.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    mark(headers, id, backend, &[]);
    reply
}

pub(crate) fn pretty(text: &str) -> String {
    serde_json::from_str::<serde_json::Value>(text)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| text.to_owned())
}
