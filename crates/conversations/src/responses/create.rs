//! Creates a response: decides how to handle its state, runs the turn, and stores the result.
//! Background runs are in `run`.

use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body::Frame;
use http_body_util::BodyExt;
use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::openai_responses::state::{
    self, Progress, StatefulRequest, needs_its_maker, step,
};
use throughline_codec::dialects::{Operation, ReplyIdentity, openai_responses};
use throughline_codec::framing::sse::Framer;
use throughline_gateway::backend::credential_fingerprint;
use throughline_gateway::headers::{BACKEND, callers_key};
use throughline_gateway::reply::ReplyBody;
use throughline_gateway::thinking::random;
use throughline_gateway::turn::error_reply::Reply;
use throughline_gateway::turn::request::readable;
use throughline_gateway::upstream::BoxError;
use throughline_gateway::{IncomingRequest, unix_ms};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::Responses;
use super::body::{Answer, json, live, plain};
use super::stored::{Ancestry, Ownership, StoredResponse, is_plain, nothing_stored};

/// How many pieces of a reply may wait for a slow reader.
const MAX_WAITING_PIECES: usize = 32;
/// How many bytes of one event are read.
pub(super) const MAX_EVENT_BYTES: usize = 64 << 20;

/// Sends the pieces of a reply.
type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// How a request is handled.
enum Handling {
    /// The turn needs no state and nothing is stored.
    Plain,
    /// A backend of the dialect has the state. A copy is stored here.
    AtBackend(Turn),
    /// The gateway has the state and sends the whole history.
    Here {
        turn: Turn,
        body: Bytes,
        background: bool,
        streams: bool,
        /// Whether the response is stored.
        store: bool,
    },
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
        let (turn, body, background, streams, store) = match self
            .choose_handling(&incoming, &raw)
            .await
        {
            Ok(Handling::Plain) => return plain(self.gateway.turn(incoming, raw, permit).await),
            Ok(Handling::AtBackend(turn)) => {
                let reply = self.gateway.turn(incoming, raw, permit).await;
                return self.forward_and_store(reply, turn, true).await;
            }
            Ok(Handling::Here { turn, body, background, streams, store }) => {
                (turn, body, background, streams, store)
            }
            Err(fault) => return plain(self.gateway.reject(&incoming, &fault)),
        };
        assign_reply_id(&mut incoming);
        if incoming.dialect.operation(&incoming.path) == Some(Operation::CountTokens) {
            return plain(self.gateway.turn(incoming, body, permit).await);
        }
        if background {
            return self.begin(incoming, body, permit, turn, streams).await;
        }
        let reply = self.gateway.turn(incoming, body, permit).await;
        match store {
            true => self.forward_and_store(reply, turn, false).await,
            false => plain(reply),
        }
    }

    async fn choose_handling(
        &self,
        incoming: &IncomingRequest,
        raw: &Bytes,
    ) -> Result<Handling, Fault> {
        let settings = self.gateway.settings();
        let body = readable(&settings, &incoming.headers, raw)?;
        let Some(stated) = StatefulRequest::read(&body) else {
            return Ok(Handling::Plain);
        };
        let counts = incoming.dialect.operation(&incoming.path) == Some(Operation::CountTokens);
        let store = stated.store() && !counts && self.stores_responses();
        if !store && !stated.needs_state() {
            return Ok(Handling::Plain);
        }
        stated.check()?;
        let owner = credential_fingerprint(&callers_key(incoming));
        let backend = self.gateway.backend_for(incoming.pin.as_deref(), stated.model())?;
        let native = backend.dialect.name() == openai_responses::NAME;
        let before = self.history(&owner, &stated).await?;
        let references = stated.references();
        let found = self.items(&owner, &references).await?;
        let pointed = references.iter().any(|id| found.contains_key(*id));
        // Many servers of the dialect store nothing and run nothing in the background. So history
        // that is stored here is sent, and background responses run here. Only unknown history may
        // be stored at the backend.
        let waits_here = stated.background() && self.stores_responses();
        let at_backend = native
            && match &before {
                History::Nothing => !waits_here && !pointed,
                History::Unknown(_) => true,
                History::Known { turns, .. } => {
                    !waits_here && !counts && only_backend_has_reasoning(turns, &backend.name)
                }
            };
        let mut ownership = Ownership {
            owner: owner.clone(),
            parent: stated.previous().map(str::to_owned),
            conversation: stated.conversation().map(str::to_owned),
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
            let input = stated.items(&found, &mut id);
            return Ok(Handling::AtBackend(Turn { ownership, input }));
        }
        if stated.background() && !waits_here {
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
        let input = stated.items(&found, &mut id);
        let history: Vec<Value> = turns.iter().flat_map(StoredResponse::items).cloned().collect();
        let (background, streams) = (stated.background(), stated.streams());
        let body = stated.turn(&history, &input, streams || background);
        Ok(Handling::Here {
            turn: Turn { ownership, input },
            body: body.into(),
            background,
            streams,
            store,
        })
    }

    /// Whether anything is stored at all.
    pub(super) fn stores_responses(&self) -> bool {
        self.rules.retention.is_none_or(|time| !time.is_zero()) && self.rules.limit > 0
    }

    /// Finds the history of a request.
    async fn history(&self, owner: &str, stated: &StatefulRequest) -> Result<History, Fault> {
        if let Some(id) = stated.previous() {
            let not_found = || {
                Fault::invalid(format!(
                    "previous_response_id: Previous response with id '{id}' not found."
                ))
                .with_code("previous_response_not_found")
            };
            if let Some(run) = self.run(id)
                && !self.is_foreign(owner, id).await?
            {
                if !run.has_ended() {
                    return Err(Fault::invalid(format!(
                        "previous_response_id: `{id}` is still running; continue when its `status` is \
                         `completed`"
                    )));
                }
                run.ended().await;
            }
            let ancestry = self.ancestry(owner, id).await?;
            let ancestry = ancestry
                .filter(|ancestry| ancestry.turns.last().is_some_and(|stored| !stored.deleted));
            let Some(ancestry) = ancestry else {
                return match !is_plain(id) || self.is_foreign(owner, id).await? {
                    true => Err(not_found()),
                    false => Ok(History::Unknown(not_found())),
                };
            };
            if let Some(missing) = ancestry.missing {
                return Err(Fault::invalid(format!(
                    "previous_response_id: the history of `{id}` is incomplete: `{missing}` is not stored any \
                     more; send the conversation as `input`"
                ))
                .with_code("previous_response_not_found"));
            }
            return Ok(History::Known { turns: ancestry.turns, head: Some(id.to_owned()) });
        }
        let Some(id) = stated.conversation() else {
            return Ok(History::Nothing);
        };
        let Some((reference, content)) = self.conversation(owner, id).await? else {
            let what = format!("Conversation with id '{id}' not found.");
            let fault = Fault::new(FaultKind::NotFound, what);
            return match is_plain(id) {
                true => Ok(History::Unknown(fault)),
                false => Err(fault),
            };
        };
        let turns = match &reference.head {
            None => Vec::new(),
            Some(head) => match self.ancestry(owner, head).await? {
                Some(Ancestry { turns, missing: None }) => turns,
                // Continuing with the rest would be another conversation.
                _ => {
                    return Err(Fault::new(
                        FaultKind::NotFound,
                        format!(
                            "Conversation with id '{id}' is not stored any more, or only in part; create \
                             another one."
                        ),
                    ));
                }
            },
        };
        Ok(History::Known { turns: content.without_removed(turns), head: reference.head })
    }

    /// The history of a request, from what is stored here: the turns, and the id of the last one.
    pub(super) async fn known_history(
        &self,
        owner: &str,
        stated: &StatefulRequest,
    ) -> Result<(Vec<StoredResponse>, Option<String>), Fault> {
        match self.history(owner, stated).await? {
            History::Nothing => Ok((Vec::new(), None)),
            History::Known { turns, head } => Ok((turns, head)),
            History::Unknown(fault) => Err(fault),
        }
    }

    /// Checks that a forwarded request points to nothing of another owner.
    pub(super) async fn check_references(
        &self,
        owner: &str,
        incoming: &IncomingRequest,
        raw: &Bytes,
    ) -> Result<(), Fault> {
        let body = readable(&self.gateway.settings(), &incoming.headers, raw)?;
        if body.is_empty() {
            return Ok(());
        }
        let stated = StatefulRequest::read(&body)
            .ok_or_else(|| Fault::invalid("the body is not a JSON object; send one"))?;
        stated.check()?;
        self.history(owner, &stated).await?;
        self.items(owner, &stated.references()).await?;
        Ok(())
    }

    /// Forwards a reply and stores its response.
    async fn forward_and_store(self: &Arc<Self>, reply: Reply, turn: Turn, native: bool) -> Answer {
        if !reply.status().is_success() {
            return plain(reply);
        }
        // A fallback backend may have answered, and one of another dialect stores nothing.
        let named = reply.headers().get(BACKEND).filter(|_| native);
        let named = named.and_then(|name| name.to_str().ok());
        let settings = self.gateway.settings();
        let native = named
            .filter(|name| {
                let backend = settings.backend(name);
                backend.is_some_and(|backend| backend.dialect.name() == openai_responses::NAME)
            })
            .map(str::to_owned);
        let kind = reply.headers().get(CONTENT_TYPE);
        let streamed = kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
        let (head, body) = reply.into_parts();
        let (send, mut receive) = mpsc::channel(MAX_WAITING_PIECES);
        let this = Arc::clone(self);
        if streamed {
            tokio::spawn(this.pump(body, send, turn, native));
        } else {
            tokio::spawn(this.pump_whole(body, send, turn, native));
        }
        let mut breaking = None;
        let frames = futures_util::stream::poll_fn(move |context| {
            if let Some(error) = breaking.take() {
                return Poll::Ready(Some(Err(error)));
            }
            match receive.poll_recv(context) {
                // Send the earlier bytes first.
                Poll::Ready(Some(Err(error))) => {
                    breaking = Some(error);
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                other => other,
            }
        });
        Answer::from_parts(head, live(frames))
    }

    /// Forwards a whole reply as it arrives, and stores it before the client gets the last byte.
    async fn pump_whole(
        self: Arc<Self>,
        mut body: ReplyBody,
        send: Sender,
        turn: Turn,
        native: Option<String>,
    ) {
        let (mut whole, mut last) = (Vec::new(), Bytes::new());
        while let Some(frame) = body.frame().await {
            let mut data = match frame {
                Ok(frame) => frame.into_data().unwrap_or_default(),
                Err(error) => {
                    let _ = send.send(Ok(Frame::data(last))).await;
                    let _ = send.send(Err(error)).await;
                    return;
                }
            };
            if data.is_empty() {
                continue;
            }
            // A longer reply is still forwarded.
            if whole.len() < MAX_EVENT_BYTES {
                whole.extend_from_slice(&data);
            }
            let next = data.split_off(data.len() - 1);
            for piece in [std::mem::replace(&mut last, next), data] {
                if !piece.is_empty() && send.send(Ok(Frame::data(piece))).await.is_err() {
                    return;
                }
            }
        }
        if let Ok(response) = serde_json::from_slice(&whole) {
            self.store_response(response, turn, native).await;
        }
        let _ = send.send(Ok(Frame::data(last))).await;
    }

    /// Forwards a stream, and stores the response before the client learns that it is complete.
    async fn pump(
        self: Arc<Self>,
        mut body: ReplyBody,
        send: Sender,
        turn: Turn,
        native: Option<String>,
    ) {
        let mut framer = Framer::new(MAX_EVENT_BYTES);
        let mut progress = Progress::default();
        let mut turn = Some(turn);
        loop {
            let frame = tokio::select! {
                frame = body.frame() => frame,
                () = send.closed() => None,
            };
            if let Some(Ok(frame)) = &frame
                && let Some(bytes) = frame.data_ref()
            {
                framer.push(bytes, |frame, _| progress.take(step(frame.data).1));
            }
            let gone = frame.is_none() || matches!(frame, Some(Err(_)));
            if gone || progress.ended().is_some() {
                let status = if send.is_closed() { "cancelled" } else { "failed" };
                if let Some(turn) = turn.take()
                    && let Some(response) = progress.so_far(status, None)
                {
                    self.store_response(response, turn, native.clone()).await;
                }
            }
            match frame {
                None => return,
                Some(frame) => {
                    // The next loop notices a client that has disconnected.
                    let _ = send.send(frame).await;
                }
            }
        }
    }

    pub(super) async fn store_response(&self, response: Value, turn: Turn, native: Option<String>) {
        let Some(id) = response.get("id").and_then(Value::as_str) else {
            return;
        };
        let (id, ownership) = (id.to_owned(), turn.ownership.clone());
        // A backend may reuse an id of another owner.
        if native.is_some() && !matches!(self.is_foreign(&ownership.owner, &id).await, Ok(false)) {
            tracing::warn!(
                response = id,
                "not storing the response: its id belongs to another owner"
            );
            return;
        }
        let stored = turn.into_stored(response, native, false);
        if let Err(error) = self.store_turn(&id, &ownership, &stored, false).await {
            tracing::error!(error = &error as &dyn std::error::Error, "{error}");
        }
    }

    /// Starts a response in the background.
    async fn begin(
        self: &Arc<Self>,
        incoming: IncomingRequest,
        body: Bytes,
        permit: OwnedSemaphorePermit,
        turn: Turn,
        streams: bool,
    ) -> Answer {
        let identity = ReplyIdentity {
            id: incoming.reply_id.clone().unwrap_or_default(),
            created: unix_ms() / 1000,
        };
        let queued = match state::queued_response(&body, &identity, "queued") {
            Ok(queued) => queued,
            Err(fault) => return plain(self.gateway.reject(&incoming, &fault)),
        };
        let run = match self.start(incoming, body, permit, turn, queued.clone()).await {
            Ok(run) => run,
            Err(reply) => return reply,
        };
        match streams {
            true => super::body::events(run.follow(None)),
            false => json(&queued),
        }
    }
}

/// The history of a request.
enum History {
    /// There is none.
    Nothing,
    /// The stored turns and the id of the last one.
    Known { turns: Vec<StoredResponse>, head: Option<String> },
    /// The history is not stored here. The fault names what is missing.
    Unknown(Fault),
}

/// Whether only this backend has the reasoning of these turns.
fn only_backend_has_reasoning(turns: &[StoredResponse], backend: &str) -> bool {
    let last = turns.last().and_then(|stored| stored.native.as_deref());
    last == Some(backend) && turns.iter().any(|stored| needs_its_maker(&stored.response))
}

/// Gives the reply an id of the gateway, and removes headers that describe the old body.
pub(super) fn assign_reply_id(incoming: &mut IncomingRequest) {
    incoming.reply_id = Some(random::id());
    incoming.headers.remove(CONTENT_ENCODING);
    incoming.headers.remove(CONTENT_LENGTH);
}
