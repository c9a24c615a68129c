//! The front doors: the endpoints of front ends, whose replies can be resumed.
//!
//! A streamed reply is a run: its canonical events are in a log, and every reader writes its stream
//! from that log, from the start or after a cursor. So a client that lost its connection continues
//! where it was, also on another instance and after a restart.
//!
//! Start at [`FrontDoors::turn`]. `record` is what a run remembers of its request, `follow` stays with a
//! thread over several runs, and `requests` answers everything that is asked about runs.
//! [`crate::runs::reader`] writes the streams.

mod follow;
mod record;
mod requests;

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::Accepted;
use throughline_codec::dialects::resumable::{ReplyFormat, ResumableReply};
use throughline_codec::pacing::Pacing;
use throughline_gateway::backend::credential_fingerprint;
use throughline_gateway::headers::callers_key;
use throughline_gateway::thinking::random;
use throughline_gateway::thinking::store::{StoreError, StoreFuture};
use throughline_gateway::turn::error_reply::{Reply, error_response};
use throughline_gateway::turn::request::decompress_body;
use throughline_gateway::{Gateway, IncomingRequest, unix_ms};
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tracing::Instrument;

use self::record::{RunRecord, scope_of};
pub use self::requests::RunRequest;
use crate::body::{Answer, drop_body_headers, plain};
use crate::runs::abandoned::CloseRun;
use crate::runs::canonical::{CanonicalRun, Driven, StoreEnd};
use crate::runs::log::LiveRun;
use crate::runs::reader::{Readers, RunReader};
use crate::runs::{RunGuard, Runs};
use crate::sealed_store::{SealedKind, expires, is_valid};
use crate::store::{Commit, Outcome, Run, RunEnd, RunStatus, bounded_name};

/// The header that names the run of a reply.
const RUN: HeaderName = HeaderName::from_static("x-throughline-run");
/// The fault of a run whose server stopped.
const ABANDONED: &str = "the server was stopped while this reply was being written";

/// How long runs go on and are kept, and how they are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// Whether replies of front doors are runs at all.
    pub log: bool,
    /// How long the log of a run is kept after its end.
    pub retention: Duration,
    /// How long a run goes on without a reader; `None` until its end.
    pub detached: Option<Duration>,
    /// How deltas are joined.
    pub pacing: Pacing,
    /// How many entries a reader that takes nothing may be behind.
    pub reader_queue: u64,
}

/// The runs of front ends.
#[derive(Debug)]
pub struct FrontDoors {
    gateway: Arc<Gateway>,
    runs: Arc<Runs>,
    readers: Arc<Readers>,
    settings: RunSettings,
    /// Becomes true when the server stops, so that endless streams end.
    stopping: watch::Receiver<bool>,
}

/// A request that starts a run.
struct NewRun {
    run: Run,
    accepted: Accepted,
    reply: ResumableReply,
}

/// The result of a request.
enum Begun {
    /// The model answers. The head of the reply is known.
    Reply(Response<()>),
    /// There is no answer of a model, such as after a refusal.
    Finished(Box<Reply>),
}

/// Stores the end of a run. Its content stays.
struct EndOfRun {
    runs: Arc<Runs>,
    run: Run,
    retention: Duration,
}

impl StoreEnd for EndOfRun {
    fn store_end<'a>(&'a self, driven: &'a Driven) -> StoreFuture<'a, Outcome> {
        let end = RunEnd {
            run: self.run.id.clone(),
            epoch: self.run.epoch,
            status: driven.status,
            expires: Some(expires(unix_ms(), self.retention)),
            sealed: self.run.sealed.clone(),
        };
        self.runs.sealed_store.store.commit(Commit { end: Some(end), ..Commit::default() })
    }
}

impl FrontDoors {
    /// Front doors with a store for their runs.
    pub fn new(
        gateway: Arc<Gateway>,
        runs: Arc<Runs>,
        readers: Arc<Readers>,
        settings: RunSettings,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self { gateway, runs, readers, settings, stopping }
    }

    /// Answers a request for a turn. A streamed reply of a front end becomes a run.
    pub async fn turn(
        self: &Arc<Self>,
        mut incoming: IncomingRequest,
        raw: Bytes,
        permit: OwnedSemaphorePermit,
    ) -> Answer {
        let Some(NewRun { run, accepted, reply }) = self.read(&incoming, &raw) else {
            return plain(self.gateway.turn(incoming, raw, permit).await);
        };
        let live = Arc::new(LiveRun::new(&*run.id, run.epoch));
        // Readers may find the run as soon as it is stored.
        let guard = self.runs.register(live.clone());
        match self.store_start(&run).instrument(incoming.span()).await {
            Ok(Outcome::Written) => {}
            Ok(Outcome::Repeated { run }) => return self.repeated(&incoming, &run).await,
            // The store has logged its error. The reply is more important than its log.
            Ok(_) | Err(_) => return plain(self.gateway.turn(incoming, raw, permit).await),
        }
        drop(raw);
        drop_body_headers(&mut incoming);
        // The client counts as a reader from now on, until it disconnects.
        let reader = RunReader::of_live(&self.runs, &live, reply);
        let (begun, head) = oneshot::channel();
        let id = run.id.clone();
        let (turn, dialect) = (incoming.id.clone(), incoming.dialect);
        tokio::spawn(self.clone().run(run, guard, (incoming, accepted, permit), begun));
        match head.await {
            Ok(Begun::Reply(head)) => {
                let body = self.readers.body_of(reader);
                let mut answer = head.map(|()| body);
                name_run(&mut answer, &id);
                answer
            }
            Ok(Begun::Finished(reply)) => plain(*reply),
            Err(_) => {
                let fault = Fault::new(FaultKind::Internal, "the run was stopped");
                plain(error_response(dialect, &fault, &turn, ""))
            }
        }
    }

    /// Reads a request that starts a run; `None` if it does not. A request with mistakes does not, and
    /// the gateway reports them.
    fn read(&self, incoming: &IncomingRequest, raw: &Bytes) -> Option<NewRun> {
        let format = ReplyFormat::of(incoming.dialect)?;
        if !self.settings.log || !self.runs.sealed_store.has_room() {
            return None;
        }
        let settings = self.gateway.settings();
        let body = decompress_body(&settings, &incoming.headers, raw).ok()?;
        let record = RunRecord::new(incoming, &body);
        let accepted = record.read_request(Some(settings.limits.json_depth)).ok()?;
        if !accepted.request.stream {
            return None;
        }
        let id = format!("run_{}", random::id());
        let now = unix_ms();
        let run = Run {
            owner: owner(incoming),
            scope: scope_of(format, accepted.request.thread.as_deref()),
            name: accepted.session.run_name().map(|name| bounded_name(name).into_owned()),
            reference: None,
            instance: self.runs.instance.clone(),
            epoch: 1,
            status: RunStatus::Running,
            created: now,
            expires: Some(expires(now, self.settings.retention)),
            sealed: self.runs.sealed_store.seal(SealedKind::Run, &id, &record),
            id,
        };
        let writer = accepted.reply_writer(&record::identity(&run));
        Some(NewRun { run, accepted, reply: ResumableReply::new(writer, format) })
    }

    /// Stores a run that starts. A name may be used again when its run has expired.
    async fn store_start(&self, run: &Run) -> Result<Outcome, StoreError> {
        let store = &self.runs.sealed_store.store;
        let commit = || Commit { start: Some(run.clone()), ..Commit::default() };
        let outcome = store.commit(commit()).await?;
        let Outcome::Repeated { run: known } = &outcome else {
            self.runs.sealed_store.count_written(run.sealed.len());
            return Ok(outcome);
        };
        match store.run(known).await? {
            Some(known) if is_kept(&known) => Ok(outcome),
            _ => {
                store.remove_run(known).await?;
                store.commit(commit()).await
            }
        }
    }

    /// Runs a turn to its end, whether its client stays or not.
    async fn run(
        self: Arc<Self>,
        run: Run,
        guard: RunGuard,
        request: (IncomingRequest, Accepted, OwnedSemaphorePermit),
        begun: oneshot::Sender<Begun>,
    ) {
        let live = guard.run.clone();
        let canonical = self.canonical(live.clone());
        let end = self.end_of(run);
        let work = async {
            tokio::select! {
                () = self.drive(&canonical, &end, request, begun) => {}
                () = self.stop_when_detached(&live) => {}
            }
        };
        canonical.guard(work, &end).await;
    }

    async fn drive(
        &self,
        canonical: &CanonicalRun,
        end: &EndOfRun,
        (incoming, accepted, permit): (IncomingRequest, Accepted, OwnedSemaphorePermit),
        begun: oneshot::Sender<Begun>,
    ) {
        let reply = tokio::select! {
            reply = self.gateway.turn_events(incoming, accepted, permit) => reply,
            () = canonical.live.stopped() => {
                canonical.cancel(end).await;
                return;
            }
        };
        match reply {
            Ok(reply) => {
                // The client may be gone. The run goes on.
                let _ = begun.send(Begun::Reply(reply.head.stream(())));
                canonical.drive_reply(reply, end).await;
            }
            Err(finished) => {
                // No model has answered, so the client may use the name again.
                let _ = self.runs.sealed_store.store.remove_run(&end.run.id).await;
                let _ = begun.send(Begun::Finished(Box::new(finished.reply)));
            }
        }
    }

    /// Stops a run that has had no reader for too long. Never returns.
    async fn stop_when_detached(&self, live: &LiveRun) {
        let Some(limit) = self.settings.detached else {
            return pending().await;
        };
        self.runs.detached(live, limit).await;
        tracing::info!(run = live.id, "stopping a run without a reader");
        live.stop();
        pending::<()>().await;
    }

    fn canonical(&self, live: Arc<LiveRun>) -> CanonicalRun {
        let pacing = self.settings.pacing;
        CanonicalRun { runs: self.runs.clone(), live, pacing, needs_content: false }
    }

    fn end_of(&self, run: Run) -> EndOfRun {
        EndOfRun { runs: self.runs.clone(), run, retention: self.settings.retention }
    }
}

impl CloseRun for FrontDoors {
    fn handles(&self, scope: &str) -> bool {
        record::is_front_door(scope)
    }

    fn close(
        self: Arc<Self>,
        run: Run,
    ) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>> {
        Box::pin(async move {
            let live = Arc::new(LiveRun::new(&*run.id, run.epoch));
            let fault = Fault::new(FaultKind::Internal, ABANDONED);
            self.canonical(live).close_left(fault, &self.end_of(run)).await.map(drop)
        })
    }
}

/// Who may see the runs of a caller: callers who present the same key.
fn owner(incoming: &IncomingRequest) -> String {
    credential_fingerprint(&callers_key(incoming))
}

/// Whether a run is in progress or has not expired.
fn is_kept(run: &Run) -> bool {
    run.status == RunStatus::Running || is_valid(run.expires)
}

fn name_run<B>(answer: &mut Response<B>, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        answer.headers_mut().insert(RUN, id);
    }
}
