//! Creates a response: decides how to handle its state, runs the turn, and stores the result.
//! Background runs are in `run`.

use std::sync::Arc;

use bytes::Bytes;
use http_body::Frame;
use serde_json::Value;
use throughline_canonical::Fault;
use throughline_codec::dialects::openai_responses::state::{
    Recorder, StatefulRequest, mark_unstored,
};
use throughline_codec::dialects::{Accepted, Operation, ReplyIdentity, openai_responses};
use throughline_gateway::backend::credential_fingerprint;
use throughline_gateway::headers::callers_key;
use throughline_gateway::reply::ReplyBody;
use throughline_gateway::thinking::random;
use throughline_gateway::turn::request::{check_json, decompress_body};
use throughline_gateway::turn::turn_reply::UnreadReply;
use throughline_gateway::{IncomingRequest, reply_identity};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tracing::Instrument;

use super::Responses;
use super::history::{History, only_backend_has_reasoning};
use super::recording::{Recording, ReplyEvents, not_stored};
use super::stored::{Ownership, RunChange, StoredResponse, nothing_stored};
use crate::body::{Answer, drop_body_headers, json, live, plain};
use crate::copy::MAX_WAITING_PIECES;

/// How a request is handled.
enum Handling {
    /// The turn needs no state and nothing is stored.
    Plain,
    /// A backend of the dialect has the state. A copy is stored here.
    AtBackend(Turn),
    /// The gateway has the state and sends the whole history.
    Here(Box<PreparedTurn>),
}

/// A turn with its whole history.
struct PreparedTurn {
    turn: Turn,
    accepted: Accepted,
    recorder: Recorder,
    background: bool,
    streams: bool,
    /// Whether the response is stored.
    store: bool,
}

/// What is stored about a turn, except its response.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) ownership: Ownership,
    pub(super) input: Vec<Value>,
}

impl Turn {
    pub(super) fn into_stored(
        self,
        response: Value,
        native: Option<String>,
        background: bool,
    ) -> StoredResponse {
        StoredResponse { input: self.input, response, native, background, deleted: false }
    }
}

impl Responses {
    /// Answers a request for a response or for its token count.
    pub async fn create(
        self: &Arc<Self>,
        mut incoming: IncomingRequest,
        raw: Bytes,
        permit: OwnedSemaphorePermit,
    ) -> Answer {
        let prepared = match self.choose_handling(&incoming, &raw).instrument(incoming.span()).await
        {
            Ok(Handling::Plain) => return plain(self.gateway.turn(incoming, raw, permit).await),
            Ok(Handling::AtBackend(turn)) => {
                let reply = self.gateway.turn(incoming, raw, permit).await;
                return self.forward_and_copy(reply, turn);
            }
            Ok(Handling::Here(prepared)) => *prepared,
            Err(fault) => return plain(self.gateway.reject(&incoming, &fault)),
        };
        drop_body_headers(&mut incoming);
        let PreparedTurn { turn, accepted, recorder, background, streams, store } = prepared;
        if incoming.dialect.operation(&incoming.path) == Some(Operation::CountTokens) {
            return plain(self.gateway.turn(incoming, accepted, permit).await);
        }
        if background {
            return self.begin(incoming, accepted, permit, turn, recorder, streams).await;
        }
        let turn = store.then_some(turn);
        match self.gateway.turn_events(incoming, accepted, permit).await {
            Err(finished) => plain(finished.reply),
            Ok(reply) if streams => self.stream(reply, recorder, turn),
            Ok(reply) => self.whole(reply, &recorder, turn).await,
        }
    }

    fn read_stateful(
        &self,
        incoming: &IncomingRequest,
        raw: &Bytes,
    ) -> Result<StatefulRequest, Fault> {
        let settings = self.gateway.settings();
        let body = decompress_body(&settings, &incoming.headers, raw)?;
        StatefulRequest::read(&body, settings.limits.json_depth).map_err(|fault| {
            // A backend could still read what we cannot, and continue the response of another owner.
            check_json(&settings, &body).err().unwrap_or(fault)
        })
    }

    async fn choose_handling(
        &self,
        incoming: &IncomingRequest,
        raw: &Bytes,
    ) -> Result<Handling, Fault> {
        let request = self.read_stateful(incoming, raw)?;
        let counts = incoming.dialect.operation(&incoming.path) == Some(Operation::CountTokens);
        let store = request.store() && !counts && self.stores_responses();
        if !store && !request.needs_state() {
            return Ok(Handling::Plain);
        }
        request.check()?;
        let owner = credential_fingerprint(&callers_key(incoming));
        let backend = self.gateway.backend_for(incoming.pin.as_deref(), request.model())?;
        let native = backend.dialect.name() == openai_responses::NAME;
        let before = self.history(&owner, &request).await?;
        let references = request.references();
        let found = self.items(&owner, &references).await?;
        let pointed = references.iter().any(|id| found.contains_key(*id));
        // Many servers of the dialect store nothing and run nothing in the background. So history
        // that is stored here is sent, and background responses run here. Only unknown history may
        // be stored at the backend, and only if it stores anything: another one would ignore the id
        // and answer from the newest message alone.
        let waits_here = request.background() && self.stores_responses();
        let keeps = || self.gateway.keeps_responses(&backend);
        let at_backend = native
            && match &before {
                History::Nothing => !waits_here && !pointed && (references.is_empty() || keeps()),
                History::Unknown(_) => keeps(),
                History::Known { turns, .. } => {
                    !waits_here
                        && !counts
                        && only_backend_has_reasoning(turns, &backend.name)
                        && keeps()
                }
            };
        let mut ownership = Ownership {
            owner: owner.clone(),
            parent: request.previous().map(str::to_owned),
            conversation: request.conversation().map(str::to_owned),
        };
        let mut id = random::id;
        if at_backend {
            if !store {
                return Ok(Handling::Plain);
            }
            // Only the backend knows the history, so a copy would begin in the middle.
            if let History::Unknown(_) = before {
                return Ok(Handling::Plain);
            }
            let input = request.items(&found, &mut id);
            return Ok(Handling::AtBackend(Turn { ownership, input }));
        }
        if request.background() && !waits_here {
            return Err(nothing_stored("background"));
        }
        let turns = match before {
            History::Nothing => Vec::new(),
            History::Unknown(fault) => return Err(fault),
            History::Known { turns, head } => {
                ownership.parent = head;
                turns
            }
        };
        let input = request.items(&found, &mut id);
        let history = turns.into_iter().flat_map(StoredResponse::into_items).collect();
        let (background, streams) = (request.background(), request.streams());
        let stateful_turn = request.with_history(history, &input, streams || background)?;
        Ok(Handling::Here(Box::new(PreparedTurn {
            turn: Turn { ownership, input },
            recorder: stateful_turn.recorder(&new_identity()),
            accepted: stateful_turn.accepted,
            background,
            streams,
            store,
        })))
    }

    /// Whether anything is stored at all.
    pub(super) fn stores_responses(&self) -> bool {
        !self.retention.is_zero() && self.sealed_store.has_room()
    }

    /// Sends a reply as a stream of events, and stores it if there is a `turn`.
    fn stream(
        self: &Arc<Self>,
        reply: UnreadReply,
        recorder: Recorder,
        turn: Option<Turn>,
    ) -> Answer {
        let (send, mut receive) = mpsc::channel(MAX_WAITING_PIECES);
        let pieces = futures_util::stream::poll_fn(move |context| receive.poll_recv(context));
        let answer = reply.head.stream(live(pieces));
        let reply = ReplyEvents::new(reply, recorder);
        let mut recording = Recording::new(Arc::clone(self), reply, turn);
        tokio::spawn(async move {
            while let Some(events) = recording.next(send.closed()).await {
                let piece: String = events.into_iter().map(|event| event.text).collect();
                // A client that has disconnected ends the loop.
                let _ = send.send(Ok(Frame::data(piece.into()))).await;
            }
        });
        answer
    }

    /// Sends a reply as one JSON object, and stores it if there is a `turn`.
    async fn whole(
        self: &Arc<Self>,
        reply: UnreadReply,
        recorder: &Recorder,
        turn: Option<Turn>,
    ) -> Answer {
        let (mut head, folded) = reply.fold().await;
        let reply = match folded {
            Ok(reply) => reply,
            Err(fault) => return plain(head.error(&fault)),
        };
        let mut body = recorder.whole(&reply);
        if let Some(turn) = turn
            && let Ok(mut response) = serde_json::from_slice::<Value>(&body)
        {
            // A task of its own, so that a client that leaves now does not stop it.
            let (this, to_store) = (Arc::clone(self), response.clone());
            let stored = async move { this.store_response(to_store, turn, None).await };
            let stored = tokio::spawn(stored.instrument(head.span()));
            if !stored.await.unwrap_or(false) {
                head.add_loss(not_stored());
                mark_unstored(&mut response);
                body = response.to_string().into_bytes();
            }
        }
        plain(head.whole(ReplyBody::whole(body)))
    }

    /// Stores a response. Returns false if the store failed.
    pub(super) async fn store_response(
        self: &Arc<Self>,
        response: Value,
        turn: Turn,
        native: Option<String>,
    ) -> bool {
        let Some(id) = response.get("id").and_then(Value::as_str) else {
            return true;
        };
        let (id, ownership) = (id.to_owned(), turn.ownership.clone());
        // A backend may reuse an id of another owner.
        if native.is_some()
            && !matches!(self.sealed_store.is_foreign(&ownership.owner, &id).await, Ok(false))
        {
            tracing::warn!(
                response = id,
                "not storing the response: its id belongs to another owner"
            );
            return true;
        }
        let stored = turn.into_stored(response, native, false);
        if self.store_turn(&id, &ownership, &stored, RunChange::None).await.is_ok() {
            return true;
        }
        self.store_health().record_dropped(1, &format!("the response `{id}`"));
        // The conversation must not go on without this turn.
        if let Some(conversation) = ownership.conversation {
            self.mark_incomplete(ownership.owner, conversation);
        }
        false
    }

    /// Starts a response in the background.
    async fn begin(
        self: &Arc<Self>,
        incoming: IncomingRequest,
        accepted: Accepted,
        permit: OwnedSemaphorePermit,
        turn: Turn,
        recorder: Recorder,
        streams: bool,
    ) -> Answer {
        let queued = recorder.queued("queued");
        let run = match self.start(incoming, accepted, permit, turn, recorder).await {
            Ok(run) => run,
            Err(reply) => return reply,
        };
        match streams {
            true => crate::body::events(run.follow(None)),
            false => json(&queued),
        }
    }
}

/// The identity of a new response.
pub(super) fn new_identity() -> ReplyIdentity {
    reply_identity(random::id())
}
