//! Admission control: which requests may start a turn.

use std::sync::Arc;

use throughline_canonical::{Fault, FaultKind};
use tokio::sync::OwnedSemaphorePermit;

use crate::gateway::Gateway;
use crate::turn::error_reply::{Reply, TurnHeaders, turn_error};
use crate::turn::log::TurnError;
use crate::turn::request::IncomingRequest;

impl Gateway {
    /// Reserves one of the concurrent streams. Call this before the request body is read into
    /// memory.
    pub fn admit(&self) -> Result<OwnedSemaphorePermit, Fault> {
        Arc::clone(&self.streams).try_acquire_owned().map_err(|_| {
            let limit = self.max_streams;
            let mut fault = Fault::new(
                FaultKind::Overloaded,
                format!(
                    "too many concurrent streams (limit {limit}); retry later, or raise `limits.streams`"
                ),
            );
            fault.retry_after = Some(1);
            fault
        })
    }

    /// Refuses a request before its turn begins, and records the refusal.
    pub fn reject(&self, incoming: &IncomingRequest, fault: &Fault) -> Reply {
        let turn = self.begin(incoming);
        let (headers, span) = {
            let turn = turn.lock();
            (TurnHeaders::from(&*turn), turn.span())
        };
        let reply = turn_error(incoming.dialect, fault, &headers);
        let (status, error) = (reply.status().as_u16(), TurnError::of_gateway(fault));
        span.in_scope(|| self.record_failure(&turn, incoming.began, status, error));
        reply
    }
}
