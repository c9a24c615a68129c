//! A streamed reply on its way from one dialect to another.

use std::fmt;

use bytes::Bytes;
use throughline_canonical::Fault;
use throughline_codec::dialects::{ReplyReader, ReplyWriter};
use throughline_codec::framing::encoding::{Decoder, EncodingError};

use super::relay::Relay;
use crate::reply::Passage;

/// A streamed reply.
pub(crate) struct Across {
    pub(crate) decoder: Option<Decoder>,
    pub(crate) reader: Box<dyn ReplyReader>,
    pub(crate) relay: Relay,
    pub(crate) writer: Box<dyn ReplyWriter>,
}

impl fmt::Debug for Across {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Across({:?})", self.relay)
    }
}

impl Passage for Across {
    fn take(&mut self, bytes: Bytes, last: bool) -> Result<Bytes, EncodingError> {
        let plain = match &mut self.decoder {
            Some(decoder) => Bytes::from(decoder.push(&bytes)?),
            None => bytes,
        };
        self.relay.ledger.receive(&plain);
        let mut out = Vec::with_capacity(plain.len() * 2);
        let (relay, writer) = (&mut self.relay, &mut self.writer);
        self.reader.push(&plain, &mut |event| {
            relay.pass(event, &mut |event| writer.push(event, &mut out));
        });
        // A client that has the last byte may come back at once; by then the turn must be known.
        if last && self.relay.has_ended() {
            self.relay.close(false, None);
        }
        Ok(out.into())
    }

    fn end(&mut self) -> Option<Bytes> {
        let mut out = Vec::new();
        let (relay, writer) = (&mut self.relay, &mut self.writer);
        self.reader.finish(&mut |event| {
            relay.pass(event, &mut |event| writer.push(event, &mut out));
        });
        self.relay.close(false, None);
        Some(out.into())
    }

    fn sign_of_life(&mut self) -> Bytes {
        let mut out = Vec::new();
        self.writer.keep_alive(&mut out);
        if !out.is_empty() {
            self.relay.ledger.counters.keep_alives.add(1);
        }
        out.into()
    }

    fn give_up(&mut self, fault: &Fault) -> Option<Bytes> {
        let mut out = Vec::new();
        let (relay, writer) = (&mut self.relay, &mut self.writer);
        relay.break_off(fault, &mut |event| writer.push(event, &mut out));
        self.relay.close(false, Some(fault.message.clone()));
        Some(out.into())
    }

    fn leave(&mut self) {
        self.relay.close(true, None);
    }

    fn may_add(&self) -> bool {
        true
    }

    fn keeps_length(&self) -> bool {
        false
    }
}
