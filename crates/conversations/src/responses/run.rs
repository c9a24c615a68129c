//! Background responses: each is a run whose log has the events of the dialect.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::Accepted;
use throughline_codec::dialects::openai_responses::state::{
    Broken, Progress, Recorder, Step, Written, WrittenEvent, step,
};
use throughline_codec::framing::MAX_REPLY_BYTES;
use throughline_codec::framing::sse::Framer;
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::{IncomingRequest, unix_ms};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tracing::{Instrument, Span};

use super::Responses;
use super::by_id::belongs_to;
use super::create::Turn;
use super::recording::ReplyEvents;
use super::stored::{Ownership, RunChange, StoredResponse};
use crate::body::{Answer, plain};
use crate::runs::abandoned::CloseRun;
use crate::runs::log::{Entry, LiveRun};
use crate::runs::{Appended, catch_panic};
use crate::sealed_store::{SealedKind, expires, fault};
use crate::store::{self, Node, RunEnd, RunStatus};

/// The scope of all background responses.
const SCOPE: &str = "response";
/// The pause before something that could not be stored is stored again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How long a cancellation waits for the process that writes the response.
const MAX_STOP_WAIT: Duration = Duration::from_secs(5);
/// The error of a response whose server stopped.
const ABANDONED: &str = "the server was stopped while this response was being written";

fn entry(WrittenEvent { number, text }: WrittenEvent) -> Entry {
    Entry::new(number, text)
}

/// A response that is running.
#[derive(Debug)]
pub(super) struct Run {
    live: Arc<LiveRun>,
    progress: Mutex<Progress>,
    /// How far storing the end has come.
    end: watch::Sender<StoredEnd>,
    /// The span of its turn, as soon as that has begun.
    span: Mutex<Span>,
}

/// How far storing the end of a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StoredEnd {
    /// It has not ended.
    Running,
    /// The end could not be stored yet.
    Unsaved,
    Stored,
}

impl Run {
    fn new(live: Arc<LiveRun>, queued: Value) -> Self {
        Self {
            live,
            progress: Mutex::new(Progress::queued(queued)),
            end: watch::Sender::new(StoredEnd::Running),
            span: Mutex::new(Span::none()),
        }
    }

    /// The span of its turn, for everything that is logged about it.
    fn span(&self) -> Span {
        self.span.lock().clone()
    }

    /// The response so far.
    pub(super) fn response(&self) -> Option<Value> {
        let status = match self.live.is_empty() {
            true => "queued",
            false => "in_progress",
        };
        self.progress.lock().so_far(status, None)
    }

    /// Whether its last event has arrived. It is stored a moment later, see [`Run::ended`].
    pub(super) fn has_ended(&self) -> bool {
        self.progress.lock().ended().is_some()
    }

    /// Cancels the run.
    pub(super) fn stop(&self) {
        self.live.stop();
    }

    /// Waits until the run has ended and is stored, or could not be stored. Returns whether it is
    /// stored.
    pub(super) async fn ended(&self) -> bool {
        let mut end = self.end.subscribe();
        let ended = end.wait_for(|end| *end != StoredEnd::Running).await;
        ended.is_ok_and(|end| *end == StoredEnd::Stored)
    }

    /// The events after this number, those so far and those to come.
    pub(super) fn follow(&self, after: Option<u64>) -> impl Stream<Item = Bytes> + use<> {
        self.live.follow(after).map(|entry| Bytes::copy_from_slice(entry.text.as_bytes()))
    }

    /// The events that end the run, if the reply has not ended it, and their step. The dialect has
    /// one event for every unusual end.
    fn closing(&self, status: &str, broken: Option<&Broken>) -> Option<(Vec<Entry>, Step)> {
        let progress = self.progress.lock();
        let response = progress.so_far(status, broken).filter(|_| progress.ended().is_none())?;
        let next = self.live.last_number().map_or(0, |last| last + 1);
        let kinds: &[&str] = match self.live.is_empty() {
            true => &["response.created", "response.failed"],
            false => &["response.failed"],
        };
        let event = |(number, kind): (u64, &&str)| {
            let data = json!({"type": kind, "sequence_number": number, "response": response});
            Entry::new(number, format!("event: {kind}\ndata: {data}\n\n"))
        };
        Some(((next..).zip(kinds).map(event).collect(), Step::Ended(response)))
    }

    fn take(&self, steps: impl IntoIterator<Item = Step>) {
        let mut progress = self.progress.lock();
        for step in steps {
            progress.take(step);
        }
    }

    /// How the run ended, as its record says.
    fn status(&self) -> RunStatus {
        let progress = self.progress.lock();
        let status = progress.ended().and_then(|response| response["status"].as_str());
        match status {
            Some("completed" | "incomplete") => RunStatus::Completed,
            Some("cancelled") => RunStatus::Cancelled,
            _ => RunStatus::Error,
        }
    }
}

/// Registers a run as long as its task lasts.
struct RunGuard {
    responses: Arc<Responses>,
    run: Arc<Run>,
    _live: crate::runs::RunGuard,
}

impl RunGuard {
    fn new(responses: &Arc<Responses>, id: &str, queued: Value) -> Self {
        let live = Arc::new(LiveRun::new(id, 1));
        let registered = responses.runs.register(live.clone());
        let run = Arc::new(Run::new(live, queued));
        responses.running.lock().insert(id.to_owned(), run.clone());
        Self { responses: responses.clone(), run, _live: registered }
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // From now on the response is found in the store.
        self.run.end.send_replace(StoredEnd::Stored);
        self.responses.running.lock().remove(&self.run.live.id);
    }
}

/// How a run ended.
enum End {
    /// The reply has ended by itself.
    Complete,
    Stopped,
    Failed(Broken),
    /// Another process writes it now.
    TakenOver,
}

impl Responses {
    /// The run with this id, if it is still running.
    pub(super) fn run(&self, id: &str) -> Option<Arc<Run>> {
        self.running.lock().get(id).cloned()
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
            let starts = RunChange::Starts(Box::new(this.new_run(&id, &turn.ownership)));
            if let Err(error) = this.store_turn(&id, &turn.ownership, &stored, starts).await {
                let _ = started.send(Err(this.gateway.reject(&incoming, &fault(error))));
                return;
            }
            let guard = RunGuard::new(&this, &id, queued);
            let run = guard.run.clone();
            let _ = started.send(Ok(run.clone()));
            let driven = catch_panic(this.drive(&run, incoming, accepted, permit, recorder)).await;
            // A panic also ends the run.
            let broken =
                |_| End::Failed(Broken::here("the server failed while it wrote the response"));
            let end = driven.unwrap_or_else(broken);
            let closed = async {
                if this.close_with(&run, &end).await {
                    this.store_end(&run, turn).await;
                }
            };
            if catch_panic(closed.instrument(run.span())).await.is_err() {
                this.runs.end_without_content(&run.live).await;
            }
        });
        match start.await {
            Ok(begun) => begun.map_err(plain),
            Err(_) => {
                let what = "cannot start the response; see the server's log";
                Err(self.error_reply(&Fault::new(FaultKind::Internal, what)))
            }
        }
    }

    /// The record of a run that starts now.
    fn new_run(&self, id: &str, ownership: &Ownership) -> store::Run {
        let now = unix_ms();
        store::Run {
            id: id.to_owned(),
            owner: ownership.owner.clone(),
            scope: SCOPE.to_owned(),
            name: None,
            reference: None,
            instance: self.runs.instance.clone(),
            epoch: 1,
            status: RunStatus::Running,
            created: now,
            expires: Some(expires(now, self.retention)),
            sealed: Vec::new(),
        }
    }

    async fn drive(
        &self,
        run: &Run,
        incoming: IncomingRequest,
        accepted: Accepted,
        permit: OwnedSemaphorePermit,
        recorder: Recorder,
    ) -> End {
        let stopped = run.live.stopped();
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
        loop {
            let written = tokio::select! {
                written = reply.next() => written,
                () = &mut stopped => return End::Stopped,
            };
            let Some(Written { events, steps }) = written else {
                return End::Complete;
            };
            run.take(steps);
            let entries = events.into_iter().map(entry).collect();
            match self.runs.append(&run.live, entries).instrument(span.clone()).await {
                Appended::Yes => {}
                Appended::TooLong => {
                    return End::Failed(Broken::here("the response is too long to be stored"));
                }
                Appended::Fenced => return End::TakenOver,
            }
        }
    }

    /// Writes the events that end the run as `end` says. Returns false if another process does.
    async fn close_with(&self, run: &Run, end: &End) -> bool {
        let closing = match end {
            End::Complete => None,
            End::Stopped => run.closing("cancelled", None),
            End::Failed(broken) => {
                // The message is the provider's and may quote contents. The turn's record has it.
                tracing::warn!(response = run.live.id, "a background response failed");
                run.closing("failed", Some(broken))
            }
            End::TakenOver => return false,
        };
        if let Some((entries, step)) = closing {
            run.take([step]);
            return self.runs.append(&run.live, entries).await != Appended::Fenced;
        }
        true
    }

    /// Stores the end of a run. While that fails, the run stays in memory, where clients find it.
    /// No run can start meanwhile, so few runs wait.
    async fn store_end(&self, run: &Run, turn: Turn) {
        let id = &run.live.id;
        while self.try_store_end(run, turn.clone()).await.is_err() {
            if *run.end.borrow() == StoredEnd::Running {
                tracing::error!(response = id, "cannot store a background response; retrying");
                run.end.send_replace(StoredEnd::Unsaved);
                // Its readers have all events.
                run.live.close();
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            // It may have been deleted.
            if let Ok(None) = self.sealed_store.store.node(id).await {
                return;
            }
        }
    }

    async fn try_store_end(&self, run: &Run, turn: Turn) -> Result<(), StoreError> {
        self.runs.store_entries(&run.live).await;
        let response = run.progress.lock().ended().cloned();
        let ownership = turn.ownership.clone();
        let stored = turn.into_stored(response.unwrap_or_default(), None, true);
        let end = RunEnd {
            run: run.live.id.clone(),
            epoch: run.live.epoch,
            status: run.status(),
            expires: Some(expires(unix_ms(), self.retention)),
            sealed: Vec::new(),
        };
        self.store_turn(&run.live.id, &ownership, &stored, RunChange::Ends(end)).await
    }

    /// The events of a run after this number, whichever process writes it.
    pub(super) fn events_after(
        &self,
        id: &str,
        after: Option<u64>,
    ) -> impl Stream<Item = Bytes> + use<> {
        let entries = self.runs.follow(id, after, None);
        // A failed store has been logged; the stream then ends early, and its reader resumes.
        entries.filter_map(|entry| async {
            entry.ok().map(|entry| Bytes::copy_from_slice(entry.text.as_bytes()))
        })
    }

    /// A run that another process writes or has left, as far as its events are stored.
    async fn restored(&self, id: &str, epoch: u64, queued: Value) -> Result<Run, StoreError> {
        let run = Run::new(Arc::new(LiveRun::new(id, epoch)), queued);
        let entries = self.runs.stored_entries(id, None, None).await?;
        for entry in &entries {
            Framer::new(MAX_REPLY_BYTES)
                .push(entry.text.as_bytes(), |frame, _| run.take([step(frame.data).1]));
        }
        run.live.restore(entries);
        Ok(run)
    }

    /// The present state of a response that another process writes; `queued` is its first one.
    pub(super) async fn response_elsewhere(&self, id: &str, queued: Value) -> Result<Value, Fault> {
        let run = self.restored(id, 1, queued.clone()).await.map_err(fault)?;
        Ok(run.response().unwrap_or(queued))
    }

    /// Cancels a response that another process may write, and waits for its end.
    pub(super) async fn stop_elsewhere(&self, owner: &str, id: &str) -> Result<(), Fault> {
        let run = self.sealed_store.store.run(id).await.map_err(fault)?;
        // Runs of other kinds have ids of the same form.
        let is_own = run.is_some_and(|run| run.scope == SCOPE && run.owner == owner);
        if is_own && self.runs.stop(id).await.map_err(fault)? {
            let ended = self.runs.follow(id, None, None).for_each(|_| async {});
            let _ = tokio::time::timeout(MAX_STOP_WAIT, ended).await;
        }
        Ok(())
    }

    /// Ends a run that its process has left, with the events that had arrived.
    async fn close_left(&self, left: store::Run) -> Result<(), StoreError> {
        let store = &self.sealed_store.store;
        let Some(node) = store.node(&left.id).await? else {
            store.remove_run(&left.id).await?;
            return Ok(());
        };
        let opened = self.sealed_store.open(SealedKind::Node, &node.id, &node.sealed);
        let StoredResponse { input, response, .. } = match opened {
            Ok(stored) => stored,
            Err(error) => {
                // A node that cannot be read is only marked as closed, so that it can expire.
                store.put(Node { open: false, ..node }, None).await?;
                return Err(error);
            }
        };
        let ownership = Ownership {
            owner: node.owner.clone(),
            parent: node.parent.clone(),
            conversation: belongs_to(&response).map(str::to_owned),
        };
        let run = self.restored(&left.id, left.epoch, response).await?;
        let end = match run.has_ended() {
            true => End::Complete,
            false => End::Failed(Broken::here(ABANDONED)),
        };
        self.close_with(&run, &end).await;
        self.try_store_end(&run, Turn { ownership, input }).await
    }
}

impl CloseRun for Responses {
    fn handles(&self, scope: &str) -> bool {
        scope == SCOPE
    }

    fn close(
        self: Arc<Self>,
        run: store::Run,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
        Box::pin(async move { self.close_left(run).await })
    }
}
