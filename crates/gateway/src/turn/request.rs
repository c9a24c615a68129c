//! A request as it came, and as it was read.

use std::sync::OnceLock;
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use throughline_canonical::{Fault, FaultKind, Lossy, Request};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::dialects::opaque_outline::OpaqueOutline;
use throughline_codec::dialects::{self, ClientDialect, Operation};
use throughline_codec::framing::encoding::{Encoding, EncodingError, unpack};
use throughline_codec::json::{JsonError, validate};

use crate::backend::credential_fingerprint;
use crate::headers::callers_key;
use crate::settings::Settings;
use crate::thinking::Lineage;
use crate::thinking::vault::Scope;

/// A request as it came.
#[derive(Debug)]
pub struct IncomingRequest {
    /// Its method.
    pub method: Method,
    /// The dialect it is written in.
    pub dialect: &'static dyn ClientDialect,
    /// Its path in the dialect, such as `/v1/messages`.
    pub path: String,
    /// Its query.
    pub query: Option<String>,
    /// Its headers.
    pub headers: HeaderMap,
    /// The backend it names, by header or path.
    pub pin: Option<String>,
    /// When it came.
    pub began: Instant,
    /// The id its reply has to bear, given by whoever keeps the turn. Such a request goes across, whatever
    /// the backend speaks: then all of its reply is ours.
    pub reply_id: Option<String>,
}

impl IncomingRequest {
    /// What its dialect reads of it.
    fn words<'a>(&'a self, body: &'a [u8]) -> dialects::RequestParts<'a> {
        dialects::RequestParts {
            path: &self.path,
            query: self.query.as_deref().unwrap_or_default(),
            body,
        }
    }
}

/// A request that was read, with where it belongs.
pub(crate) struct ParsedRequest {
    pub(crate) asked: IncomingRequest,
    /// The body as it came, maybe compressed.
    pub(crate) raw: Bytes,
    /// The body, readable.
    pub(crate) body: Bytes,
    /// Where everything stands in it, for dialects whose bodies are edited in place.
    pub(crate) outline: Option<Outline>,
    /// Where marks stand in it, for the other dialects.
    pub(crate) places: Option<OpaqueOutline>,
    /// What it says, once somebody wants to know.
    request: OnceLock<Result<Lossy<Request>, Fault>>,
    pub(crate) lineage: Lineage,
    /// Whose turns the vault may bring back.
    pub(crate) scope: Scope,
    /// The model it names.
    pub(crate) model: Option<String>,
    /// The backend it names, by header, path or body.
    pub(crate) pin: Option<String>,
    /// Whether the answer is wanted as it is written.
    pub(crate) stream: bool,
    pub(crate) wanted: Operation,
    /// Whether it is part of the conversation; token counts are not.
    pub(crate) in_conversation: bool,
}

impl ParsedRequest {
    /// What the request says.
    pub(crate) fn request(&self) -> Result<&Lossy<Request>, Fault> {
        let read = self.request.get_or_init(|| canonical(&self.asked, &self.body));
        read.as_ref().map_err(Clone::clone)
    }
}

/// The body of a request, unpacked where it came compressed.
pub fn readable(settings: &Settings, headers: &HeaderMap, raw: &Bytes) -> Result<Bytes, Fault> {
    let encoding = content_encoding(headers).ok_or_else(|| {
        Fault::invalid("this content-encoding is not known; gzip, deflate, br and zstd are")
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

/// Reads a request; refuses what cannot be understood.
pub(crate) fn read(
    settings: &Settings,
    asked: IncomingRequest,
    raw: Bytes,
) -> Result<ParsedRequest, Fault> {
    let body = readable(settings, &asked.headers, &raw)?;
    let wanted = asked.dialect.operation(&asked.path).unwrap_or(Operation::Generate);
    let request = OnceLock::new();
    // One dialect is edited in place and need not be understood to the last word.
    if asked.dialect.name() == dialects::anthropic::NAME {
        let outline = Outline::read(&body, settings.limits.json_depth)?;
        let lineage = Lineage::find(&asked.headers, &body, &outline);
        return Ok(ParsedRequest {
            scope: scope(lineage, &asked),
            lineage,
            model: outline.model.as_ref().map(|model| model.name.clone()),
            pin: asked.pin.clone(),
            stream: outline.stream,
            outline: Some(outline),
            places: None,
            in_conversation: wanted == Operation::Generate,
            wanted,
            request,
            asked,
            raw,
            body,
        });
    }
    // Whatever else is wrong with it, the dialect says in its own words.
    if let Err(error @ (JsonError::TooDeep(_) | JsonError::NotUtf8(_))) =
        validate(&body, settings.limits.json_depth)
    {
        return Err(Fault::invalid(error.to_string()));
    }
    let said = canonical(&asked, &body);
    let places = dialects::passthrough(asked.dialect.name())
        .and_then(|dialect| dialect.places(&asked.words(&body)));
    // What has no word here may still pass to a provider of the same dialect; to any other, it is a fault.
    let (empty, stream) = (Request::default(), places.as_ref().map(|places| places.stream));
    let known = match (&said, &places) {
        (Ok(said), _) => &said.value,
        (Err(_), Some(_)) => &empty,
        (Err(fault), None) => return Err(fault.clone()),
    };
    let model = match known.model.as_str() {
        "" => places.as_ref().and_then(|places| places.model_name(&body)),
        model => Some(model.to_owned()),
    };
    let lineage = Lineage::of_request(&asked.headers, known);
    let read = ParsedRequest {
        scope: scope(lineage, &asked),
        lineage,
        model,
        pin: asked.pin.clone().or_else(|| known.backend.clone()),
        stream: stream.unwrap_or(known.stream),
        outline: None,
        places,
        in_conversation: wanted == Operation::Generate,
        wanted,
        request,
        asked,
        raw,
        body,
    };
    let _ = read.request.set(said);
    Ok(read)
}

fn scope(lineage: Lineage, asked: &IncomingRequest) -> Scope {
    Scope::new(lineage.id, credential_fingerprint(&callers_key(asked)))
}

fn canonical(asked: &IncomingRequest, body: &[u8]) -> Result<Lossy<Request>, Fault> {
    asked.dialect.read_request(&asked.words(body))
}

/// None if it is not known.
pub(crate) fn content_encoding(headers: &HeaderMap) -> Option<Encoding> {
    match headers.get(header::CONTENT_ENCODING) {
        None => Some(Encoding::Identity),
        Some(value) => Encoding::from_header(value.to_str().ok()?),
    }
}
