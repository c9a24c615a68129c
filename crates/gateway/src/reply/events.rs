//! A reply as canonical events, for callers that store or encode it themselves. `folded` is for
//! whole replies.

use std::future::poll_fn;
use std::time::Duration;

use throughline_canonical::Event;

use crate::reply::translated::EventSink;
use crate::reply::{Gather, Live, Output};

/// The events of a reply, as they arrive.
#[derive(Debug)]
pub struct TurnEvents(pub(crate) Live<Vec<TurnEvent>>);

/// One step of a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEvent {
    /// The next event.
    Event(Event<'static>),
    /// The model was silent for this long. Clients may need a keep-alive.
    Silence(Duration),
}

impl TurnEvents {
    /// Waits for the next events. `None` after the last one. Cancelling this loses nothing.
    pub async fn next(&mut self) -> Option<Vec<TurnEvent>> {
        let next = poll_fn(|context| self.0.poll_or_break(context)).await;
        // A translated reply reports every failure as an event.
        next?.ok()
    }
}

/// Collects events.
#[derive(Default)]
pub(crate) struct EventList(Vec<TurnEvent>);

impl EventSink for EventList {
    type Out = Vec<TurnEvent>;

    fn push(&mut self, event: &Event<'_>) {
        self.0.push(TurnEvent::Event(event.to_owned_event()));
    }

    fn keep_alive(&mut self, silent: Duration) {
        self.0.push(TurnEvent::Silence(silent));
    }

    fn take(&mut self) -> Vec<TurnEvent> {
        std::mem::take(&mut self.0)
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
