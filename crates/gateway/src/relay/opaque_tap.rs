//! Reads a passthrough reply while it passes, with the reader of its dialect. The relay only
//! observes the events. Anthropic's dialect is read by `block_tap`.

use std::fmt;

use bytes::Bytes;
use throughline_canonical::{EndReason, Event, Fault, FaultKind};
use throughline_codec::dialects::ReplyReader;
use throughline_codec::dialects::passthrough::StreamInjector;
use throughline_codec::framing::MAX_EVENT_BYTES;
use throughline_codec::framing::sse::Framer;

use crate::relay::Relay;
use crate::reply::passthrough::Tap;
use crate::turn::ledger::Closing;

/// Reads one reply while it passes.
pub(crate) struct OpaqueTap {
    /// `None` if the reply is not an answer of a model.
    reader: Option<Box<dyn ReplyReader>>,
    /// Tracks the position in a stream of events.
    framer: Option<Framer>,
    injector: Box<dyn StreamInjector>,
    relay: Relay,
    /// Whether the reader knows that the bytes have ended.
    reader_finished: bool,
    finished: bool,
}

impl fmt::Debug for OpaqueTap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OpaqueTap({:?})", self.relay)
    }
}

impl OpaqueTap {
    /// A tap for a stream of events, or for any other reply.
    pub(crate) fn new(
        reader: Option<Box<dyn ReplyReader>>,
        injector: Box<dyn StreamInjector>,
        relay: Relay,
        events: bool,
    ) -> Self {
        Self {
            reader,
            framer: events.then(|| Framer::new(MAX_EVENT_BYTES)),
            injector,
            relay,
            reader_finished: false,
            finished: false,
        }
    }
}

impl Tap for OpaqueTap {
    fn push(&mut self, bytes: &[u8]) {
        let (injector, relay) = (&mut self.injector, &mut self.relay);
        relay.ledger.record_bytes(bytes);
        if let Some(framer) = &mut self.framer {
            framer.push(bytes, |frame, _| injector.see(frame));
        }
        if let Some(reader) = &mut self.reader {
            reader.push(bytes, &mut |event| observe(event, relay));
        }
    }

    fn ended(&self) -> bool {
        self.relay.has_ended()
    }

    /// In some dialects, only the end of the bytes marks the end of the reply.
    fn ends(&mut self) -> bool {
        if !std::mem::replace(&mut self.reader_finished, true) {
            let relay = &mut self.relay;
            match &mut self.reader {
                Some(reader) => reader.finish(&mut |event| observe(event, relay)),
                None => observe(Event::Ended { reason: EndReason::Stop }, relay),
            }
        }
        self.ended()
    }

    fn keep_alive(&mut self) -> Bytes {
        let between = |framer: &Framer| framer.between_events() && !framer.in_line_end();
        let between = self.framer.as_ref().is_some_and(between);
        let event = match between {
            true => self.injector.keep_alive(),
            false => Vec::new(),
        };
        if !event.is_empty() {
            self.relay.ledger.record.metrics.keep_alives.increment();
        }
        event.into()
    }

    fn error(&self, fault: &Fault) -> Vec<u8> {
        let half = self.framer.as_ref().and_then(Framer::half_event);
        let event = self.injector.error(fault, half);
        // Some clients split events without parsing lines and need complete line ends.
        let in_end = self.framer.as_ref().is_some_and(Framer::in_line_end);
        match half.is_none() && in_end {
            true => [b"\n", event.as_slice()].concat(),
            false => event,
        }
    }

    fn finish(&mut self, closing: Closing) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if !self.ends() {
            self.relay.ledger.progress.end = Some(EndReason::Cut);
            let what = closing.error().unwrap_or_default().to_owned();
            let fault = Fault::new(FaultKind::Unreachable, what);
            self.relay.fail(&fault, &mut |_| {});
        }
        if let Some(reader) = &self.reader {
            self.relay.finish_reading(reader.as_ref());
        }
        self.relay.close(closing);
    }
}

/// Forwards an event to the relay, except a cut: `finish` reports that when the bytes end.
fn observe(event: Event<'_>, relay: &mut Relay) {
    let cut = Event::Ended { reason: EndReason::Cut };
    if event != cut {
        relay.push(event, &mut |_| {});
    }
}
