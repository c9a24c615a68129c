//! Reads a reply beside its way, by the reader of its dialect: what the across lane would pass on is
//! here only looked at.

use std::fmt;

use bytes::Bytes;
use throughline_canonical::{EndReason, Event, Fault, FaultKind};
use throughline_codec::dialects::ReplyReader;
use throughline_codec::dialects::passthrough::StreamInjector;
use throughline_codec::framing::sse::Framer;

use crate::relay::Relay;
use crate::reply::passthrough::Tap;

/// The longest event whose half could be closed.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Reads one reply.
pub(crate) struct Listener {
    /// None where there is no answer to be read.
    reader: Option<Box<dyn ReplyReader>>,
    /// Where a stream of events stands.
    framer: Option<Framer>,
    aside: Box<dyn StreamInjector>,
    relay: Relay,
    /// The reader has been told that the bytes have ended.
    over: bool,
    finished: bool,
}

impl fmt::Debug for Listener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Listener({:?})", self.relay)
    }
}

impl Listener {
    /// A listener to a stream of events, or to anything else.
    pub(crate) fn new(
        reader: Option<Box<dyn ReplyReader>>,
        aside: Box<dyn StreamInjector>,
        relay: Relay,
        events: bool,
    ) -> Self {
        Self {
            reader,
            framer: events.then(|| Framer::new(MAX_EVENT_BYTES)),
            aside,
            relay,
            over: false,
            finished: false,
        }
    }
}

impl Tap for Listener {
    fn push(&mut self, bytes: &[u8]) {
        let (aside, relay) = (&mut self.aside, &mut self.relay);
        relay.ledger.receive(bytes);
        if let Some(framer) = &mut self.framer {
            framer.push(bytes, |frame, _| aside.see(frame));
        }
        if let Some(reader) = &mut self.reader {
            reader.push(bytes, &mut |event| look(event, relay));
        }
    }

    fn ended(&self) -> bool {
        self.relay.has_ended()
    }

    /// Some dialects have no sign of the end but the end of the bytes.
    fn ends(&mut self) -> bool {
        if !std::mem::replace(&mut self.over, true) {
            let relay = &mut self.relay;
            match &mut self.reader {
                Some(reader) => reader.finish(&mut |event| look(event, relay)),
                None => look(Event::Ended { reason: EndReason::Stop }, relay),
            }
        }
        self.ended()
    }

    fn keep_alive(&mut self) -> Bytes {
        let between = |framer: &Framer| framer.between_events() && !framer.in_line_end();
        let between = self.framer.as_ref().is_some_and(between);
        let sign = match between {
            true => self.aside.keep_alive(),
            false => Vec::new(),
        };
        if !sign.is_empty() {
            self.relay.ledger.counters.keep_alives.add(1);
        }
        sign.into()
    }

    fn error(&self, fault: &Fault) -> Vec<u8> {
        let half = self.framer.as_ref().and_then(Framer::half_event);
        let event = self.aside.error(fault, half);
        // Some clients look for events without reading lines, and want their ends to be whole.
        let in_end = self.framer.as_ref().is_some_and(Framer::in_line_end);
        match half.is_none() && in_end {
            true => [b"\n", event.as_slice()].concat(),
            false => event,
        }
    }

    fn finish(&mut self, client_gone: bool, error: Option<String>) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if !self.ends() {
            self.relay.ledger.seen.end = Some(EndReason::Cut);
            let what = error.clone().unwrap_or_default();
            let fault = Fault::new(FaultKind::Unreachable, what);
            self.relay.break_off(&fault, &mut |_| {});
        }
        self.relay.close(client_gone, error);
    }
}

/// An end that is none is told by whoever sees the bytes end.
fn look(event: Event<'_>, relay: &mut Relay) {
    let cut = Event::Ended { reason: EndReason::Cut };
    if event != cut {
        relay.pass(event, &mut |_| {});
    }
}
