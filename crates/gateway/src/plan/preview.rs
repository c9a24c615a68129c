//! The preview of a request: what would be sent, and why. Nothing is sent, and nothing is remembered.

use std::collections::BTreeMap;

use http::{HeaderMap, Method};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use throughline_canonical::{Fault, FaultKind};
use throughline_codec::dialects::client_headers::KEYS;

use crate::plan::{Plan, report};
use crate::turn::Attempt;
use crate::upstream::SendError;

/// A request that could be sent.
#[derive(Clone, Debug, Serialize)]
pub struct Preview {
    /// What happens to each block and setting, as `POST /v1/plan` reports it.
    pub report: Value,
    /// The HTTP method.
    pub method: String,
    /// The path at the provider.
    pub path: String,
    /// The query. It never holds a key.
    pub query: Option<String>,
    /// The headers, without those that carry a key.
    pub headers: BTreeMap<String, String>,
    /// The exact bytes of the body, which are JSON; a JSON string if they are not.
    pub body: Box<RawValue>,
}

impl Preview {
    /// The preview of a translated request.
    pub(crate) fn new(plan: &dyn Plan, attempt: &Attempt<'_>) -> Result<Self, Fault> {
        let outbound = plan.outbound(attempt);
        let backend = &attempt.backend;
        let address = backend.address(&outbound.path, outbound.query.as_deref());
        let address = address.map_err(|error| {
            SendError::Unreachable { backend: backend.name.clone(), cause: error.into() }.fault()
        })?;
        Ok(Self {
            report: report(plan, attempt),
            method: Method::POST.to_string(),
            path: address.path().to_owned(),
            query: address.query().map(ToOwned::to_owned),
            headers: without_keys(&outbound.headers),
            body: json_body(&outbound.body)?,
        })
    }
}

/// The headers, without those that carry a key.
fn without_keys(headers: &HeaderMap) -> BTreeMap<String, String> {
    let is_shown = |name: &str| !KEYS.contains(&name);
    headers
        .iter()
        .filter(|(name, value)| is_shown(name.as_str()) && !value.is_sensitive())
        .map(|(name, value)| {
            (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}

/// The body as JSON, byte for byte if it is JSON.
fn json_body(body: &[u8]) -> Result<Box<RawValue>, Fault> {
    if let Ok(json) = serde_json::from_slice::<&RawValue>(body) {
        return Ok(json.to_owned());
    }
    let text = String::from_utf8_lossy(body);
    to_raw_value(&text).map_err(|error| Fault::new(FaultKind::Internal, error.to_string()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn headers_with_a_key_are_not_shown() {
        let mut headers = HeaderMap::new();
        for name in KEYS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("sk-secret"));
        }
        let mut marked = HeaderValue::from_static("sk-secret");
        marked.set_sensitive(true);
        headers.insert("x-own-key", marked);
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let shown: Vec<_> = without_keys(&headers).into_iter().collect();
        assert_eq!(shown, [("content-type".to_owned(), "application/json".to_owned())]);
    }

    #[test]
    fn body_keeps_its_bytes_and_other_text_becomes_a_string() {
        let text = |body: &[u8]| json_body(body).unwrap().get().to_owned();
        assert_eq!(text(br#"{"b":1.0,"a":"\u00e9"}"#), r#"{"b":1.0,"a":"\u00e9"}"#);
        assert_eq!(text(b"half {"), r#""half {""#);
        assert_eq!(text(b""), r#""""#);
    }
}
