//! Records the reply of a turn: writes its events in the dialect, and builds the response that is
//! stored. Streams, WebSockets and background runs all read their events from here.

use std::sync::Arc;

use serde_json::Value;
use throughline_codec::dialects::openai_responses::state::{
    Progress, Recorder, Written, WrittenEvent,
};
use throughline_gateway::reply::events::{TurnEvent, TurnEvents};
use throughline_gateway::turn::turn_reply::UnreadReply;
use tracing::{Instrument, Span};

use super::Responses;
use super::create::Turn;

/// The events of a reply, written in the dialect.
pub(super) struct ReplyEvents {
    events: TurnEvents,
    recorder: Recorder,
    /// The span of the turn, for log lines about its reply.
    span: Span,
}

impl ReplyEvents {
    pub(super) fn new(reply: UnreadReply, recorder: Recorder) -> Self {
        let span = reply.head.span();
        Self { events: reply.into_events(), recorder, span }
    }

    /// Waits for the next events. `None` after the last one. Cancelling this loses nothing.
    pub(super) async fn next(&mut self) -> Option<Written> {
        let mut written = Written::default();
        while written.events.is_empty() {
            for event in self.events.next().await? {
                match event {
                    TurnEvent::Event(event) => self.recorder.push(&event, &mut written),
                    TurnEvent::Silence(_) => self.recorder.keep_alive(&mut written),
                }
            }
        }
        Some(written)
    }
}

/// A reply on its way to a client that waits for it. Its response is stored at its end, or when the
/// client disconnects.
pub(super) struct Recording {
    responses: Arc<Responses>,
    reply: ReplyEvents,
    progress: Progress,
    /// What is stored with the response. `None` if it is stored already, or never.
    turn: Option<Turn>,
}

impl Recording {
    /// Starts to record. Without a `turn` nothing is stored.
    pub(super) fn new(responses: Arc<Responses>, reply: ReplyEvents, turn: Option<Turn>) -> Self {
        Self { responses, reply, progress: Progress::default(), turn }
    }

    /// Waits for the next events, until the reply ends or the client is `gone`. The response is
    /// stored before its last event is returned, because the client may name it right after.
    pub(super) async fn next(
        &mut self,
        gone: impl Future<Output = ()>,
    ) -> Option<Vec<WrittenEvent>> {
        let written = tokio::select! {
            // A reply that is complete is stored as complete, even if the client is gone.
            biased;
            written = self.reply.next() => written,
            () = gone => {
                self.store("cancelled").await;
                return None;
            }
        };
        let Written { events, steps } = written?;
        for step in steps {
            self.progress.take(step);
        }
        if self.progress.ended().is_some() {
            self.store("completed").await;
        }
        Some(events)
    }

    /// The final response, if the reply has ended.
    pub(super) fn response(&self) -> Option<&Value> {
        self.progress.ended()
    }

    /// Stores the response. `status` is used if the reply has not ended.
    async fn store(&mut self, status: &str) {
        if let Some(response) = self.progress.so_far(status, None)
            && let Some(turn) = self.turn.take()
        {
            let span = self.reply.span.clone();
            self.responses.store_response(response, turn, None).instrument(span).await;
        }
    }
}
