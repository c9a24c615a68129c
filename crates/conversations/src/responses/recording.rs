//! Records the reply of a turn: writes its events in the dialect, and builds the response that is
//! stored. Streams, WebSockets and background runs all read their events from here.

use std::sync::Arc;

use serde_json::Value;
use throughline_canonical::{Loss, LossReason, LossSubject};
use throughline_codec::dialects::openai_responses::state::{
    Progress, Recorder, Written, WrittenEvent,
};
use throughline_gateway::reply::events::{TurnEvent, TurnEvents};
use throughline_gateway::turn::turn_reply::{ReplyHead, UnreadReply};
use tracing::Instrument;

use super::Responses;
use super::create::Turn;

/// The events of a reply, written in the dialect.
pub(super) struct ReplyEvents {
    /// For the turn's span, and for losses after its end.
    head: ReplyHead,
    events: TurnEvents,
    recorder: Recorder,
}

impl ReplyEvents {
    pub(super) fn new(reply: UnreadReply, recorder: Recorder) -> Self {
        let (head, events) = reply.into_events();
        Self { head, events, recorder }
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
        let Written { mut events, steps } = written?;
        for step in steps {
            self.progress.take(step);
        }
        if self.progress.ended().is_some() && !self.store("completed").await {
            self.reply.head.add_loss(not_stored());
            events.iter_mut().for_each(WrittenEvent::mark_unstored);
        }
        Some(events)
    }

    /// The final response, if the reply has ended.
    pub(super) fn response(&self) -> Option<&Value> {
        self.progress.ended()
    }

    /// Stores the response, if it is to be stored. `status` is used if the reply has not ended.
    /// Returns false if that failed.
    async fn store(&mut self, status: &str) -> bool {
        match (self.progress.so_far(status, None), self.turn.take()) {
            (Some(response), Some(turn)) => {
                let span = self.reply.head.span();
                self.responses.store_response(response, turn, None).instrument(span).await
            }
            _ => true,
        }
    }
}

/// The loss of a response that should be stored and could not be.
pub(super) fn not_stored() -> Loss {
    Loss::SettingAdapted { setting: LossSubject::Store, reason: LossReason::NotWritten }
}
