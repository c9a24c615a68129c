//! Records the start and the end of a turn in the turn log, the metrics and the log.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use parking_lot::Mutex;
use throughline_canonical::Cost;

use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::turn::Attempt;
use crate::turn::ledger::milliseconds;
use crate::turn::log::{SharedTurn, Turn, TurnEnd, TurnError, Turns};
use crate::turn::request::IncomingRequest;
use crate::unix_ms;

/// Records a turn whose client disconnects before the reply begins.
pub(crate) struct Unanswered<'a> {
    gateway: &'a Gateway,
    turn: &'a SharedTurn,
    began: Instant,
}

impl<'a> Unanswered<'a> {
    /// Watches the turn until its status is known.
    pub(crate) fn new(gateway: &'a Gateway, turn: &'a SharedTurn, began: Instant) -> Self {
        Self { gateway, turn, began }
    }
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if self.turn.lock().status == 0 {
            self.gateway.record_early_end(self.turn, self.began, 0, TurnEnd::ClientGone, None);
        }
    }
}

impl Gateway {
    /// The id of a new turn.
    pub fn new_turn_id(&self) -> String {
        self.turns.id(unix_ms())
    }

    /// Starts a turn. Only the request is known at this point.
    pub(crate) fn begin(&self, incoming: &IncomingRequest) -> SharedTurn {
        let now = unix_ms();
        Arc::new(Mutex::new(Turn {
            id: incoming.id.clone(),
            time: now,
            client_dialect: incoming.dialect.name(),
            path: incoming.path.clone(),
            request_id: id_in_header(incoming, "x-request-id"),
            traceparent: id_in_header(incoming, "traceparent"),
            watched: self.turns.is_watched(now),
            ..Turn::default()
        }))
    }

    /// Records that the reply has started.
    pub(crate) fn record_first_byte(&self, attempt: &Attempt<'_>, status: StatusCode) {
        {
            let mut turn = attempt.turn.lock();
            turn.status = status.as_u16();
            turn.ms.first_byte = Some(milliseconds(attempt.request.incoming.began));
        }
        self.turns.push(attempt.turn.clone());
    }

    /// Records the end of a turn that was answered without a model.
    pub(crate) fn record_end(&self, attempt: &Attempt<'_>) {
        self.record().end(attempt.turn, attempt.request.incoming.began, |turn| {
            turn.end = TurnEnd::Completed;
        });
    }

    /// Records a turn that failed before its reply began.
    pub(crate) fn record_failure(
        &self,
        turn: &SharedTurn,
        began: Instant,
        status: u16,
        error: TurnError,
    ) {
        self.record_early_end(turn, began, status, TurnEnd::Failed, Some(error));
    }

    pub(crate) fn record_early_end(
        &self,
        turn: &SharedTurn,
        began: Instant,
        status: u16,
        end: TurnEnd,
        error: Option<TurnError>,
    ) {
        self.turns.push(turn.clone());
        self.record().end(turn, began, |turn| {
            turn.status = status;
            turn.end = end;
            turn.error = error;
        });
    }

    /// Where turns are recorded.
    pub(crate) fn record(&self) -> TurnRecord {
        TurnRecord { metrics: self.metrics.clone(), turns: self.turns.clone() }
    }
}

/// Where turns are recorded.
#[derive(Clone, Debug)]
pub struct TurnRecord {
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The recent turns.
    pub turns: Arc<Turns>,
}

impl TurnRecord {
    /// Records the end of a turn. `last` adds the last facts about it. Turn log, metrics and log are
    /// written here and nowhere else, from the same values.
    pub(crate) fn end(&self, turn: &SharedTurn, began: Instant, last: impl FnOnce(&mut Turn)) {
        {
            let mut turn = turn.lock();
            turn.ms.total = Some(milliseconds(began));
            last(&mut turn);
            let cost = turn.tariff.cost(&turn.usage);
            turn.cost = cost.and_then(Cost::dollars);
            self.metrics.record_turn(&turn, cost.unwrap_or_default());
            log_end(&turn);
        }
        self.turns.ended(turn);
    }
}

fn log_end(turn: &Turn) {
    let Turn { usage, ms, .. } = turn;
    tracing::info!(
        client_dialect = turn.client_dialect,
        backend = turn.backend,
        upstream_dialect = turn.upstream_dialect,
        model = turn.model,
        upstream_model = turn.upstream_model,
        status = turn.status,
        end = turn.end.as_str(),
        fallback = turn.fallback,
        error = turn.error.as_ref().map(TurnError::logged),
        losses = turn.losses_text(),
        first_byte_ms = ms.first_byte,
        first_token_ms = ms.first_token,
        total_ms = ms.total,
        input_tokens = usage.input,
        output_tokens = usage.output,
        reasoning_tokens = usage.thinking,
        cache_read_tokens = usage.cache_read,
        cache_write_tokens = usage.cache_write,
        cost_usd = turn.cost,
        request_id = turn.request_id,
        traceparent = turn.traceparent,
        "Turn ended"
    );
}

/// How many bytes of an id of the client are kept.
const MAX_ID_BYTES: usize = 200;

/// An id in a header of the client.
fn id_in_header(incoming: &IncomingRequest, name: &str) -> Option<String> {
    // Readable header values are ASCII, so they can be cut anywhere.
    let id = incoming.headers.get(name)?.to_str().ok()?;
    Some(id[..id.len().min(MAX_ID_BYTES)].to_owned())
}
