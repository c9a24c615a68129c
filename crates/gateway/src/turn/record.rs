//! Records the start and the end of a turn in the turn log, the metrics and the log.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use parking_lot::Mutex;

use crate::gateway::Gateway;
use crate::metrics::Metrics;
use crate::turn::Attempt;
use crate::turn::ledger::milliseconds;
use crate::turn::log::{SharedTurn, Turn, TurnEnd, Turns};
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
    /// Starts a turn. Only the request is known at this point.
    pub(crate) fn begin(&self, incoming: &IncomingRequest) -> SharedTurn {
        let now = unix_ms();
        Arc::new(Mutex::new(Turn {
            id: self.turns.id(now),
            time: now,
            client_dialect: incoming.dialect.name(),
            path: incoming.path.clone(),
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
        what: &str,
    ) {
        self.record_early_end(turn, began, status, TurnEnd::Failed, Some(what));
    }

    fn record_early_end(
        &self,
        turn: &SharedTurn,
        began: Instant,
        status: u16,
        end: TurnEnd,
        what: Option<&str>,
    ) {
        self.turns.push(turn.clone());
        self.record().end(turn, began, |turn| {
            turn.status = status;
            turn.end = end;
            turn.error = what.map(ToOwned::to_owned);
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
            self.metrics.record_turn(&turn);
            log_end(&turn);
        }
        self.turns.ended(turn);
    }
}

fn log_end(turn: &Turn) {
    tracing::info!(
        turn = turn.id,
        backend = turn.backend,
        model = turn.upstream_model,
        status = turn.status,
        end = turn.end.as_str(),
        first_byte_ms = turn.ms.first_byte,
        total_ms = turn.ms.total,
        output_tokens = turn.usage.output,
        losses = turn.losses_text(),
        "Turn ended"
    );
}
