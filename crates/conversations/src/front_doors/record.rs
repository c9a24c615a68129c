//! What a run remembers of its request. Every instance can write the reply from it and the log.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::resumable::{ReplyFormat, ResumableReply};
use throughline_codec::dialects::{self, Accepted, ReplyIdentity, RequestParts, timestamp};
use throughline_gateway::IncomingRequest;

use crate::store::{Run, bounded_name};

/// The scopes of runs without a thread.
const PLAIN_SCOPES: [&str; 2] = ["ndjson", "events"];
/// The beginnings of the scopes of runs with a thread.
const THREAD_SCOPES: [&str; 2] = ["ag_ui:", "ui:"];

/// The scope of the runs of a thread.
pub(super) fn scope_of(format: ReplyFormat, thread: Option<&str>) -> String {
    let thread = thread.unwrap_or_default();
    match format {
        ReplyFormat::NdJson => PLAIN_SCOPES[0].to_owned(),
        ReplyFormat::Sse => PLAIN_SCOPES[1].to_owned(),
        ReplyFormat::AgUi => format!("{}{}", THREAD_SCOPES[0], bounded_name(thread)),
        ReplyFormat::Ui => format!("{}{}", THREAD_SCOPES[1], bounded_name(thread)),
    }
}

/// Whether the runs of a scope are of front doors.
pub(super) fn is_front_door(scope: &str) -> bool {
    PLAIN_SCOPES.contains(&scope) || THREAD_SCOPES.iter().any(|start| scope.starts_with(start))
}

/// The identity of the reply of a run. It is the same for all readers.
pub(super) fn identity(run: &Run) -> ReplyIdentity {
    let id = run.id.strip_prefix("run_").unwrap_or(&run.id);
    ReplyIdentity::new(id, run.created / 1000)
}

/// A run as its caller sees it, with the names that its request has.
pub(super) fn state(run: &Run, request: Option<&Accepted>) -> Value {
    let mut state = json!({
        "id": run.id,
        "status": run.status,
        "createdAt": timestamp::write(run.created / 1000),
    });
    let is_in_thread = THREAD_SCOPES.iter().any(|start| run.scope.starts_with(start));
    let thread = request.and_then(|accepted| accepted.request.thread.as_deref());
    if let Some(thread) = thread.filter(|thread| is_in_thread && !thread.is_empty()) {
        state["threadId"] = thread.into();
    }
    if let Some(name) = request.and_then(|accepted| accepted.session.run_name()) {
        state["runId"] = name.into();
    }
    state
}

/// The request of a run.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunRecord {
    dialect: String,
    path: String,
    query: String,
    body: String,
}

impl RunRecord {
    pub(super) fn new(incoming: &IncomingRequest, body: &[u8]) -> Self {
        Self {
            dialect: incoming.dialect.name().to_owned(),
            path: incoming.path.clone(),
            query: incoming.query.clone().unwrap_or_default(),
            // A body that is not valid UTF-8 is no JSON, and no run.
            body: String::from_utf8_lossy(body).into_owned(),
        }
    }

    /// Reads the request again.
    pub(super) fn read_request(&self, max_depth: Option<usize>) -> Result<Accepted, Fault> {
        let dialect = dialects::client(&self.dialect).ok_or_else(|| {
            Fault::new(FaultKind::Internal, "a newer version has written this run")
        })?;
        let Self { path, query, body, .. } = self;
        dialect.read_request(&RequestParts { path, query, body: body.as_bytes(), max_depth })
    }

    /// The format that the client asked for.
    pub(super) fn format(&self) -> ReplyFormat {
        let dialect = dialects::client(&self.dialect);
        dialect.and_then(ReplyFormat::of).unwrap_or(ReplyFormat::Sse)
    }

    /// The reply of this run in a format.
    pub(super) fn reply(&self, run: &Run, format: ReplyFormat) -> Result<ResumableReply, Fault> {
        let accepted = self.read_request(None)?;
        let identity = identity(run);
        let writer = match format == self.format() {
            true => accepted.reply_writer(&identity),
            false => format.dialect().session().reply_writer(&accepted.request, &identity),
        };
        Ok(ResumableReply::new(writer, format))
    }
}
