//! The reply of the passthrough lane: the provider's bytes, read by a tap while they pass. The
//! gateway adds bytes only for a keep-alive, an error, the model's name, or what a server left out
//! although its dialect requires it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use throughline_canonical::Fault;
use throughline_codec::framing::encoding::{Decoder, EncodingError};
use throughline_codec::json::EndDetector;
use tracing::Span;

use crate::reply::ReplyTransform;
use crate::reply::edits::{Edits, ReplyEdit};
use crate::turn::ledger::Closing;

/// Reads a reply while it passes. It never delays a byte.
pub(crate) trait Tap: fmt::Debug + Send {
    /// Reads the next bytes.
    fn push(&mut self, bytes: &[u8]);
    /// Whether the reply has ended.
    fn ended(&self) -> bool;
    /// Handles the end of the bytes. Returns whether the reply is complete.
    fn ends(&mut self) -> bool {
        self.ended()
    }
    /// A keep-alive for the client. Empty if none can be sent now.
    fn keep_alive(&mut self) -> Bytes;
    /// The bytes that report a fault to the client.
    fn error(&self, fault: &Fault) -> Vec<u8>;
    /// Records the end of the reply.
    fn finish(&mut self, closing: Closing);
}

/// The compression of a reply.
#[derive(Debug)]
pub(crate) enum ReplyEncoding {
    /// Not compressed.
    Plain,
    /// Compressed in a known way.
    Known(Decoder),
    /// Compressed in an unknown way.
    Unknown,
}

/// The reply of the passthrough lane.
#[derive(Debug)]
pub(crate) struct PassthroughReply {
    tap: Option<Box<dyn Tap>>,
    decompressor: Option<Decompressor>,
    edits: Edits,
    /// Whether bytes may be added to the provider's.
    can_inject: bool,
    /// Whether the reply is only complete after its last event.
    needs_last_event: bool,
    /// How much of a JSON reply has arrived. Many servers end the body cleanly when they fail.
    json: Option<EndDetector>,
    /// Whether the bytes cannot be read.
    unread: bool,
    /// The span of the turn.
    span: Span,
}

/// The format of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A stream of events.
    Events,
    /// One JSON text.
    Json,
    /// Anything else.
    Other,
}

/// Decompresses a reply so that it can be read.
#[derive(Debug)]
struct Decompressor {
    decoder: Decoder,
    /// Whether the client also gets it decompressed.
    for_client: bool,
}

impl PassthroughReply {
    /// A reply that is not read.
    pub(crate) fn unread() -> Self {
        Self::new(None, Shape::Other, ReplyEncoding::Plain, Vec::new())
    }

    /// A reply with a tap. A compressed reply is decompressed for the client if it is edited.
    pub(crate) fn new(
        tap: Option<Box<dyn Tap>>,
        shape: Shape,
        encoding: ReplyEncoding,
        mut edits: Vec<Box<dyn ReplyEdit>>,
    ) -> Self {
        let events = shape == Shape::Events;
        let readable = !matches!(encoding, ReplyEncoding::Unknown);
        if !readable {
            edits.clear();
        }
        let decompressor = match encoding {
            ReplyEncoding::Known(decoder) => {
                Some(Decompressor { decoder, for_client: !edits.is_empty() })
            }
            ReplyEncoding::Plain | ReplyEncoding::Unknown => None,
        };
        let can_inject = match &decompressor {
            Some(decompressor) => events && decompressor.for_client,
            None => events && readable,
        };
        Self {
            decompressor,
            edits: Edits::new(edits, events),
            can_inject,
            needs_last_event: events && readable && tap.is_some(),
            json: (shape == Shape::Json && readable).then(EndDetector::default),
            unread: !readable,
            span: Span::current(),
            tap,
        }
    }

    /// Whether a JSON reply ends before it is complete.
    fn is_half(&self) -> bool {
        self.json.as_ref().is_some_and(|json| !json.is_complete())
    }
}

impl ReplyTransform<Bytes> for PassthroughReply {
    fn take(&mut self, bytes: Bytes, last: bool) -> Result<Bytes, EncodingError> {
        let decompressed = match &mut self.decompressor {
            None => None,
            Some(decompressor) => match decompressor.decoder.push(&bytes) {
                Ok(plain) => Some(Bytes::from(plain)),
                Err(error) if decompressor.for_client => return Err(error),
                Err(error) => {
                    let _entered = self.span.enter();
                    // The client may still be able to read it.
                    tracing::warn!(%error, "cannot decompress the reply, so its thinking is not remembered");
                    self.decompressor = None;
                    self.needs_last_event = false;
                    self.json = None;
                    self.unread = true;
                    return Ok(bytes);
                }
            },
        };
        let plain = decompressed.as_ref().unwrap_or(&bytes);
        if let Some(json) = &mut self.json {
            json.push(plain);
        }
        let half = last && self.is_half();
        if let Some(tap) = &mut self.tap
            && !self.unread
        {
            tap.push(plain);
            // The client may send its next request right after the last byte. The blocks must be
            // known by then.
            let last = !self.can_inject && last && !half;
            if last && (!self.needs_last_event || tap.ended()) {
                tap.finish(Closing::Ended);
            }
        }
        let mut bytes = match (&self.decompressor, decompressed) {
            (Some(decompressor), Some(plain)) if decompressor.for_client => self.edits.push(plain),
            (Some(_), _) => bytes,
            (None, _) => self.edits.push(bytes),
        };
        if half {
            // Hold the last byte back: after it the client would not notice the error.
            bytes.truncate(bytes.len().saturating_sub(1));
        }
        Ok(bytes)
    }

    fn end(&mut self) -> Option<Bytes> {
        let ends = self.tap.as_mut().is_none_or(|tap| tap.ends());
        let whole = (ends || !self.needs_last_event) && !self.is_half();
        whole.then(|| {
            if let Some(tap) = &mut self.tap {
                tap.finish(Closing::Ended);
            }
            self.edits.finish()
        })
    }

    fn keep_alive(&mut self, _: Duration) -> Bytes {
        match &mut self.tap {
            // The keep-alive gets a number like the events around it.
            Some(tap) if !self.edits.holds() => self.edits.push(tap.keep_alive()),
            _ => Bytes::new(),
        }
    }

    fn fail(&mut self, fault: &Fault, closing: Closing) -> Option<Bytes> {
        let tap = self.tap.as_mut()?;
        let ended = tap.ends();
        let event = tap.error(fault);
        tap.finish(closing);
        if ended && !self.is_half() {
            return Some(Bytes::new());
        }
        self.can_inject.then(|| {
            let mut bytes = self.edits.push(event.into()).to_vec();
            bytes.extend_from_slice(&self.edits.finish());
            bytes.into()
        })
    }

    fn held(&mut self) -> Bytes {
        self.edits.unedited()
    }

    fn client_gone(&mut self) {
        if let Some(tap) = &mut self.tap {
            tap.finish(Closing::ClientGone);
        }
    }

    fn can_inject(&self) -> bool {
        self.can_inject
    }

    fn keeps_length(&self) -> bool {
        matches!(self.edits, Edits::No) && !self.needs_last_event
    }
}
