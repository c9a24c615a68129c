//! Records the start and the end of a turn in the turn log, the metrics and the log.

use std::sync::Arc;
use std::time::Instant;

use http::StatusCode;
use parking_lot::Mutex;

use crate::gateway::Gateway;
use crate::turn::Attempt;
use crate::turn::ledger::milliseconds;
use crate::turn::log::{SharedTurn, Turn, TurnEnd};
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
        self.counters.turns.add(1);
        let now = unix_ms();
        Arc::new(Mutex::new(Turn {
            id: self.turns.id(now),
            time: now,
            client_dialect: incoming.dialect.name(),
            path: incoming.path.clone(),
            ..Turn::default()
        }))
    }

    /// Records that the reply has started. Returns the turn's id.
    pub(crate) fn record_first_byte(&self, attempt: &Attempt<'_>, status: StatusCode) -> String {
        let first_byte = milliseconds(attempt.request.incoming.began);
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

    /// Records the end of a turn that was answered without a model.
    pub(crate) fn record_end(&self, attempt: &Attempt<'_>) {
        {
            let mut turn = attempt.turn.lock();
            turn.end = TurnEnd::Completed;
            turn.ms.total = Some(milliseconds(attempt.request.incoming.began));
        }
        self.turns.ended(attempt.turn);
    }

    /// Records a turn that failed before its reply began.
    pub(crate) fn record_failure(
        &self,
        turn: &SharedTurn,
        began: Instant,
        status: u16,
        what: &str,
    ) {
        self.counters.failed.add(1);
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
                end = end.as_str(),
                total_ms = turn.ms.total,
                losses = turn.losses_text(),
                "Turn ended"
            );
        }
        self.turns.push(turn.clone());
        self.turns.ended(turn);
    }
}
