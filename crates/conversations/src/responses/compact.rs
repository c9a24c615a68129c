//! `POST /v1/responses/compact`: a conversation becomes a summary that stands for it.
//!
//! A backend that compacts conversations itself gets the request, and a copy of its reply says who
//! can read the result. For every other backend the model writes a summary, and the client carries
//! it sealed: the gateway writes it as text into the next request.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use throughline_canonical::{Block, EndReason, Fault, FaultKind, Request};
use throughline_codec::dialects::compaction::Compaction;
use throughline_codec::dialects::openai_responses;
use throughline_codec::dialects::openai_responses::state::{StatefulRequest, compacted, output};
use throughline_codec::framing::MAX_REPLY_BYTES;
use throughline_codec::json::EndDetector;
use throughline_gateway::headers::BACKEND;
use throughline_gateway::reply::ReplyBody;
use throughline_gateway::thinking::random;
use throughline_gateway::turn::error_reply::Reply;
use throughline_gateway::turn::request::decompress_body;
use throughline_gateway::{Gateway, IncomingRequest, unix_ms};
use throughline_sealing::text::PREFIX;
use tracing::Instrument;

use super::Responses;
use super::history::History;
use super::stored::StoredResponse;
use crate::body::{Answer, drop_body_headers, plain};
use crate::copy::{ReplyCopy, forward_and_copy};

/// The path of a turn, which writes the summary.
const TURN_PATH: &str = "/v1/responses";

/// Statuses of a backend that does not compact conversations, or cannot read a part of this one. The
/// model is asked for a summary instead, and that turn repairs what can be repaired.
const NOT_COMPACTED: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::UNPROCESSABLE_ENTITY,
    StatusCode::NOT_IMPLEMENTED,
];

/// A request to compact a conversation.
struct CompactRequest {
    request: StatefulRequest,
    /// All items of the conversation. `None` if only the backend knows them.
    items: Option<Vec<Value>>,
    /// The backend that may compact it itself.
    native: Option<NativeCompaction>,
}

/// A request to compact a conversation, for a backend of the dialect.
struct NativeCompaction {
    backend: String,
    /// The body if it is not the one that the client sent.
    body: Option<Bytes>,
}

impl Responses {
    /// Answers a request to compact a conversation.
    pub(super) async fn compact(
        self: &Arc<Self>,
        owner: &str,
        incoming: IncomingRequest,
        raw: Bytes,
    ) -> Answer {
        let compact =
            match self.read_compact(owner, &incoming, &raw).instrument(incoming.span()).await {
                Ok(compact) => compact,
                Err(fault) => return plain(self.gateway.reject(&incoming, &fault)),
            };
        let CompactRequest { request, items, native } = compact;
        if let Some(NativeCompaction { backend, body }) = native {
            let mut forwarded = IncomingRequest { pin: Some(backend), ..incoming.clone() };
            if body.is_some() {
                drop_body_headers(&mut forwarded);
            }
            let body = body.unwrap_or(raw);
            let Some(items) = &items else {
                return self.forward(forwarded, body).await;
            };
            let reply = self.compact_at_backend(forwarded, body, &request, items).await;
            if !NOT_COMPACTED.contains(&reply.status()) {
                return reply;
            }
        }
        let items = items.unwrap_or_default();
        match self.compact_here(incoming.clone(), &request, &items).await {
            Ok(answer) => answer,
            Err(fault) => plain(self.gateway.reject(&incoming, &fault)),
        }
    }

    async fn read_compact(
        &self,
        owner: &str,
        incoming: &IncomingRequest,
        raw: &Bytes,
    ) -> Result<CompactRequest, Fault> {
        let settings = self.gateway.settings();
        let body = decompress_body(&settings, &incoming.headers, raw)?;
        let request = StatefulRequest::read(&body, settings.limits.json_depth)?;
        request.check()?;
        let backend = self.gateway.backend_for(incoming.pin.as_deref(), request.model())?;
        let speaks_it = backend.dialect.name() == openai_responses::NAME;
        let model = backend.model_for(request.model());
        let is_renamed = request.model() != Some(model);
        let native = |body: Option<Value>| NativeCompaction {
            backend: backend.name.clone(),
            body: body.map(|body| body.to_string().into()),
        };
        let found = self.items(owner, &request.references()).await?;
        let turns = match self.history(owner, &request).await? {
            History::Nothing => Vec::new(),
            History::Known { turns, .. } => turns,
            History::Unknown(_) if speaks_it && self.gateway.keeps_responses(&backend) => {
                let native = native(is_renamed.then(|| request.with_model(model)));
                return Ok(CompactRequest { request, items: None, native: Some(native) });
            }
            History::Unknown(fault) => return Err(fault),
        };
        let is_changed = !turns.is_empty() || !found.is_empty() || is_renamed;
        let history = turns.into_iter().flat_map(StoredResponse::into_items);
        let items: Vec<Value> = history.chain(request.items(&found, &mut random::id)).collect();
        // A backend reads no envelope of ours.
        let sealed_here = |item: &Value| item.to_string().contains(PREFIX);
        let reads = || {
            let accepted = request.summary_request(&items);
            !items.iter().any(sealed_here)
                && accepted.is_ok_and(|read| {
                    self.gateway.reads_conversation(&backend, incoming.dialect, &read.request)
                })
        };
        let body = || is_changed.then(|| request.with_items(&items, model));
        let native = (speaks_it && reads()).then(|| native(body()));
        Ok(CompactRequest { request, items: Some(items), native })
    }

    async fn compact_at_backend(
        &self,
        incoming: IncomingRequest,
        body: Bytes,
        request: &StatefulRequest,
        items: &[Value],
    ) -> Answer {
        let body = Full::new(body).map_err(|never| match never {}).boxed_unsync();
        let reply = self.gateway.forward_request(incoming.clone(), body).await;
        let conversation = request.summary_request(items);
        let Ok(conversation) = conversation.map(|accepted| accepted.request) else {
            return plain(reply);
        };
        if !reply.status().is_success() {
            return plain(reply);
        }
        let copy = CompactionCopy {
            backend: backend_of(&reply),
            gateway: self.gateway.clone(),
            incoming,
            conversation,
            bytes: Vec::new(),
            end: EndDetector::default(),
        };
        forward_and_copy(reply, copy)
    }

    /// Lets the model write a summary, and seals it for the client.
    async fn compact_here(
        &self,
        mut incoming: IncomingRequest,
        request: &StatefulRequest,
        items: &[Value],
    ) -> Result<Answer, Fault> {
        drop_body_headers(&mut incoming);
        TURN_PATH.clone_into(&mut incoming.path);
        let permit = self.gateway.admit()?;
        let accepted = request.summary_request(items)?;
        let events = match self.gateway.turn_events(incoming, accepted, permit).await {
            Ok(events) => events,
            Err(finished) => return Ok(plain(finished.reply)),
        };
        let (head, folded) = events.fold().await;
        let reply = match folded {
            Ok(reply) => reply,
            Err(fault) => return Ok(plain(head.error(&fault))),
        };
        if let Some(fault) = unfinished(reply.reason.as_ref()) {
            return Ok(plain(head.error(&fault)));
        }
        let texts = reply.content.iter().filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        let summary = texts.collect::<Vec<_>>().join("\n");
        if summary.trim().is_empty() {
            let fault = Fault::new(FaultKind::Unreachable, "the model wrote no summary; try again");
            return Ok(plain(head.error(&fault)));
        }
        let sealed = self.gateway.envelopes.seal_summary(&summary);
        let body = compacted(&random::id(), unix_ms() / 1000, items, &sealed, &reply.usage);
        Ok(plain(head.whole(ReplyBody::whole(body.to_string()))))
    }
}

/// The fault of a summary that ended for this reason. Half of one, or the words of a refusal, must not
/// stand for the whole conversation.
fn unfinished(reason: Option<&EndReason>) -> Option<Fault> {
    let why = match reason {
        Some(EndReason::Stop | EndReason::StopSequence) => return None,
        Some(EndReason::Length) => "it reached its output limit",
        Some(EndReason::Refusal) => "it refused",
        _ => "it ended in another way",
    };
    let message =
        format!("the model did not finish the summary: {why}; the conversation is unchanged");
    Some(Fault::new(FaultKind::Unreachable, message))
}

/// The backend that answered.
fn backend_of(reply: &Reply) -> String {
    let name = reply.headers().get(BACKEND).and_then(|name| name.to_str().ok());
    name.unwrap_or_default().to_owned()
}

/// A compaction on its way to the client.
struct CompactionCopy {
    gateway: Arc<Gateway>,
    backend: String,
    incoming: IncomingRequest,
    conversation: Request,
    bytes: Vec<u8>,
    end: EndDetector,
}

impl ReplyCopy for CompactionCopy {
    fn push(&mut self, piece: &[u8]) {
        if self.bytes.len() < MAX_REPLY_BYTES {
            self.bytes.extend_from_slice(piece);
        }
        self.end.push(piece);
    }

    fn has_ended(&self) -> bool {
        self.end.is_complete()
    }

    async fn store(self, _: bool) {
        let reply: Value = serde_json::from_slice(&self.bytes).unwrap_or_default();
        for item in output(&reply) {
            if let Some(compaction) = Compaction::read(openai_responses::NAME, item) {
                let Self { gateway, backend, incoming, conversation, .. } = &self;
                gateway.remember_compaction(backend, incoming, conversation, &compaction);
            }
        }
    }
}
