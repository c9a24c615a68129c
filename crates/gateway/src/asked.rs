//! A request as it came, and as it was read.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Method, header};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::anthropic::outline::Outline;
use throughline_codec::framing::encoding::{Encoding, EncodingError, unpack};

use crate::settings::Settings;
use crate::thinking::Lineage;

/// A request as it came.
#[derive(Debug)]
pub struct Asked {
    /// Its method.
    pub method: Method,
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
}

/// A request that was read, with where it belongs.
pub(crate) struct Read {
    pub(crate) asked: Asked,
    /// The body as it came, maybe compressed.
    pub(crate) raw: Bytes,
    /// The body, readable.
    pub(crate) body: Bytes,
    pub(crate) outline: Outline,
    pub(crate) lineage: Lineage,
    /// Whether it is part of the conversation; token counts are not.
    pub(crate) counts: bool,
}

/// Reads a request; refuses what cannot be understood.
pub(crate) fn read(settings: &Settings, asked: Asked, raw: Bytes) -> Result<Read, Fault> {
    let encoding = content_encoding(&asked.headers).ok_or_else(|| {
        Fault::invalid("this content-encoding is not known; gzip, deflate, br and zstd are")
    })?;
    let body = match encoding {
        Encoding::Identity => raw.clone(),
        packed => match unpack(packed, &raw, settings.limits.body) {
            Ok(body) => body.into(),
            Err(error @ EncodingError::TooLarge { .. }) => {
                return Err(Fault::new(FaultKind::TooLarge, error.to_string()));
            }
            Err(error) => return Err(Fault::invalid(error.to_string())),
        },
    };
    let outline = Outline::read(&body, settings.limits.json_depth)?;
    let lineage = Lineage::find(&asked.headers, &body, &outline);
    Ok(Read {
        counts: asked.path == "/v1/messages",
        asked,
        raw,
        body,
        outline,
        lineage,
    })
}

/// None if it is not known.
pub(crate) fn content_encoding(headers: &HeaderMap) -> Option<Encoding> {
    match headers.get(header::CONTENT_ENCODING) {
        None => Some(Encoding::Identity),
        Some(value) => Encoding::from_header(value.to_str().ok()?),
    }
}
