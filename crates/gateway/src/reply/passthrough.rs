//! The provider's bytes as they arrive, read beside; and, only where nothing else would help, a sign
//! of life, an error, or the model's name as the client knows it.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use throughline_canonical::Fault;
use throughline_codec::framing::encoding::{Decoder, EncodingError};
use throughline_codec::json::EndDetector;

use crate::reply::ReplyTransform;
use crate::reply::model_name::{ModelAlias, RewriteModelName};

/// What reads a reply beside its way. It never holds up a byte.
pub(crate) trait Tap: fmt::Debug + Send {
    /// Takes the next bytes of the reply.
    fn push(&mut self, bytes: &[u8]);
    /// Whether the reply has come to its end.
    fn ended(&self) -> bool;
    /// The bytes have ended; whether that is the end of the reply.
    fn ends(&mut self) -> bool {
        self.ended()
    }
    /// A sign of life for the client; empty where none can stand now.
    fn keep_alive(&mut self) -> Bytes;
    /// What tells the client that the reply cannot go on.
    fn error(&self, fault: &Fault) -> Vec<u8>;
    /// The reply is over. `client_gone` says that nobody waits for it any more.
    fn finish(&mut self, client_gone: bool, error: Option<String>);
}

/// How a reply is compressed.
#[derive(Debug)]
pub(crate) enum Encoded {
    /// Not at all.
    Plain,
    /// In a way that can be undone.
    Known(Decoder),
    /// In a way nobody here reads.
    Unknown,
}

/// A reply that passes through.
#[derive(Debug)]
pub(crate) struct Through {
    tap: Option<Box<dyn Tap>>,
    packed: Option<Packed>,
    rename: RewriteModelName,
    /// Whether bytes of ours may stand among the provider's.
    can_inject: bool,
    /// Whether an end is only good after the last event.
    needs_last_event: bool,
    /// How far a whole reply in JSON has come: many a server that breaks down ends its body cleanly.
    json: Option<EndDetector>,
    /// Whether what comes cannot be read.
    unread: bool,
}

/// What a reply consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A stream of events.
    Events,
    /// One text in JSON.
    Json,
    /// Anything else.
    Other,
}

/// A compressed reply, undone to be read.
#[derive(Debug)]
struct Packed {
    decoder: Decoder,
    /// Whether the client gets it undone as well.
    for_client: bool,
}

impl Through {
    /// Bytes nobody reads.
    pub(crate) fn unread() -> Self {
        Self::new(None, Shape::Other, Encoded::Plain, None)
    }

    /// A reply with a tap on it. Where names are to be changed, a compressed reply is undone for it.
    pub(crate) fn new(
        tap: Option<Box<dyn Tap>>,
        shape: Shape,
        encoding: Encoded,
        names: Option<ModelAlias>,
    ) -> Self {
        let events = shape == Shape::Events;
        let readable = !matches!(encoding, Encoded::Unknown);
        let names = names.filter(|_| readable);
        let packed = match encoding {
            Encoded::Known(decoder) => Some(Packed { decoder, for_client: names.is_some() }),
            Encoded::Plain | Encoded::Unknown => None,
        };
        let can_inject = match &packed {
            Some(packed) => events && packed.for_client,
            None => events && readable,
        };
        Self {
            packed,
            rename: RewriteModelName::new(names, events),
            can_inject,
            needs_last_event: events && readable && tap.is_some(),
            json: (shape == Shape::Json && readable).then(EndDetector::default),
            unread: !readable,
            tap,
        }
    }

    /// Whether a reply that is one text ends before that does.
    fn is_half(&self) -> bool {
        self.json.as_ref().is_some_and(|json| !json.is_complete())
    }
}

impl ReplyTransform for Through {
    fn take(&mut self, bytes: Bytes, last: bool) -> Result<Bytes, EncodingError> {
        let unpacked = match &mut self.packed {
            None => None,
            Some(packed) => match packed.decoder.push(&bytes) {
                Ok(plain) => Some(Bytes::from(plain)),
                Err(error) if packed.for_client => return Err(error),
                Err(error) => {
                    // It may be that the client reads it.
                    tracing::warn!(%error, "a compressed reply could not be read, its thinking is not remembered");
                    self.packed = None;
                    self.needs_last_event = false;
                    self.json = None;
                    self.unread = true;
                    return Ok(bytes);
                }
            },
        };
        let plain = unpacked.as_ref().unwrap_or(&bytes);
        if let Some(json) = &mut self.json {
            json.push(plain);
        }
        let half = last && self.is_half();
        if let Some(tap) = &mut self.tap
            && !self.unread
        {
            tap.push(plain);
            // A client that has the last byte may come back at once; by then its blocks must be
            // known.
            let last = !self.can_inject && last && !half;
            if last && (!self.needs_last_event || tap.ended()) {
                tap.finish(false, None);
            }
        }
        let mut bytes = match (&self.packed, unpacked) {
            (Some(packed), Some(plain)) if packed.for_client => self.rename.push(plain),
            (Some(_), _) => bytes,
            (None, _) => self.rename.push(bytes),
        };
        if half {
            // Behind the last byte that was promised no break would be seen.
            bytes.truncate(bytes.len().saturating_sub(1));
        }
        Ok(bytes)
    }

    fn end(&mut self) -> Option<Bytes> {
        let ends = self.tap.as_mut().is_none_or(|tap| tap.ends());
        let whole = (ends || !self.needs_last_event) && !self.is_half();
        whole.then(|| {
            if let Some(tap) = &mut self.tap {
                tap.finish(false, None);
            }
            self.rename.finish()
        })
    }

    fn keep_alive(&mut self, _: Duration) -> Bytes {
        match &mut self.tap {
            Some(tap) if !self.rename.holds() => tap.keep_alive(),
            _ => Bytes::new(),
        }
    }

    fn fail(&mut self, fault: &Fault) -> Option<Bytes> {
        let tap = self.tap.as_mut()?;
        let ended = tap.ends();
        let event = tap.error(fault);
        tap.finish(false, Some(fault.message.clone()));
        if ended && !self.is_half() {
            return Some(Bytes::new());
        }
        self.can_inject.then(|| {
            let mut bytes = self.rename.finish().to_vec();
            bytes.extend_from_slice(&event);
            bytes.into()
        })
    }

    fn client_gone(&mut self) {
        if let Some(tap) = &mut self.tap {
            tap.finish(true, None);
        }
    }

    fn can_inject(&self) -> bool {
        self.can_inject
    }

    fn keeps_length(&self) -> bool {
        matches!(self.rename, RewriteModelName::No) && !self.needs_last_event
    }
}
