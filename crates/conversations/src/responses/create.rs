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
    self, Progress, Stated, needs_its_maker, step,
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
use super::kept::{Belonging, Kept, Walked, is_plain, nothing_kept};

/// How many pieces of a reply may wait for a slow reader.
const WAITING: usize = 32;
/// How many bytes of one event are read.
pub(super) const LONGEST_EVENT: usize = 64 << 20;

/// Sends the pieces of a reply.
type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// How a request is handled.
enum Way {
    /// The turn needs no state and nothing is stored.
    Plain,
    /// A backend of the dialect has the state. A copy is stored here.
    Theirs(Turn),
    /// The gateway has the state and sends the whole history.
    Ours {
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
    pub(super) belonging: Belonging,
    pub(super) input: Vec<Value>,
}

impl Turn {
    pub(super) fn kept(self, response: Value, native: Option<String>, background: bool) -> Kept {
        Kept { input: self.input, response, native, background, deleted: false }
    }
}

impl Responses {
    /// Answers a request for a response or for its token count.
    pub async fn create(
        self: &Arc<Self>,
        mut asked: IncomingRequest,
        raw: Bytes,
        place: OwnedSemaphorePermit,
    ) -> Answer {
        let (turn, body, background, streams, store) = match self.way_of(&asked, &raw).await {
            Ok(Way::Plain) => return plain(self.gateway.turn(asked, raw, place).await),
            Ok(Way::Theirs(turn)) => {
                let reply = self.gateway.turn(asked, raw, place).await;
                return self.watched(reply, turn, true).await;
            }
            Ok(Way::Ours { turn, body, background, streams, store }) => {
                (turn, body, background, streams, store)
            }
            Err(fault) => return plain(self.gateway.reject(&asked, &fault)),
        };
        make_ours(&mut asked);
        if asked.dialect.operation(&asked.path) == Some(Operation::CountTokens) {
            return plain(self.gateway.turn(asked, body, place).await);
        }
        if background {
            return self.begin(asked, body, place, turn, streams).await;
        }
        let reply = self.gateway.turn(asked, body, place).await;
        match store {
            true => self.watched(reply, turn, false).await,
            false => plain(reply),
        }
    }

    async fn way_of(&self, asked: &IncomingRequest, raw: &Bytes) -> Result<Way, Fault> {
        let settings = self.gateway.settings();
        let body = readable(&settings, &asked.headers, raw)?;
        let Some(stated) = Stated::read(&body) else {
            return Ok(Way::Plain);
        };
        let counts = asked.dialect.operation(&asked.path) == Some(Operation::CountTokens);
        let store = stated.store() && !counts && self.keeps();
        if !store && !stated.needs_state() {
            return Ok(Way::Plain);
        }
        stated.check()?;
        let owner = credential_fingerprint(&callers_key(asked));
        let backend = self.gateway.backend_for(asked.pin.as_deref(), stated.model())?;
        let native = backend.dialect.name() == openai_responses::NAME;
        let before = self.before(&owner, &stated).await?;
        let references = stated.references();
        let found = self.items(&owner, &references).await?;
        let pointed = references.iter().any(|id| found.contains_key(*id));
        // Many servers of the dialect store nothing and run nothing in the background. So history
        // that is stored here is sent, and background responses run here. Only unknown history may
        // be stored at the backend.
        let waits_here = stated.background() && self.keeps();
        let theirs = native
            && match &before {
                Before::Nothing => !waits_here && !pointed,
                Before::Unknown(_) => true,
                Before::Known { way, .. } => {
                    !waits_here && !counts && only_there(way, &backend.name)
                }
            };
        let mut belonging = Belonging {
            owner: owner.clone(),
            parent: stated.previous().map(str::to_owned),
            conversation: stated.conversation().map(str::to_owned),
        };
        let mut id = random::id;
        if theirs {
            if !store {
                return Ok(Way::Plain);
            }
            // Only the backend knows the history, so a copy would begin in the middle.
            if let Before::Unknown(_) = before {
                return Ok(Way::Plain);
            }
            let input = stated.items(&found, &mut id);
            return Ok(Way::Theirs(Turn { belonging, input }));
        }
        if stated.background() && !waits_here {
            return Err(nothing_kept("background"));
        }
        let way = match before {
            Before::Nothing => Vec::new(),
            Before::Unknown(fault) => return Err(fault),
            Before::Known { way, head } => {
                belonging.parent = head;
                way
            }
        };
        let input = stated.items(&found, &mut id);
        let history: Vec<Value> = way.iter().flat_map(Kept::items).cloned().collect();
        let (background, streams) = (stated.background(), stated.streams());
        let body = stated.turn(&history, &input, streams || background);
        Ok(Way::Ours {
            turn: Turn { belonging, input },
            body: body.into(),
            background,
            streams,
            store,
        })
    }

    /// Whether anything is stored at all.
    pub(super) fn keeps(&self) -> bool {
        self.rules.retention.is_none_or(|time| !time.is_zero()) && self.rules.limit > 0
    }

    /// Finds the history of a request.
    async fn before(&self, owner: &str, stated: &Stated) -> Result<Before, Fault> {
        if let Some(id) = stated.previous() {
            let not_found = || {
                Fault::invalid(format!(
                    "previous_response_id: Previous response with id '{id}' not found."
                ))
                .with_code("previous_response_not_found")
            };
            if let Some(run) = self.run(id)
                && !self.is_anothers(owner, id).await?
            {
                if !run.told_its_end() {
                    return Err(Fault::invalid(format!(
                        "previous_response_id: `{id}` is still running; continue when its `status` is \
                         `completed`"
                    )));
                }
                run.ended().await;
            }
            let walked = self.way(owner, id).await?;
            let walked =
                walked.filter(|walked| walked.turns.last().is_some_and(|kept| !kept.deleted));
            let Some(walked) = walked else {
                return match !is_plain(id) || self.is_anothers(owner, id).await? {
                    true => Err(not_found()),
                    false => Ok(Before::Unknown(not_found())),
                };
            };
            if let Some(missing) = walked.missing {
                return Err(Fault::invalid(format!(
                    "previous_response_id: the history of `{id}` is incomplete: `{missing}` is not stored any \
                     more; send the conversation as `input`"
                ))
                .with_code("previous_response_not_found"));
            }
            return Ok(Before::Known { way: walked.turns, head: Some(id.to_owned()) });
        }
        let Some(id) = stated.conversation() else {
            return Ok(Before::Nothing);
        };
        let Some((reference, said)) = self.conversation(owner, id).await? else {
            let what = format!("Conversation with id '{id}' not found.");
            let fault = Fault::new(FaultKind::NotFound, what);
            return match is_plain(id) {
                true => Ok(Before::Unknown(fault)),
                false => Err(fault),
            };
        };
        let way = match &reference.head {
            None => Vec::new(),
            Some(head) => match self.way(owner, head).await? {
                Some(Walked { turns, missing: None }) => turns,
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
        Ok(Before::Known { way: said.without_removed(way), head: reference.head })
    }

    /// The history of a request, from what is stored here: the turns, and the id of the last one.
    pub(super) async fn known_before(
        &self,
        owner: &str,
        stated: &Stated,
    ) -> Result<(Vec<Kept>, Option<String>), Fault> {
        match self.before(owner, stated).await? {
            Before::Nothing => Ok((Vec::new(), None)),
            Before::Known { way, head } => Ok((way, head)),
            Before::Unknown(fault) => Err(fault),
        }
    }

    /// Checks that a forwarded request points to nothing of another owner.
    pub(super) async fn may_point(
        &self,
        owner: &str,
        asked: &IncomingRequest,
        raw: &Bytes,
    ) -> Result<(), Fault> {
        let body = readable(&self.gateway.settings(), &asked.headers, raw)?;
        if body.is_empty() {
            return Ok(());
        }
        let stated = Stated::read(&body)
            .ok_or_else(|| Fault::invalid("the body is not a JSON object; send one"))?;
        stated.check()?;
        self.before(owner, &stated).await?;
        self.items(owner, &stated.references()).await?;
        Ok(())
    }

    /// Forwards a reply and stores its response.
    async fn watched(self: &Arc<Self>, reply: Reply, turn: Turn, native: bool) -> Answer {
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
        let (send, mut receive) = mpsc::channel(WAITING);
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
            if whole.len() < LONGEST_EVENT {
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
            self.keep_response(response, turn, native).await;
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
        let mut framer = Framer::new(LONGEST_EVENT);
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
                    self.keep_response(response, turn, native.clone()).await;
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

    pub(super) async fn keep_response(&self, response: Value, turn: Turn, native: Option<String>) {
        let Some(id) = response.get("id").and_then(Value::as_str) else {
            return;
        };
        let (id, belonging) = (id.to_owned(), turn.belonging.clone());
        // A backend may reuse an id of another owner.
        if native.is_some() && !matches!(self.is_anothers(&belonging.owner, &id).await, Ok(false)) {
            tracing::warn!(
                response = id,
                "not storing the response: its id belongs to another owner"
            );
            return;
        }
        let kept = turn.kept(response, native, false);
        if let Err(error) = self.keep(&id, &belonging, &kept, false).await {
            tracing::error!(error = &error as &dyn std::error::Error, "{error}");
        }
    }

    /// Starts a response in the background.
    async fn begin(
        self: &Arc<Self>,
        asked: IncomingRequest,
        body: Bytes,
        place: OwnedSemaphorePermit,
        turn: Turn,
        streams: bool,
    ) -> Answer {
        let identity = ReplyIdentity {
            id: asked.reply_id.clone().unwrap_or_default(),
            created: unix_ms() / 1000,
        };
        let queued = match state::waiting(&body, &identity, "queued") {
            Ok(queued) => queued,
            Err(fault) => return plain(self.gateway.reject(&asked, &fault)),
        };
        let run = match self.start(asked, body, place, turn, queued.clone()).await {
            Ok(run) => run,
            Err(told) => return told,
        };
        match streams {
            true => super::body::events(run.follow(None)),
            false => json(&queued),
        }
    }
}

/// The history of a request.
enum Before {
    /// There is none.
    Nothing,
    /// The stored turns and the id of the last one.
    Known { way: Vec<Kept>, head: Option<String> },
    /// The history is not stored here. The fault names what is missing.
    Unknown(Fault),
}

/// Whether only this backend has the reasoning of these turns.
fn only_there(way: &[Kept], backend: &str) -> bool {
    let last = way.last().and_then(|kept| kept.native.as_deref());
    last == Some(backend) && way.iter().any(|kept| needs_its_maker(&kept.response))
}

/// Gives the reply an id of the gateway, and removes headers that describe the old body.
pub(super) fn make_ours(asked: &mut IncomingRequest) {
    asked.reply_id = Some(random::id());
    asked.headers.remove(CONTENT_ENCODING);
    asked.headers.remove(CONTENT_LENGTH);
}
