//! Cross-origin requests (CORS): which web pages may call this server from a browser. Clients outside
//! browsers are not affected.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::admin_api::is_operator_path;
use crate::wiring::App;

/// Browsers ask with this header before a public page may call a server in a private network.
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");
const ALLOWED_METHODS: HeaderValue =
    HeaderValue::from_static("GET, HEAD, POST, PATCH, DELETE, OPTIONS");
/// Browsers accept `*` here because no cookies are involved.
const ALL_HEADERS: HeaderValue = HeaderValue::from_static("*");
/// Seconds a browser may cache a preflight; most browsers cap it at two hours.
const MAX_AGE: HeaderValue = HeaderValue::from_static("7200");
/// Content types that an HTML form can send, and that need no preflight for this reason.
const FORM_TYPES: [&str; 3] =
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// The origins in `cors_origins`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

impl Origins {
    /// Takes origins in lower case; `*` allows every origin.
    pub fn new(origins: &[String]) -> Self {
        Self(origins.to_vec())
    }

    /// The origin of a request, if its pages may call this server.
    pub fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let matches = |allowed: &String| {
            allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes())
        };
        self.0.iter().any(matches).then(|| origin.clone())
    }
}

/// How many refused origins are remembered.
const MAX_REFUSED: usize = 100;
/// How many bytes of an origin are logged.
const MAX_ORIGIN_BYTES: usize = 200;

/// What a page was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedUse {
    /// The paths of clients.
    Client,
    /// The paths of operators.
    Operator,
}

/// The origins whose pages were refused. Each is logged once.
#[derive(Debug, Default)]
pub struct RefusedOrigins(Mutex<HashSet<(RefusedUse, String)>>);

impl RefusedOrigins {
    /// Logs a refused page with the setting that would allow it, unless its origin was logged
    /// before.
    pub fn report(&self, refused: RefusedUse, headers: &HeaderMap) {
        let origin = headers.get(header::ORIGIN).map(HeaderValue::as_bytes).unwrap_or_default();
        let origin = String::from_utf8_lossy(&origin[..origin.len().min(MAX_ORIGIN_BYTES)]);
        {
            let mut seen = self.0.lock();
            if seen.len() == MAX_REFUSED || !seen.insert((refused, origin.clone().into_owned())) {
                return;
            }
        }
        match refused {
            RefusedUse::Client => tracing::warn!(
                %origin,
                "refused a web page of another origin; to allow it, add its origin to `cors_origins`"
            ),
            RefusedUse::Operator => tracing::warn!(
                %origin,
                "refused a web page of another origin; the paths of operators are never open to pages"
            ),
        }
    }
}

/// Whether a browser sends such a request without a preflight. The page cannot read the reply, but
/// the request still takes effect.
pub fn is_simple_request(method: &Method, headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return method == Method::POST;
    };
    let bytes = content_type.as_bytes();
    let media_type = bytes.split(|byte| *byte == b';').next().unwrap_or(bytes).trim_ascii();
    let is_form = FORM_TYPES.iter().any(|form| form.as_bytes().eq_ignore_ascii_case(media_type));
    method == Method::POST && (media_type.is_empty() || is_form)
}

/// Answers preflights and adds the CORS headers to replies. Operators' paths get none: only pages of
/// this server may call them.
pub async fn cors_layer(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let allowed = app.allowed_origin(request.headers());
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let Some(origin) = allowed.filter(|_| !is_operator_path(request.uri().path())) else {
        let asks = is_preflight && app.is_cross_origin(request.headers());
        let preflight_headers = asks.then(|| request.headers().clone());
        let response = next.run(request).await;
        // A provider may have answered the preflight, if callers use their own keys.
        if let Some(preflight_headers) = preflight_headers
            && !response.headers().contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN)
        {
            app.refused_origins.report(RefusedUse::Client, &preflight_headers);
        }
        return response;
    };
    let mut response =
        if is_preflight { preflight(request.headers()) } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ALL_HEADERS);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

fn preflight(request: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOWED_METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    if let Some(names) = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        // Listed by name, because `*` does not include `authorization`.
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if request.contains_key(REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}
