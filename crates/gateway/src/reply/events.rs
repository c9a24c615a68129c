//! A reply as canonical events, for callers that store, fold or encode it themselves.

use std::fmt;
use std::future::poll_fn;
use std::time::Duration;

use throughline_canonical::{Event, Fault, Fold, Loss, Reply};

use crate::reply::translated::EventSink;
use crate::reply::{Gather, Live, Output};
use crate::turn::turn_reply::ReplyHead;

/// The reply of a turn: its head, then its events as they arrive.
pub struct TurnEvents {
    /// What is known about the reply, for its head.
    pub head: ReplyHead,
    pub(crate) live: Live<Vec<TurnEvent>>,
}

/// One step of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// The next event.
    Event(Event<'static>),
    /// The model was silent for this long. Clients may need a keep-alive.
    Silence(Duration),
    /// The reply has ended and the turn is recorded. This comes last.
    Closed {
        /// The losses of the request and of the reply.
        losses: Vec<Loss>,
        /// Whether the thinking is a summary made by the provider.
        summary: bool,
    },
}

impl TurnEvents {
    /// Waits for the next events. `None` after the last one. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Vec<TurnEvent>> {
        let next = poll_fn(|context| self.live.poll_or_break(context)).await;
        // A translated reply reports every failure as an event.
        let events = next?.ok()?;
        if let Some(TurnEvent::Closed { losses, .. }) = events.last() {
            self.head.turn.losses.clone_from(losses);
        }
        Some(events)
    }

    /// Reads the reply to its end.
    pub async fn fold(mut self) -> (ReplyHead, Result<Reply, Fault>) {
        let (mut fold, mut summarized) = (Fold::default(), false);
        while let Some(events) = self.next().await {
            for event in events {
                match event {
                    TurnEvent::Event(event) => fold.push(&event),
                    TurnEvent::Silence(_) => {}
                    TurnEvent::Closed { summary, .. } => summarized = summary,
                }
            }
        }
        let mut reply = fold.finish();
        reply.summary = summarized;
        let folded = match reply.fault.take() {
            Some(fault) => Err(fault),
            None => Ok(reply),
        };
        (self.head, folded)
    }
}

impl fmt::Debug for TurnEvents {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TurnEvents").field("head", &self.head).finish_non_exhaustive()
    }
}

/// Collects events.
#[derive(Default)]
pub(crate) struct EventList {
    events: Vec<TurnEvent>,
    fault: Option<Fault>,
}

impl EventSink for EventList {
    type Out = Vec<TurnEvent>;

    fn push(&mut self, event: &Event<'_>) {
        if let Event::Fault(fault) = event {
            self.fault = Some(fault.clone());
        }
        self.events.push(TurnEvent::Event(event.to_owned_event()));
    }

    fn keep_alive(&mut self, silent: Duration) {
        self.events.push(TurnEvent::Silence(silent));
    }

    fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    fn close(&mut self, losses: &[Loss], summary: bool) {
        self.events.push(TurnEvent::Closed { losses: losses.to_vec(), summary });
    }

    fn take(&mut self) -> Vec<TurnEvent> {
        std::mem::take(&mut self.events)
    }
}

/// How many events are collected before they are handed over.
const MAX_GATHERED_EVENTS: usize = 1 << 10;

impl Output for Vec<TurnEvent> {
    type Gathered = Self;

    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }
}

impl Gather<Self> for Vec<TurnEvent> {
    fn push(&mut self, events: Self) {
        self.extend(events);
    }

    fn is_empty(&self) -> bool {
        Vec::is_empty(self)
    }

    fn is_full(&self) -> bool {
        self.len() >= MAX_GATHERED_EVENTS
    }

    fn finish(self) -> Self {
        self
    }
}
