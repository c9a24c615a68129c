//! The streamed reply of the translate lane.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use throughline_canonical::Fault;
use throughline_codec::dialects::{ReplyReader, ReplyWriter};
use throughline_codec::framing::encoding::{Decoder, EncodingError};

use crate::relay::Relay;
use crate::reply::ReplyTransform;

/// The capacity of the output buffer between two reads. Single events need no more, and an idle
/// stream should use little memory.
const MAX_IDLE_CAPACITY: usize = 4 << 10;

/// A streamed reply that is translated from one dialect to another.
pub(crate) struct TranslatedReply {
    decoder: Option<Decoder>,
    reader: Box<dyn ReplyReader>,
    relay: Relay,
    writer: Box<dyn ReplyWriter>,
    /// Written bytes that were not sent yet.
    out: Vec<u8>,
}

impl TranslatedReply {
    /// Starts a translated reply.
    pub(crate) fn new(
        decoder: Option<Decoder>,
        reader: Box<dyn ReplyReader>,
        relay: Relay,
        writer: Box<dyn ReplyWriter>,
    ) -> Self {
        Self { decoder, reader, relay, writer, out: Vec::new() }
    }

    /// Takes the written bytes. Copies a small buffer and keeps it; hands over a large one.
    fn written(&mut self) -> Bytes {
        if self.out.capacity() > MAX_IDLE_CAPACITY {
            return std::mem::take(&mut self.out).into();
        }
        let written = Bytes::copy_from_slice(&self.out);
        self.out.clear();
        written
    }
}

impl fmt::Debug for TranslatedReply {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "TranslatedReply({:?})", self.relay)
    }
}

impl ReplyTransform for TranslatedReply {
    fn take(&mut self, bytes: Bytes, last: bool) -> Result<Bytes, EncodingError> {
        let plain = match &mut self.decoder {
            Some(decoder) => Bytes::from(decoder.push(&bytes)?),
            None => bytes,
        };
        self.relay.ledger.record_bytes(&plain);
        self.out.reserve(plain.len() * 2);
        let (relay, writer, out) = (&mut self.relay, &mut self.writer, &mut self.out);
        self.reader.push(&plain, &mut |event| {
            relay.pass(event, &mut |event| writer.push(event, out));
        });
        // The client may send its next request right after the last byte. The turn must be known by
        // then.
        if last && self.relay.has_ended() {
            self.relay.finish_reading(self.reader.as_ref());
            self.relay.close(false, None);
        }
        Ok(self.written())
    }

    fn end(&mut self) -> Option<Bytes> {
        let (relay, writer, out) = (&mut self.relay, &mut self.writer, &mut self.out);
        self.reader.finish(&mut |event| {
            relay.pass(event, &mut |event| writer.push(event, out));
        });
        self.relay.finish_reading(self.reader.as_ref());
        self.relay.close(false, None);
        Some(self.written())
    }

    fn keep_alive(&mut self, silent: Duration) -> Bytes {
        self.writer.wait(silent, &mut self.out);
        if !self.out.is_empty() {
            self.relay.ledger.counters.keep_alives.add(1);
        }
        self.written()
    }

    fn fail(&mut self, fault: &Fault) -> Option<Bytes> {
        let (relay, writer, out) = (&mut self.relay, &mut self.writer, &mut self.out);
        relay.fail(fault, &mut |event| writer.push(event, out));
        self.relay.close(false, Some(fault.message.clone()));
        Some(self.written())
    }

    fn client_gone(&mut self) {
        self.relay.close(true, None);
    }

    fn can_inject(&self) -> bool {
        true
    }

    fn keeps_length(&self) -> bool {
        false
    }
}
