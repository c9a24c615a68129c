//! The reply of the translate lane: the provider's bytes become canonical events, and these become
//! bytes of the client's dialect or stay events.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use throughline_canonical::{EndReason, Event, Fault, Loss};
use throughline_codec::dialects::{ClientDialect, ReplyReader, ReplyWriter};
use throughline_codec::framing::encoding::{Decoder, EncodingError};

use crate::relay::Relay;
use crate::reply::raw::RawCapture;
use crate::reply::{Output, ReplyTransform};
use crate::turn::ledger::Closing;

/// The capacity of the output buffer between two reads. Single events need no more, and an idle
/// stream should use little memory.
const MAX_IDLE_CAPACITY: usize = 4 << 10;

/// Takes the events of a reply.
pub(crate) trait EventSink: Send {
    /// What the events become.
    type Out: Output;
    /// Takes the next event.
    fn push(&mut self, event: &Event<'_>);
    /// Makes room for events from this many bytes.
    fn reserve(&mut self, _bytes: usize) {}
    /// Reports a silence of this length.
    fn keep_alive(&mut self, silent: Duration);
    /// The fault among the events, if the sink keeps it.
    fn fault(&self) -> Option<&Fault> {
        None
    }
    /// Reports the end of the reply, after the turn was recorded.
    fn close(&mut self, _losses: &[Loss], _summary: bool) {}
    /// Hands over the output so far.
    fn take(&mut self) -> Self::Out;
}

/// Writes events in the client's dialect.
pub(crate) struct Encoder {
    writer: Box<dyn ReplyWriter>,
    /// Written bytes that were not sent yet.
    out: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(writer: Box<dyn ReplyWriter>) -> Self {
        Self { writer, out: Vec::new() }
    }
}

impl EventSink for Encoder {
    type Out = Bytes;

    fn push(&mut self, event: &Event<'_>) {
        self.writer.push(event, &mut self.out);
    }

    fn reserve(&mut self, bytes: usize) {
        self.out.reserve(bytes * 2);
    }

    fn keep_alive(&mut self, silent: Duration) {
        self.writer.wait(silent, &mut self.out);
    }

    /// Copies a small buffer and keeps it; hands over a large one.
    fn take(&mut self) -> Bytes {
        if self.out.capacity() > MAX_IDLE_CAPACITY {
            return std::mem::take(&mut self.out).into();
        }
        let written = Bytes::copy_from_slice(&self.out);
        self.out.clear();
        written
    }
}

/// Reads the provider's bytes and relays their events.
pub(crate) struct EventSource {
    pub(crate) decoder: Option<Decoder>,
    pub(crate) reader: Box<dyn ReplyReader>,
    pub(crate) relay: Relay,
    /// Captures the reply, if the caller stores it.
    pub(crate) raw: Option<RawCapture>,
    /// Whether the model's thinking is a summary, if the reply does not say.
    pub(crate) summarizes: bool,
    /// The client's dialect, if the client waits for the whole reply. Then a fault decides the
    /// status.
    pub(crate) whole: Option<&'static dyn ClientDialect>,
}

/// A reply that is translated from one dialect to another.
pub(crate) struct TranslatedReply<S> {
    source: EventSource,
    sink: S,
}

impl<S: EventSink> TranslatedReply<S> {
    /// Starts a translated reply.
    pub(crate) fn new(source: EventSource, sink: S) -> Self {
        Self { source, sink }
    }

    /// Records the end of the turn.
    fn close(&mut self, closing: Closing) {
        let EventSource { reader, relay, summarizes, whole, .. } = &mut self.source;
        if relay.is_closed() {
            return;
        }
        if let (Some(dialect), Some(fault)) = (whole, self.sink.fault()) {
            relay.ledger.turn.lock().status = dialect.write_fault(fault, "").0;
            if !matches!(closing, Closing::Stopped(_)) {
                relay.ledger.progress.end = Some(EndReason::Failed);
            }
        }
        relay.finish_reading(reader.as_ref());
        relay.close(closing);
        let losses = relay.ledger.turn.lock().losses.clone();
        self.sink.close(&losses, reader.summarizes().unwrap_or(*summarizes));
    }
}

impl<S> fmt::Debug for TranslatedReply<S> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TranslatedReply({:?})", self.source.relay)
    }
}

impl<S: EventSink> ReplyTransform<S::Out> for TranslatedReply<S> {
    fn take(&mut self, bytes: Bytes, last: bool) -> Result<S::Out, EncodingError> {
        let EventSource { decoder, reader, relay, raw, .. } = &mut self.source;
        let plain = match decoder {
            Some(decoder) => Bytes::from(decoder.push(&bytes)?),
            None => bytes,
        };
        relay.ledger.record_bytes(&plain);
        if let Some(raw) = raw {
            raw.push(&plain);
        }
        let sink = &mut self.sink;
        sink.reserve(plain.len());
        reader.push(&plain, &mut |event| relay.push(event, &mut |event| sink.push(event)));
        // The client may send its next request right after the last byte. The turn must be known by
        // then.
        if last && relay.has_ended() {
            self.close(Closing::Ended);
        }
        Ok(self.sink.take())
    }

    fn end(&mut self) -> Option<S::Out> {
        let (EventSource { reader, relay, .. }, sink) = (&mut self.source, &mut self.sink);
        reader.finish(&mut |event| relay.push(event, &mut |event| sink.push(event)));
        self.close(Closing::Ended);
        Some(self.sink.take())
    }

    fn keep_alive(&mut self, silent: Duration) -> S::Out {
        self.sink.keep_alive(silent);
        let out = self.sink.take();
        if !out.is_empty() {
            self.source.relay.ledger.record.metrics.keep_alives.increment();
        }
        out
    }

    fn fail(&mut self, fault: &Fault, closing: Closing) -> Option<S::Out> {
        let sink = &mut self.sink;
        self.source.relay.fail(fault, &mut |event| sink.push(event));
        self.close(closing);
        Some(self.sink.take())
    }

    fn client_gone(&mut self) {
        let EventSource { reader, relay, whole, .. } = &mut self.source;
        if relay.is_closed() {
            return;
        }
        if whole.is_some() {
            // The client has received nothing.
            relay.ledger.turn.lock().status = 0;
        }
        relay.finish_reading(reader.as_ref());
        relay.close(Closing::ClientGone);
    }

    fn can_inject(&self) -> bool {
        true
    }

    fn keeps_length(&self) -> bool {
        false
    }
}
