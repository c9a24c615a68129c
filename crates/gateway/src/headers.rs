//! Which headers pass to the backend, and which pass back to the client.

use http::{HeaderMap, HeaderName, HeaderValue, header};

use throughline_codec::dialects::blocks::{BETA_HEADER, is_adaptive_beta};
use throughline_codec::dialects::client_headers::{KEYS, key_in_query};

use crate::backend::{Auth, Backend};
use crate::turn::request::IncomingRequest;

/// The prefix of the gateway's own headers. They are never forwarded in either direction.
pub const OWN_PREFIX: &str = "x-throughline-";
/// The id of the turn.
pub const TURN: HeaderName = HeaderName::from_static("x-throughline-turn");
/// The conversation of a request, named by its client.
pub const CONVERSATION: &str = "x-throughline-conversation";
/// The backend that answered, or that the client asks for.
pub const BACKEND: HeaderName = HeaderName::from_static("x-throughline-backend");
/// The backend that answered, if it is not the one that was chosen first.
pub const FALLBACK: HeaderName = HeaderName::from_static("x-throughline-fallback");
/// The losses that the client accepts.
pub const ACCEPT_LOSS: &str = "x-throughline-accept-loss";
/// The losses of the turn.
pub const LOSS: HeaderName = HeaderName::from_static("x-throughline-loss");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const IDENTITY: HeaderValue = HeaderValue::from_static("identity");
const BETA: HeaderName = HeaderName::from_static(BETA_HEADER);

/// Headers of one connection. They are never forwarded.
pub const HOP_BY_HOP: [&str; 9] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers of a turn for which the gateway has values of its own.
pub const OWN_VALUES: [&str; 4] = ["host", "content-length", "expect", "accept-encoding"];

/// How a request body is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body {
    /// The gateway reads the body and its reply.
    Read,
    /// The body is forwarded unread.
    Forwarded,
}

fn is_forwarded(name: &HeaderName, named_by_connection: &[String]) -> bool {
    let name = name.as_str();
    !HOP_BY_HOP.contains(&name)
        && !name.starts_with(OWN_PREFIX)
        && !named_by_connection.iter().any(|named| named == name)
}

fn named_by_connection(headers: &HeaderMap) -> Vec<String> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect()
}

/// The headers that go to a backend.
pub fn upstream(client: &HeaderMap, backend: &Backend, body: Body) -> HeaderMap {
    let named = named_by_connection(client);
    let mut headers = HeaderMap::with_capacity(client.len());
    for (name, value) in client {
        let ours = match name.as_str() {
            // The gateway reads the reply while it passes, so it must not be compressed.
            "accept-encoding" => body == Body::Read,
            name if KEYS.contains(&name) => backend.auth != Auth::Passthrough,
            name => OWN_VALUES.contains(&name),
        };
        if !ours && is_forwarded(name, &named) {
            headers.append(name, value.clone());
        }
    }
    if body == Body::Read {
        headers.insert(header::ACCEPT_ENCODING, IDENTITY);
    }
    if let Auth::Key(key) = &backend.auth {
        let (name, key) = backend.profile.key_header(key);
        if let Ok(mut value) = HeaderValue::from_str(&key) {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }
    add_required(&mut headers, backend);
    headers
}

/// Adds the headers that the backend requires and the request does not have.
fn add_required(headers: &mut HeaderMap, backend: &Backend) {
    for (name, value) in backend.profile.headers {
        headers.entry(*name).or_insert(HeaderValue::from_static(value));
    }
}

/// The headers that go to a client. CORS headers of a backend are forwarded only if callers use
/// their own keys. Otherwise the gateway decides who may use its key.
pub fn client(upstream: &HeaderMap, auth: &Auth) -> HeaderMap {
    let named = named_by_connection(upstream);
    let allows = |name: &HeaderName| {
        *auth == Auth::Passthrough || !name.as_str().starts_with("access-control-")
    };
    upstream
        .iter()
        .filter(|(name, _)| is_forwarded(name, &named) && allows(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// The headers of a translated request. Apart from betas, none of the client's headers apply.
pub fn translated(
    incoming: &IncomingRequest,
    backend: &Backend,
    more: &[(&'static str, String)],
) -> HeaderMap {
    let key = credential(incoming, backend);
    let key = (!key.is_empty()).then(|| backend.profile.key_header(&key));
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::ACCEPT_ENCODING, IDENTITY);
    for (name, value) in more.iter().chain(&key) {
        if let Ok(mut value) = HeaderValue::from_str(value) {
            value.set_sensitive(key.as_ref().is_some_and(|key| key.0 == *name));
            headers.insert(*name, value);
        }
    }
    add_required(&mut headers, backend);
    // The client's own members may need its betas.
    if incoming.dialect.name() == backend.dialect.name() {
        let betas = incoming.headers.get_all(BETA).iter().filter_map(|value| value.to_str().ok());
        let betas: Vec<&str> = betas.flat_map(|value| value.split(',')).map(str::trim).collect();
        patch_betas(&mut headers, &betas, false);
    }
    headers
}

/// The credential that a request carries to a backend.
pub fn credential(incoming: &IncomingRequest, backend: &Backend) -> String {
    match &backend.auth {
        Auth::None | Auth::Missing(_) => String::new(),
        Auth::Key(key) => key.clone(),
        Auth::Passthrough => callers_key(incoming),
    }
}

/// The key that a caller presents, in any header or in the query. Empty if there is none.
pub fn callers_key(incoming: &IncomingRequest) -> String {
    KEYS.iter()
        .find_map(|name| incoming.headers.get(*name))
        .and_then(|value| value.to_str().ok())
        .map(|value| without_scheme(value).to_owned())
        .or_else(|| key_in_query(incoming.query.as_deref()?))
        .unwrap_or_default()
}

/// A key without its scheme. The scheme may be in any letter case.
fn without_scheme(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        _ => value,
    }
}

/// Edits the beta header. Leaves it byte for byte if there is nothing to change.
pub fn patch_betas(headers: &mut HeaderMap, added: &[&str], without_adaptive: bool) {
    let entries: Vec<String> = headers
        .get_all(BETA)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|entry| entry.trim().to_owned())
        .filter(|entry| !entry.is_empty())
        .collect();
    let missing: Vec<&&str> =
        added.iter().filter(|added| !entries.iter().any(|entry| entry == **added)).collect();
    let surplus = without_adaptive && entries.iter().any(|entry| is_adaptive_beta(entry));
    if missing.is_empty() && !surplus {
        return;
    }
    let kept = entries.iter().map(String::as_str);
    let kept = kept.filter(|entry| !(without_adaptive && is_adaptive_beta(entry)));
    let value = kept.chain(missing.into_iter().copied()).collect::<Vec<_>>().join(",");
    headers.remove(BETA);
    if let Ok(value) = HeaderValue::from_str(&value)
        && !value.is_empty()
    {
        headers.insert(BETA, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(rows: &[(&'static str, &'static str)]) -> HeaderMap {
        rows.iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    fn betas(before: &'static str, added: &[&str], without_adaptive: bool) -> String {
        let mut map = headers(&[("anthropic-beta", before)]);
        patch_betas(&mut map, added, without_adaptive);
        map.get(BETA).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }

    #[test]
    fn beta_header_changes_only_if_needed() {
        assert_eq!(betas("a , b", &[], true), "a , b");
        assert_eq!(betas("a,b", &["b"], false), "a,b");
        assert_eq!(betas("a,adaptive-thinking-2026-01-28", &["i"], true), "a,i");
        assert_eq!(betas("adaptive-thinking-2026-01-28", &[], true), "");
        assert_eq!(betas("", &["i"], false), "i");
    }

    #[test]
    fn connection_headers_are_not_forwarded() {
        let upstream = headers(&[
            ("connection", "close, x-private"),
            ("x-private", "1"),
            ("transfer-encoding", "chunked"),
            ("x-throughline-turn", "forged"),
            ("request-id", "req_1"),
            ("anthropic-ratelimit-tokens-limit", "5"),
        ]);
        let down = client(&upstream, &Auth::None);
        let names: Vec<&str> = down.keys().map(HeaderName::as_str).collect();
        assert_eq!(names, ["request-id", "anthropic-ratelimit-tokens-limit"]);
    }
}
