//! Message threads of the Anthropic dialect, with any backend.
//!
//! A client creates a thread with a whole conversation and then sends only new messages. The thread
//! is stored here and is never sent to a backend: each gets the whole conversation, as from a client
//! that sends it ([decision 12](../../../../docs/decisions/0012-threads-are-ours.md)).
//!
//! Start at [`Threads::turn`]. `stored` has the contents of the store.

mod stored;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::Operation;
use throughline_codec::dialects::anthropic::threads::{
    MessageReader, ThreadAction, ThreadRequest, ThreadTurn, in_flight,
};
use throughline_gateway::backend::credential_fingerprint;
use throughline_gateway::headers::callers_key;
use throughline_gateway::turn::request::decompress_body;
use throughline_gateway::{Gateway, IncomingRequest};
use tokio::sync::OwnedSemaphorePermit;
use tracing::Instrument;

use self::stored::{MessageKey, NewTurn};
use crate::body::{Answer, drop_body_headers, plain};
use crate::copy::{ReplyCopy, forward_and_copy, is_streamed};
use crate::sealed_store::SealedStore;

/// Stored threads.
#[derive(Debug)]
pub struct Threads {
    gateway: Arc<Gateway>,
    sealed_store: Arc<SealedStore>,
    /// How long a thread is stored after its last turn.
    retention: Duration,
    /// Messages that are being continued.
    in_flight: Arc<Mutex<HashSet<MessageKey>>>,
}

/// A request with the whole conversation of its thread.
struct ExpandedRequest {
    body: Bytes,
    /// What is stored with its reply.
    turn: Option<(NewTurn, Option<InFlight>)>,
}

/// A message that is being continued, as long as this value lives.
struct InFlight {
    message: MessageKey,
    all: Arc<Mutex<HashSet<MessageKey>>>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.all.lock().remove(&self.message);
    }
}

impl Threads {
    /// Threads with a store.
    pub fn new(gateway: Arc<Gateway>, sealed_store: Arc<SealedStore>, retention: Duration) -> Self {
        Self { gateway, sealed_store, retention, in_flight: Arc::default() }
    }

    /// Answers a request for a message or for its token count.
    pub async fn turn(
        self: &Arc<Self>,
        mut incoming: IncomingRequest,
        raw: Bytes,
        permit: OwnedSemaphorePermit,
    ) -> Answer {
        let generates = incoming.dialect.operation(&incoming.path) == Some(Operation::Generate);
        let stores = generates && self.stores_threads();
        let expanded = match self.read(&incoming, &raw, stores).instrument(incoming.span()).await {
            Ok(Some(expanded)) => expanded,
            Ok(None) => return plain(self.gateway.turn(incoming, raw, permit).await),
            Err(fault) => return plain(self.gateway.reject(&incoming, &fault)),
        };
        drop_body_headers(&mut incoming);
        let reply = self.gateway.turn(incoming, expanded.body, permit).await;
        let Some((turn, in_flight)) = expanded.turn.filter(|_| reply.status().is_success()) else {
            return plain(reply);
        };
        let copy = MessageCopy {
            threads: Arc::clone(self),
            reader: MessageReader::new(is_streamed(&reply)),
            turn,
            _in_flight: in_flight,
        };
        forward_and_copy(reply, copy)
    }

    /// A request with the whole conversation of its thread, for a report. Nothing is stored.
    pub async fn expand(&self, incoming: &mut IncomingRequest, raw: Bytes) -> Result<Bytes, Fault> {
        match self.read(incoming, &raw, false).await? {
            Some(expanded) => {
                drop_body_headers(incoming);
                Ok(expanded.body)
            }
            None => Ok(raw),
        }
    }

    /// Reads a request and loads its thread. `None` if it names none. `stores` says whether its reply
    /// becomes a part of the thread.
    async fn read(
        &self,
        incoming: &IncomingRequest,
        raw: &Bytes,
        stores: bool,
    ) -> Result<Option<ExpandedRequest>, Fault> {
        let settings = self.gateway.settings();
        let body = decompress_body(&settings, &incoming.headers, raw)?;
        if !ThreadRequest::is_likely(&body) {
            return Ok(None);
        }
        let Some(request) = ThreadRequest::read(&body, settings.limits.json_depth)? else {
            return Ok(None);
        };
        let owner = credential_fingerprint(&callers_key(incoming));
        let messages = || ThreadTurn { messages: request.messages(), ..ThreadTurn::default() };
        let previous = match &request.action {
            ThreadAction::Create => {
                let turn =
                    stores.then(|| (NewTurn::first(owner, request.base(), messages()), None));
                return Ok(Some(ExpandedRequest { body: request.without_thread().into(), turn }));
            }
            ThreadAction::Continue { previous } => MessageKey::new(&owner, previous),
        };
        let in_flight = match stores {
            true => Some(self.begin(&previous)?),
            false => None,
        };
        let history = self.history(&previous).await?;
        request.check_continue(&history.base, history.turns.last())?;
        let body = request.with_history(&history.base, &history.turns);
        let limit = settings.limits.body;
        if body.len() > limit {
            return Err(Fault::new(
                FaultKind::TooLarge,
                format!(
                    "the conversation is larger than {limit} bytes; `limits.body` sets the limit"
                ),
            ));
        }
        let turn = stores.then(|| (NewTurn::next(previous, history.thread, messages()), in_flight));
        Ok(Some(ExpandedRequest { body: body.into(), turn }))
    }

    /// Marks a message as being continued.
    fn begin(&self, message: &MessageKey) -> Result<InFlight, Fault> {
        if !self.in_flight.lock().insert(message.clone()) {
            return Err(in_flight(&message.id));
        }
        Ok(InFlight { message: message.clone(), all: Arc::clone(&self.in_flight) })
    }

    /// Whether threads are stored at all.
    fn stores_threads(&self) -> bool {
        !self.retention.is_zero() && self.sealed_store.has_room()
    }
}

/// A message on its way to the client.
struct MessageCopy {
    threads: Arc<Threads>,
    reader: MessageReader,
    turn: NewTurn,
    _in_flight: Option<InFlight>,
}

impl ReplyCopy for MessageCopy {
    fn push(&mut self, piece: &[u8]) {
        self.reader.push(piece);
    }

    fn has_ended(&self) -> bool {
        self.reader.has_ended()
    }

    async fn store(self, _: bool) {
        // A message that is not stored cannot be continued, and its client sends everything again.
        if let Some(message) = self.reader.message() {
            self.threads.store(self.turn, message).await;
        }
    }
}
