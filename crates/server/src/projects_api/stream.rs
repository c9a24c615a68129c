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
use throughline_canonical::{BlockStart, EndReason, Event, Fault, FaultKind, Request};
use throughline_codec::dialects::{self, ReplyIdentity, ReplyWriter};
use throughline_conversations::projects::problem::Problem;
use throughline_conversations::projects::{Projects, RunView};
use throughline_conversations::runs::log::Entry;
use utoipa::IntoParams;

use super::call::{Call, Refusal};
use super::numbered::{Cursor, number_frames, number_lines};

/// How the events of a run are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Ndjson,
    Sse,
    AgUi,
    Ui,
}

/// The formats, by the value of `format`, with the dialect that writes them.
const FORMATS: [(&str, Format, &str); 4] = [
    ("ndjson", Format::Ndjson, "ndjson"),
    ("sse", Format::Sse, "events"),
    ("ag-ui", Format::AgUi, "ag_ui"),
    ("ui", Format::Ui, "ui_stream"),
];

/// The kinds of blocks that a reader can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    Tools,
}

const KINDS: [(&str, Kind); 3] =
    [("text", Kind::Text), ("thinking", Kind::Thinking), ("tools", Kind::Tools)];

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
    format: Format,
    after: Option<(String, Cursor)>,
    /// `None` for all kinds.
    kinds: Option<Vec<Kind>>,
}

impl Reading {
    /// Reads the query and the headers.
    pub(super) fn read(call: &Call) -> Result<Self, Refusal> {
        let query: EventsQuery = call.query()?;
        let headers = &call.caller.headers;
        let header = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let format = match query.format.as_deref() {
            None | Some("") => accepted(header("accept").unwrap_or_default()),
            Some(name) => named(name, &FORMATS.map(|(name, format, _)| (name, format)), "format")?,
        };
        // A browser that reconnects repeats the query, and the header has its newest cursor.
        let after = header("last-event-id").map(str::to_owned).or(query.after);
        let after = after.filter(|after| !after.is_empty());
        let after = after.map(|text| Cursor::read(&text).map(|cursor| (text, cursor)));
        let kinds = query.kinds.filter(|kinds| !kinds.is_empty()).map(|kinds| {
            kinds.split(',').map(|kind| named(kind.trim(), &KINDS, "kinds")).collect()
        });
        Ok(Self { format, after: after.transpose()?, kinds: kinds.transpose()? })
    }

    /// The same without a cursor, for the answer to the request that starts a run.
    pub(super) fn without_cursor(self) -> Self {
        Self { after: None, ..self }
    }

    /// Opens the stream of a run.
    pub(super) async fn open(self, call: &Call, id: &str) -> Result<Response, Refusal> {
        let projects = call.projects();
        let run = projects.run(call.owner(), id).await?;
        let after = match self.after {
            Some((text, cursor)) => {
                if cursor.number > 0 && !projects.has_entry(id, cursor.number).await? {
                    return Err(Cursor::unknown(&text).into());
                }
                cursor
            }
            None => Cursor::default(),
        };
        let (writer, content_type) = writer(self.format, &run);
        let reader = RunReader {
            projects: projects.clone(),
            owner: call.owner().to_owned(),
            entries: projects.runs().follow(id, None).boxed(),
            id: run.id,
            format: self.format,
            writer,
            filter: Filter { kinds: self.kinds, left_out: Vec::new() },
            after,
            keep_alive: call.app.gateway.settings().keep_alive,
            last: 0,
            progress: Progress::Empty,
        };
        let pieces = stream::unfold(reader, |mut reader| async move {
            let piece = reader.next().await?;
            Some((Ok::<_, Infallible>(Bytes::from(piece)), reader))
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
fn accepted(accept: &str) -> Format {
    let names = |media_type: &str| accept.contains(media_type);
    match names("text/event-stream") && !names("application/x-ndjson") {
        true => Format::Sse,
        false => Format::Ndjson,
    }
}

fn named<T: Copy>(name: &str, known: &[(&str, T)], member: &str) -> Result<T, Problem> {
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<String> = known.iter().map(|(name, _)| format!("`{name}`")).collect();
        let message = format!("`{name}` is unknown; use {}", names.join(", "));
        Problem::invalid(member, message)
    })
}

/// A writer for the reply of a run, and its content type.
fn writer(format: Format, run: &RunView) -> (Box<dyn ReplyWriter>, &'static str) {
    let row = FORMATS.iter().find(|row| row.1 == format).unwrap_or(&FORMATS[0]);
    let dialect = dialects::client(row.2).unwrap_or(&dialects::ndjson::NdJson);
    // AG-UI adds `run_` to the id.
    let id = run.id.strip_prefix("run_").unwrap_or(&run.id);
    let identity = ReplyIdentity {
        model: run.model.clone(),
        ..ReplyIdentity::new(id, run.created_at / 1_000)
    };
    let request = Request { thread: Some(run.branch_id.clone()), ..Request::default() };
    let session = dialect.session();
    (session.reply_writer(&request, &identity), session.stream_type())
}

/// Leaves out blocks of kinds that the reader does not want.
struct Filter {
    kinds: Option<Vec<Kind>>,
    /// Open blocks that are left out, by index.
    left_out: Vec<u32>,
}

impl Filter {
    fn keeps(&mut self, event: &Event<'_>) -> bool {
        let Some(kinds) = &self.kinds else {
            return true;
        };
        match event {
            Event::BlockStarted { index, block } => {
                let kind = match block {
                    BlockStart::Thinking { .. } | BlockStart::Redacted { .. } => Kind::Thinking,
                    BlockStart::ToolCall { .. } => Kind::Tools,
                    _ => Kind::Text,
                };
                self.left_out.retain(|left_out| left_out != index);
                let is_kept = kinds.contains(&kind);
                if !is_kept {
                    self.left_out.push(*index);
                }
                is_kept
            }
            Event::BlockDelta { index, .. } | Event::BlockEnded { index } => {
                !self.left_out.contains(index)
            }
            _ => true,
        }
    }
}

/// What a reader has seen of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// No block and no error.
    Empty,
    Begun,
    /// The log has no last event, and its rest is read from the store.
    Reopened,
    Ended,
}

/// Reads the log of a run and writes it.
struct RunReader {
    projects: Arc<Projects>,
    owner: String,
    id: String,
    entries: BoxStream<'static, Result<Entry, Fault>>,
    format: Format,
    writer: Box<dyn ReplyWriter>,
    filter: Filter,
    after: Cursor,
    keep_alive: Duration,
    /// The number of the last entry.
    last: u64,
    progress: Progress,
}

impl RunReader {
    /// The next bytes.
    async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            if self.progress == Progress::Ended {
                return None;
            }
            let out = match tokio::time::timeout(self.keep_alive, self.entries.next()).await {
                Err(_) => {
                    let mut out = Vec::new();
                    self.writer.keep_alive(&mut out);
                    out
                }
                Ok(Some(Ok(entry))) => self.take(&entry).await,
                Ok(Some(Err(fault))) => self.end_with(fault).await,
                // Another process has taken the run over, so its rest is in the store.
                Ok(None) if self.progress != Progress::Reopened => {
                    self.progress = Progress::Reopened;
                    self.entries = self.projects.runs().follow(&self.id, Some(self.last)).boxed();
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
        let mut more = Map::new();
        match event {
            Event::Ended { reason } => {
                let is_empty = self.progress == Progress::Empty && !reason.is_cancelled();
                if is_empty {
                    let what = "the provider returned nothing";
                    let fault = Fault::new(FaultKind::Unreachable, what);
                    self.writer.push(&Event::Fault(fault), &mut out);
                }
                if self.format == Format::Ndjson {
                    more = self.facts_of_end(reason, is_empty).await;
                }
                self.progress = Progress::Ended;
            }
            Event::BlockStarted { .. } | Event::Fault(_) => self.progress = Progress::Begun,
            _ => {}
        }
        if self.filter.keeps(event) {
            self.writer.push(event, &mut out);
        }
        match self.format {
            Format::Ndjson => number_lines(&out, number, self.after, more),
            Format::Sse | Format::AgUi | Format::Ui => number_frames(&out, number, self.after),
        }
    }

    /// What the last line says besides what its format knows.
    async fn facts_of_end(&mut self, reason: &EndReason, is_empty: bool) -> Map<String, Value> {
        let mut facts = Map::new();
        let word = match reason {
            _ if is_empty => Some("empty"),
            reason if reason.is_cancelled() => Some("cancelled"),
            _ => None,
        };
        facts.extend(word.map(|word| ("reason".to_owned(), word.into())));
        // The node is stored before readers see the end.
        let run = self.projects.run(&self.owner, &self.id).await;
        let node = run.ok().and_then(|run| run.node_id);
        facts.insert("nodeId".to_owned(), node.into());
        facts
    }
}
