//! A request as it arrived ([`IncomingRequest`]), and as it was parsed (`ParsedRequest`).

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use throughline_canonical::{Fault, FaultKind, Request};
use throughline_codec::dialects::blocks::outline::Outline;
use throughline_codec::dialects::opaque_outline::OpaqueOutline;
use throughline_codec::dialects::{self, Accepted, ClientDialect, Operation};
use throughline_codec::framing::encoding::{Encoding, EncodingError, unpack};
use throughline_codec::json::{JsonError, validate};
use tracing::Span;

use crate::backend::credential_fingerprint;
use crate::headers::callers_key;
use crate::settings::Settings;
use crate::thinking::Lineage;
use crate::thinking::vault::Scope;
use crate::turn::span::turn_span;

/// A request as it arrived, without its body.
#[derive(Clone, Debug)]
pub struct IncomingRequest {
    /// The id of its turn, as in `x-throughline-turn`. Log lines have it before the turn begins, too.
    pub id: String,
    /// The HTTP method.
    pub method: Method,
    /// The client's dialect.
    pub dialect: &'static dyn ClientDialect,
    /// The path in the dialect, such as `/v1/messages`.
    pub path: String,
    /// The query string.
    pub query: Option<String>,
    /// The client's headers.
    pub headers: HeaderMap,
    /// The backend that the request names, by header or path.
    pub pin: Option<String>,
    /// Whether nothing of it may reach the log, the thinking memory or the vault: a sealed project.
    pub private: bool,
    /// When the request arrived.
    pub began: Instant,
}

impl IncomingRequest {
    /// The span of its turn, for what is done before the turn begins.
    pub fn span(&self) -> Span {
        turn_span(&self.id)
    }

    /// The parts that the dialect reads.
    fn parts<'a>(&'a self, body: &'a [u8]) -> dialects::RequestParts<'a> {
        dialects::RequestParts {
            path: &self.path,
            query: self.query.as_deref().unwrap_or_default(),
            body,
            max_depth: None,
        }
    }
}

/// A request after parsing. Many fields: the lanes read different views of the
/// same body.
pub(crate) struct ParsedRequest {
    pub(crate) incoming: IncomingRequest,
    /// The body as it arrived. It may be compressed.
    pub(crate) raw: Bytes,
    /// The body, decompressed.
    pub(crate) body: Bytes,
    /// The position of every block, for the dialect whose bodies are edited block by block.
    pub(crate) outline: Option<Outline>,
    /// The positions of opaque parts, for the other dialects, found when they are first needed.
    opaque_outline: OnceLock<Option<OpaqueOutline>>,
    /// The canonical request, parsed when it is first needed.
    canonical: OnceLock<Result<Arc<Accepted>, Fault>>,
    pub(crate) lineage: Lineage,
    /// Whose turns the vault may restore.
    pub(crate) scope: Scope,
    /// The model that the request names.
    pub(crate) model: Option<String>,
    /// The backend that the request names, by header, path or body.
    pub(crate) pin: Option<String>,
    /// Whether the client asked for a stream.
    pub(crate) stream: bool,
    pub(crate) operation: Operation,
    /// Whether the request is part of the conversation. Token counts are not.
    pub(crate) in_conversation: bool,
}

impl ParsedRequest {
    /// A parsed request without any view of its body. `known` is its canonical form.
    fn new(incoming: IncomingRequest, lineage: Lineage, known: Option<&Request>) -> Self {
        let operation = incoming.dialect.operation(&incoming.path).unwrap_or(Operation::Generate);
        let model = known.map(|request| request.model.clone());
        Self {
            raw: Bytes::new(),
            body: Bytes::new(),
            outline: None,
            opaque_outline: None.into(),
            canonical: OnceLock::new(),
            scope: scope(lineage, &incoming),
            lineage,
            model: model.filter(|model| !model.is_empty()),
            pin: incoming.pin.clone().or_else(|| known?.backend.clone()),
            stream: known.is_some_and(|request| request.stream),
            operation,
            in_conversation: operation == Operation::Generate && !incoming.private,
            incoming,
        }
    }

    /// The canonical request.
    pub(crate) fn canonical(&self) -> Result<&Arc<Accepted>, Fault> {
        let canonical = self.canonical.get_or_init(|| {
            let parts = self.incoming.parts(&self.body);
            self.incoming.dialect.read_request(&parts).map(Arc::new)
        });
        canonical.as_ref().map_err(Clone::clone)
    }

    /// The positions of opaque parts. `None` if the dialect has an outline of every block, or none
    /// at all.
    pub(crate) fn opaque_outline(&self) -> Option<&OpaqueOutline> {
        let read = || read_opaque_outline(&self.incoming, &self.body);
        self.opaque_outline.get_or_init(read).as_ref()
    }
}

/// The body of a request, decompressed if needed.
pub fn decompress_body(
    settings: &Settings,
    headers: &HeaderMap,
    raw: &Bytes,
) -> Result<Bytes, Fault> {
    let encoding = content_encoding(headers).ok_or_else(|| {
        Fault::invalid("unsupported content-encoding; use gzip, deflate, br or zstd")
    })?;
    if encoding == Encoding::Identity {
        return Ok(raw.clone());
    }
    match unpack(encoding, raw, settings.limits.body) {
        Ok(body) => Ok(body.into()),
        Err(error @ EncodingError::TooLarge { .. }) => {
            Err(Fault::new(FaultKind::TooLarge, error.to_string()))
        }
        Err(error) => Err(Fault::invalid(error.to_string())),
    }
}

/// The content of a request.
#[derive(Debug)]
pub enum RequestContent {
    /// The body as it arrived.
    Body(Bytes),
    /// A request that was read already. There is no body to edit, so its turn is translated.
    Accepted(Arc<Accepted>),
}

impl From<Bytes> for RequestContent {
    fn from(body: Bytes) -> Self {
        Self::Body(body)
    }
}

impl From<Accepted> for RequestContent {
    fn from(accepted: Accepted) -> Self {
        Self::Accepted(Arc::new(accepted))
    }
}

/// Parses a request. Rejects what cannot be understood.
pub(crate) fn read_request(
    settings: &Settings,
    incoming: IncomingRequest,
    content: RequestContent,
) -> Result<ParsedRequest, Fault> {
    let raw = match content {
        RequestContent::Body(raw) => raw,
        RequestContent::Accepted(accepted) => {
            let request = &accepted.request;
            let lineage = Lineage::of_request(&incoming.headers, request);
            let parsed = ParsedRequest::new(incoming, lineage, Some(request));
            return Ok(ParsedRequest { canonical: Ok(accepted).into(), ..parsed });
        }
    };
    let body = decompress_body(settings, &incoming.headers, &raw)?;
    // This dialect is edited block by block, so its body need not be fully understood.
    if incoming.dialect.name() == dialects::blocks::DIALECT.name() {
        let outline = Outline::read(&body, settings.limits.json_depth)?;
        if outline.thread.is_some() {
            return Err(dialects::blocks::thread_refusal());
        }
        let lineage = Lineage::find(&incoming.headers, &body, &outline);
        return Ok(ParsedRequest {
            model: outline.model.as_ref().map(|model| model.name.clone()),
            stream: outline.stream,
            outline: Some(outline),
            raw,
            body,
            ..ParsedRequest::new(incoming, lineage, None)
        });
    }
    let max_depth = Some(settings.limits.json_depth);
    let parts = dialects::RequestParts { max_depth, ..incoming.parts(&body) };
    let canonical = incoming.dialect.read_request(&parts).map(Arc::new);
    if canonical.is_err() {
        check_json(settings, &body)?;
    }
    let opaque_outline = OnceLock::new();
    let outline = || opaque_outline.get_or_init(|| read_opaque_outline(&incoming, &body)).as_ref();
    // Members that have no canonical form can still pass to a provider of the same dialect. For any
    // other provider they are a fault.
    let empty = Request::default();
    let (known, stream) = match &canonical {
        Ok(accepted) => (&accepted.request, accepted.request.stream),
        Err(fault) => (&empty, outline().ok_or_else(|| fault.clone())?.stream),
    };
    let model = match known.model.as_str() {
        "" => outline().and_then(|outline| outline.model_name(&body)),
        model => Some(model.to_owned()),
    };
    let lineage = Lineage::of_request(&incoming.headers, known);
    let parsed = ParsedRequest::new(incoming, lineage, Some(known));
    Ok(ParsedRequest {
        model,
        stream,
        opaque_outline,
        canonical: canonical.into(),
        raw,
        body,
        ..parsed
    })
}

/// Rejects JSON that is nested too deeply or is not UTF-8. The dialect reports all other mistakes in
/// its own format.
pub fn check_json(settings: &Settings, body: &[u8]) -> Result<(), Fault> {
    match validate(body, settings.limits.json_depth) {
        Err(error @ (JsonError::TooDeep(_) | JsonError::NotUtf8(_))) => {
            Err(Fault::invalid(error.to_string()))
        }
        _ => Ok(()),
    }
}

fn scope(lineage: Lineage, incoming: &IncomingRequest) -> Scope {
    Scope::new(lineage.id, credential_fingerprint(&callers_key(incoming)))
}

fn read_opaque_outline(incoming: &IncomingRequest, body: &[u8]) -> Option<OpaqueOutline> {
    dialects::passthrough(incoming.dialect.name())?.outline(&incoming.parts(body))
}

/// The encoding of a body. `None` if it is unknown.
pub(crate) fn content_encoding(headers: &HeaderMap) -> Option<Encoding> {
    match headers.get(header::CONTENT_ENCODING) {
        None => Some(Encoding::Identity),
        Some(value) => Encoding::from_header(value.to_str().ok()?),
    }
}
