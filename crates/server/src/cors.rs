//! Pages on other origins. Browsers let them read our replies only where we say so; nobody else is
//! concerned.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};

use crate::admin_api::is_operators;
use crate::wiring::House;

/// What a browser wants to know of a server at home before a public page may call it.
const PRIVATE_NETWORK_WISH: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, DELETE, OPTIONS");
/// No cookie is ever asked for, so the star holds.
const ALL: HeaderValue = HeaderValue::from_static("*");
/// How many seconds browsers may remember what they were told; most take no more.
const REMEMBERED: HeaderValue = HeaderValue::from_static("7200");
/// What a form can send, and therefore every page.
const FORM_TYPES: [&str; 3] =
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"];

/// The pages that may use this server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origins(Vec<String>);

impl Origins {
    /// These, and `*` for all.
    pub fn new(origins: &[String]) -> Self {
        Self(origins.to_vec())
    }

    /// The origin of a request, if pages of it may use this server.
    pub fn allowed(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        let named = |allowed: &String| {
            allowed == "*" || allowed.as_bytes().eq_ignore_ascii_case(origin.as_bytes())
        };
        self.0.iter().any(named).then(|| origin.clone())
    }
}

/// Whether a browser lets any page send such a request without asking us first. The page cannot read the
/// answer, but whatever the request does is done.
pub fn comes_unasked(method: &Method, headers: &HeaderMap) -> bool {
    let Some(content_type) = headers.get(header::CONTENT_TYPE) else {
        return method == Method::POST;
    };
    let bytes = content_type.as_bytes();
    let kind = bytes.split(|byte| *byte == b';').next().unwrap_or(bytes);
    let kind = kind.trim_ascii();
    let is_a_forms = FORM_TYPES.iter().any(|form| form.as_bytes().eq_ignore_ascii_case(kind));
    method == Method::POST && (kind.is_empty() || is_a_forms)
}

/// Answers what browsers ask beforehand, and tells them which replies a page may read. The operator's
/// paths are for our own pages.
pub async fn permit(State(house): State<Arc<House>>, request: Request, next: Next) -> Response {
    let operators = is_operators(request.uri().path());
    let origin = house.page(request.headers()).filter(|_| !operators);
    let asks_beforehand = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let Some(origin) = origin else {
        return next.run(request).await;
    };
    let mut response =
        if asks_beforehand { promised(request.headers()) } else { next.run(request).await };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ALL);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}

/// The answer to a browser that asks whether a page may ask.
fn promised(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBERED);
    if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        // By name: the star leaves out `authorization`.
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
    }
    if asked.contains_key(PRIVATE_NETWORK_WISH) {
        headers.insert(PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}
