//! Requests about runs: to read, to resume, to follow and to stop them.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::Value;
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::resumable::{LogCursor, ReplyFormat};
use throughline_codec::dialects::segments::{decode, query_value};
use throughline_codec::dialects::{ClientDialect, ag_ui, ndjson, ui_stream};
use throughline_gateway::IncomingRequest;
use throughline_gateway::turn::error_reply::error_response;
use tracing::Instrument;

use super::follow::{Followed, Position, Thread};
use super::record::{self, RunRecord, scope_of};
use super::{FrontDoors, is_kept, name_run, owner};
use crate::body::{Answer, json, plain};
use crate::runs::read_options::ReadOptions;
use crate::runs::reader::Outlet;
use crate::sealed_store::{SealedKind, fault};
use crate::store::{Run, RunStatus, bounded_name};

/// How long a stop waits for the end of the run.
const MAX_STOP_WAIT: Duration = Duration::from_secs(5);

/// A request about runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunRequest {
    /// `GET /ui/chat/{id}/stream`
    Chat(String),
    /// `GET /ag-ui/{threadId}/runs/{runId}`
    ThreadRun(String, String),
    /// `GET /ag-ui/{threadId}?follow=true`
    Follow(String),
    /// `GET /runs/{id}`
    State(String),
    /// `GET /runs/{id}/events`
    Events(String),
    /// `POST /runs/{id}/stop`
    Stop(String),
}

impl RunRequest {
    /// Reads a path and its query; `None` if they are about something else.
    pub fn read(method: &Method, path: &str, query: Option<&str>) -> Option<Self> {
        let segments: Vec<String> = path.strip_prefix('/')?.split('/').map(decode).collect();
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            return None;
        }
        let follows =
            || query_value(query.unwrap_or_default(), "follow").as_deref() == Some("true");
        let reads = matches!(*method, Method::GET | Method::HEAD);
        Some(match segments[..] {
            ["ui", "chat", chat, "stream"] if reads => Self::Chat(chat.to_owned()),
            ["ag-ui", thread, "runs", run] => Self::ThreadRun(thread.to_owned(), run.to_owned()),
            ["ag-ui", thread] if reads && follows() => Self::Follow(thread.to_owned()),
            ["runs", id] => Self::State(id.to_owned()),
            ["runs", id, "events"] => Self::Events(id.to_owned()),
            ["runs", id, "stop"] => Self::Stop(id.to_owned()),
            _ => return None,
        })
    }

    /// The dialect of the errors.
    fn dialect(&self) -> &'static dyn ClientDialect {
        match self {
            Self::Chat(_) => &ui_stream::UiStream,
            Self::ThreadRun(..) | Self::Follow(_) => &ag_ui::AgUi,
            Self::State(_) | Self::Events(_) | Self::Stop(_) => &ndjson::NdJson,
        }
    }

    /// The method that the path takes.
    fn method(&self) -> Method {
        match self {
            Self::Stop(_) => Method::POST,
            _ => Method::GET,
        }
    }
}

fn options(incoming: &IncomingRequest) -> Result<ReadOptions, Fault> {
    ReadOptions::read(incoming.query.as_deref(), &incoming.headers)
}

fn no_run() -> Fault {
    Fault::new(FaultKind::NotFound, "no such run; runs are kept for `[runs] retention`")
}

impl FrontDoors {
    /// Answers a request about runs.
    pub async fn answer(
        self: &Arc<Self>,
        incoming: IncomingRequest,
        request: RunRequest,
    ) -> Answer {
        let dialect = request.dialect();
        if incoming.method != request.method() {
            let (path, method) = (&incoming.path, request.method());
            let what = format!("`{path}` does not accept {}; use {method}", incoming.method);
            let fault = Fault::new(FaultKind::WrongMethod, what);
            let mut answer = refuse(&incoming, dialect, &fault);
            if let Ok(method) = HeaderValue::from_str(method.as_str()) {
                answer.headers_mut().insert(header::ALLOW, method);
            }
            return answer;
        }
        let span = incoming.span();
        let answered = self.answer_about(&incoming, request).instrument(span).await;
        answered.unwrap_or_else(|fault| refuse(&incoming, dialect, &fault))
    }

    async fn answer_about(
        self: &Arc<Self>,
        incoming: &IncomingRequest,
        request: RunRequest,
    ) -> Result<Answer, Fault> {
        match request {
            RunRequest::Chat(chat) => self.resume_chat(incoming, &chat).await,
            RunRequest::ThreadRun(thread, run) => self.resume_run(incoming, &thread, &run).await,
            RunRequest::Follow(thread) => self.follow_thread(incoming, &thread).await,
            RunRequest::State(id) => {
                self.find(incoming, &id).await.map(|run| json(&self.state(&run)))
            }
            RunRequest::Events(id) => self.events(incoming, &id).await,
            RunRequest::Stop(id) => self.stop(incoming, &id).await,
        }
    }

    /// Refuses a name that the thread has used, with the state of its run.
    pub(super) async fn repeated(&self, incoming: &IncomingRequest, id: &str) -> Answer {
        let run = self.runs.sealed_store.store.run(id).await.ok().flatten();
        let what = "the thread has a run of this id; each run needs an id of its own";
        let refusal = Fault::new(FaultKind::Conflict, what).with_code("run_exists");
        let reply = self.gateway.reject(incoming, &refusal);
        let (head, body) = reply.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes);
        let body = body.unwrap_or_default();
        let with_state = |run: Run| {
            let mut value: Value = serde_json::from_slice(&body).ok()?;
            value.as_object_mut()?.insert("run".to_owned(), self.state(&run));
            Some(value.to_string())
        };
        let body = run.and_then(with_state).map_or(body.clone(), Into::into);
        plain(Response::from_parts(head, throughline_gateway::reply::ReplyBody::whole(body)))
    }

    /// A run of this caller.
    async fn find(&self, incoming: &IncomingRequest, id: &str) -> Result<Run, Fault> {
        let run = self.runs.sealed_store.store.run(id).await.map_err(fault)?;
        let owner = owner(incoming);
        let is_visible =
            |run: &Run| run.owner == owner && is_kept(run) && record::is_front_door(&run.scope);
        run.filter(is_visible).ok_or_else(no_run)
    }

    /// A run as its caller sees it.
    fn state(&self, run: &Run) -> Value {
        let request = self.record(run).and_then(|record| record.read_request(None));
        record::state(run, request.ok().as_ref())
    }

    /// What a run remembers.
    pub(super) fn record(&self, run: &Run) -> Result<RunRecord, Fault> {
        let opened =
            self.runs.sealed_store.open_if_possible(SealedKind::Run, &run.id, &run.sealed)?;
        opened.ok_or_else(no_run)
    }

    /// The newest active run of a chat.
    async fn resume_chat(
        self: &Arc<Self>,
        incoming: &IncomingRequest,
        chat: &str,
    ) -> Result<Answer, Fault> {
        let options = options(incoming)?;
        let scope = scope_of(ReplyFormat::Ui, Some(chat));
        let thread = Thread { owner: owner(incoming), scope };
        let runs = self.runs_of(&thread).await.map_err(fault)?;
        match runs.into_iter().find(|run| run.status == RunStatus::Running) {
            Some(run) => self.stream(&run, &options).await,
            None => {
                let mut empty = json(&Value::Null).map(|_| {
                    let body = http_body_util::Empty::new();
                    body.map_err(|never: std::convert::Infallible| match never {}).boxed_unsync()
                });
                *empty.status_mut() = StatusCode::NO_CONTENT;
                empty.headers_mut().remove(header::CONTENT_TYPE);
                Ok(empty)
            }
        }
    }

    async fn resume_run(
        self: &Arc<Self>,
        incoming: &IncomingRequest,
        thread: &str,
        name: &str,
    ) -> Result<Answer, Fault> {
        let options = options(incoming)?;
        let scope = scope_of(ReplyFormat::AgUi, Some(thread));
        let store = &self.runs.sealed_store.store;
        let run =
            store.named_run(&owner(incoming), &scope, &bounded_name(name)).await.map_err(fault)?;
        self.stream(&run.filter(is_kept).ok_or_else(no_run)?, &options).await
    }

    async fn events(
        self: &Arc<Self>,
        incoming: &IncomingRequest,
        id: &str,
    ) -> Result<Answer, Fault> {
        let options = options(incoming)?;
        self.stream(&self.find(incoming, id).await?, &options).await
    }

    /// The stream of a run, in the format of its request unless the reader names another.
    async fn stream(self: &Arc<Self>, run: &Run, options: &ReadOptions) -> Result<Answer, Fault> {
        let record = self.record(run)?;
        let format = options.format.unwrap_or_else(|| record.format());
        let reply = record.reply(run, format)?.with_kinds(options.kinds);
        let cursor = options.cursor()?;
        let reader = self.readers.resume(&run.id, None, reply, cursor).await?;
        let mut answer = streamed(format, self.readers.body_of(reader));
        name_run(&mut answer, &run.id);
        Ok(answer)
    }

    async fn follow_thread(
        self: &Arc<Self>,
        incoming: &IncomingRequest,
        thread: &str,
    ) -> Result<Answer, Fault> {
        let options = options(incoming)?;
        let scope = scope_of(ReplyFormat::AgUi, Some(thread));
        let thread = Thread { owner: owner(incoming), scope };
        let (position, first) = match options.after.as_deref() {
            Some(after) => {
                let (id, cursor) = LogCursor::read_with_run(after)?;
                let run = self.find(incoming, id).await.map_err(|_| LogCursor::unknown(after))?;
                if run.scope != thread.scope {
                    return Err(LogCursor::unknown(after));
                }
                let reader = self.followed(&run, options.kinds, Some(cursor)).await?;
                self.gateway.metrics.resumes.increment();
                (Position::In(Box::new(run)), Some(reader))
            }
            None => (self.first_position(&thread).await.map_err(fault)?, None),
        };
        let (outlet, body) = Outlet::new();
        let followed = Followed { thread, kinds: options.kinds };
        tokio::spawn(self.clone().follow(followed, position, first, outlet));
        Ok(streamed(ReplyFormat::AgUi, body))
    }

    /// Stops a run, and answers with its state.
    async fn stop(&self, incoming: &IncomingRequest, id: &str) -> Result<Answer, Fault> {
        let run = self.find(incoming, id).await?;
        let live = self.runs.live(&run.id);
        self.runs.stop(&run.id).await.map_err(fault)?;
        if let Some(live) = live {
            // The state then says that it was stopped.
            let _ = tokio::time::timeout(MAX_STOP_WAIT, live.closed()).await;
        }
        let run = self.find(incoming, id).await?;
        Ok(json(&self.state(&run)))
    }
}

/// Answers with a fault.
fn refuse(incoming: &IncomingRequest, dialect: &dyn ClientDialect, fault: &Fault) -> Answer {
    plain(error_response(dialect, fault, &incoming.id, ""))
}

/// A streamed reply in a format.
fn streamed<B>(format: ReplyFormat, body: B) -> Response<B> {
    let mut reply = Response::new(body);
    let dialect = format.dialect();
    let kind = HeaderValue::from_static(dialect.session().stream_type());
    reply.headers_mut().insert(header::CONTENT_TYPE, kind);
    for (name, value) in dialect.defaults().stream_headers {
        reply.headers_mut().insert(*name, HeaderValue::from_static(value));
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_about_runs_are_read() {
        let id = || "a/b".to_owned();
        for (path, query, expected) in [
            ("/ui/chat/a%2Fb/stream", None, Some(RunRequest::Chat(id()))),
            ("/ui/chat//stream", None, None),
            ("/ui/chat/stream", None, None),
            ("/ui/chat/c1", None, None),
            ("/ui/chat/c1/x/stream", None, None),
            ("/ag-ui/a%2Fb", Some("follow=true"), Some(RunRequest::Follow(id()))),
            ("/ag-ui/a%2Fb", None, None),
            ("/ag-ui/t/runs/a%2Fb", None, Some(RunRequest::ThreadRun("t".to_owned(), id()))),
            ("/runs/a%2Fb", None, Some(RunRequest::State(id()))),
            ("/runs/a%2Fb/events", None, Some(RunRequest::Events(id()))),
            ("/runs/a%2Fb/stop", None, Some(RunRequest::Stop(id()))),
            ("/runs", None, None),
            ("/v1/runs/x", None, None),
        ] {
            assert_eq!(RunRequest::read(&Method::GET, path, query), expected, "{path}");
        }
        // A post to a thread's path names a backend.
        assert_eq!(RunRequest::read(&Method::POST, "/ag-ui/a", Some("follow=true")), None);
    }
}
