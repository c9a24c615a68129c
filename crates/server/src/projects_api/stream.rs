//! Writes the events of a run in the format that the caller wants, from any cursor on. A reader reads
//! the log at its own pace; if it disconnects, the run goes on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header;
use serde::Deserialize;
use serde_json::{Map, Value};
use throughline_canonical::{EndReason, Event, Fault, FaultKind, Request};
use throughline_codec::dialects::resumable::{Kinds, LogCursor, ReplyFormat, ResumableReply};
use throughline_codec::dialects::{ReplyIdentity, ReplyWriter};
use throughline_conversations::chat_seal::ChatSeal;
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{Caller, Projects, RunView};
use throughline_conversations::runs::canonical::EMPTY_REPLY;
use throughline_conversations::runs::log::Entry;
use utoipa::IntoParams;

use super::call::{Call, Refusal};

/// How a caller wants to read a run.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// `ndjson` (the default), `sse`, `ag-ui` or `ui`.
    format: Option<String>,
    /// The `seq` of a line or the `id` of a frame. The header `Last-Event-ID` means the same.
    after: Option<String>,
    /// A list of `text`, `thinking`, `tools`. Default: all.
    kinds: Option<String>,
}

/// How a caller wants to read the run that its request starts.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code, reason = "describes the part of `EventsQuery` that turns use")]
pub(super) struct FormatQuery {
    /// `ndjson` (the default), `sse`, `ag-ui` or `ui`.
    format: Option<String>,
    /// A list of `text`, `thinking`, `tools`. Default: all.
    kinds: Option<String>,
}

/// How a caller wants to read a run, checked.
pub(super) struct Reading {
    format: ReplyFormat,
    after: LogCursor,
    kinds: Kinds,
}

impl Reading {
    /// Reads the query and the headers.
    pub(super) fn read(call: &Call) -> Result<Self, Refusal> {
        let query: EventsQuery = call.query()?;
        let headers = &call.caller.headers;
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let format = match query.format.as_deref() {
            None | Some("") => accepted(header("accept").unwrap_or_default()),
            Some(name) => ReplyFormat::read(name)?,
        };
        // A browser that reconnects repeats the query, and the header has its newest cursor.
        let after = header("last-event-id").map(str::to_owned).or(query.after);
        let after = match after.filter(|after| !after.is_empty()) {
            Some(text) => LogCursor::read(&text).map_err(|_| unknown_cursor(&text))?,
            None => LogCursor::default(),
        };
        let kinds = match query.kinds.filter(|kinds| !kinds.is_empty()) {
            Some(kinds) => Kinds::read(&kinds)?,
            None => Kinds::ALL,
        };
        Ok(Self { format, after, kinds })
    }

    /// The same without a cursor, for the answer to the request that starts a run.
    pub(super) fn without_cursor(self) -> Self {
        Self { after: LogCursor::default(), ..self }
    }

    /// Opens the stream of a run.
    pub(super) async fn open(self, call: &Call, id: &str) -> Result<Response, Refusal> {
        let Self { format, after, kinds } = self;
        let projects = call.projects();
        let run = projects.run(&call.caller, id).await?;
        let seal = projects.seal_of_run(&call.caller, &run).await?;
        if after.number > 0 && !projects.has_entry(id, after.number).await? {
            return Err(unknown_cursor(after).into());
        }
        let (writer, content_type) = writer(format, &run);
        let reply = ResumableReply::new(writer, format).with_kinds(kinds).after(after);
        let mut reader = RunReader {
            projects: projects.clone(),
            caller: call.caller.clone(),
            entries: projects.runs().follow(id, None, Some(seal.clone())).boxed(),
            seal,
            id: run.id,
            format,
            reply,
            keep_alive: call.app.gateway.settings().keep_alive,
            silent: Duration::ZERO,
            last: 0,
            progress: Progress::Reading,
            is_empty: false,
        };
        let first = reader.skip_to(after).await?;
        let pieces = stream::unfold((first, reader), |(first, mut reader)| async move {
            let piece = match first.is_empty() {
                false => first,
                true => reader.next().await?,
            };
            Some((Ok::<_, Infallible>(Bytes::from(piece)), (Vec::new(), reader)))
        });
        let headers = [
            (header::CONTENT_TYPE, content_type),
            (header::CACHE_CONTROL, "no-cache, no-transform"),
        ];
        Ok((headers, Body::from_stream(pieces)).into_response())
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

fn unknown_cursor(cursor: impl std::fmt::Display) -> Problem {
    Problem::from(LogCursor::unknown(cursor))
        .hint("send the `id` of a frame or the `seq` of a line that you received")
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

/// How far a reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Reading,
    /// The log has no last event, and its rest is read from the store.
    Reopened,
    Ended,
}

/// Reads the log of a run and writes it.
struct RunReader {
    projects: Arc<Projects>,
    caller: Caller,
    seal: Arc<ChatSeal>,
    id: String,
    entries: BoxStream<'static, Result<Entry, Fault>>,
    format: ReplyFormat,
    reply: ResumableReply,
    keep_alive: Duration,
    /// How long nothing has arrived.
    silent: Duration,
    /// The number of the last entry.
    last: u64,
    progress: Progress,
    /// Whether the provider returned nothing.
    is_empty: bool,
}

impl RunReader {
    /// Reads up to a cursor that the log has. Returns what follows it in its entry.
    async fn skip_to(&mut self, cursor: LogCursor) -> Result<Vec<u8>, Problem> {
        let mut out = Vec::new();
        while self.last < cursor.number {
            match self.entries.next().await {
                Some(Ok(entry)) => out.extend(self.take(&entry).await),
                Some(Err(fault)) => return Err(fault.into()),
                None => break,
            }
        }
        match self.reply.knows_cursor() {
            true => Ok(out),
            false => Err(unknown_cursor(cursor)),
        }
    }

    /// The next bytes.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.progress == Progress::Ended {
                return None;
            }
            let out = match tokio::time::timeout(self.keep_alive, self.entries.next()).await {
                Err(_) => {
                    let mut out = Vec::new();
                    self.silent += self.keep_alive;
                    self.reply.wait(self.silent, &mut out);
                    out
                }
                Ok(Some(Ok(entry))) => self.take(&entry).await,
                Ok(Some(Err(fault))) => self.end_with(fault).await,
                // Another process has taken the run over, so its rest is in the store.
                Ok(None) if self.progress != Progress::Reopened => {
                    self.progress = Progress::Reopened;
                    let (seal, last) = (Some(self.seal.clone()), Some(self.last));
                    self.entries = self.projects.runs().follow(&self.id, last, seal).boxed();
                    continue;
                }
                Ok(None) => {
                    let what = "the log of this run is incomplete";
                    self.end_with(Fault::new(FaultKind::Internal, what)).await
                }
            };
            if !out.is_empty() {
                return Some(out);
            }
        }
    }

    async fn take(&mut self, entry: &Entry) -> Vec<u8> {
        self.last = entry.number;
        self.silent = Duration::ZERO;
        match serde_json::from_str::<Event<'_>>(&entry.text) {
            Ok(event) => self.write(&event, entry.number).await,
            // An event of a newer version is skipped.
            Err(_) => Vec::new(),
        }
    }

    async fn end_with(&mut self, fault: Fault) -> Vec<u8> {
        let number = self.last + 1;
        let mut out = self.write(&Event::Fault(fault), number).await;
        out.extend(self.write(&Event::Ended { reason: EndReason::Failed }, number + 1).await);
        out
    }

    async fn write(&mut self, event: &Event<'_>, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        match event {
            Event::Ended { reason } => {
                self.reply.push(number, event, &mut out);
                self.progress = Progress::Ended;
                if self.format == ReplyFormat::NdJson {
                    out = complete_end(&out, self.facts_of_end(reason).await);
                }
                return out;
            }
            Event::Fault(fault) => self.is_empty = fault.code.as_deref() == Some(EMPTY_REPLY),
            _ => {}
        }
        self.reply.push(number, event, &mut out);
        out
    }

    /// What the last line says besides what its format knows.
    async fn facts_of_end(&mut self, reason: &EndReason) -> Map<String, Value> {
        let mut facts = Map::new();
        let word = match reason {
            _ if self.is_empty => Some("empty"),
            reason if reason.is_cancelled() => Some("cancelled"),
            _ => None,
        };
        facts.extend(word.map(|word| ("reason".to_owned(), word.into())));
        // The node is stored before readers see the end.
        let run = self.projects.run(&self.caller, &self.id).await;
        let node = run.ok().and_then(|run| run.node_id);
        facts.insert("nodeId".to_owned(), node.into());
        facts
    }
}

/// Adds facts to the last line. Its number stays its last member.
fn complete_end(written: &[u8], facts: Map<String, Value>) -> Vec<u8> {
    let Ok(mut line) = serde_json::from_slice::<Map<String, Value>>(written) else {
        return written.to_vec();
    };
    let number = line.shift_remove("seq");
    line.extend(facts);
    line.extend(number.map(|number| ("seq".to_owned(), number)));
    let mut out = Value::Object(line).to_string().into_bytes();
    out.push(b'\n');
    out
}
