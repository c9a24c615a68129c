//! Background responses: each is a run with a log of its events, in memory while it runs and in the
//! store as long as the response is stored.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::Accepted;
use throughline_codec::dialects::openai_responses::state::{
    Broken, Progress, Recorder, Step, Written, WrittenEvent, step,
};
use throughline_codec::framing::MAX_REPLY_BYTES;
use throughline_codec::framing::sse::Framer;
use throughline_gateway::IncomingRequest;
use throughline_gateway::thinking::store::StoreError;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::time::Instant;
use tracing::{Instrument, Span};

use super::Responses;
use super::by_id::belongs_to;
use super::create::Turn;
use super::recording::ReplyEvents;
use super::stored::{Ownership, StoredResponse};
use crate::body::{Answer, plain};
use crate::sealed_store::{SealedKind, fault};
use crate::store::{Node, Piece};

/// How long events may wait before they are written to the store.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);
/// The pause before something that could not be stored is stored again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How many bytes of events a run may have.
const MAX_RUN_BYTES: usize = 64 << 20;
/// The error of a response whose server stopped.
const ABANDONED: &str = "the server was stopped while this response was being written";

/// A numbered event, with the text of its stream.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct LoggedEvent {
    number: u64,
    event: String,
}

impl From<WrittenEvent> for LoggedEvent {
    fn from(WrittenEvent { number, text }: WrittenEvent) -> Self {
        Self { number, event: text }
    }
}

/// A response that is running.
#[derive(Debug)]
pub(super) struct Run {
    state: Mutex<RunState>,
    /// The number of events. Closed when no more will come.
    grown: watch::Sender<usize>,
    stop: watch::Sender<bool>,
    /// The span of its turn, as soon as that has begun.
    span: Mutex<Span>,
}

#[derive(Debug)]
struct RunState {
    events: Vec<LoggedEvent>,
    bytes: usize,
    /// How many events are in the store.
    written: usize,
    progress: Progress,
    /// Whether the end of the run could not be stored yet.
    unsaved: bool,
    ended: bool,
}

impl Run {
    fn new(queued: Value) -> Self {
        Self {
            state: Mutex::new(RunState {
                events: Vec::new(),
                bytes: 0,
                written: 0,
                progress: Progress::queued(queued),
                unsaved: false,
                ended: false,
            }),
            grown: watch::Sender::new(0),
            stop: watch::Sender::new(false),
            span: Mutex::new(Span::none()),
        }
    }

    /// The span of its turn, for everything that is logged about it.
    fn span(&self) -> Span {
        self.span.lock().clone()
    }

    /// The response so far.
    pub(super) fn response(&self) -> Option<Value> {
        let state = self.state.lock();
        let status = match state.events.is_empty() {
            true => "queued",
            false => "in_progress",
        };
        state.progress.so_far(status, None)
    }

    /// Whether its last event has arrived. It is stored a moment later, see [`Run::ended`].
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().progress.ended().is_some()
    }

    /// Cancels the run.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the run has ended and is stored, or could not be stored. Returns whether it is
    /// stored.
    pub(super) async fn ended(&self) -> bool {
        let mut grown = self.grown.subscribe();
        let ended = |_: &usize| self.state.lock().has_ended();
        let _ = grown.wait_for(ended).await;
        self.state.lock().ended
    }

    /// Waits until the run is stored.
    async fn stored(&self) {
        let mut grown = self.grown.subscribe();
        let _ = grown.wait_for(|_| self.state.lock().ended).await;
    }

    /// The events after this number, those so far and those to come.
    pub(super) fn follow(
        self: &Arc<Self>,
        after: Option<u64>,
    ) -> impl Stream<Item = Bytes> + use<> {
        let start = (Arc::clone(self), self.grown.subscribe(), 0);
        futures_util::stream::unfold(start, move |(run, mut grown, mut next)| async move {
            loop {
                let ended = {
                    let state = run.state.lock();
                    while let Some(logged) = state.events.get(next) {
                        next += 1;
                        if after.is_none_or(|after| logged.number > after) {
                            let event = Bytes::from(logged.event.clone());
                            drop(state);
                            return Some((event, (run, grown, next)));
                        }
                    }
                    state.has_ended()
                };
                if ended {
                    return None;
                }
                let there = next;
                let run = &run;
                let more = |count: &usize| *count > there || run.state.lock().has_ended();
                grown.wait_for(more).await.ok()?;
            }
        })
    }

    /// Adds events and their steps. Returns false if the run is too long.
    fn append(&self, events: impl IntoIterator<Item = LoggedEvent>, steps: Vec<Step>) -> bool {
        let mut state = self.state.lock();
        for logged in events {
            state.bytes += logged.event.len();
            state.events.push(logged);
        }
        for step in steps {
            state.progress.take(step);
        }
        let (count, fits) = (state.events.len(), state.bytes <= MAX_RUN_BYTES);
        drop(state);
        self.grown.send_replace(count);
        fits
    }

    /// Ends the run with an event, if the reply has not. The dialect has one event for every
    /// unusual end.
    fn close(&self, status: &str, broken: Option<&Broken>) {
        let (response, events): (_, Vec<_>) = {
            let state = self.state.lock();
            let response = state.progress.so_far(status, broken);
            let Some(response) = response.filter(|_| state.progress.ended().is_none()) else {
                return;
            };
            let next = state.events.last().map_or(0, |last| last.number + 1);
            let kinds: &[&str] = match state.events.is_empty() {
                true => &["response.created", "response.failed"],
                false => &["response.failed"],
            };
            let event = |(number, kind): (u64, &&str)| {
                let data = json!({"type": kind, "sequence_number": number, "response": response});
                LoggedEvent { number, event: format!("event: {kind}\ndata: {data}\n\n") }
            };
            let events = (next..).zip(kinds).map(event).collect();
            (response, events)
        };
        self.append(events, vec![Step::Ended(response)]);
    }

    /// Ends the run as `end` says.
    fn close_with(&self, id: &str, end: &End) {
        match end {
            End::Complete => {}
            End::Stopped => self.close("cancelled", None),
            End::Failed(broken) => {
                // The message is the provider's and may quote contents. The turn's record has it.
                tracing::warn!(response = id, "a background response failed");
                self.close("failed", Some(broken));
            }
        }
    }

    fn end(&self) {
        self.change(|state| state.ended = true);
    }

    /// Changes the state and wakes those who wait for its end.
    fn change(&self, change: impl FnOnce(&mut RunState)) {
        let count = {
            let mut state = self.state.lock();
            change(&mut state);
            state.events.len()
        };
        self.grown.send_replace(count);
    }
}

impl RunState {
    /// Whether no more events will come.
    fn has_ended(&self) -> bool {
        self.ended || self.unsaved
    }
}

/// Registers a run as long as its task lasts.
struct RunGuard {
    responses: Arc<Responses>,
    id: String,
    run: Arc<Run>,
}

impl RunGuard {
    fn new(responses: &Arc<Responses>, id: &str, queued: Value) -> Self {
        let run = Arc::new(Run::new(queued));
        responses.runs.lock().insert(id.to_owned(), run.clone());
        Self { responses: responses.clone(), id: id.to_owned(), run }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // From now on the response is found in the store.
        self.run.end();
        self.responses.runs.lock().remove(&self.id);
    }
}

/// How a run ended.
enum End {
    /// The reply has ended by itself.
    Complete,
    Stopped,
    Failed(Broken),
}

impl Responses {
    /// The run with this id, if it is still running.
    pub(super) fn run(&self, id: &str) -> Option<Arc<Run>> {
        self.runs.lock().get(id).cloned()
    }

    /// Starts a run. It continues even if its client disconnects, because the response is already
    /// stored as open.
    pub(super) async fn start(
        self: &Arc<Self>,
        incoming: IncomingRequest,
        accepted: Accepted,
        permit: OwnedSemaphorePermit,
        turn: Turn,
        recorder: Recorder,
    ) -> Result<Arc<Run>, Answer> {
        let (started, start) = oneshot::channel();
        let this = Arc::clone(self);
        tokio::spawn(async move {
            let queued = recorder.queued("queued");
            let id = queued["id"].as_str().unwrap_or_default().to_owned();
            let stored = turn.clone().into_stored(queued.clone(), None, true);
            // From now on the response can be requested.
            if let Err(error) = this.store_turn(&id, &turn.ownership, &stored, true).await {
                let _ = started.send(Err(this.gateway.reject(&incoming, &fault(error))));
                return;
            }
            let guard = RunGuard::new(&this, &id, queued);
            let run = guard.run.clone();
            let _ = started.send(Ok(run.clone()));
            let driven = {
                let (this, id, run) = (this.clone(), id.clone(), run.clone());
                tokio::spawn(async move {
                    this.drive(&id, &run, incoming, accepted, permit, recorder).await
                })
            };
            // A panic also ends the run.
            let broken =
                |_| End::Failed(Broken::here("the server failed while it wrote the response"));
            let end = driven.await.unwrap_or_else(broken);
            let span = run.span();
            span.in_scope(|| run.close_with(&id, &end));
            this.store_end(&id, &run, turn).instrument(span).await;
        });
        match start.await {
            Ok(begun) => begun.map_err(plain),
            Err(_) => {
                let what = "cannot start the response; see the server's log";
                Err(self.error_reply(&Fault::new(FaultKind::Internal, what)))
            }
        }
    }

    async fn drive(
        &self,
        id: &str,
        run: &Run,
        incoming: IncomingRequest,
        accepted: Accepted,
        permit: OwnedSemaphorePermit,
        recorder: Recorder,
    ) -> End {
        let mut stop = run.stop.subscribe();
        let stopped = async { drop(stop.wait_for(|stop| *stop).await) };
        tokio::pin!(stopped);
        let events = tokio::select! {
            events = self.gateway.turn_events(incoming, accepted, permit) => events,
            () = &mut stopped => return End::Stopped,
        };
        let span = match &events {
            Ok(events) => events.head.span(),
            Err(finished) => finished.span(),
        };
        *run.span.lock() = span.clone();
        let mut reply = match events {
            Ok(events) => ReplyEvents::new(events, recorder),
            Err(finished) => {
                let message = finished.fault.map_or_else(
                    || "the backend refused the request".to_owned(),
                    |fault| fault.message,
                );
                return End::Failed(Broken::refused(finished.reply.status().as_u16(), message));
            }
        };
        let mut flush_at = Instant::now() + FLUSH_INTERVAL;
        loop {
            let written = tokio::select! {
                written = reply.next() => written,
                () = &mut stopped => return End::Stopped,
                () = tokio::time::sleep_until(flush_at) => {
                    self.flush(id, run).instrument(span.clone()).await;
                    flush_at = Instant::now() + FLUSH_INTERVAL;
                    continue;
                }
            };
            let Some(Written { events, steps }) = written else {
                return End::Complete;
            };
            if !run.append(events.into_iter().map(LoggedEvent::from), steps) {
                return End::Failed(Broken::here("the response is too long to be stored"));
            }
        }
    }

    /// Writes new events of a run to the store.
    async fn flush(&self, id: &str, run: &Run) {
        let new: Vec<LoggedEvent> = {
            let state = run.state.lock();
            state.events.get(state.written..).unwrap_or_default().to_vec()
        };
        let (Some(first), Some(last)) = (new.first(), new.last()) else {
            return;
        };
        let piece = Piece {
            first: first.number,
            last: last.number,
            sealed: self.sealed_store.seal(SealedKind::Log(first.number), id, &new),
        };
        self.sealed_store.count_written(piece.sealed.len());
        // The store logs a failure. The events are then written with the next ones.
        if self.sealed_store.store.log(id, piece).await.is_ok() {
            run.state.lock().written += new.len();
        }
    }

    /// Stores the end of a run. While that fails, the run stays in memory, where clients find it.
    /// No run can start meanwhile, so few runs wait.
    async fn store_end(&self, id: &str, run: &Run, turn: Turn) {
        while self.try_store_end(id, run, turn.clone()).await.is_err() {
            if !run.state.lock().unsaved {
                tracing::error!(response = id, "cannot store a background response; retrying");
                run.change(|state| state.unsaved = true);
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            // It may have been deleted.
            if let Ok(None) = self.sealed_store.store.node(id).await {
                return;
            }
        }
    }

    async fn try_store_end(&self, id: &str, run: &Run, turn: Turn) -> Result<(), StoreError> {
        self.flush(id, run).await;
        let response = run.state.lock().progress.ended().cloned();
        let ownership = turn.ownership.clone();
        let stored = turn.into_stored(response.unwrap_or_default(), None, true);
        self.store_turn(id, &ownership, &stored, false).await
    }

    /// The stored events of a run after this number.
    pub(super) async fn stored_events(
        &self,
        id: &str,
        after: Option<u64>,
    ) -> Result<Vec<Bytes>, Fault> {
        let pieces = self.sealed_store.store.logged(id, after).await.map_err(fault)?;
        let mut events = Vec::new();
        for piece in pieces {
            let logged = self.open_piece(id, &piece).map_err(fault)?;
            let later =
                logged.into_iter().filter(|logged| after.is_none_or(|after| logged.number > after));
            events.extend(later.map(|logged| Bytes::from(logged.event)));
        }
        Ok(events)
    }

    fn open_piece(&self, id: &str, piece: &Piece) -> Result<Vec<LoggedEvent>, StoreError> {
        self.sealed_store.open(SealedKind::Log(piece.first), id, &piece.sealed)
    }

    /// Closes the runs that an earlier process left open, with the events that had arrived. Call
    /// this before any run starts.
    pub async fn close_abandoned(&self) {
        let log_error = |error: StoreError| {
            tracing::error!(error = &error as &dyn std::error::Error, "{error}");
        };
        let nodes = self.sealed_store.store.open_nodes().await.map_err(log_error);
        for node in nodes.unwrap_or_default() {
            // A node that cannot be read is only marked as closed, so that it can expire.
            if let Err(error) = self.close_one(&node).await {
                log_error(error);
                let shut = Node { open: false, ..node };
                let written = self.sealed_store.store.put(shut, None).await;
                written.map_err(log_error).ok();
            }
        }
    }

    async fn close_one(&self, node: &Node) -> Result<(), StoreError> {
        let StoredResponse { input, response, .. } =
            self.sealed_store.open(SealedKind::Node, &node.id, &node.sealed)?;
        let ownership = Ownership {
            owner: node.owner.clone(),
            parent: node.parent.clone(),
            conversation: belongs_to(&response).map(str::to_owned),
        };
        let run = Run::new(response);
        for piece in self.sealed_store.store.logged(&node.id, None).await? {
            for logged in self.open_piece(&node.id, &piece)? {
                let mut found = Step::Other;
                Framer::new(MAX_REPLY_BYTES).push(logged.event.as_bytes(), |frame, _| {
                    found = step(frame.data).1;
                });
                run.append([logged], vec![found]);
                run.state.lock().written += 1;
            }
        }
        let end = match run.state.lock().progress.ended() {
            Some(_) => End::Complete,
            None => End::Failed(Broken::here(ABANDONED)),
        };
        run.close_with(&node.id, &end);
        // If the store cannot be written, the run stays open, and the next start closes it.
        let _ = self.try_store_end(&node.id, &run, Turn { ownership, input }).await;
        Ok(())
    }

    /// Waits until no run is left.
    pub async fn runs_ended(&self) {
        loop {
            let next = self.runs.lock().values().next().cloned();
            match next {
                Some(run) => run.stored().await,
                None => return,
            }
            // A run is removed right after its end.
            tokio::task::yield_now().await;
        }
    }
}
