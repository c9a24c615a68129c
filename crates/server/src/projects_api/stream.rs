//! How a caller reads a run: the format, the cursor and the kinds. The readers themselves are in
//! [`throughline_conversations::runs::reader`].

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Map, Value};
use throughline_canonical::{Fault, Request};
use throughline_codec::dialects::resumable::{Kinds, LogCursor, ReplyFormat, ResumableReply};
use throughline_codec::dialects::{ReplyIdentity, ReplyWriter};
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{Caller, Projects, RunView};
use throughline_conversations::runs::read_options::ReadOptions;
use throughline_conversations::runs::reader::{EndFacts, EndOfLog};
use utoipa::{IntoParams, ToSchema};

use super::call::{Call, Refusal};

/// The formats in which a run can be read.
#[derive(ToSchema)]
#[serde(rename_all = "kebab-case")]
#[allow(dead_code, reason = "describes `ReplyFormat`")]
enum FormatName {
    Ndjson,
    Sse,
    AgUi,
    Ui,
}

/// The kinds of blocks that a reader can ask for.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[allow(dead_code, reason = "describes `Kinds`")]
enum KindName {
    Text,
    Thinking,
    Tools,
}

/// How a caller wants to read a run.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes `ReadOptions`")]
pub(super) struct EventsQuery {
    /// The format. Default: `ndjson`, or what `Accept` says.
    #[param(inline, value_type = Option<FormatName>)]
    format: Option<String>,
    /// The `seq` of a line or the `id` of a frame. The header `Last-Event-ID` means the same.
    after: Option<String>,
    /// The kinds of blocks, separated by commas. Default: all.
    #[param(inline, style = Form, explode = false, value_type = Option<Vec<KindName>>)]
    kinds: Option<String>,
}

/// How a caller wants to read the run that its request starts.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes the part of `ReadOptions` that turns use")]
pub(super) struct FormatQuery {
    /// The format. Default: `ndjson`, or what `Accept` says.
    #[param(inline, value_type = Option<FormatName>)]
    format: Option<String>,
    /// The kinds of blocks, separated by commas. Default: all.
    #[param(inline, style = Form, explode = false, value_type = Option<Vec<KindName>>)]
    kinds: Option<String>,
}

/// How a caller wants to read a run, checked.
pub(super) struct Reading {
    format: ReplyFormat,
    after: Option<LogCursor>,
    kinds: Kinds,
    /// Whether this is the answer to the request that starts the run.
    is_first: bool,
}

impl Reading {
    /// Reads the query and the headers.
    pub(super) fn read(call: &Call) -> Result<Self, Refusal> {
        let headers = &call.caller.headers;
        let options = ReadOptions::read(call.query_text(), headers)?;
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let format = options.format.unwrap_or_else(|| accepted(accept.unwrap_or_default()));
        let (after, kinds) = (options.cursor().map_err(unknown_cursor)?, options.kinds);
        Ok(Self { format, after, kinds, is_first: false })
    }

    /// The same for the answer to the request that starts a run. It has no cursor.
    pub(super) fn of_first(self) -> Self {
        Self { is_first: true, ..self }
    }

    /// The same after all frames of an event.
    pub(super) fn after_event(self, number: u64) -> Self {
        Self { after: Some(LogCursor::after_event(number)), ..self }
    }

    /// Opens the stream of a run.
    pub(super) async fn open(self, call: &Call, id: &str) -> Result<Response, Refusal> {
        let Self { format, after, kinds, is_first } = self;
        let run = call.projects().run(&call.caller, id).await?;
        let seal = Some(call.projects().seal_of_run(&call.caller, &run).await?);
        let (writer, content_type) = writer(format, &run);
        let reply = ResumableReply::new(writer, format).with_kinds(kinds);
        let readers = &call.app.readers;
        let mut reader = match is_first {
            true => readers.open(id, seal, reply, None).await?,
            false => readers.resume(id, seal, reply, after).await.map_err(unknown_cursor)?,
        };
        let projects = call.projects();
        if let Some(ends) = projects.end_of_membership(&call.caller, &run.project_id).await? {
            reader = reader.until(ends);
        }
        if format == ReplyFormat::NdJson {
            let (projects, caller) = (call.projects().clone(), call.caller.clone());
            reader = reader.with_end_facts(EndOfAnswer { projects, caller, id: run.id });
        }
        let headers = [
            (header::CONTENT_TYPE, content_type),
            (header::CACHE_CONTROL, "no-cache, no-transform"),
        ];
        Ok((headers, Body::new(readers.body_of(reader))).into_response())
    }
}

/// The format that an `Accept` header names, if it names one. Three formats are event streams; the
/// header means the one without a protocol of its own.
fn accepted(accept: &str) -> ReplyFormat {
    let names = |media_type: &str| accept.contains(media_type);
    match names("text/event-stream") && !names("application/x-ndjson") {
        true => ReplyFormat::Sse,
        false => ReplyFormat::NdJson,
    }
}

/// The problem of a cursor that cannot be used.
fn unknown_cursor(fault: Fault) -> Problem {
    let is_of_cursor = fault.path.as_deref() == Some("after");
    let problem = Problem::from(fault);
    match is_of_cursor {
        true => problem.hint("send the `id` of a frame or the `seq` of a line that you received"),
        false => problem,
    }
}

/// A writer for the reply of a run, and its content type.
fn writer(format: ReplyFormat, run: &RunView) -> (Box<dyn ReplyWriter>, &'static str) {
    // AG-UI adds `run_` to the id.
    let id = run.id.strip_prefix("run_").unwrap_or(&run.id);
    let identity = ReplyIdentity {
        model: run.model.clone(),
        ..ReplyIdentity::new(id, run.created_at / 1_000)
    };
    let request = Request { thread: Some(run.branch_id.clone()), ..Request::default() };
    let session = format.dialect().session();
    (session.reply_writer(&request, &identity), session.stream_type())
}

/// The facts of the last line of an answer.
struct EndOfAnswer {
    projects: Arc<Projects>,
    caller: Caller,
    id: String,
}

impl EndFacts for EndOfAnswer {
    fn facts<'a>(
        &'a self,
        end: EndOfLog,
    ) -> Pin<Box<dyn Future<Output = Map<String, Value>> + Send + 'a>> {
        Box::pin(async move {
            let mut facts = Map::new();
            let word = match end.reason {
                _ if end.is_empty => Some("empty"),
                reason if reason.is_cancelled() => Some("cancelled"),
                _ => None,
            };
            facts.extend(word.map(|word| ("reason".to_owned(), word.into())));
            // The node is stored before readers see the end.
            let run = self.projects.run(&self.caller, &self.id).await;
            let node = run.ok().and_then(|run| run.node_id);
            facts.insert("nodeId".to_owned(), node.into());
            facts
        })
    }
}
