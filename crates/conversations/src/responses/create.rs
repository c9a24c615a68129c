//! A response is asked for: what of its state is ours, the turn that needs none, and what is kept of it.

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

/// Pieces of a reply that may wait for a slow reader.
const WAITING: usize = 32;
/// The longest event that is read.
pub(super) const LONGEST_EVENT: usize = 64 << 20;

/// Where the pieces of a reply go.
type Sender = mpsc::Sender<Result<Frame<Bytes>, BoxError>>;

/// How a request is answered.
enum Way {
    /// As it stands; nothing is kept.
    Plain,
    /// As it stands, by a backend that keeps state itself. A copy is kept.
    Theirs(Turn),
    /// By a turn of ours.
    Ours {
        turn: Turn,
        body: Bytes,
        background: bool,
        streams: bool,
        /// Whether the response is kept.
        store: bool,
    },
}

/// What will be kept of a turn.
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
    /// Answers a request for a response, or for a count of its tokens.
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
        // Many servers of the dialect keep nothing and run nothing for nobody, so what is known here is sent,
        // and waited for here; what is not known may be known to them.
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
            // The way there may be known to nobody but them; then a copy would begin in the middle.
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

    /// Whether anything is kept at all.
    pub(super) fn keeps(&self) -> bool {
        self.rules.retention.is_none_or(|time| !time.is_zero()) && self.rules.limit > 0
    }

    /// What came before a request.
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
                        "previous_response_id: `{id}` is still being written; go on once its `status` is \
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
                    "previous_response_id: `{id}` goes on from `{missing}`, which is not kept any more; \
                     send the conversation as `input`"
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
                // To go on with what is left would be another conversation.
                _ => {
                    return Err(Fault::new(
                        FaultKind::NotFound,
                        format!(
                            "Conversation with id '{id}' is not kept any more, or only in part; create \
                             another one."
                        ),
                    ));
                }
            },
        };
        Ok(Before::Known { way: said.without_removed(way), head: reference.head })
    }

    /// What came before a request, where only what is kept here counts: the turns, and the last of them.
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

    /// Finds out whether a request that is passed on points at nothing of somebody else's.
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
            .ok_or_else(|| Fault::invalid("the body is no JSON object; send one"))?;
        stated.check()?;
        self.before(owner, &stated).await?;
        self.items(owner, &stated.references()).await?;
        Ok(())
    }

    /// Passes a reply on, and keeps what it says.
    async fn watched(self: &Arc<Self>, reply: Reply, turn: Turn, native: bool) -> Answer {
        if !reply.status().is_success() {
            return plain(reply);
        }
        // Another backend may have stepped in, and one of another dialect keeps nothing.
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
                // What came before it goes out first.
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

    /// Passes a whole reply on as it comes, and keeps it before the client has its last byte.
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
            // One that is longer than any is passed on all the same.
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

    /// Reads a stream on its way, and keeps the response before the client learns that it is complete.
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
                    // Whoever has gone away is noticed at the next look.
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
        // A backend's ids need not be unlike another's.
        if native.is_some() && !matches!(self.is_anothers(&belonging.owner, &id).await, Ok(false)) {
            tracing::warn!(response = id, "a response is not kept, since its id is taken");
            return;
        }
        let kept = turn.kept(response, native, false);
        if let Err(error) = self.keep(&id, &belonging, &kept, false).await {
            tracing::error!(error = &error as &dyn std::error::Error, "{error}");
        }
    }

    /// Begins a response nobody waits for.
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

/// What came before a request.
enum Before {
    /// Nothing did.
    Nothing,
    /// This did.
    Known { way: Vec<Kept>, head: Option<String> },
    /// Something that is not kept here; the fault says what.
    Unknown(Fault),
}

/// Whether a backend has reasoning of these turns that it gave to nobody.
fn only_there(way: &[Kept], backend: &str) -> bool {
    let last = way.last().and_then(|kept| kept.native.as_deref());
    last == Some(backend) && way.iter().any(|kept| needs_its_maker(&kept.response))
}

/// The body is another one now, and the reply bears an id of ours.
pub(super) fn make_ours(asked: &mut IncomingRequest) {
    asked.reply_id = Some(random::id());
    asked.headers.remove(CONTENT_ENCODING);
    asked.headers.remove(CONTENT_LENGTH);
}
